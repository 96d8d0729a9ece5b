//! Ranges that are isolated and taken, and memory that comes and goes.

use super::*;

/// A thread that finds a section's slot finds its blocks set up.
#[test]
fn a_section_is_found_set_up() {
    model(|| {
        let fh = small(false);
        together::<()>(roles![
            move || assert!(fh.map.set_up(1024, || {
                thread::yield_now();
                true
            })),
            move || {
                if let Some(block) = fh.map.locate(1024 + 512) {
                    assert_eq!((block.base(), block.number), (1024 + 512, 3));
                }
            }
        ]);
        settled(fh, 0);
    });
}

/// A frame that is taken past the leases, by a hint, while its memory goes: it is handed out, or it
/// is gone.
#[test]
fn memory_goes_while_a_frame_of_it_is_taken_by_a_hint() {
    // One preemption is 5,900 executions: removal looks at each frame of the block.
    model_reaching(1, || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        free(fh, 1, frame, 0);
        let block = FrameRange::new(frame.pageblock(), 512).unwrap();
        let got = together::<Option<Pfn>>(roles![move || Some(take(fh, 1, 0)), move || fh
            .remove_memory(block)
            .is_ok()
            .then_some(frame)]);
        let (taken, gone) = (got[0].unwrap(), got[1].is_some());
        assert!(!gone || !block.contains(taken), "a frame was handed out of memory that is gone");
        settled_of(fh, if gone { FRAMES - 512 } else { FRAMES }, 1);
        gone
    });
}

#[test]
fn a_range_is_taken_while_a_cpu_allocates_from_its_block() {
    model_reaching(usize::MAX, || {
        let fh = small(false);
        let first = take(fh, 0, 0);
        free(fh, 0, first, 0);
        let range = FrameRange::new(first, 2).unwrap();
        let got = together::<(Option<Pfn>, u64)>(roles![
            move || {
                let taken = fh.alloc_contig_range(range, |_| false).is_ok();
                (taken.then_some(range.start), 2 * u64::from(taken))
            },
            move || {
                let pfn = take(fh, 0, 0);
                (Some(pfn), 1)
            }
        ]);
        let (frame, taken) = (got[1].0.unwrap(), got[0].0.is_some());
        assert!(!taken || !range.contains(frame), "{frame} was handed out twice");
        settled(fh, got[0].1 + 1);
        taken
    });
}

/// Two blocks are taken as one, past everybody's locks, while one of them is isolated: one of the
/// two has it.
#[test]
fn a_run_of_blocks_is_taken_while_one_is_isolated() {
    // One preemption is 3,600 executions; two take minutes, since isolation looks again and again.
    model_reaching(1, || {
        let fh = small(false);
        let block = frames_at(1536, 512);
        let got = together::<bool>(roles![move || gets(fh, 0, 10), move || fh
            .alloc_contig_range(block, |_| false)
            .is_ok()]);
        assert!(!(got[0] && got[1]), "a block was handed out twice");
        settled(fh, if got[0] { 1024 } else { 512 * u64::from(got[1]) });
        got[1]
    });
}

/// Two isolate a block at the same time: one of them has to give way.
#[test]
fn a_range_of_a_block_is_taken_while_that_goes() {
    // A block of 64 frames, since removal looks at each.
    model_reaching(1, || {
        let fh = machine(false, 64);
        let block = frames_at(1024, 64);
        let got = together::<bool>(roles![
            move || fh
                .alloc_contig_range(FrameRange::new(block.start, 8).unwrap(), |_| false)
                .is_ok(),
            move || fh.remove_memory(block).is_ok()
        ]);
        assert!(!(got[0] && got[1]), "frames were handed out of memory that is gone");
        settled_of(fh, if got[1] { 0 } else { 64 }, if got[0] { 8 } else { 0 });
        got[0]
    });
}

/// The last word of a block comes back while the block is isolated: it becomes whole, or it is in
/// its words when the isolation ends.
#[test]
fn a_block_becomes_whole_while_it_is_isolated() {
    model_reaching(2, || {
        let fh = machine(false, 512);
        let block = take(fh, 0, 9).get();
        let word = of_order(6);
        (1..8).for_each(|w| fh.on(cpu(0)).free(Pfn::new(block + w * 64), word).unwrap());
        let range = frames_at(block + 64, 8);
        let got = together::<u64>(roles![
            move || {
                fh.on(cpu(1)).free(Pfn::new(block), word).unwrap();
                0
            },
            move || 8 * u64::from(fh.alloc_contig_range(range, |_| false).is_ok())
        ]);
        settled_of(fh, 512, got[1]);
        got[1] > 0
    });
}

/// Moves the one frame in use of a block to wherever there is room; whether it did, and whether
/// the block was empty then.
fn evacuated(fh: super::Small, c: u16, frame: Pfn) -> (Option<Pfn>, bool) {
    let Ok(mut block) = fh.evacuate(frame) else { return (None, false) };
    let mut new = None;
    block.move_used(|used| {
        assert_eq!(used, FrameRange::new(frame, 1).unwrap());
        new = Some(take(fh, c, 0));
        free(fh, c, frame, 0);
        true
    });
    (new, block.finish())
}

/// A block is emptied while another CPU, which has a word of it in hand, allocates: what it gets
/// lies elsewhere, or was its before, and does not move.
#[test]
fn a_block_is_emptied_while_a_cpu_allocates_from_it() {
    model_within(1, || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.on(cpu(0)).flush().unwrap();
        let got = together::<(Option<Pfn>, bool)>(roles![
            move || {
                let Ok(mut block) = fh.evacuate(frame) else { return (None, false) };
                let mut there = 0;
                block.move_used(|used| {
                    there += used.len();
                    true
                });
                assert_eq!(u64::from(block.used()), there, "a frame of it was handed out");
                (None, block.finish())
            },
            move || (Some(take(fh, 1, 0)), false)
        ]);
        assert!(got[1].0.is_some_and(|pfn| pfn != frame) && !got[0].1);
        settled(fh, 2);
    });
}

/// The last other frame of a block is freed while the block is emptied: it becomes whole.
#[test]
fn a_frame_is_freed_while_its_block_is_emptied() {
    model_within(1, || {
        let fh = small(false);
        let [frame, other] = [0, 0].map(|order| take(fh, 0, order));
        fh.drain_all();
        let got = together::<bool>(roles![
            move || {
                let Ok(mut block) = fh.evacuate(frame) else { return false };
                block.move_used(|used| {
                    let own = used.contains(frame);
                    own.then(|| free(fh, 0, frame, 0));
                    true
                });
                true
            },
            move || {
                free(fh, 1, other, 0);
                true
            }
        ]);
        settled(fh, u64::from(!got[0]));
        fh.drain_all();
        assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 1 + u64::from(got[0]));
    });
}

/// Two empty a block at the same time: one of them has it, and the frame is moved once.
#[test]
fn two_empty_a_block() {
    model_within(1, || {
        let fh = small(false);
        let frame = take(fh, 0, 0);
        fh.drain_all();
        let got =
            together::<(Option<Pfn>, bool)>(roles![move || evacuated(fh, 0, frame), move || {
                evacuated(fh, 1, frame)
            }]);
        let moved = got.iter().filter_map(|(new, _)| *new).collect::<std::vec::Vec<_>>();
        assert!(moved.len() == 1 && moved[0].pageblock() != frame.pageblock(), "{got:?}");
        settled(fh, 1);
    });
}
