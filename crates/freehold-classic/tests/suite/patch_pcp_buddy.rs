//! "pcp buddy allocator", April 2026: what each part of the RFC claims, by counts.

use crate::support::*;
use freehold::{PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Stats, Tuning};

/// A batch of exactly one pageblock: every refill of an empty PCP claims one block, if there is
/// one, and nothing else. A CPU keeps up to `high` frames.
fn blocks_at_once(engine: &str, high: u32) -> Classic {
    let classic = machine(engine, 64);
    for cpu in [CPU0, CPU1] {
        classic.set_tuning(0, cpu, Tuning::new(512, high, high, false));
    }
    classic
}

/// A whole owned block, handed out frame by frame.
fn owned_block(classic: &Classic) -> Vec<Pfn> {
    let pfns = classic.take_many(CPU0, 0, Movable, 512);
    assert!(pfns.iter().all(|pfn| pfn.pageblock() == pfns[0].pageblock()));
    pfns
}

fn owned(classic: &Classic) -> u64 {
    classic.memory_map().blocks_by_owner[1..].iter().sum()
}

#[test]
fn patch_1_spends_a_struct_where_there_were_four_bits() {
    let bytes = |engine: &str| machine(engine, 1024).pageblock_bytes();
    assert_eq!(bytes("7.2"), 1024 / 2);
    assert_eq!(bytes("7.2,+pageblock-data"), 1024 * 20);
    assert_eq!(bytes("pcp-buddy"), bytes("7.2,+pageblock-data"));
}

#[test]
fn patch_1_changes_nothing_else() {
    let work = |engine: &str| {
        let classic = machine(engine, 64);
        let stats = classic.counted(|| {
            let pfns = classic.take_many(CPU0, 0, Movable, 3000);
            classic.put_all(CPU1, &pfns, 0);
            classic.take(CPU1, 9, Unmovable);
        });
        (stats.zone, stats.pcp, stats.zone_lock.total())
    };
    assert_eq!(work("7.2"), work("7.2,+pageblock-data"));
}

#[test]
fn a_refill_takes_a_whole_block_in_one_transaction_and_splits_it_outside_the_zone_lock() {
    let refill = |engine: &str| {
        let classic = blocks_at_once(engine, 4096);
        classic.counted(|| drop(classic.take_many(CPU0, 0, Movable, 512)))
    };
    let (before, after) = (refill("pcp-buddy,-claim,-fragment"), refill("pcp-buddy"));
    assert_eq!((before.zone_lock.holds(), after.zone_lock.holds()), (1, 1));
    assert_eq!((before.zone.taken_chunks, after.zone.taken_chunks), (512, 1));
    // A block's 511 splits move to the PCP; what is left is one of a pair of blocks.
    assert_eq!((before.zone.splits, before.pcp.splits), (512, 0));
    assert_eq!((after.zone.splits, after.pcp.splits), (1, 511));
    assert!(100 * after.zone_lock.max() < before.zone_lock.max());
}

/// Few purger threads: CPU 0 allocates, CPU 1 frees everything in batches.
fn purger(engine: &str) -> Stats {
    let classic = blocks_at_once(engine, 4096);
    // Every block that CPU 0 works in is its own.
    let first = owned_block(&classic);
    classic.put_all(CPU1, &first, 0);
    classic.counted(|| {
        for _ in 0..200 {
            let pfns = classic.take_many(CPU0, 0, Movable, 300);
            for batch in pfns.chunks(31) {
                let folios: Vec<_> = batch.iter().map(|&pfn| (pfn, order(0))).collect();
                classic.free_folios(CPU1, &folios).unwrap();
            }
        }
    })
}

#[test]
fn owner_routing_leaves_freers_with_no_zone_lock_traffic() {
    let (unrouted, routed, vanilla) =
        (purger("pcp-buddy,-route"), purger("pcp-buddy"), purger("7.2"));
    assert_eq!(routed.zone_lock.holds(), 0, "frames come back to where they are allocated");
    assert_eq!((routed.pcp.hits, routed.pcp.remote_frees), (60_000, 60_000));
    assert!(
        unrouted.zone_lock.holds() >= 30 && vanilla.zone_lock.holds() >= 30,
        "{unrouted:?} {vanilla:?}"
    );
    assert_eq!((unrouted.pcp.remote_frees, vanilla.pcp.remote_frees), (0, 0));
    // Nor does anything change with the lock-free list that Rik van Riel's series has.
    let fixed = purger("pcp-buddy-fixed");
    assert_eq!((fixed.zone_lock.holds(), fixed.pcp.remote_frees), (0, 60_000));
}

#[test]
fn a_batch_takes_a_pcp_lock_once_for_each_run_of_frames_that_go_there() {
    for engine in ["7.3", "pcp-buddy"] {
        let classic = blocks_at_once(engine, 4096);
        let mine = classic.take_many(CPU0, 0, Movable, 31);
        let others = classic.take_many(CPU1, 0, Movable, 31);
        let free = |pfns: &mut dyn Iterator<Item = Pfn>| {
            let folios: Vec<_> = pfns.map(|pfn| (pfn, order(0))).collect();
            let stats = classic.counted(|| _ = classic.free_folios(CPU1, &folios).unwrap());
            (stats.pcp.lock_holds, stats.pcp.lock_steps)
        };
        assert_eq!(free(&mut mine[..15].iter().copied()), (1, 15), "{engine}");
        // Two owners in turn; without owners all go to the CPU that frees.
        let pairs = mine[15..].iter().zip(&others).flat_map(|(a, b)| [*a, *b]);
        let holds = if engine == "7.3" { 1 } else { 30 };
        assert_eq!(free(&mut pairs.take(30)), (holds, 30), "{engine}");
    }
}

#[test]
fn merging_moves_from_the_zone_lock_to_the_pcp_lock() {
    let drain = |engine: &str| {
        let classic = blocks_at_once(engine, 4096);
        let pfns = owned_block(&classic);
        classic.put_all(CPU1, &pfns, 0);
        let stats = classic.counted(|| classic.drain_all());
        classic.whole_again(64);
        stats
    };
    let (before, after) = (drain("pcp-buddy,-merge"), drain("pcp-buddy"));
    // 511 merges make a block of its frames, one more joins it with its neighbour.
    assert_eq!((before.zone.merges, before.pcp.merges), (512, 0));
    assert_eq!((after.zone.merges, after.pcp.merges), (1, 511));
    assert!(50 * after.zone_lock.max() < before.zone_lock.max());
    // The work is done all the same, in the hold that was there before.
    assert_eq!(before.pcp.lock_holds, after.pcp.lock_holds);
    assert!(after.pcp.lock_steps > before.pcp.lock_steps + 511, "{after:?}");
}

#[test]
fn whole_blocks_are_drained_first_and_disowned() {
    for (engine, whole) in [("pcp-buddy", 1), ("pcp-buddy,-whole-first", 0)] {
        let classic = blocks_at_once(engine, 4096);
        let frames = [owned_block(&classic), owned_block(&classic), owned_block(&classic)];
        assert_eq!(owned(&classic), 3);
        // Fragments of the first block lie on the list that overflows; two whole blocks beside
        // them.
        classic.put_all(CPU0, &frames[1], 0);
        classic.put_all(CPU0, &frames[2], 0);
        let fragments: Vec<Pfn> =
            frames[0].iter().copied().filter(|pfn| pfn.get() % 2 == 0).collect();
        classic.put_all(CPU0, &fragments[..200], 0);
        classic.set_tuning(
            0,
            CPU0,
            Tuning { free_count: 150, ..Tuning::new(63, 1200, 1200, false) },
        );
        // 1,225 frames are too many: 150 of them should go.
        let stats = classic.counted(|| classic.put(CPU0, fragments[200], 0));
        assert_eq!(stats.pcp.drains, 1);
        assert_eq!(stats.pcp.drained_blocks, whole, "{engine}");
        assert_eq!(
            owned(&classic),
            3 - whole,
            "{engine}: a block that is whole belongs to the zone"
        );
    }
}

#[test]
fn a_block_that_becomes_whole_on_the_zones_lists_is_disowned_too() {
    for engine in ["pcp-buddy", "pcp-buddy-fixed"] {
        let classic = blocks_at_once(engine, 4096);
        let pfns = owned_block(&classic);
        classic.put_all(CPU1, &pfns[1..], 0);
        classic.drain_all();
        assert_eq!(owned(&classic), 1, "{engine}: one frame is still out");
        classic.put(CPU1, pfns[0], 0);
        classic.drain_all();
        assert_eq!(owned(&classic), 0, "{engine}");
        classic.whole_again(64);
    }
}

/// A partial drain: half of an owned block is in use, the rest has gone back to the zone in
/// fragments.
fn partly_drained(engine: &str) -> (Classic, Vec<Pfn>) {
    let classic = blocks_at_once(engine, 4096);
    let mut in_use = owned_block(&classic);
    let freed = in_use.split_off(256);
    classic.put_all(CPU1, &freed, 0);
    classic.drain_all();
    (classic, in_use)
}

#[test]
fn a_partial_drain_is_recovered_before_a_new_block_is_claimed() {
    for (engine, recovers) in
        [("pcp-buddy", true), ("pcp-buddy-fixed", true), ("pcp-buddy,-recover", false)]
    {
        let (classic, in_use) = partly_drained(engine);
        let block = in_use[0].pageblock();
        // What is wanted is exactly what the block has left.
        classic.set_tuning(0, CPU0, Tuning::new(256, 4096, 4096, false));
        let stats = classic.counted(|| {
            let pfns = classic.take_many(CPU0, 0, Movable, 256);
            assert!(pfns.iter().all(|pfn| pfn.pageblock() == block), "{engine}");
        });
        assert_eq!(
            (stats.pcp.refills_recover, stats.pcp.refills_claim),
            (u64::from(recovers), 0),
            "{engine}"
        );
        assert_eq!(stats.pcp.refills_fragment, u64::from(!recovers), "{engine}");
        // With a budget for a block besides, the old one comes first and the new one second.
        let (classic, _) = partly_drained(engine);
        classic.set_tuning(0, CPU0, Tuning::new(768, 4096, 4096, false));
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        assert_eq!(stats.pcp.refills_recover, u64::from(recovers), "{engine}");
        assert_eq!((stats.pcp.refills_claim, owned(&classic)), (1, 2), "{engine}");
    }
}

#[test]
fn recovered_fragments_may_merge_on_the_pcp_again_and_cached_ones_may_not() {
    for (engine, merges) in [("pcp-buddy", true), ("pcp-buddy,-recover", false)] {
        let (classic, in_use) = partly_drained(engine);
        classic.set_tuning(0, CPU0, Tuning::new(256, 4096, 4096, false));
        let pfn = classic.take(CPU0, 0, Movable);
        classic.put(CPU0, pfn, 0);
        classic.put_all(CPU0, &in_use, 0);
        let stats = classic.counted(|| classic.drain_all());
        assert_eq!(
            stats.pcp.drained_blocks == 1,
            merges,
            "{engine}: all of the block is on its owner's PCP"
        );
        classic.whole_again(64);
    }
}

#[test]
fn a_small_zone_degrades_to_fragments_and_single_pages() {
    for engine in ["pcp-buddy", "pcp-buddy-fixed"] {
        // 16 MiB: a batch of 1 frame, at most 128 on a CPU. No refill ever has room for a block.
        let classic = machine(engine, 8);
        let stats = classic.counted(|| {
            for _ in 0..50 {
                let pfns = classic.take_many(CPU0, 0, Movable, 200);
                classic.put_all(CPU1, &pfns, 0);
            }
        });
        assert_eq!((stats.pcp.refills_recover, stats.pcp.refills_claim), (0, 0), "{engine}");
        assert!(stats.pcp.refills_fragment > 0 && stats.pcp.refills_fallback > 0, "{engine}");
        assert_eq!(
            (owned(&classic), stats.pcp.remote_frees),
            (0, 0),
            "{engine}: nobody owns anything"
        );
        classic.whole_again(8);
    }
}

#[test]
fn ownership_arises_in_bursts_of_allocations_only() {
    // Batch 63: 1,008 frames at once are needed, which takes five refills in a row without a free.
    let classic = machine("pcp-buddy", 64);
    classic.set_tuning(0, CPU0, Tuning::new(63, 443, 32_768, false));
    let mut claims = Vec::new();
    while claims.len() < 6 {
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        claims.extend((stats.pcp.refills > 0).then_some(stats.pcp.refills_claim));
    }
    assert_eq!(claims, [0, 0, 0, 0, 1, 1]);
    assert_eq!(owned(&classic), 1 + 3);
}

#[test]
fn chunks_of_a_refill_are_large_even_where_no_block_is_whole() {
    let refill = |engine: &str| {
        let classic = blocks_at_once(engine, 4096);
        // A frame of every block is in use: nothing is whole, much is large.
        let all = classic.take_many(CPU1, 10, Movable, 32);
        for pfn in all {
            classic.split(pfn, order(10), order(0)).unwrap();
            let frames: Vec<Pfn> = (0..1024).map(|i| pfn.checked_add(i).unwrap()).collect();
            let (kept, freed): (Vec<_>, Vec<_>) =
                frames.into_iter().partition(|pfn| pfn.get() % PAGEBLOCK_FRAMES == 0);
            assert_eq!(kept.len(), 2);
            classic.free_array(CPU1, &freed).unwrap();
        }
        classic.drain_all();
        classic.counted(|| drop(classic.take_many(CPU0, 0, Movable, 512)))
    };
    let (before, after) = (refill("pcp-buddy,-fragment"), refill("pcp-buddy"));
    assert_eq!((before.pcp.refills_claim, after.pcp.refills_claim), (0, 0));
    assert_eq!(
        (before.zone.taken_chunks, after.zone.taken_chunks),
        (512, 2),
        "two chunks of order 8"
    );
    assert!(after.zone_lock.total() * 10 < before.zone_lock.total());
}
