//! A guarded arena does what others do, and refuses what they refuse. That it finds mistakes is
//! shown by programs that end of them: `tests/planted.c` of `freehold-ffi`.

use freehold_host::freehold::{FRAME_SIZE, Migratetype, Order, Pfn};
use freehold_host::{Arena, Error};

use crate::common::{all_are, child};

fn guarded(bytes: u64) -> Arena {
    Arena::builder(bytes).guard(true).build().unwrap()
}

/// Each allocation with what is shut behind it is two mappings, of which Linux allows 65,530.
#[test]
fn a_right_program_with_more_allocations_than_mappings_goes_on() {
    let status = child::fork(|| {
        let arena = guarded(1 << 30);
        let mut all: Vec<_> = (0..40_000).map(|_| arena.frames(1).unwrap()).collect();
        all.iter_mut().for_each(|frames| frames[0] = 1);
        all.iter().all(|frames| frames[0] == 1)
    });
    assert_eq!(status, 0);
}

#[test]
fn what_was_freed_is_shut_after_it_was_given_back() {
    let arena = guarded(64 << 20);
    let frames = arena.frames(8000).unwrap();
    let at = frames.as_ptr();
    drop(frames);
    assert!(arena.trim().is_ok());
    // SAFETY: the arena's memory, in a child that is to end of it.
    assert_ne!(child::fork(|| unsafe { at.read_volatile() } == 0), 0);
    let mut frames = arena.frames(8000).unwrap();
    frames.fill(1);
}

#[test]
fn memory_that_is_shut_is_not_populated() {
    let refused = || {
        let arena = guarded(8 << 20);
        let refused = arena.populate(arena.range());
        // There is no such call for plain memory, open or shut.
        let errno = if cfg!(feature = "plain") { libc::ENOSYS } else { libc::EINVAL };
        matches!(refused, Err(Error::Os { errno: said, .. }) if said == errno)
    };
    assert_eq!(child::fork(refused), 0);
}

/// More is freed by far than waits.
#[test]
fn frames_of_all_lengths_come_and_go_whole_and_in_parts() {
    let arena = guarded(128 << 20);
    let mut random = fastrand::Rng::with_seed(7);
    let mut held = Vec::new();
    for step in 0..4000 {
        let (count, byte) = (random.u64(1..40), step as u8);
        let frames = if step % 3 == 0 { arena.zeroed(count) } else { arena.frames(count) }.unwrap();
        assert!(step % 3 > 0 || all_are(&frames, 0), "they are not zero");
        let mut frames = frames;
        frames.fill(byte);
        held.push((frames, byte));
        if held.len() > 50 {
            let (frames, byte) = held.swap_remove(random.usize(..held.len()));
            assert!(all_are(&frames, byte), "somebody has written there");
            if let Ok((first, rest)) = frames.split(1 + step % 3) {
                drop((rest, first));
            }
        }
    }
    held.clear();
    assert_eq!(arena.stats().refused_drops, 0);
    crate::common::at_rest(&arena);
}

/// What waits is there when it is needed.
#[test]
fn an_arena_that_is_full_of_freed_frames_is_not_full() {
    let arena = guarded(8 << 20);
    for _ in 0..3 {
        let all = arena.frames(2000).unwrap();
        assert!(arena.frames(100).is_err_and(|error| error.is_out_of_memory()));
        drop(all);
    }
    let mut bulk = [Pfn::new(0); 64];
    assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut bulk), Ok(64));
    for pfn in bulk {
        // SAFETY: allocated just now, and nobody uses it.
        unsafe { arena.pointer(pfn).unwrap().as_ptr().write_bytes(1, FRAME_SIZE as usize) };
    }
    // SAFETY: as above; a second time it is refused.
    unsafe {
        arena.free_bulk(&bulk).unwrap();
        assert!(matches!(arena.free_bulk(&bulk[3..4]), Err(Error::Free(_))));
    }
}

#[test]
fn wrong_frees_are_refused() {
    let arena = guarded(16 << 20);
    let pfn = arena.alloc(Order::ZERO, Migratetype::Movable).unwrap();
    let outside = Pfn::new(arena.range().end.get() + 1);
    // SAFETY: nobody uses them, and the second free of it is refused.
    unsafe {
        assert!(arena.free(Pfn::new(pfn.get() + 1), Order::ZERO).is_err(), "nobody has it");
        arena.free(pfn, Order::ZERO).unwrap();
        assert!(matches!(arena.free(pfn, Order::ZERO), Err(Error::Free(_))));
        assert!(matches!(arena.free(outside, Order::ZERO), Err(Error::OutsideArena { .. })));
    }
    let mut frames = arena.frames(4).unwrap();
    assert!(frames.try_extend(1).is_err(), "behind it is what nobody gets");
}
