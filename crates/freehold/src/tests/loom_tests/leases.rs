//! A block's words: leases, hands, hints, and frees into them.

use super::*;
use crate::primitive::Relaxed;
use crate::zone::supply::mode;

#[test]
fn two_cpus_allocate_from_one_block() {
    model(|| {
        let fh = small(false);
        // A block that is split and of which nobody leases anything.
        let first = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let got = together::<Pfn>(roles![move || take(fh, 0, 0), move || take(fh, 1, 0)]);
        assert!(got[0] != got[1] && !got.contains(&first));
        settled(fh, 3);
    });
}

#[test]
fn a_free_into_a_word_that_its_leaseholder_allocates_from() {
    model(|| {
        let fh = small(false);
        let first = take(fh, 0, 0);
        let got = together::<Option<Pfn>>(roles![move || Some(take(fh, 0, 0)), move || {
            free(fh, 1, first, 0);
            None
        }]);
        settled(fh, 1);
        free(fh, 1, got[0].unwrap(), 0);
        settled(fh, 0);
    });
}

/// The leaseholder gives its lease back while another CPU frees into the word.
#[test]
fn a_free_into_a_word_whose_lease_ends() {
    // Two preemptions are 3,000 executions; three take minutes.
    model_within(2, || {
        let fh = small(false);
        let first = take(fh, 0, 0);
        let end = move || fh.on(cpu(0)).flush().unwrap();
        together::<()>(roles![end, move || free(fh, 1, first, 0)]);
        settled(fh, 0);
        fh.drain_all();
        assert_eq!(
            fh.zone_blocks(0).unwrap().free_blocks,
            2,
            "the block was not known to be whole"
        );
    });
}

/// A right free of a range looks into a hand that gives one word up and takes another in its slot.
#[test]
fn a_right_free_of_a_range_is_not_refused_while_hands_change() {
    // Two preemptions are 5,000 executions; three take minutes.
    model_within(2, || {
        let fh = machine(false, 2 * FRAMES);
        let frame = take(fh, 0, 0).get();
        // Of two blocks further the word has the same slot.
        let blocks: Vec<u64> = (0..3).map(|_| take(fh, 1, 9).get()).collect();
        let same = blocks.into_iter().find(|block| block.abs_diff(frame & !511) == 1024).unwrap()
            + frame % 512;
        together::<()>(roles![
            move || {
                fh.on(cpu(0)).flush().unwrap();
                // The second free in a row leases the word.
                [same ^ 1, same].into_iter().for_each(|f| free(fh, 0, Pfn::new(f), 0));
            },
            move || fh.on(cpu(1)).free_range(frames_at(frame, 1)).unwrap()
        ]);
        let slot = fh.cpus[0].leases.slot(((same / 64) % 16) as usize);
        assert!(slot.is_of(same / 64), "the word was not leased");
        fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(fh.totals().late_double_frees, 0);
    });
}

/// A frame is taken past the leases, by a hint that was looked at before something else happened to
/// its word; then it is freed at once. That is a right free, whatever else goes on.
fn hinted_and_freed_while(kept: bool, order: u8, after: fn(Small)) {
    model_within(2, move || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        if kept {
            take(fh, 0, 0);
        }
        fh.on(cpu(0)).flush().unwrap();
        free(fh, 1, frame, 0);
        together::<()>(roles![
            move || {
                let taken = take(fh, 1, 0);
                free(fh, 1, taken, 0);
            },
            move || {
                take(fh, 0, order);
                after(fh);
            }
        ]);
        settled(fh, (1 << order) + u64::from(kept));
    });
}

#[test]
fn a_hinted_frame_is_freed_while_a_lease_of_its_word_ends() {
    // A pair, so that the frame itself stays in the hand.
    hinted_and_freed_while(true, 1, |fh| fh.on(cpu(0)).flush().unwrap());
}

#[test]
fn a_hinted_frame_is_freed_while_its_block_becomes_whole_and_is_split_again() {
    hinted_and_freed_while(false, 1, |_| {});
}

/// A word is leased of a block that was chosen before it became whole and is being split again:
/// what is handed out of it can be freed by anybody at once. Nobody waits, since loom would run
/// every turn of it.
#[test]
fn a_leased_frame_is_freed_while_its_block_becomes_whole_and_is_split_again() {
    model_first(2, 4_000, || {
        let fh = machine(false, 512);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let no_lock = |order| request(order).flags(AllocFlags::NO_LOCK);
        let got = together::<u64>(roles![
            move || {
                if let Ok(taken) = fh.on(cpu(1)).alloc(no_lock(0)) {
                    // The other CPU may be at something: then this goes straight to the word.
                    free(fh, 0, taken, 0);
                }
                0
            },
            move || {
                free(fh, 0, frame, 0);
                // None while the other one makes the block whole, and has all of it.
                2 * u64::from(fh.on(cpu(0)).alloc(no_lock(1)).is_ok())
            }
        ]);
        settled_of(fh, 512, got[1]);
        assert!(got[1] == 2 || gets(fh, 0, 9), "the block is gone");
    });
}

/// A hand becomes empty while another CPU frees into its word and looks at the block: the frame is
/// found, by a thread that looks next.
#[test]
fn a_free_into_a_word_whose_hand_becomes_empty() {
    model_within(2, || {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        let frame = |n: u64| Pfn::new(block + n);
        // The second free in a row has the word leased.
        (0..2).for_each(|n| free(fh, 0, frame(n), 0));
        take(fh, 0, 0);
        let got = together::<u64>(roles![
            move || {
                let asked = [0, 0].map(|_| gets(fh, 0, 0));
                asked.map(u64::from).iter().sum()
            },
            move || {
                free(fh, 1, Pfn::new(block + 9), 0);
                let _ =
                    Want::new(0, MOVABLE).pick(fh.outside(), &fh.zones[0]).block(false, u32::MAX);
                0
            }
        ]);
        settled(fh, 510 + got[0]);
    });
}

/// A hand is empty, and its CPU frees into it, while another frees into the word and asks.
#[test]
fn a_free_into_the_empty_hand_of_a_word_that_another_cpu_wants() {
    model_within(2, || {
        let fh = small(false);
        let block = take(fh, 0, 9).get();
        let frame = |n: u64| Pfn::new(block + n);
        // The second free in a row has the word leased, and both frames are taken from it.
        (0..2).for_each(|n| free(fh, 0, frame(n), 0));
        (0..2).for_each(|_| assert!(take(fh, 0, 0).get() < block + 2));
        let got = together::<u64>(roles![
            move || {
                free(fh, 0, Pfn::new(block + 1), 0);
                0
            },
            move || {
                free(fh, 1, Pfn::new(block + 9), 0);
                u64::from(gets(fh, 1, 0))
            }
        ]);
        settled(fh, 510 + got.iter().sum::<u64>());
    });
}

/// A frame comes back while another CPU finds nothing in its block and lowers the class.
#[test]
fn a_free_beside_a_search_in_vain() {
    model_within(2, || {
        let fh = machine(false, 512);
        let chunks = [8, 7, 6, 5, 5].map(|order| take(fh, 0, order));
        fh.on(cpu(0)).flush().unwrap();
        let got = together::<u64>(roles![
            move || {
                free(fh, 0, chunks[4], 0);
                0
            },
            move || u64::from(
                Want::new(0, MOVABLE).pick(fh.outside(), &fh.zones[0]).run().is_some()
            )
        ]);
        settled_of(fh, 512, 511 + got[1]);
    });
}

/// Two words in a row are taken, and somebody else takes the second one: the first one goes back.
#[test]
fn two_words_in_a_row_are_taken_both_or_none() {
    model_within(2, || {
        let fh = machine(false, 512);
        let first = take(fh, 0, 0).pageblock();
        fh.on(cpu(0)).flush().unwrap();
        let at = move |offset: u64| Pfn::new(first.get() + offset);
        let got = together::<bool>(roles![
            move || fh.on(cpu(0)).alloc(request(7).from(at(128)).below(at(256))).is_ok(),
            move || fh.on(cpu(1)).alloc(request(6).from(at(192)).below(at(256))).is_ok()
        ]);
        assert!(got[0] != got[1], "one of the two has them");
        settled_of(fh, 512, if got[0] { 129 } else { 65 });
    });
}

/// Where five frames with others in use around them are free, in a word that nobody leases, CPU 0
/// takes just these, and frees them at once: that is a right free, whatever else goes on.
fn run_taken_and_freed_while(barrier: bool, used: u64, other: fn(Small, Pfn)) {
    model_within(2, move || {
        let fh = small(barrier);
        let owner = fh.own(cpu(0)).unwrap();
        let block = owner.alloc(request(9)).unwrap().get();
        let first = Pfn::new(block + 8);
        // The first free makes a split block of it.
        owner.free_range(FrameRange::new(first, 5).unwrap()).unwrap();
        assert!(owner.alloc_run_at(first, 5, Fit::All) && owner.free_run_at_hand(first, 5));
        // What the other CPU gets first.
        assert!(owner.free_run_at_hand(Pfn::new(block + 4), 1));
        together::<()>(roles![
            move || {
                if owner.alloc_run_at(first, 5, Fit::All) && !owner.free_run_at_hand(first, 5) {
                    owner.free_range(FrameRange::new(first, 5).unwrap()).unwrap();
                }
                // To be dropped, it would wait for the other one.
                core::mem::forget(owner);
            },
            move || other(fh, Pfn::new(block + 20))
        ]);
        settled(fh, used);
    });
}

#[test]
fn a_run_is_taken_by_its_place_beside_a_free_into_its_word() {
    run_taken_and_freed_while(true, 505, |fh, pfn| {
        free(fh, 1, pfn, 0);
    });
}

#[test]
fn a_run_is_taken_by_its_place_while_a_lease_of_its_word_comes_and_goes() {
    run_taken_and_freed_while(false, 507, |fh, _| {
        take(fh, 1, 0);
        fh.on(cpu(1)).flush().unwrap();
    });
}

/// A run goes into the hand of its owner, or stays in use, while somebody ends the owner's leases.
#[test]
fn a_run_is_freed_at_hand_beside_a_recall() {
    model_within(2, || {
        let fh = small(true);
        let owner = fh.own(cpu(0)).unwrap();
        let run = owner.alloc(request(1)).unwrap();
        let got = together::<u64>(roles![
            move || {
                let freed = owner.free_run_at_hand(run, 2);
                core::mem::forget(owner);
                if freed { 0 } else { 2 }
            },
            move || {
                assert!(Recall::of_all(fh).for_order(None) < 2);
                0
            }
        ]);
        settled(fh, got[0]);
    });
}

/// A chunk of one word is in use that CPU 0 has freed twice in a row: it leases the word next time.
fn with_chunk_freed_twice() -> (Small, Pfn) {
    let fh = machine(false, 512);
    fh.cpus[0].leases.set_limits(16, 16);
    let chunk = take(fh, 0, 6);
    for _ in 0..2 {
        free(fh, 0, chunk, 6);
        assert_eq!(take(fh, 0, 6), chunk);
    }
    fh.zones[0].mode.set(mode::ROOMY);
    (fh, chunk)
}

/// A frame of a chunk is freed, wrongly, as that comes into the hand: it is given out once.
#[test]
fn a_frame_of_a_chunk_is_freed_while_that_comes_into_the_hand() {
    model(|| {
        let (fh, chunk) = with_chunk_freed_twice();
        free(fh, 0, chunk, 6);
        assert_ne!(fh.cpus[0].leases.held.get(), 0, "the chunk was not leased");
        assert_eq!(take(fh, 0, 6), chunk);
        let freed = together::<bool>(roles![
            move || fh.on(cpu(0)).free(chunk, of_order(6)).is_ok(),
            move || Freeing::of(fh, None).word(chunk.get() / 64, 1 << 5, 1).is_ok()
        ]);
        take(fh, 0, 6);
        fh.validate().unwrap_or_else(|violation| panic!("{violation}"));
        let used = if freed[0] { 64 } else { 127 };
        assert_eq!(fh.zone_stats(0).unwrap().free, 512 - used, "{freed:?}");
    });
}
