//! One program, compiled against `buddy_system_allocator` and against the adapter by changing one
//! `use`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold::{FreeError, Pfn};
use freehold_adapters::buddy::FrameAllocator;

mod theirs {
    use buddy_system_allocator::{FrameAllocator, LockedFrameAllocator};
    include!("buddy/program.rs");
}

mod ours {
    use freehold_adapters::buddy::{FrameAllocator, LockedFrameAllocator};
    include!("buddy/program.rs");
}

mod what_users_expect {
    mod theirs {
        use buddy_system_allocator::FrameAllocator;
        include!("buddy/expectations.rs");
    }

    mod ours {
        use freehold_adapters::buddy::FrameAllocator;
        include!("buddy/expectations.rs");
    }
}

#[test]
fn random_programs_come_out_the_same() {
    for seed in 0..40 {
        // From a single block to many, and edges that are aligned to nothing.
        let (start, end) =
            [(0x400, 0x600), (0x1000, 0x5000), (0x7ff, 0x3001), (1, 0x2345)][seed as usize % 4];
        let (theirs, ours) =
            (theirs::random(seed, start, end, 3000), ours::random(seed, start, end, 3000));
        assert_eq!(theirs.singles_at_the_end, (end - start) as u64);
        assert!(theirs.allocated > 1000);
        assert_eq!(format!("{theirs:?}"), format!("{ours:?}"), "seed {seed}");
    }
}

#[test]
fn threads_behind_the_lock_come_out_the_same() {
    assert_eq!((theirs::threads(), ours::threads()), (8, 8));
}

#[test]
fn the_edges_of_the_calls_are_the_same() {
    assert_eq!(theirs::edges(), ours::edges());
}

#[test]
fn small_requests_leave_the_larger_pieces_whole_as_there() {
    assert_eq!(theirs::ends(), ours::ends());
}

#[test]
fn no_frames_are_refused() {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(0x200, 0x400);
    let nothing = std::alloc::Layout::from_size_align(0, 4).unwrap();
    assert_eq!(
        (frames.alloc(0), frames.alloc_at(0x200, 0), frames.alloc_aligned(nothing)),
        (None, None, None)
    );
    let first = frames.alloc(1).unwrap();
    assert_eq!(frames.try_dealloc(first, 0), Err(FreeError::ZeroLength));
    assert!(catch_unwind(AssertUnwindSafe(|| frames.dealloc_aligned(first, nothing))).is_err());
    assert_eq!(frames.frames(), (0x200, 1));
}

#[test]
fn the_fourth_frame_of_four_stays_allocated() {
    // There it is handed out again although it was never freed; here it is not.
    assert_eq!(theirs::the_fourth_frame(), 1);
    assert_eq!(ours::the_fourth_frame(), 0);
}

#[test]
fn any_part_may_be_freed_and_no_more_than_was_asked_for_is_taken() {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(0, 4096);
    let first = frames.alloc(1000).unwrap();
    assert_eq!((first % 1024, frames.frames()), (0, (4096, 1000)));
    for i in (0..1000).rev().step_by(2) {
        frames.dealloc(first + i, 1);
    }
    for i in (0..1000).step_by(2) {
        frames.dealloc(first + i, 1);
    }
    assert_eq!(frames.frames(), (4096, 0));
    // All of it is whole again.
    assert_eq!(frames.alloc(4096), Some(0));
    frames.validate().unwrap();
    frames.dealloc(0, 4095);
    // One allocator, whose single zone is all that there is; and what is in use is what has not
    // been freed.
    assert_eq!(
        frames.zone_stats().map(|zone| (zone.managed, zone.free)).collect::<Vec<_>>(),
        [(4096, 4095)]
    );
}

#[test]
fn a_count_that_is_no_power_of_two_finds_a_run_that_is_no_chunk() {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(512, 512 + 700);
    // There, 700 frames need a chunk of 1024. Here too they would start at a multiple of that,
    // which there is none of.
    assert_eq!(frames.alloc(700), None);
    frames.add_frame(2048, 2048 + 700);
    assert_eq!(frames.alloc(700), Some(2048));
}

#[test]
fn wrong_frees_are_refused_and_change_nothing() {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(0x200, 0x400);
    frames.add_frame(1 << 30, (1 << 30) + 8); // far away: an allocator of its own
    let first = frames.alloc(8).unwrap();
    let before = frames.frames();
    let double = FreeError::DoubleFree { pfn: Pfn::new(first as u64) };
    frames.dealloc(first, 1);
    assert_eq!(frames.try_dealloc(first, 1), Err(double));
    // Partly free: none of it is freed.
    assert_eq!(frames.try_dealloc(first, 8), Err(double));
    assert_eq!(frames.frames(), (before.0, 7));
    assert_eq!(frames.try_dealloc(5, 1), Err(FreeError::OutOfZone { pfn: Pfn::new(5) }));
    assert!(frames.try_dealloc(0x3ff, 2).is_err());
    let never = frames.try_dealloc((1 << 30) + 7, 1);
    assert!(
        matches!(never, Err(FreeError::NeverAllocated { .. } | FreeError::DoubleFree { .. })),
        "{never:?}"
    );
    let panicked = catch_unwind(AssertUnwindSafe(|| frames.dealloc(first, 1))).unwrap_err();
    let message = panicked.downcast::<String>().unwrap();
    assert!(message.contains("double free"), "{message}");
    assert_eq!(frames.frames(), (before.0, 7));
    frames.dealloc(first + 1, 7);
    assert_eq!(frames.frames(), (before.0, 0));
}

#[test]
fn memory_is_added_once() {
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(0x200, 0x400);
    for (start, end) in
        [(0x3ff, 0x401), (0x200, 0x400), (0x100, 0x1000), (5, 4), (1, (1 << 40) + 1)]
    {
        let mut frames = AssertUnwindSafe(&mut frames);
        assert!(
            catch_unwind(move || frames.add_frame(start, end)).is_err(),
            "{start:#x}..{end:#x}"
        );
    }
    // Also once it is in use; and more can come then.
    let all: Vec<_> = std::iter::from_fn(|| frames.alloc(1)).collect();
    assert_eq!(all.len(), 0x200);
    assert!(catch_unwind(AssertUnwindSafe(|| frames.add_frame(0x3ff, 0x400))).is_err());
    frames.add_frame(0x400, 0x500);
    assert_eq!(std::iter::from_fn(|| frames.alloc(1)).count(), 0x100);
    for frame in all {
        frames.dealloc(frame, 1);
    }
    assert_eq!(frames.frames(), (0x300, 0x100));
}

#[test]
fn alignments_beyond_a_gibibyte() {
    // 2^19 frames in a row at a multiple of 2^19: 2 GiB out of 6.
    let mut frames = FrameAllocator::<33>::new();
    frames.add_frame(1 << 18, 7 << 18);
    assert_eq!(frames.alloc(1 << 19), Some(1 << 19));
    assert_eq!(frames.alloc(1 << 19), Some(2 << 19));
    assert_eq!(frames.alloc(1 << 19), None);
    frames.dealloc(1 << 19, 1 << 20);
    // Four GiB in a row would have to start at a multiple of four, which there is none of.
    assert_eq!(frames.alloc(1 << 20), None);
    assert_eq!(frames.alloc(1 << 19), Some(1 << 19));
}
