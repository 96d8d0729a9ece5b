//! Frames as memory: sizes, contents, cutting and joining, going home.

use std::sync::Arc;
use std::thread;

use freehold_host::freehold::{
    AllocError, FrameRange, FreeError, Migratetype, Order, Pfn, Request,
};
use freehold_host::{Arena, Error, Frames, Lock};

use crate::common::{all_are, all_free};

const MIB: u64 = 1 << 20;

#[test]
fn handles_and_arenas_can_be_sent_and_shared() {
    fn both<T: Send + Sync>() {}
    both::<Arena>();
    both::<Frames>();
    both::<Frames<&Arena>>();
    both::<Frames<Arc<Arena>>>();
}

#[test]
fn frames_fresh_from_the_system_are_zero_without_being_touched() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let frames = arena.zeroed(2048).unwrap();
    assert_eq!(arena.frames_in_memory(frames.range()).unwrap(), 0);
    let used = arena.frames(1).unwrap().range();
    // That frame, when it is used again, is not known to be zero, so it is written.
    let again = arena.zeroed(1).unwrap();
    assert_eq!(again.range(), used);
    assert_eq!(arena.frames_in_memory(used).unwrap(), 1);
    drop((frames, again));
    all_free(&arena);
}

#[test]
fn split_and_merge_are_each_others_inverse() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let mut frames = arena.frames(100).unwrap();
    frames[40 * 4096] = 7;
    let range = frames.range();
    let frames = frames.split(0).unwrap_err().split(100).unwrap_err();
    let (first, second) = frames.split(40).unwrap();
    assert_eq!((first.frame_count(), second.frame_count(), second[0]), (40, 60, 7));
    let (second, third) = second.split(1).unwrap();
    // Not neighbours.
    let (first, third) = first.merge(third).unwrap_err();
    let back = third.merge(second).unwrap().merge(first).unwrap();
    assert_eq!(back.range(), range);
    assert_eq!(back[40 * 4096], 7);
    // Of two arenas.
    let other = Arena::with_size(64 * MIB).unwrap();
    assert!(back.merge(other.frames(1).unwrap()).is_err());
    all_free(&arena);
    all_free(&other);
}

#[test]
fn a_counted_handle_keeps_its_arena() {
    let arena = Arc::new(Arena::with_size(64 * MIB).unwrap());
    let mut frames = Frames::new(Arc::clone(&arena), 3).unwrap();
    let weak = Arc::downgrade(&arena);
    drop(arena);
    frames.fill(1);
    let (a, b) = frames.split(1).unwrap();
    assert!(weak.upgrade().is_some());
    let (b, c) = b.split(1).unwrap();
    drop(c);
    assert!(weak.upgrade().is_some());
    // Each of them keeps it, and so does what they are together.
    drop(a.merge(b).unwrap());
    assert!(weak.upgrade().is_none());
}

/// The last counted handle takes the arena with it, on whichever thread and in whatever order they
/// go.
#[test]
fn an_arena_that_is_let_go_lives_until_its_last_frames_do() {
    for lock in [Lock::Biased, Lock::Ordinary] {
        for round in 0..20 {
            let arena = Arc::new(Arena::builder(8 << 20).lock(lock).build().unwrap());
            let mut handles: Vec<Frames<Arc<Arena>>> =
                (0..12).map(|n| Frames::new(Arc::clone(&arena), n % 5 + 1).unwrap()).collect();
            let weak = Arc::downgrade(&arena);
            drop(arena);
            handles.rotate_left(round % 12);
            let threads: Vec<_> = handles
                .into_iter()
                .map(|mut frames| {
                    thread::spawn(move || {
                        frames.fill(7);
                        assert!(all_are(&frames, 7));
                        drop(frames);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(weak.upgrade().is_none());
        }
    }
}

#[test]
fn raw_frames_come_from_a_handle_and_go_back_into_one() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let mut frames = arena.frames(8).unwrap();
    frames[0] = 9;
    let range = frames.into_raw();
    assert_eq!(arena.free_frames(), arena.stats().frames - 8);
    // SAFETY: just taken out, and nobody else has them.
    let frames = unsafe { Frames::from_raw(&arena, range) }.unwrap();
    assert_eq!(frames[0], 9);
    let outside = FrameRange::new(arena.range().end, 1).unwrap();
    // SAFETY: refused, so nothing comes of it.
    let refused = unsafe { Frames::from_raw(&arena, outside) };
    assert_eq!(refused.unwrap_err(), Error::OutsideArena { pfn: outside.start });
    drop(frames);
    all_free(&arena);
}

#[test]
fn requests_say_order_type_and_alignment() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let order = Order::new(2).unwrap();
    let request = Request::new(order, Migratetype::Unmovable).align(Order::PAGEBLOCK);
    let pfn = arena.request(request).unwrap();
    assert!(pfn.is_aligned(Order::PAGEBLOCK));
    let movable = arena.frames(4).unwrap();
    assert_ne!(movable.pfn().pageblock(), pfn.pageblock(), "types are kept apart by block");
    drop(movable);
    // SAFETY: allocated above, and used by nobody.
    unsafe { arena.free(pfn, order) }.unwrap();
    all_free(&arena);
}

#[test]
fn every_wrong_free_is_an_error_value_and_changes_nothing() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let other = Arena::with_size(64 * MIB).unwrap();
    let order = Order::new(3).unwrap();
    let pfn = arena.alloc(order, Migratetype::Movable).unwrap();
    let never = Pfn::new(arena.range().end.get() - 1);
    // SAFETY: what is freed wrongly is refused, and what is freed rightly is nobody's any more.
    unsafe {
        let free = |pfn, order| arena.free(pfn, order).unwrap_err();
        assert_eq!(free(never, Order::ZERO), Error::Free(FreeError::NeverAllocated { pfn: never }));
        let inside = Pfn::new(pfn.get() + 1);
        assert_eq!(free(inside, order), Error::Free(FreeError::Misaligned { pfn: inside, order }));
        let foreign = other.range().start;
        assert_eq!(free(foreign, Order::ZERO), Error::Free(FreeError::OutOfZone { pfn: foreign }));
        assert_eq!(
            free(Pfn::new(0), Order::ZERO),
            Error::Free(FreeError::OutOfZone { pfn: Pfn::new(0) })
        );
        let past = FrameRange::new(pfn, arena.range().len() + 1).unwrap();
        assert!(matches!(arena.free_range(past), Err(Error::Free(_))));
        let nothing = FrameRange::new(pfn, 0).unwrap();
        assert_eq!(arena.free_range(nothing), Err(Error::Free(FreeError::ZeroLength)));
        let backwards = FrameRange { start: pfn, end: Pfn::new(pfn.get() - 1) };
        assert_eq!(arena.free_range(backwards), Err(Error::Free(FreeError::ZeroLength)));
        assert_eq!(arena.free_frames(), arena.stats().frames - 8);
        arena.free(pfn, order).unwrap();
        assert_eq!(free(pfn, order), Error::Free(FreeError::DoubleFree { pfn }));
        let one = arena.alloc(Order::ZERO, Migratetype::Movable).unwrap();
        assert!(matches!(arena.free_bulk(&[one, one]), Err(Error::BulkFree(_))));
    }
    assert_eq!(arena.frames(0).unwrap_err(), Error::Alloc(AllocError::ZeroLength));
    assert!(arena.alloc(Order::ZERO, Migratetype::Isolate).is_err());
    assert_eq!(arena.pointer(other.range().start), None);
    assert_eq!(
        arena.populate(other.range()),
        Err(Error::OutsideArena { pfn: other.range().start })
    );
    crate::common::at_rest(&arena);
    assert_eq!(arena.free_frames(), arena.stats().frames);
}

/// A cache that is full hears so for each page that it takes in: the allocator's look at everything
/// is had once.
#[test]
fn an_allocation_that_fails_looks_once() {
    let arena = Arena::with_size(8 << 20).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| arena.frames(1).ok()).collect();
    assert_eq!(all.len() as u64, arena.stats().frames);
    let looks = |attempt: &dyn Fn() -> bool| {
        let before = arena.totals().cpus.failed;
        assert!(attempt(), "something is free");
        arena.totals().cpus.failed - before
    };
    for order in [0, 1, 4, 6, 9].map(|order| Order::new(order).unwrap()) {
        assert_eq!(looks(&|| arena.frames(order.frames()).is_err()), 1, "{order}, a handle");
        assert_eq!(looks(&|| arena.zeroed(order.frames()).is_err()), 1, "{order}, zeroed");
        assert_eq!(
            looks(&|| arena.alloc(order, Migratetype::Movable).is_err()),
            1,
            "{order}, by number"
        );
    }
    assert_eq!(looks(&|| arena.frames(3).is_err()), 1, "no chunk");
    let kind = std::io::Error::from(arena.frames(1).unwrap_err()).kind();
    assert_eq!(kind, std::io::ErrorKind::OutOfMemory);
}

#[test]
fn more_than_the_largest_order_in_one_piece() {
    // 3 GiB and a bit of address space; nothing of it is touched.
    let arena = Arena::with_size(5 << 30).unwrap();
    let count = (3 << 18) + 5;
    let mut frames = arena.frames(count).unwrap();
    assert_eq!(frames.frame_count(), count);
    let last = frames.len() - 1;
    frames[last] = 1;
    assert_eq!(arena.frames_in_memory(frames.range()).unwrap(), 1);
    drop(frames);
    all_free(&arena);
}
