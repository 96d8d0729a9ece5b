//! A request fails only where nobody has what it asks for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use freehold::{Config, Migratetype, Pfn, Platform, Request, SingleCpu, Watermarks, ZoneConfig};

/// Blocks that one CPU had whole and freed are there for all others, in every order.
#[test]
fn whole_blocks_that_another_cpu_keeps_are_found_before_a_request_fails() {
    for o in [0, 3, 6, 8, 9] {
        let memory = [range(512, 64 * MIB)];
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
        let fh = build(&Config::new(3, &[zone]), &SingleCpu);
        let all = |c: u16, o: u8| -> Vec<Pfn> {
            std::iter::from_fn(|| fh.on(cpu(c)).alloc(movable(o)).ok()).collect()
        };
        let blocks = all(0, 9);
        assert_eq!(blocks.len() as u64, 64 * MIB / 512);
        blocks.iter().for_each(|&pfn| fh.on(cpu(0)).free(pfn, order(9)).unwrap());
        let chunks = all(1, o);
        assert_eq!(
            (chunks.len() as u64) << o,
            64 * MIB,
            "order {o} failed although memory was free"
        );
        chunks.iter().for_each(|&pfn| fh.on(cpu(2)).free(pfn, order(o)).unwrap());
        assert_all_free(&fh);
    }
}

/// The zone keeps its min mark in a partly free block, and hands out its last whole block: on a
/// machine of eight blocks one that is spared is an eighth of memory.
#[test]
fn the_last_whole_block_is_no_reserve_where_a_partly_free_one_will_do() {
    let memory = [range(512, 16 * MIB)];
    let zone = ZoneConfig { watermarks: Watermarks::Kernel, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(2, &[zone]), &SingleCpu);
    let min = fh.zone_stats(0).unwrap().watermarks[0];
    assert!((1..448).contains(&min));
    let frame = fh.on(cpu(1)).alloc(movable(0)).unwrap();
    let blocks: Vec<Pfn> = std::iter::from_fn(|| fh.on(cpu(0)).alloc(movable(9)).ok()).collect();
    assert_eq!(blocks.len(), 7, "there are 511 free frames beside them");
    // The mark is kept: by what is left of the partly free block.
    let frames: Vec<Pfn> = std::iter::from_fn(|| fh.on(cpu(0)).alloc(movable(0)).ok()).collect();
    assert_eq!(frames.len() as u64, 511 - min);
    fh.validate().unwrap();
    blocks.into_iter().for_each(|pfn| fh.on(cpu(0)).free(pfn, order(9)).unwrap());
    frames.into_iter().chain([frame]).for_each(|pfn| fh.on(cpu(0)).free(pfn, order(0)).unwrap());
    assert_all_free(&fh);
}

/// CPU 0 allocates, CPU 1 frees what it is given: how many of 64 `rounds` allocations failed,
/// although there was a free frame in a pool of 64 at each of them.
fn failures(host: &'static dyn Platform, rounds: u64) -> u64 {
    let memory = [range(512, 512)];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = build(&Config::new(2, &[zone]), host);
    fh.on(cpu(0)).alloc(movable(9)).unwrap();
    fh.on(cpu(0)).free_range(range(512, 64)).unwrap();
    let given: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    let (stop, mut failed) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let freer = fh.own(cpu(1)).unwrap();
            for place in given.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                match place.swap(0, Ordering::AcqRel) {
                    0 => std::thread::yield_now(),
                    pfn => freer.free(Pfn::new(pfn), order(0)).unwrap(),
                }
            }
        });
        let wait = |condition: &dyn Fn() -> bool| {
            while !condition() {
                std::thread::yield_now();
            }
        };
        let allocator = fh.own(cpu(0)).unwrap();
        for place in (0..rounds).flat_map(|_| &given) {
            // Of another type than the block: each request looks for itself.
            match allocator.alloc(Request::new(order(0), Migratetype::Unmovable)) {
                Err(_) => failed += 1,
                Ok(pfn) => {
                    wait(&|| place.load(Ordering::Acquire) == 0);
                    place.store(pfn.get(), Ordering::Release);
                }
            }
            if core::ptr::eq(place, &given[63]) {
                wait(&|| fh.zone_stats(0).unwrap().free == 64);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    fh.validate().unwrap();
    failed
}

/// What another CPU has in hand, or is just taking in hand, is found before a request fails. (Not
/// always: it may have it again each time it was asked.)
#[test]
fn a_request_does_not_fail_beside_a_cpu_that_frees() {
    for failed in [failures(Membarrier::new(), 300), failures(&SingleCpu, 300)] {
        assert!(failed < 300, "{failed} of 19,200 allocations failed although memory was free");
    }
}

/// A thread that was asked for what it has in hand leaves what it frees next where the asker finds
/// it.
#[test]
fn the_next_frees_after_a_recall_stay_in_their_words() {
    for asked in [false, true] {
        let fh = machine(1, 8);
        let block = fh.on(cpu(0)).alloc(movable(9)).unwrap().get();
        if asked {
            fh.drain_all();
        }
        (0..8).for_each(|n| fh.on(cpu(0)).free(Pfn::new(block + n), order(0)).unwrap());
        let in_hand = fh.cpu_holdings(cpu(0)).unwrap().0;
        assert_eq!(in_hand == 0, asked, "{in_hand} in hand");
        fh.on(cpu(0)).free_range(range(block + 8, 504)).unwrap();
        assert_all_free(&fh);
    }
}
