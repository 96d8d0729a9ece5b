//! Who may use which part of a zone's memory: watermarks and their relaxations, lowmem_reserve,
//! HIGHATOMIC and CMA.

use crate::support::*;
use freehold::{AllocFlags, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Watermarks, ZoneConfig};

/// A zone of `blocks` that always counts as short, so that requests come to use their rights.
fn short(engine: &str, blocks: u64) -> Classic {
    let mut config = config(engine, blocks);
    config.zones[0].watermarks = Some(Watermarks { min: 0, low: 1 << 20, high: 1 << 20 });
    zone_only_of(config)
}

#[test]
fn each_flag_opens_its_part_of_the_reserve_and_no_more() {
    let all = AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK;
    for (flags, left) in [
        (AllocFlags::empty(), 1000),
        (AllocFlags::NON_BLOCK, 1000),
        (AllocFlags::MIN_RESERVE, 500),
        (all, 375),
        (AllocFlags::OOM, 500),
        (AllocFlags::MIN_RESERVE | AllocFlags::OOM, 250),
        (AllocFlags::NO_WATERMARKS, 0),
    ] {
        for pcps in [false, true] {
            if pcps && flags.contains(AllocFlags::NON_BLOCK) {
                // Frames on PCPs are not free for the check, and who may not wait does not get them
                // drained.
                continue;
            }
            let mut config = config("7.2", 16);
            config.zones[0].watermarks = Some(Watermarks { min: 1000, low: 1250, high: 1500 });
            let classic = if pcps { Classic::new(config).unwrap() } else { zone_only_of(config) };
            let served = classic.exhaust(0, Movable, flags).len() as u64;
            assert_eq!(16 * PAGEBLOCK_FRAMES - served, left, "{flags:?}, with PCPs: {pcps}");
            classic.validate().unwrap();
        }
    }
}

#[test]
fn a_large_request_needs_a_chunk_of_its_size_above_the_mark() {
    let mut config = config("7.2", 16);
    config.zones[0].watermarks = Some(Watermarks { min: 1000, low: 1250, high: 1500 });
    let classic = zone_only_of(config);
    let singles = classic.exhaust(0, Movable, AllocFlags::NO_WATERMARKS);
    // Every second frame is free: plenty of memory, no chunk of two frames.
    singles.iter().filter(|pfn| pfn.get() % 2 == 0).for_each(|&pfn| classic.put(CPU0, pfn, 0));
    assert_eq!(classic.memory_map().free, 8 * PAGEBLOCK_FRAMES);
    assert_eq!(classic.try_with(1, Movable, AllocFlags::empty()), None);
    assert!(classic.try_with(0, Movable, AllocFlags::empty()).is_some());
}

#[test]
fn a_lower_zone_keeps_its_lowmem_reserve_whatever_the_flags() {
    for (flags, left) in [(AllocFlags::empty(), 1100), (AllocFlags::MIN_RESERVE, 1050)] {
        let marks = |min| Some(Watermarks { min, low: min, high: min });
        let mut low = ZoneConfig::new("DMA32", Pfn::new(0x1000), 8 * PAGEBLOCK_FRAMES);
        (low.watermarks, low.lowmem_reserve) = (marks(100), 1000);
        let mut normal = ZoneConfig::new("Normal", BASE, 8 * PAGEBLOCK_FRAMES);
        // Its own reserve would only protect it from requests for a zone above it, and there is
        // none.
        (normal.watermarks, normal.lowmem_reserve) = (marks(0), 1000);
        let zones = vec![low, normal];
        let classic = zone_only_of(Config { zones, ..config("7.2", 1) });
        let served = classic.exhaust(0, Movable, flags);
        let in_low = served.iter().filter(|pfn| **pfn < BASE).count() as u64;
        assert_eq!(
            served.len() as u64 - in_low,
            8 * PAGEBLOCK_FRAMES,
            "the highest zone serves first, all of it"
        );
        assert!(served[..8 * PAGEBLOCK_FRAMES as usize].iter().all(|&pfn| pfn >= BASE));
        assert_eq!(8 * PAGEBLOCK_FRAMES - in_low, left, "{flags:?}");
        classic.put_all(CPU0, &served, 0);
        classic.whole_again(16);
    }
}

#[test]
fn highatomic_reserves_grow_to_one_percent_rounded_up_to_blocks_and_not_in_small_zones() {
    // Before 6.8 to a block more, and in every zone.
    let since = [("7.2", 99, 0), ("7.2", 100, 1), ("7.2", 128, 2), ("7.2", 201, 3)];
    let before = [("5.18", 99, 2), ("5.18", 100, 2), ("5.18", 128, 3), ("5.18", 201, 4)];
    for (engine, blocks, most) in since.into_iter().chain(before) {
        let classic = short(engine, blocks);
        for _ in 0..5 * 32 {
            assert!(classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).is_some());
        }
        assert_eq!(classic.types(HighAtomic), most, "{engine}, {blocks} blocks");
        assert_eq!(classic.stats().zone.high_atomic_reserves, most);
        classic.validate().unwrap();
    }
}

#[test]
fn a_block_that_reaches_beyond_its_zone_is_not_reserved() {
    // Its other frames belong to another zone and that one's lock: the kernel does not move its
    // free pages.
    let mut config = config("6.18", 128);
    config.zones[0].range = range(256, 128 * PAGEBLOCK_FRAMES);
    // Always short, and without a high mark that fallbacks could raise.
    config.zones[0].watermarks = Some(Watermarks { min: 0, low: 1 << 20, high: 0 });
    let classic = zone_only_of(config);
    let all = classic.exhaust(4, Unmovable, AllocFlags::empty());
    for (block, reserved) in [(0, 0), (128, 0), (64, 1)] {
        // The one free chunk of that block is what the request gets.
        let chunk = all.iter().find(|pfn| offset(**pfn) / PAGEBLOCK_FRAMES == block).unwrap();
        classic.put(CPU0, *chunk, 4);
        assert_eq!(classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC), Some(*chunk));
        assert_eq!(classic.types(HighAtomic), reserved, "block {block}");
    }
    classic.validate().unwrap();
}

#[test]
fn nothing_is_reserved_for_single_frames_or_while_memory_is_plentiful() {
    let classic = short("7.2", 128);
    assert!(classic.try_with(0, Unmovable, AllocFlags::HIGH_ATOMIC).is_some());
    assert_eq!(classic.types(HighAtomic), 0);
    // Above the low mark a request has no rights yet, and needs none.
    let classic = zone_only("7.2", 128);
    let stats = classic
        .counted(|| assert!(classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).is_some()));
    assert_eq!((stats.zone.high_atomic_reserves, stats.zone_lock.holds()), (0, 1));
}

#[test]
fn since_7_3_an_atomic_high_order_request_has_its_right_from_the_first_attempt() {
    // Memory is plentiful. With its right a request passes an empty list by and asks the zone for
    // its one chunk; without, it refills the list as everybody does. Neither reserves a block.
    for (engine, refills) in [("7.2", 1), ("7.2,+highatomic-first", 0), ("7.3", 0), ("6.18", 1)] {
        let classic = machine(engine, 128);
        let stats = classic.counted(|| {
            assert!(classic.try_with(3, Unmovable, AllocFlags::HIGH_ATOMIC).is_some());
        });
        assert_eq!((stats.pcp.refills, stats.zone.high_atomic_reserves), (refills, 0), "{engine}");
        // A single frame has no such right.
        let stats = classic.counted(|| {
            assert!(classic.try_with(0, Movable, AllocFlags::HIGH_ATOMIC).is_some());
        });
        assert_eq!(stats.pcp.refills, 1, "{engine}");
    }
}

#[test]
fn since_7_3_the_reserve_is_used_first_even_while_memory_is_plentiful() {
    for (engine, from_reserve) in [("7.2", false), ("7.3", true)] {
        let mut config = config(engine, 128);
        config.zones[0].watermarks = Some(Watermarks { min: 0, low: 60_000, high: 60_000 });
        let classic = Classic::new(config).unwrap();
        let movable = classic.take_many(CPU0, 9, Movable, 100);
        let first = classic.try_with(3, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap();
        assert_eq!(classic.types(HighAtomic), 1, "{engine}: the zone was below its low mark");
        classic.put_all(CPU1, &movable, 9);
        classic.drain_all();
        let next = classic.try_with(3, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap();
        assert_eq!(next.pageblock() == first.pageblock(), from_reserve, "{engine}");
    }
}

#[test]
fn reserved_frames_go_to_highatomic_first_to_others_in_need_last_and_to_nobody_else() {
    let classic = short("7.2", 128);
    let first = classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap();
    let reserve = first.pageblock();
    let next = classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap();
    assert_eq!(next.pageblock(), reserve);
    let ordinary = classic.exhaust(4, Movable, AllocFlags::empty());
    // It fails nobody to keep its last block: an ordinary request in the end gets it back.
    assert!(ordinary.iter().rev().take(30).all(|pfn| pfn.pageblock() == reserve));
    assert_eq!(ordinary.len(), 128 * 32 - 2);
    assert_eq!((classic.stats().zone.high_atomic_unreserves, classic.types(HighAtomic)), (1, 0));

    // Somebody who cannot wait for that takes from the reserve as a last resort and leaves it a
    // reserve.
    let classic = short("7.2", 128);
    let reserve = classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap().pageblock();
    let atomic = classic.exhaust(0, Movable, AllocFlags::NON_BLOCK | AllocFlags::MIN_RESERVE);
    assert!(atomic[..atomic.len() - (512 - 16)].iter().all(|pfn| pfn.pageblock() != reserve));
    assert_eq!(atomic.len() as u64, 128 * PAGEBLOCK_FRAMES - 16);
    assert_eq!((classic.stats().zone.high_atomic_unreserves, classic.types(HighAtomic)), (0, 1));
}

#[test]
fn two_reserved_blocks_are_given_back_one_by_one() {
    let classic = short("7.2", 128);
    let atomic: Vec<_> =
        (0..64).map(|_| classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap()).collect();
    assert_eq!(classic.types(HighAtomic), 2);
    // One chunk stays in use, so that the two blocks do not become one free chunk.
    classic.put_all(CPU0, &atomic[1..], 4);
    classic.take_many(CPU0, 4, Movable, 126 * 32);
    assert_eq!(classic.types(HighAtomic), 2, "not touched while there is anything else");
    classic.take(CPU0, 4, Movable);
    assert_eq!(classic.types(HighAtomic), 1, "one block for the first request that would fail");
    classic.take_many(CPU0, 4, Movable, 30);
    assert_eq!(classic.types(HighAtomic), 1);
    classic.take(CPU0, 4, Movable);
    assert_eq!(classic.types(HighAtomic), 0, "and the last one before anybody fails");
    assert_eq!(classic.stats().failed, 0);
    classic.validate().unwrap();
}

#[test]
fn since_7_2_an_empty_list_is_not_refilled_for_a_highatomic_request() {
    for (engine, refills) in [("6.18", 1), ("7.2", 0)] {
        let mut config = config(engine, 16);
        config.zones[0].watermarks = Some(Watermarks { min: 0, low: 1 << 20, high: 1 << 20 });
        let classic = Classic::new(config).unwrap();
        let stats = classic
            .counted(|| assert!(classic.try_with(3, Unmovable, AllocFlags::HIGH_ATOMIC).is_some()));
        assert_eq!((stats.pcp.refills, stats.zone.allocs), (refills, 1 - refills), "{engine}");
    }
}

#[test]
fn movable_requests_use_cma_frames_while_they_are_more_than_half_of_what_is_free() {
    let mut config = config("7.2", 4);
    config.zones[0].cma = vec![range(512, 3 * 512)];
    let classic = zone_only_of(config);
    // 2048 free, 1536 of them CMA: after 1024 frames exactly half of what is free is CMA.
    let is_cma = |pfn: Pfn| offset(pfn) >= 512;
    let first = classic.take_many(CPU0, 0, Movable, 1024);
    assert!(first.iter().all(|&pfn| is_cma(pfn)));
    // From there on the two are used in turn.
    let next: Vec<_> = classic.take_many(CPU0, 0, Movable, 8).into_iter().map(is_cma).collect();
    assert_eq!(next, [false, true, false, true, false, true, false, true]);
    classic.validate().unwrap();
}

#[test]
fn unmovable_requests_never_get_cma_frames_and_movable_ones_all() {
    for (migratetype, frames) in [(Unmovable, 512), (Reclaimable, 512), (Movable, 2048)] {
        for engine in ["7.2", "6.18", "5.18", "pcp-buddy", "pcp-buddy-fixed"] {
            let mut config = config(engine, 4);
            config.zones[0].cma = vec![range(512, 3 * 512)];
            let classic = Classic::new(config).unwrap();
            let served = classic.exhaust(0, migratetype, AllocFlags::empty());
            assert_eq!(served.len(), frames, "{engine}");
            assert_eq!(classic.types(Cma), 3, "CMA blocks are lent, never given");
            classic.validate().unwrap();
        }
    }
}

#[test]
fn cma_frames_do_not_count_for_those_who_cannot_use_them() {
    let mut config = config("7.2", 4);
    config.zones[0].cma = vec![range(512, 3 * 512)];
    config.zones[0].watermarks = Some(Watermarks { min: 100, low: 100, high: 100 });
    let classic = zone_only_of(config);
    assert_eq!(classic.exhaust(0, Unmovable, AllocFlags::empty()).len(), 412);
    // Nor for a bulk request.
    let mut slots = [None; 4];
    assert_eq!(classic.alloc_bulk(CPU0, Unmovable, AllocFlags::empty(), &mut slots), Ok(0));
    assert_eq!(classic.alloc_bulk(CPU0, Movable, AllocFlags::empty(), &mut slots), Ok(4));
}
