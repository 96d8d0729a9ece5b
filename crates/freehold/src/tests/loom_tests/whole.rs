//! Blocks that become whole, are taken whole, and are split again; runs of them.

use super::*;
use crate::zone::moving::Movers;

/// Right frees of a block that was taken whole: both CPUs make a split one of it.
#[test]
fn two_free_parts_of_a_block_taken_whole() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        let free = move |c, n| free(fh, c, Pfn::new(block + n), 0);
        together::<()>(roles![move || free(0, 0), move || free(1, 1)]);
        settled(fh, 510);
    });
}

#[test]
fn a_block_freed_as_a_whole_while_all_is_drained() {
    model(|| {
        let fh = small(false);
        let block = take(fh, 0, 9);
        together::<()>(roles![move || fh.drain_all(), move || free(fh, 1, block, 9)]);
        settled(fh, 0);
    });
}

#[test]
fn the_last_frame_comes_back_while_all_is_drained() {
    model(|| {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.drain_all();
        together::<()>(roles![move || fh.drain_all(), move || free(fh, 1, frame, 0)]);
        settled(fh, 0);
        fh.drain_all();
        assert_eq!(
            fh.zone_blocks(0).unwrap().free_blocks,
            2,
            "the block was not known to be whole"
        );
    });
}

/// A free completes its block and is about to tell of it; meanwhile that is taken whole, and a part
/// of it is freed again.
#[test]
fn a_block_is_taken_and_freed_while_a_free_tells_of_it() {
    model(|| {
        let fh = machine(false, 512);
        let (frame, word) = (take(fh, 0, 0), take(fh, 0, 6));
        fh.on(cpu(0)).flush().unwrap();
        let block = frame.pageblock();
        // Its holder has something to look at already.
        free(fh, 1, frame, 0);
        let got = together::<Option<Pfn>>(roles![
            move || {
                free(fh, 1, word, 6);
                None
            },
            move || {
                let taken = fh.on(cpu(0)).alloc(request(9)).ok()?;
                free(fh, 0, Pfn::new(block.get() + 200), 0);
                Some(taken)
            }
        ]);
        settled_of(fh, 512, if got[1].is_some() { 511 } else { 0 });
    });
}

/// Both halves of a block come back at the same time: it becomes whole once, and is there.
#[test]
fn a_block_becomes_whole_once() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        let free = move |c, w: u64| free(fh, c, Pfn::new(block + w * 64), 6);
        (2..8).for_each(|w| free(0, w));
        together::<()>(roles![move || free(0, 0), move || free(1, 1)]);
        settled_of(fh, 512, 0);
        assert_eq!(fh.zones[0].wholes(), 1);
    });
}

/// The last words of a block come back while another CPU takes a word of it.
#[test]
fn a_block_becomes_whole_while_a_word_of_it_is_taken() {
    model_within(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        (1..8).for_each(|w| free(fh, 0, Pfn::new(block + w * 64), 6));
        let got = together::<u64>(roles![
            move || {
                free(fh, 0, Pfn::new(block), 6);
                0
            },
            // Where all of it is on its way to be whole it asks the other CPU, and looks again.
            move || 64 * u64::from(gets(fh, 1, 6))
        ]);
        assert_eq!(got[1], 64, "a request failed beside seven free words");
        settled_of(fh, 512, 64);
    });
}

/// The last word of a block comes back outside every door. Its seven other words are free all the
/// while, and a thread that is about to fail finds them, whether or not the block is becoming
/// whole.
#[test]
fn a_block_that_becomes_whole_outside_every_door_hides_nothing() {
    model_within(1, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        let free = |w: u64| Freeing::of(fh, None).word(block / 64 + w, !0, 1).unwrap();
        (1..8).for_each(free);
        let got = together::<bool>(roles![
            move || Freeing::of(fh, None).word(block / 64, !0, 1).is_ok(),
            move || {
                let want = Want::new(6, MOVABLE);
                Movers(fh)
                    .look_beside(|| want.pick(fh.outside(), &fh.zones[0]).run_to_mark())
                    .is_some()
            }
        ]);
        assert_eq!(got, [true, true], "a request failed beside seven free words");
        settled_of(fh, 512, 64);
    });
}

/// A request that may not wait splits the only block for one frame, past a CPU's state; another one
/// looks for a frame meanwhile.
#[test]
fn a_block_that_is_split_outside_every_door_hides_nothing() {
    model_within(2, || {
        let fh = machine(false, 512);
        let got = together::<bool>(roles![
            move || fh.outside().alloc(cpu(0), &request(0)).is_ok(),
            move || {
                let want = Want::new(0, MOVABLE);
                Movers(fh)
                    .look_beside(|| want.pick(fh.outside(), &fh.zones[0]).run_to_mark())
                    .is_some()
            }
        ]);
        assert!(got[1], "a request failed beside 511 free frames");
        settled_of(fh, 512, 1 + u64::from(got[0]));
    });
}

/// Two want whole blocks, of which there is one.
#[test]
fn a_whole_block_goes_to_one_of_two() {
    model_within(2, || {
        let fh = machine(false, 512);
        let got = together::<bool>(roles![move || gets(fh, 0, 9), move || gets(fh, 1, 9)]);
        assert!(got[0] != got[1], "{got:?}");
        settled_of(fh, 512, 512);
    });
}

/// One wants both blocks as a run, the other one of them.
#[test]
fn a_run_and_a_block_of_it() {
    model_within(2, || {
        let fh = small(false);
        let got = together::<u64>(roles![move || 1024 * u64::from(gets(fh, 0, 10)), move || 512
            * u64::from(gets(fh, 1, 9))]);
        assert_ne!(got.iter().sum::<u64>(), 0);
        settled(fh, got.iter().sum());
    });
}

/// A run of blocks is taken while a request within limits finds a block of it.
#[test]
fn a_run_of_blocks_is_taken_while_one_is_asked_for_within_limits() {
    model_within(2, || {
        let fh = small(false);
        let blocks: [Pfn; 2] = [0, 0].map(|_| take(fh, 0, 9));
        blocks.into_iter().for_each(|pfn| free(fh, 0, pfn, 9));
        Recall::of_all(fh).for_order(None);
        let got = together::<u64>(roles![move || 1024 * u64::from(gets(fh, 0, 10)), move || {
            let limited = request(3).from(Pfn::new(1024)).below(Pfn::new(1536));
            8 * u64::from(fh.on(cpu(1)).alloc(limited).is_ok())
        }]);
        settled(fh, got.iter().sum());
    });
}

/// A CPU whose request came to nothing before asks again, and has been told of a free: it finds the
/// frame, however far the other CPU has got with it.
#[test]
fn who_failed_before_finds_what_was_freed() {
    for order in [0, 6] {
        model_within(2, move || {
            let fh = small(false);
            let blocks = [0, 0].map(|c| take(fh, c, 9));
            free(fh, 0, blocks[0], 0);
            take(fh, 0, 0);
            for _ in 0..2 {
                fh.on(cpu(0)).alloc(request(order)).unwrap_err();
            }
            let freed = loom::sync::Arc::new(loom::sync::atomic::AtomicBool::new(false));
            let told = freed.clone();
            let chunk = of_order(order);
            let got = together::<bool>(roles![
                move || {
                    fh.on(cpu(1)).free(blocks[0], chunk).unwrap();
                    freed.store(true, loom::sync::atomic::Ordering::Release);
                    false
                },
                move || {
                    let told = told.load(loom::sync::atomic::Ordering::Acquire);
                    let got = gets(fh, 0, order);
                    assert!(got || !told, "what was freed is not found");
                    got
                }
            ]);
            let got = got.into_iter().any(|got| got);
            assert!(got || gets(fh, 0, order), "nor afterwards");
            settled(fh, 1024);
        });
    }
}
