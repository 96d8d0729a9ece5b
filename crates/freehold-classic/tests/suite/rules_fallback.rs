//! What a type that has nothing left takes from the others: whom it asks first, when it claims a
//! whole pageblock, when it steals a single chunk, and what a refill remembers of the search.

use crate::support::*;
use freehold::{AllocFlags, Migratetype, PAGEBLOCK_FRAMES};
use freehold_classic::Classic;

/// Four pageblocks in use, the first one of type `first` and split into single frames.
fn full(engine: &str, first: Migratetype) -> Classic {
    let classic = zone_only(engine, 4);
    assert_eq!(classic.take(CPU0, 9, first), at(0));
    classic.take_many(CPU0, 9, Movable, 3);
    classic.split(at(0), order(9), order(0)).unwrap();
    classic
}

fn free(classic: &Classic, start: u64, frames: u64) {
    assert_eq!(classic.free_contig_range(CPU0, range(start, frames)), Ok(0));
}

#[test]
fn each_type_asks_the_others_in_its_own_order() {
    for (requested, first, second) in [
        (Unmovable, Reclaimable, Movable),
        (Movable, Reclaimable, Unmovable),
        (Reclaimable, Unmovable, Movable),
    ] {
        for swapped in [false, true] {
            // Two pairs of blocks are free, of the two other types; wherever they lie the preferred
            // type serves.
            let classic = zone_only("7.2", 6);
            let types =
                if swapped { [second, first, requested] } else { [first, second, requested] };
            let pairs = types.map(|mt| classic.take(CPU0, 10, mt));
            classic.put_all(CPU0, &pairs[..2], 10);
            let preferred = pairs[usize::from(swapped)];
            let stats = classic.counted(|| assert_eq!(classic.take(CPU0, 9, requested), preferred));
            assert_eq!((stats.zone.fallbacks, stats.zone.claims), (1, 1));
            assert_eq!(
                stats.fallbacks[9][requested.index()][first.index()],
                1,
                "by order and types"
            );
            assert_eq!(stats.fallbacks.as_flattened().as_flattened().iter().sum::<u64>(), 1);
            assert_eq!(
                (classic.types(first), classic.types(second)),
                (0, 2),
                "all of the chunk changes its type"
            );
        }
    }
}

/// Whether a request of `order` and `requested` claims the block at 0 instead of stealing from it.
fn claims(classic: &Classic, o: u8, requested: Migratetype) -> bool {
    let before = classic.types(requested);
    let stats =
        classic.counted(|| assert!(classic.take(CPU0, o, requested) < at(PAGEBLOCK_FRAMES)));
    assert_eq!(stats.zone.fallbacks, 1);
    assert_eq!(stats.fallbacks[usize::from(o)][requested.index()].iter().sum::<u64>(), 1);
    assert_eq!(stats.zone.claims + stats.zone.steals, 1);
    let claimed = stats.zone.claims == 1;
    assert_eq!(
        classic.types(requested) - before,
        u64::from(claimed),
        "a claimed block changes its type, others do not"
    );
    claimed
}

#[test]
fn between_unmovable_and_reclaimable_256_free_frames_make_a_block_claimable() {
    for (frames, expected) in [(256, true), (255, false)] {
        let classic = full("7.2", Reclaimable);
        free(&classic, 0, frames);
        assert_eq!(claims(&classic, 0, Unmovable), expected, "{frames} free");
    }
}

#[test]
fn a_movable_request_counts_movable_frames_in_use_as_alike() {
    for (movable, expected) in [(156, true), (155, false)] {
        let classic = full("7.2", Unmovable);
        free(&classic, 0, 100);
        // Movable frames in a block that stays unmovable: taken by address, after what was there
        // has gone.
        free(&classic, 256, movable);
        classic.alloc_contig_range(CPU0, range(256, movable), &mut |_| false).unwrap();
        assert_eq!(classic.types(Unmovable), 1);
        assert_eq!(claims(&classic, 4, Movable), expected, "100 free, {movable} movable");
    }
}

#[test]
fn an_unmovable_request_counts_what_is_neither_free_nor_movable_in_a_movable_block() {
    for (frames, expected) in [(100, true), (99, false)] {
        // 156 unmovable frames in a block that a movable request has claimed since.
        let classic = full("7.2", Unmovable);
        free(&classic, 156, 356);
        let claimed = classic.take(CPU0, 4, Movable);
        assert_eq!(classic.types(Movable), 4, "claimed with 356 free frames");
        classic.put(CPU0, claimed, 4);
        let movable = 356 - frames;
        classic.alloc_contig_range(CPU0, range(156 + frames, movable), &mut |_| false).unwrap();
        assert_eq!(claims(&classic, 0, Unmovable), expected, "{frames} free, {movable} movable");
    }
}

#[test]
fn a_small_movable_request_does_not_claim_from_small_chunks() {
    for (requested, expected) in [(Movable, false), (Unmovable, true)] {
        let classic = full("7.2", Reclaimable);
        // 256 free frames, in chunks of order 3 only.
        (0..32).for_each(|i| free(&classic, 16 * i, 8));
        assert_eq!(classic.memory_map().zone_chunks, [0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(claims(&classic, 0, requested), expected, "{requested}");
    }
    // Order 4 is the smallest chunk from which a movable request claims.
    let classic = full("7.2", Reclaimable);
    (0..16).for_each(|i| free(&classic, 32 * i, 16));
    assert!(claims(&classic, 0, Movable));
}

#[test]
fn what_is_left_of_a_stolen_chunk_stays_with_its_blocks_type() {
    let classic = full("7.2", Reclaimable);
    free(&classic, 0, 8);
    assert_eq!(classic.take(CPU0, 0, Unmovable), at(0));
    // Frames 1..8 still serve a reclaimable request without any fallback.
    let stats = classic.counted(|| assert_eq!(classic.take(CPU0, 2, Reclaimable), at(4)));
    assert_eq!(stats.zone.fallbacks, 0);
}

#[test]
fn since_6_15_stealing_breaks_up_the_smallest_chunk_and_before_the_largest() {
    for (engine, taken) in [("7.2", at(100)), ("7.2,-claim-steal", at(0))] {
        let classic = full(engine, Reclaimable);
        free(&classic, 0, 64);
        free(&classic, 100, 1);
        assert_eq!(classic.take(CPU0, 0, Unmovable), taken, "{engine}");
        classic.validate().unwrap();
    }
}

#[test]
fn before_6_10_a_block_not_worth_claiming_still_lost_its_free_chunks() {
    for (engine, moved) in [("5.18", true), ("7.2,-claim-steal", false)] {
        let classic = full(engine, Reclaimable);
        free(&classic, 0, 64);
        free(&classic, 128, 16);
        classic.take(CPU0, 0, Unmovable);
        assert_eq!(classic.types(Unmovable), 0);
        // The chunk at 128 went along to the unmovable lists: no second fallback is needed to get
        // it.
        let stats = classic.counted(|| drop(classic.take_many(CPU0, 4, Unmovable, 4)));
        assert_eq!(stats.zone.fallbacks == 0, moved, "{engine}");
    }
}

#[test]
fn a_request_that_may_not_fragment_takes_whole_blocks_and_falls_back_to_parts_last() {
    let classic = zone_only("7.2", 4);
    classic.take_many(CPU0, 9, Reclaimable, 4);
    classic.split(at(0), order(9), order(0)).unwrap();
    free(&classic, 0, 300);
    classic.put(CPU0, at(1024), 9);
    let flags = AllocFlags::NO_FRAGMENT;
    // The half-empty block would be claimable, but a whole one is there.
    let stats =
        classic.counted(|| assert_eq!(classic.try_with(0, Unmovable, flags), Some(at(1024))));
    assert_eq!((stats.zone.claims, stats.zone.steals, stats.zone.boosts), (1, 0, 0));
    // Nothing whole is left: the second attempt, at the same mark, may fragment.
    let rest = classic.take_many(CPU0, 0, Unmovable, 511);
    assert!(rest.iter().all(|pfn| block(2).contains(*pfn)));
    let stats = classic.counted(|| assert!(classic.try_with(0, Unmovable, flags).is_some()));
    assert_eq!((stats.zone.fallbacks, stats.failed, stats.drain_all), (1, 0, 0));
}

#[test]
fn a_refill_that_remembers_its_stage_looks_at_fewer_lists() {
    // A movable refill that has to steal frame by frame from blocks not worth claiming.
    let looked_at = |engine: &str| {
        let classic = machine(engine, 128);
        let blocks = classic.take_many(CPU0, 9, Unmovable, 128);
        classic.split(blocks[0], order(9), order(0)).unwrap();
        (0..100).for_each(|i| free(&classic, offset(blocks[0]) + 2 * i, 1));
        classic.drain_all();
        let stats = classic.counted(|| {
            classic.take(CPU0, 0, Movable);
        });
        assert_eq!((stats.pcp.refills, stats.pcp.refilled_frames), (1, 15), "{engine}");
        assert_eq!((stats.zone.steals, stats.zone.claims), (15, 0), "{engine}");
        stats.zone.lists_looked_at
    };
    let (before, after) = (looked_at("6.18,-remember-mode"), looked_at("6.18"));
    // Each frame after the first costs the two fallback lists of order 0 instead of the whole
    // search.
    assert_eq!(before % 15, 0);
    assert_eq!(after, before / 15 + 14 * 2);
}

#[test]
fn a_fallback_into_part_of_a_block_boosts_the_watermarks_and_a_tick_ends_it() {
    let mut config = config("7.2", 4);
    config.zones[0].watermarks = Some(freehold_classic::Watermarks { min: 1, low: 2, high: 3 });
    let classic = zone_only_of(config);
    classic.take(CPU0, 9, Reclaimable);
    classic.take_many(CPU0, 9, Movable, 2);
    classic.take_many(CPU0, 8, Movable, 1);
    classic.split(at(0), order(9), order(0)).unwrap();
    free(&classic, 0, 200);
    // 456 frames are free: reclaimable and movable ones. An unmovable request falls back into part
    // of a block.
    let stats = classic.counted(|| {
        classic.take(CPU0, 0, Unmovable);
    });
    assert_eq!(stats.zone.boosts, 1);
    // Marks are 512 frames higher now: more than is free.
    assert_eq!(classic.try_with(0, Movable, AllocFlags::empty()), None);
    assert!(
        classic.try_with(0, Movable, AllocFlags::MIN_RESERVE).is_some(),
        "important singles ignore the boost"
    );
    classic.tick(CPU0);
    assert!(classic.try_with(0, Movable, AllocFlags::empty()).is_some());
}

#[test]
fn a_fallback_that_may_not_claim_boosts_the_watermarks_in_one_step_kernels_only() {
    // 6.14 boosts before it asks whether the whole block may be had; since 6.15 only a claim
    // boosts.
    for (engine, boosts) in [("7.2,-claim-steal", 1), ("7.2", 0)] {
        let mut config = config(engine, 4);
        config.zones[0].watermarks = Some(freehold_classic::Watermarks { min: 0, low: 0, high: 1 });
        let classic = zone_only_of(config);
        let blocks = classic.take_many(CPU0, 9, Reclaimable, 4);
        classic.split(blocks[0], order(9), order(0)).unwrap();
        free(&classic, 0, 8);
        let stats = classic.counted(|| _ = classic.take(CPU0, 0, Movable));
        assert_eq!((stats.zone.steals, stats.zone.boosts), (1, boosts), "{engine}");
    }
}
