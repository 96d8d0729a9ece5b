//! What an arena does beside allocating where it is asked to: refuse a free of too much at once,
//! and leave nothing in memory that was freed.

use freehold::{BulkFreeError, FrameRange, Frames as _, FreeError, Migratetype, Order, Pfn};
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

/// Frames of a small arena, with a byte of their own in each; what it is now.
fn marked(arena: &Arena, pfn: Pfn) -> u8 {
    // SAFETY: memory of the arena that is allocated, and that only this thread looks at.
    unsafe { arena.pointer(pfn).unwrap().as_ptr().add(9).read() }
}

fn mark(arena: &Arena, pfn: Pfn) {
    // SAFETY: memory of the arena that is allocated, and that only this thread looks at.
    unsafe { arena.pointer(pfn).unwrap().as_ptr().add(9).write(0x5a) }
}

/// Both kinds of arena that do something to frames before they free them.
fn with_checks(test: impl Fn(&Arena, bool)) {
    for (zero, checked) in [(true, false), (false, true), (true, true)] {
        let builder = Arena::builder(4 << 20).zero_on_free(zero).checked(checked);
        let arena = builder.build().unwrap();
        test(&arena, checked);
        arena.validate().unwrap();
        assert_eq!(arena.free_frames(), 1024, "zero {zero}, checked {checked}");
    }
}

/// Allocates until it gets just this chunk; the others go home.
fn take_just(arena: &Arena, pfn: Pfn, of: u8) {
    let mut others = Vec::new();
    loop {
        match arena.alloc(order(of), Migratetype::Movable).unwrap() {
            got if got == pfn => break,
            got => others.push(got),
        }
    }
    // SAFETY: allocated above, and used by nobody.
    others.into_iter().for_each(|pfn| unsafe { arena.free(pfn, order(of)) }.unwrap());
}

#[test]
fn frames_behind_a_refused_one_of_a_bulk_free_keep_what_is_in_them_and_where_they_start() {
    with_checks(|arena, checked| {
        let mut frames = [0; 8].map(|_| arena.alloc(order(0), Migratetype::Movable).unwrap());
        frames.sort_unstable();
        let at = 1 + frames[1..].iter().position(|pfn| pfn.is_aligned(order(1))).unwrap();
        let (b, c) = (frames[at], frames[at + 1]);
        assert_eq!(c.get(), b.get() + 1);
        // SAFETY: it is the mistake that is tried; nobody uses the frames but this thread.
        let freed = unsafe {
            arena.free(b, order(0)).unwrap();
            mark(arena, c);
            arena.free_bulk(&[frames[0], b, c])
        };
        let refused = BulkFreeError { freed: 1, error: FreeError::DoubleFree { pfn: b } };
        assert_eq!(freed, Err(Error::BulkFree(refused)));
        assert_eq!(marked(arena, c), 0x5a, "frames behind it have not been freed");
        take_just(arena, b, 0);
        if checked {
            // SAFETY: it is the mistake that is tried.
            let freed = unsafe { arena.free(b, order(1)) };
            assert_eq!(freed, Err(Error::WrongOrder { pfn: b, frames: 2, next: c }));
        }
        // SAFETY: allocated above, and used by nobody.
        unsafe { arena.free_bulk(&frames[1..]) }.unwrap();
    });
}

#[test]
fn a_free_that_is_refused_leaves_memory_as_it_is() {
    with_checks(|arena, checked| {
        let chunk = arena.alloc(order(3), Migratetype::Movable).unwrap();
        let frame = |i: u64| Pfn::new(chunk.get() + i);
        let all = FrameRange::new(chunk, 8).unwrap();
        let mark_all = || (0..8).for_each(|i| mark(arena, frame(i)));
        let kept = |frames: std::ops::Range<u64>, what| {
            for i in frames {
                assert_eq!(marked(arena, frame(i)), 0x5a, "{what}: frame {i}");
            }
        };
        mark_all();
        // It is the mistakes that are tried.
        // SAFETY: nobody uses the frames but this thread, which looks at what is left of them.
        let free = |pfn, order| unsafe { arena.free(pfn, order) };
        let freed = free(frame(1), order(1));
        let misaligned = FreeError::Misaligned { pfn: frame(1), order: order(1) };
        assert_eq!(freed, Err(Error::Free(misaligned)));
        kept(0..8, "misaligned");
        free(chunk, order(3)).unwrap();
        take_just(arena, frame(4), 2);
        // What a refused free of all eight must not touch is the new owner's four.
        mark_all();
        let next = frame(4);
        let refused = Err(Error::Free(FreeError::DoubleFree { pfn: chunk }));
        let of_two = Err(Error::WrongOrder { pfn: chunk, frames: 8, next });
        let freed = free(chunk, order(3));
        assert_eq!(freed, if checked { of_two } else { refused });
        kept(4..8, "as a chunk");
        // SAFETY: as `free`.
        let freed = unsafe { arena.free_range(all) };
        assert_eq!(freed, refused);
        kept(4..8, "as a range");
        // SAFETY: as `free`.
        let through = unsafe { arena.frame_allocator() };
        let refused = Err(FreeError::DoubleFree { pfn: chunk });
        assert_eq!(through.free_range(all), refused);
        kept(4..8, "through the frame allocator");
        free(frame(4), order(2)).unwrap();
    });
}

/// A range that goes home through the frame allocator is treated as any other.
#[test]
fn the_frame_allocator_does_beside_frees_what_the_arena_does() {
    with_checks(|arena, _| {
        let [first, second] = [0; 2].map(|_| arena.alloc(order(3), Migratetype::Movable).unwrap());
        // SAFETY: allocated above, and used by nobody but this thread.
        let through = unsafe { arena.frame_allocator() };
        for pfn in [first, second] {
            through.free_range(FrameRange::new(pfn, 8).unwrap()).unwrap();
        }
        let all = arena.frames(1024).unwrap().into_raw();
        // A start that was not forgotten would refuse this.
        for block in [0, 512].map(|i| Pfn::new(all.start.get() + i)) {
            through.free(block, Order::PAGEBLOCK).unwrap();
        }
    });
}
