//! What an arena does beside allocating where it is asked to: refuse a free of too much at once,
//! and leave nothing in memory that was freed.

use freehold::{FrameRange, Migratetype, Pfn};
use freehold_host::{Arena, Error, Frames};

use crate::common::order;

#[test]
fn eight_frames_freed_as_sixteen_are_refused_before_the_others_are_anybody_elses() {
    let arena = Arena::builder(4 << 20).checked(true).build().unwrap();
    let mut pairs = Vec::new();
    for _ in 0..32 {
        let pfn = arena.alloc(order(3), Migratetype::Movable).unwrap();
        pairs.push(pfn);
    }
    pairs.sort_unstable();
    let first = *pairs.iter().find(|pfn| pfn.is_aligned(order(4))).unwrap();
    let next = Pfn::new(first.get() + 8);
    assert!(pairs.contains(&next));
    // SAFETY: it is the mistake that is tried; nobody uses the frames.
    let freed = unsafe { arena.free(first, order(4)) };
    assert_eq!(freed, Err(Error::WrongOrder { pfn: first, frames: 16, next }));
    // Nothing has changed: both can be freed as they were allocated, and in parts.
    // SAFETY: allocated above, and used by nobody.
    unsafe {
        arena.free(first, order(3)).unwrap();
        for part in [0, 4] {
            arena.free(Pfn::new(next.get() + part), order(2)).unwrap();
        }
        for &pfn in pairs.iter().filter(|&&pfn| pfn != first && pfn != next) {
            arena.free(pfn, order(3)).unwrap();
        }
    }
    // What was two allocations is one now.
    let all = arena.frames(1024).unwrap().into_raw();
    // SAFETY: allocated above, and used by nobody.
    unsafe { arena.free_range(all) }.unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), 1024);
}

#[test]
fn handles_that_were_merged_extended_and_split_go_home_in_any_parts() {
    for checked in [true, false] {
        let arena = Arena::builder(4 << 20).checked(checked).build().unwrap();
        let mut all: Vec<Frames<&Arena>> = (0..512).map(|_| arena.frames(1).unwrap()).collect();
        all.sort_by_key(Frames::pfn);
        let mut merged = all.remove(0);
        for next in all {
            merged = match merged.merge(next) {
                Ok(merged) => merged,
                Err((merged, _)) => merged,
            };
        }
        let (head, tail) = merged.split(5).unwrap();
        drop((tail, head));
        assert_eq!((arena.stats().refused_drops, arena.free_frames()), (0, 1024));
    }
}

#[test]
fn nothing_is_left_in_frames_that_were_freed_where_that_is_asked_for() {
    for zero in [false, true] {
        let arena = Arena::builder(4 << 20).zero_on_free(zero).checked(false).build().unwrap();
        let left = |frames: FrameRange| {
            let first = arena.pointer(frames.start).unwrap().as_ptr();
            // SAFETY: memory of the arena, which nobody uses.
            (0..frames.len() as usize).any(|i| unsafe { first.add(i * 4096 + 9).read() } != 0)
        };
        for count in [1, 3, 8, 64, 512, 700] {
            let mut frames = arena.frames(count).unwrap();
            frames.fill(0x5a);
            let range = frames.range();
            drop(frames);
            assert_eq!(left(range), !zero, "{count} frames");
        }
        let pfn = arena.alloc(order(0), Migratetype::Movable).unwrap();
        let place = arena.pointer(pfn).unwrap();
        // SAFETY: allocated above; then freed, and nobody uses it.
        unsafe {
            place.as_ptr().add(9).write(1);
            arena.free_bulk(&[pfn]).unwrap();
        }
        assert_eq!(left(FrameRange::new(pfn, 1).unwrap()), !zero);
        arena.validate().unwrap();
    }
}

/// Each thread's place in an arena is found by number, however many arenas it has.
#[test]
fn a_thread_works_in_more_arenas_than_its_cache_has_places() {
    let arenas: Vec<_> = (0..100).map(|_| Arena::with_size(2 << 20).unwrap()).collect();
    for round in 0..3 {
        for arena in &arenas {
            let mut frames = arena.frames(1 + round).unwrap();
            frames[0] = 1;
        }
    }
    for arena in arenas {
        assert_eq!(arena.stats().slots_taken, 1);
        assert_eq!(arena.free_frames(), arena.stats().frames);
    }
    // Those are gone; of a new one the thread has a place again.
    let again = Arena::with_size(2 << 20).unwrap();
    drop(again.frames(1).unwrap());
    assert_eq!(again.stats().slots_taken, 1);
}
