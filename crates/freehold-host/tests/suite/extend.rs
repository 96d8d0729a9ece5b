//! Frames that grow where they are.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::freehold::AllocError;
use freehold_host::{Arena, Error};

use crate::common::all_are;

const MIB: u64 = 1 << 20;

#[test]
fn frames_grow_in_place_until_something_is_in_the_way() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let mut frames = arena.zeroed(3).unwrap();
    frames.fill(7);
    let at = frames.as_ptr();
    let start = frames.pfn();
    let mut expected = 3;
    // Within a word, a block, over blocks, and as far as the arena goes.
    for more in [1, 60, 500, 3000, 8192 - 3564] {
        frames.try_extend(more).unwrap();
        expected += more;
        assert_eq!((frames.frame_count(), frames.as_ptr(), frames.pfn()), (expected, at, start));
    }
    assert!(all_are(&frames[..3 * 4096], 7));
    assert_eq!(
        frames.try_extend(arena.stats().frames),
        Err(Error::OutsideArena { pfn: arena.range().end })
    );
    assert_eq!(frames.try_extend(0), Err(Error::Alloc(AllocError::ZeroLength)));
    let (mut head, tail) = frames.split(1000).unwrap();
    let busy = head.try_extend(1);
    assert!(
        matches!(busy, Err(Error::Alloc(AllocError::Busy { pfn })) if pfn == tail.pfn()),
        "{busy:?}"
    );
    assert_eq!(head.frame_count(), 1000);
    drop(tail);
    head.try_extend(1).unwrap();
    drop(head);
    assert_eq!(arena.free_frames(), arena.stats().frames);
    crate::common::at_rest(&arena);
}

/// One thread takes and gives back a run of blocks for which the allocator has to isolate them; the
/// others need no more than what is free beside it.
#[test]
fn allocations_do_not_fail_while_others_look_for_runs() {
    let arena = Arena::builder(8 * MIB).slots(4).build().unwrap();
    // All but 300 frames of one block are in use; the rest of its neighbours is nobody's for
    // moments only.
    let all = arena.frames(arena.stats().frames).unwrap();
    let (head, rest) = all.split(100).unwrap();
    let (free, _rest) = rest.split(300).unwrap();
    drop(free);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut head = head;
            // The whole block is isolated for these few.
            for _ in 0..10_000 {
                if head.try_extend(4).is_ok() {
                    let (first, more) = head.split(100).unwrap();
                    head = first;
                    drop(more);
                }
                // There is no chunk of 512, so it is looked for frame by frame.
                drop(arena.frames(257));
            }
            end.store(true, Relaxed);
        });
        let mut failed = 0;
        let mut rounds = 0;
        while !end.load(Relaxed) {
            rounds += 1;
            failed += u64::from(arena.frames(2).is_err());
        }
        assert!(failed == 0 && rounds > 0, "{failed} of {rounds}");
    });
}

/// What `Arena::frames` says of powers of two: an aligned chunk or nothing, and never a search of
/// the arena.
#[test]
fn a_power_of_two_of_frames_is_an_aligned_chunk_and_any_other_number_a_run() {
    let arena = Arena::with_size(8 * MIB).unwrap();
    for (before, count) in [(3u64, 2u64), (1, 4), (7, 64), (5, 512), (300, 1024)] {
        let all = arena.frames(arena.stats().frames).unwrap();
        let (head, rest) = all.split(before).unwrap();
        let (free, tail) = rest.split(count).unwrap();
        let run = free.range();
        drop(free);
        let fewer = arena.frames(count - 1).map(|frames| run.contains(frames.pfn()));
        assert_eq!(
            fewer,
            Ok(true),
            "{} of {count} free frames, {before} into the arena",
            count - 1
        );
        let refused = arena.frames(count).err();
        assert!(matches!(
            refused,
            Some(Error::Alloc(AllocError::NoMemory { order })) if order.frames() == count
        ));
        drop((head, tail));
        assert_eq!(arena.frames(count).unwrap().pfn().get() % count, 0, "of {count}");
    }
    assert_eq!(arena.free_frames(), arena.stats().frames);
    crate::common::at_rest(&arena);
}
