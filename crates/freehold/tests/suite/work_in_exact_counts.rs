//! Promises about work and shape, in exact counts: warm reuse, whole blocks.

use std::collections::HashSet;
use std::collections::VecDeque;

use crate::common::*;
use fastrand::Rng;

#[test]
fn the_frames_freed_last_are_used_first() {
    let fh = machine(1, 1024);
    let owned = fh.own(cpu(0)).unwrap();
    for on_owned in [true, false] {
        let on = fh.on(cpu(0));
        let alloc =
            || if on_owned { owned.alloc(movable(0)) } else { on.alloc(movable(0)) }.unwrap();
        let free = |p| {
            if on_owned { owned.free(p, Order::ZERO) } else { on.free(p, Order::ZERO) }.unwrap()
        };
        let mut flight: VecDeque<Pfn> = (0..64).map(|_| alloc()).collect();
        let mut distinct: HashSet<Pfn> = flight.iter().copied().collect();
        for _ in 0..200_000 {
            free(flight.pop_front().unwrap());
            let pfn = alloc();
            distinct.insert(pfn);
            flight.push_back(pfn);
        }
        // 64 in flight and one being exchanged.
        assert!(distinct.len() <= 65, "{} distinct frames", distinct.len());
        flight.into_iter().for_each(free);
    }
}

/// Chunks of each order, held in numbers and exchanged at random, by requests of one type and of
/// three in turn: what was freed last is taken again without a look under a lock.
#[test]
#[cfg_attr(feature = "debug-poison", ignore = "frees that poison leave no hints of runs")]
fn chunks_of_every_order_freed_last_are_found_without_a_search() {
    const STEPS: u64 = 10_000;
    let types = [Migratetype::Movable, Migratetype::Unmovable, Migratetype::Reclaimable];
    for (kinds, o) in [1, 3].into_iter().flat_map(|kinds| (0..=8).map(move |o| (kinds, o))) {
        let fh = machine(1, 4096);
        let owned = fh.own(cpu(0)).unwrap();
        let alloc = |kind: usize| (owned.alloc(Request::new(order(o), types[kind])).unwrap(), kind);
        let mut held: Vec<(Pfn, usize)> = (0..1000).map(|n| alloc(n % kinds)).collect();
        let looks = || fh.totals().cpus.refills;
        let (before, mut random) = (looks(), Rng::with_seed(7));
        for _ in 0..STEPS {
            let n = random.usize(..held.len());
            owned.free(held[n].0, order(o)).unwrap();
            held[n] = alloc(held[n].1);
        }
        let taken = looks() - before;
        assert!(
            taken <= STEPS / 50,
            "order {o}, {kinds} types: {taken} searches for {STEPS} chunks"
        );
        held.into_iter().for_each(|(pfn, _)| owned.free(pfn, order(o)).unwrap());
        drop(owned);
        assert_all_free(&fh);
    }
}

/// A request that the min mark refuses does not look at all the blocks that the zone has; and a
/// single frame freed into any of them counts at once.
#[test]
fn a_refused_request_costs_the_same_however_many_blocks_the_zone_has() {
    let (blocks, left) = (1024 * MIB / 512, 8);
    let fh = marked(1, range(512, 1024 * MIB), [blocks * left; 3], &SingleCpu);
    let on = fh.on(cpu(0));
    let request = movable(0).flags(AllocFlags::NO_WATERMARKS);
    let frames: Vec<Pfn> = all(&on, request);
    assert_eq!(frames.len() as u64, 1024 * MIB);
    // A few frames of each block are free, no two side by side, and the zone has all the blocks.
    let (free, mut used): (Vec<Pfn>, Vec<Pfn>) =
        frames.into_iter().partition(|pfn| pfn.get() % (512 / left) == 0);
    free.iter().for_each(|&pfn| on.free(pfn, Order::ZERO).unwrap());
    fh.drain_all();
    let before = fh.totals().shared_writes;
    for _ in 0..100 {
        assert!(is_no_memory(on.alloc(movable(0))), "all that is left is at the mark");
    }
    let writes = (fh.totals().shared_writes - before) / 100;
    assert!(writes <= 4, "{writes} writes for each of them");
    for _ in 0..100 {
        // Beside a free frame or not: no larger run than the block has already.
        let pfn = used.pop().unwrap();
        on.free(pfn, Order::ZERO).unwrap();
        // Not by a hint: it has to be found.
        on.flush().unwrap();
        used.push(on.alloc(movable(0)).expect("one frame more than the mark"));
        fh.drain_all();
    }
    used.into_iter().for_each(|pfn| on.free(pfn, Order::ZERO).unwrap());
    assert_all_free(&fh);
}

/// All of 256 blocks is in use as chunks of that order; the CPU that took them went offline.
fn all_used(order: u8) -> (Alloc<'static>, Vec<Pfn>) {
    let fh = marked(2, range(512, 256 * 512), [0; 3], &SingleCpu);
    let on = fh.on(cpu(1));
    let request = movable(order).flags(AllocFlags::NO_WATERMARKS);
    let mut chunks: Vec<Pfn> = all(&on, request);
    assert_eq!(chunks.len(), (256 * 512) >> order);
    chunks.sort_unstable();
    fh.on(cpu(1)).offline().unwrap();
    (fh, chunks)
}

/// Whatever is freed into a block of which nothing is known is found by the next request.
#[test]
fn what_is_freed_into_any_block_is_found_at_once() {
    for o in 0..9 {
        let (fh, chunks) = all_used(o);
        let on = fh.on(cpu(0));
        for &pfn in chunks.iter().step_by(512 >> o) {
            on.free(pfn, order(o)).unwrap();
            // Not by a hint.
            on.flush().unwrap();
            assert_eq!(on.alloc(movable(o)), Ok(pfn), "order {o}");
        }
        assert!(is_no_memory(on.alloc(movable(o))));
        fh.validate().unwrap();
    }
}

/// A word is this CPU's for as long as nobody may take it over: what is freed into it comes into
/// the hand, though there is nothing in hand just now. Frames to be poisoned go the slow way.
#[test]
#[cfg(not(feature = "debug-poison"))]
fn a_chunk_that_is_exchanged_stays_in_the_leased_words() {
    for o in 0..=2 {
        let fh = machine(1, 4096);
        let owned = fh.own(cpu(0)).unwrap();
        let mut held: Vec<Pfn> = (0..100).map(|_| owned.alloc(movable(o)).unwrap()).collect();
        let (mut random, mut in_hand) = (Rng::with_seed(7), 0);
        for _ in 0..10_000 {
            let place = random.usize(..held.len());
            if owned.free_in_hand(held[place], order(o)) {
                in_hand += 1;
            } else {
                owned.free(held[place], order(o)).unwrap();
            }
            held[place] = owned.alloc(movable(o)).unwrap();
        }
        assert!(in_hand > 9_500, "{in_hand} of 10,000 frees of order {o} came into the hand");
        for pfn in held {
            owned.free(pfn, order(o)).unwrap();
        }
        fh.validate().unwrap();
    }
}
