//! Frames that grow where they are.

use freehold_host::freehold::AllocError;
use freehold_host::{Arena, Error};

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
    assert!(frames[..3 * 4096].iter().all(|&byte| byte == 7));
    assert_eq!(frames.try_extend(arena.stats().frames), Err(Error::OutsideArena { pfn: arena.range().end }));
    assert_eq!(frames.try_extend(0), Err(Error::Alloc(AllocError::ZeroLength)));
    let (mut head, tail) = frames.split(1000).unwrap();
    let busy = head.try_extend(1);
    assert!(matches!(busy, Err(Error::Alloc(AllocError::Busy { pfn })) if pfn == tail.pfn()), "{busy:?}");
    assert_eq!(head.frame_count(), 1000);
    drop(tail);
    head.try_extend(1).unwrap();
    drop(head);
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.validate().unwrap();
}

#[test]
fn what_frames_grow_by_is_zero_where_that_is_asked_for() {
    let arena = Arena::with_size(16 * MIB).unwrap();
    let mut dirty = arena.frames(700).unwrap();
    dirty.fill(9);
    drop(dirty);
    let mut frames = arena.frames(5).unwrap();
    frames.fill(1);
    frames.try_extend_zeroed(900).unwrap();
    assert!(frames[..5 * 4096].iter().all(|&byte| byte == 1));
    assert!(frames[5 * 4096..].iter().all(|&byte| byte == 0));
}
