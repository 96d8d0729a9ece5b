//! The four phases of a pcp-buddy refill, and the drain that leaves them something: where each
//! begins, and where it ends.

use crate::support::*;
use freehold::Pfn;
use freehold_classic::{Classic, Tuning};

const ENGINES: [&str; 2] = ["pcp-buddy", "pcp-buddy-fixed"];

fn tune(classic: &Classic, batch: u32) {
    for cpu in [CPU0, CPU1] {
        classic.set_tuning(0, cpu, Tuning::new(batch, 4096, 4096, false));
    }
}

/// A batch of exactly one pageblock, and room for eight.
fn blocks_at_once(engine: &str) -> Classic {
    let classic = machine(engine, 64);
    tune(&classic, 512);
    classic
}

/// `N` blocks that CPU 0 owns. The first half of each is in use, the second half lies in the zone
/// in fragments, and its owner remembers it.
fn half_drained<const N: usize>(classic: &Classic) -> [Vec<Pfn>; N] {
    let mut blocks = core::array::from_fn(|_| classic.take_many(CPU0, 0, Movable, 512));
    for block in &mut blocks {
        let freed = block.split_off(256);
        classic.put_all(CPU1, &freed, 0);
    }
    classic.drain_all();
    blocks
}

#[test]
fn phase_0_stops_once_it_has_enough() {
    for engine in ENGINES {
        let classic = blocks_at_once(engine);
        let blocks: [Vec<Pfn>; 2] = half_drained(&classic);
        tune(&classic, 256);
        for _ in &blocks {
            let stats = classic.counted(|| drop(classic.take_many(CPU0, 0, Movable, 256)));
            let Tuning { alloc_factor, .. } = classic.tuning(0, CPU0).unwrap();
            assert_eq!(
                (stats.pcp.refills_recover, stats.pcp.refills, stats.pcp.refilled_frames),
                (1, 1, 256),
                "{engine}, {alloc_factor}"
            );
            tune(&classic, 256);
        }
    }
}

#[test]
fn a_block_that_has_been_recovered_is_looked_at_no_more() {
    for engine in ENGINES {
        let classic = blocks_at_once(engine);
        let _in_use: [Vec<Pfn>; 1] = half_drained(&classic);
        tune(&classic, 256);
        let stats = classic.counted(|| drop(classic.take_many(CPU0, 0, Movable, 256)));
        assert_eq!(stats.pcp.refills_recover, 1, "{engine}");
        assert!(stats.zone_lock.max() > 256, "it looks at every frame in use");
        // All of the block is in use. What comes next is a new one, without a look at the old.
        tune(&classic, 512);
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        assert_eq!((stats.pcp.refills_recover, stats.pcp.refills_claim), (0, 1), "{engine}");
        assert!(stats.zone_lock.max() < 20, "{engine}: {}", stats.zone_lock.max());
    }
}

/// A zone of two blocks in which those frames are free that `free` says, on the zone's lists.
fn broken_up(engine: &str, free: impl Fn(Pfn) -> bool) -> Classic {
    let classic = machine(engine, 2);
    classic.pcp_disable();
    let all = classic.exhaust(0, Movable, freehold::AllocFlags::empty());
    let freed: Vec<Pfn> = all.into_iter().filter(|&pfn| free(pfn)).collect();
    classic.put_all(CPU0, &freed, 0);
    assert_eq!(classic.memory_map().on_pcp, 0);
    tune(&classic, 64);
    classic
}

#[test]
fn phase_2_ends_above_the_wanted_order_and_leaves_that_to_phase_3() {
    for engine in ENGINES {
        let refill = |free: fn(Pfn) -> bool| {
            let classic = broken_up(engine, free);
            let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable)).pcp;
            (stats.refills_fragment, stats.refills_fallback, stats.refilled_frames)
        };
        assert_eq!(refill(|pfn| pfn.get() % 2 == 0), (0, 1, 64), "{engine}: single frames");
        assert_eq!(refill(|pfn| pfn.get() % 4 < 2), (1, 0, 64), "{engine}: pairs");
    }
}

#[test]
fn a_refill_of_a_single_chunk_goes_straight_to_phase_3() {
    for engine in ENGINES {
        let classic = blocks_at_once(engine);
        let _in_use: [Vec<Pfn>; 1] = half_drained(&classic);
        tune(&classic, 1);
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable)).pcp;
        assert_eq!((stats.refills, stats.refilled_frames), (1, 1), "{engine}");
        let phases = [stats.refills_recover, stats.refills_claim, stats.refills_fragment];
        assert_eq!((phases, stats.refills_fallback), ([0; 3], 1), "{engine}");
    }
}

#[test]
fn a_drain_begins_with_unmovable_blocks() {
    for engine in ENGINES {
        let classic = blocks_at_once(engine);
        for migratetype in [Movable, Reclaimable, Unmovable] {
            let pfns = classic.take_many(CPU0, 0, migratetype, 512);
            classic.put_all(CPU0, &pfns, 0);
        }
        let count = classic.pcp_count(0, CPU0);
        for (frames, movable, reclaimable) in [(1, 0, 0), (513, 512, 0), (1025, 512, 512)] {
            // Idle, it has so many frames too many, of which a block is always enough.
            let high = count - frames;
            classic.set_tuning(0, CPU0, Tuning { high, ..Tuning::new(512, high, 4096, false) });
            classic.tick(CPU0);
            let [unmovable, m, r] = classic.stats().flow.drained[9];
            assert_eq!((unmovable, m, r), (512, movable, reclaimable), "{engine}");
        }
    }
}

#[test]
fn fragments_of_every_order_go_to_the_tail() {
    for (engine, avoided) in
        [("pcp-buddy", true), ("pcp-buddy-fixed", true), ("pcp-buddy,-fragment-tail", false)]
    {
        for o in [0, 1, 3, 5, 7] {
            let classic = blocks_at_once(engine);
            let owned = classic.take_many(CPU0, 0, Movable, 512);
            // A chunk that nobody owns, and an owned fragment of that size behind it.
            let pair = classic.take(CPU1, 10, Movable);
            classic.split(pair, order(10), order(o)).unwrap();
            let nobodys = pair.checked_add(1 << o).unwrap();
            classic.put(CPU1, nobodys, o);
            classic.drain_all();
            let parts: Vec<Pfn> =
                owned.iter().copied().filter(|pfn| offset(*pfn) % 512 < 1 << o).collect();
            classic.put_all(CPU0, &parts, 0);
            let stats = classic.counted(|| classic.drain_all());
            assert_eq!(stats.pcp.drained_chunks, 1, "{engine}: merged to order {o}");
            classic.set_tuning(0, CPU1, Tuning::new(1, 0, 0, false));
            assert_eq!(classic.take(CPU1, o, Movable) == nobodys, avoided, "{engine}, order {o}");
        }
    }
}
