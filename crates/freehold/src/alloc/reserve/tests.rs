//! The reserve on a machine of 128 blocks, of which 1 % rounded up is two.

use super::Reserve;
use crate::tests::testing::*;

const FRAMES: u64 = 1 << 16;

/// An ordinary request that may not wait.
fn request(o: u8) -> Request {
    Request::new(of_order(o), Migratetype::Unmovable).flags(AllocFlags::NO_LOCK)
}

fn atomic(o: u8) -> Request {
    request(o).flags(AllocFlags::NO_LOCK | AllocFlags::HIGH_ATOMIC)
}

fn alloc(fh: &Machine, request: Request) -> Option<Pfn> {
    fh.here().alloc(request).ok()
}

fn free(fh: &Machine, pfns: impl IntoIterator<Item = Pfn>, o: u8) {
    pfns.into_iter().for_each(|pfn| fh.here().free(pfn, of_order(o)).unwrap());
}

fn is_kept(fh: &Machine, pfn: Pfn) -> bool {
    place(fh, pfn).0.head.tag.get().migratetype() == Migratetype::HighAtomic as usize
}

/// One block is kept, one chunk of it in use; all ordinary frames are.
fn full(fh: &Machine) -> (Pfn, Vec<Pfn>) {
    let chunk = alloc(fh, atomic(3)).unwrap();
    assert!(is_kept(fh, chunk));
    (chunk, exhaust(fh, request(0)))
}

#[test]
fn each_success_elsewhere_keeps_a_block_up_to_a_hundredth() {
    for o in 1..=8 {
        let fh = unmarked(2, FRAMES);
        let chunks: Vec<Pfn> =
            (0..(3 * 512) >> o).map(|_| alloc(&fh, atomic(o)).unwrap()).collect();
        assert_eq!(fh.reserve(0).unwrap().blocks, 2, "order {o}");
        // Of the reserve as long as there is any, then of what is ordinary.
        let kept = chunks.iter().filter(|&&pfn| is_kept(&fh, pfn)).count();
        assert_eq!(kept, 1024 >> o, "order {o}");
        fh.validate().unwrap();
        free(&fh, chunks, o);
        fh.drain_all();
        assert_eq!(fh.reserve(0).unwrap(), Reserve { blocks: 2, free: 1024 }, "order {o}");
        fh.validate().unwrap();
    }
}

/// Single frames, and what is as large as a block, keep none; nor does anything in a small zone.
#[test]
fn what_keeps_no_block() {
    let fh = unmarked(2, FRAMES);
    [0, 9, 10].into_iter().for_each(|o| _ = alloc(&fh, atomic(o)).unwrap());
    _ = alloc(&fh, request(3)).unwrap();
    assert_eq!(fh.reserve(0).unwrap(), Reserve::default());
    let small = unmarked(1, 99 * 512);
    _ = alloc(&small, atomic(3)).unwrap();
    assert_eq!(small.reserve(0).unwrap(), Reserve::default());
    assert_eq!(small.reserve(1), None);
}

#[test]
fn ordinary_requests_get_nothing_of_it_and_atomic_ones_do() {
    let fh = unmarked(2, FRAMES);
    let (chunk, ordinary) = full(&fh);
    assert_eq!(ordinary.len() as u64, FRAMES - 512);
    assert!(ordinary.iter().all(|&pfn| !is_kept(&fh, pfn)));
    for request in [request(0), request(3), movable(3), request(10)] {
        assert_eq!(alloc(&fh, request), None);
    }
    let within = request(0).from(chunk.pageblock()).below(Pfn::new(chunk.pageblock().get() + 512));
    assert_eq!(alloc(&fh, within), None, "within its limits");
    let cpu = fh.on(CpuId::new(1));
    assert_eq!(cpu.alloc(request(0)), Err(AllocError::WouldBlock));
    // A single frame as a last resort, too.
    let one = request(0).flags(AllocFlags::NO_LOCK | AllocFlags::NON_BLOCK);
    let out = movable(0).flags(AllocFlags::OOM);
    let last: Vec<Pfn> = [one, out].map(|request| alloc(&fh, request).unwrap()).into();
    let chunks = exhaust(&fh, atomic(3));
    assert_eq!(chunks.len(), 512 / 8 - 2);
    assert!(chunks.iter().chain(&last).all(|&pfn| is_kept(&fh, pfn)));
    fh.validate().unwrap();
    assert_eq!(fh.reserve(0).unwrap(), Reserve { blocks: 1, free: 6 });
    free(&fh, chunks.into_iter().chain([chunk]), 3);
    free(&fh, last.into_iter().chain(ordinary), 0);
    fh.drain_all();
    fh.validate().unwrap();
    assert_eq!(fh.zone_stats(0).unwrap().free, FRAMES);
}

/// An interrupt within another call of its CPU.
#[test]
fn who_comes_past_a_shut_door_gets_of_it_first() {
    let fh = unmarked(2, FRAMES);
    let chunk = alloc(&fh, atomic(3)).unwrap();
    let id = CpuId::new(0);
    let inside = inside(&fh, id.get());
    let second = fh.outside().alloc(id, &atomic(3)).unwrap();
    assert_eq!(second.pageblock(), chunk.pageblock());
    let ordinary = fh.outside().alloc(id, &request(3)).unwrap();
    assert!(is_kept(&fh, second) && !is_kept(&fh, ordinary));
    drop(inside);
    fh.validate().unwrap();
}

/// What this CPU has in hand does for an atomic request, too, and keeps no block.
#[test]
fn what_is_in_hand_comes_first() {
    let fh = unmarked(2, FRAMES);
    let pfn = alloc(&fh, request(3)).unwrap();
    free(&fh, [pfn], 3);
    assert!(alloc(&fh, atomic(3)).is_some());
    assert_eq!(fh.reserve(0).unwrap().blocks, 0);
}

#[test]
fn it_is_given_up_when_the_host_says_so_and_then_serves_everybody() {
    let fh = unmarked(2, FRAMES);
    let (chunk, _) = full(&fh);
    // It may wait, and asks everybody; and it is remembered that it came to nothing.
    let waits = Request::new(of_order(3), Migratetype::Unmovable);
    (0..3).for_each(|_| assert!(fh.here().alloc(waits).is_err()));
    let searches = fh.cpus[0].counters.slow.get();
    assert!(fh.here().alloc(waits).is_err());
    assert_eq!(fh.cpus[0].counters.slow.get(), searches, "it searched once more");
    assert!(
        !fh.give_up_reserve(0, Migratetype::HighAtomic)
            && !fh.give_up_reserve(1, Migratetype::Movable)
    );
    assert!(fh.give_up_reserve(0, Migratetype::Movable));
    assert_eq!(fh.reserve(0).unwrap(), Reserve::default());
    assert!(!fh.give_up_reserve(0, Migratetype::Movable));
    let movable = movable(3);
    assert_eq!(alloc(&fh, movable).map(Pfn::pageblock), Some(chunk.pageblock()));
    assert!(fh.here().alloc(waits).is_ok());
    fh.validate().unwrap();
}

/// What a kernel's watermark check asks: whether there may be a chunk, and what does not count.
#[test]
fn a_glance_counts_the_reserve_for_those_who_may_have_it() {
    let fh = unmarked(2, FRAMES);
    let (chunk, _) = full(&fh);
    let has = |o, flags| fh.may_have_free(0, of_order(o), flags);
    for o in 1..9 {
        for (flags, expected) in [
            (AllocFlags::HIGH_ATOMIC, true),
            (AllocFlags::OOM, true),
            (AllocFlags::NON_BLOCK, false),
            (AllocFlags::CMA, false),
        ] {
            assert_eq!(has(o, flags), expected, "order {o}, {flags:?}");
        }
    }
    let block = FrameRange::new(chunk.pageblock(), 512).unwrap();
    let free_ones = fh.zone_stats(0).unwrap().free_high_atomic;
    assert_eq!(fh.reserve(0).unwrap(), Reserve { blocks: 1, free: free_ones });
    // A block that goes takes what it kept with it.
    free(&fh, [chunk], 3);
    fh.drain_all();
    fh.remove_memory(block).unwrap();
    assert_eq!(fh.reserve(0).unwrap(), Reserve::default());
}
