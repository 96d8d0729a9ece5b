//! The zone's buddy system: what is taken, where the rest goes, what joins, and where it is put.

use crate::support::*;
use freehold::AllocFlags;
use freehold_classic::{Classic, Watermarks};

#[test]
fn a_request_takes_the_smallest_chunk_that_will_do_and_the_lowest_part_of_it() {
    let classic = zone_only("7.2", 4);
    assert_eq!(classic.take(CPU0, 0, Movable), at(0));
    // The upper halves stay: one chunk of each order below 10, and the second pair of blocks
    // untouched.
    assert_eq!(classic.memory_map().zone_chunks, [1; 11]);
    for o in (0..10).rev() {
        assert_eq!(classic.take(CPU0, o, Movable), at(1 << o), "order {o}");
    }
    assert_eq!(classic.memory_map().zone_chunks, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    // A small chunk serves before a large one is split.
    classic.put(CPU0, at(8), 3);
    assert_eq!(classic.take(CPU0, 1, Movable), at(8));
    assert_eq!(classic.memory_map().zone_chunks[10], 1);
}

#[test]
fn a_freed_chunk_joins_its_buddies_up_to_order_10_and_each_join_is_counted() {
    let classic = zone_only("7.2", 4);
    let pfn = classic.take(CPU0, 0, Movable);
    let stats = classic.counted(|| classic.put(CPU0, pfn, 0));
    assert_eq!(stats.zone.merges, 10);
    assert_eq!(classic.memory_map().zone_chunks[10], 2);
}

/// The 32 chunks of order 4 of the first pageblock, all in use.
fn sixteenths(classic: &Classic) -> impl Fn(u64) -> freehold::Pfn {
    for i in 0..32 {
        assert_eq!(classic.take(CPU0, 4, Movable), at(16 * i));
    }
    |i| at(16 * i)
}

#[test]
fn a_chunk_whose_parent_will_soon_join_goes_to_the_tail() {
    for twin_is_free in [false, true] {
        let classic = zone_only("7.2", 4);
        let chunk = sixteenths(&classic);
        if twin_is_free {
            // 2 and 3 join to order 5: the twin of the parent of 0 and 1.
            classic.put_all(CPU0, &[chunk(2), chunk(3)], 4);
        }
        classic.put_all(CPU0, &[chunk(8), chunk(0)], 4);
        let next = classic.take(CPU0, 4, Movable);
        assert_eq!(
            next,
            if twin_is_free { chunk(8) } else { chunk(0) },
            "twin free: {twin_is_free}"
        );
        classic.validate().unwrap();
    }
}

#[test]
fn a_pageblock_goes_to_the_head_even_if_its_parents_twin_is_free() {
    let classic = zone_only("7.2", 8);
    classic.take_many(CPU0, 9, Movable, 8);
    // Blocks 2 and 3 are the twin of the parent of 0 and 1.
    for block in [2, 3, 4, 0] {
        classic.put(CPU0, at(512 * block), 9);
    }
    assert_eq!(classic.take(CPU0, 9, Movable), at(0));
}

#[test]
fn order_8_is_the_largest_that_may_go_to_the_tail() {
    let classic = zone_only("7.2", 4);
    classic.take_many(CPU0, 8, Movable, 8);
    // Quarters 2 and 3 are block 1, the twin of block 0; quarter 4 belongs to the other pair of
    // blocks.
    for quarter in [2, 3, 4, 0] {
        classic.put(CPU0, at(256 * quarter), 8);
    }
    assert_eq!(classic.take(CPU0, 8, Movable), at(256 * 4));
}

#[test]
fn pageblocks_of_two_ordinary_types_join_and_since_6_10_become_one_type() {
    for (engine, rewrites) in [("7.2", true), ("5.18", false), ("7.2,-type-hygiene", false)] {
        for freed_last in [Movable, Unmovable] {
            let classic = zone_only(engine, 2);
            let movable = classic.take(CPU0, 9, Movable);
            let unmovable = classic.take(CPU0, 9, Unmovable);
            assert_eq!((classic.types(Movable), classic.types(Unmovable)), (1, 1));
            if freed_last == Unmovable {
                classic.put_all(CPU0, &[movable, unmovable], 9);
            } else {
                classic.put_all(CPU0, &[unmovable, movable], 9);
            }
            assert_eq!(classic.memory_map().zone_chunks[10], 1, "{engine}");
            // The buddy takes the type of the chunk that was freed last.
            assert_eq!(
                classic.types(freed_last),
                if rewrites { 2 } else { 1 },
                "{engine}, {freed_last} last"
            );
        }
    }
}

#[test]
fn a_cma_block_joins_no_ordinary_one() {
    let mut config = config("7.2", 2);
    config.zones[0].cma = vec![block(1)];
    let classic = zone_only_of(config);
    assert_eq!(classic.memory_map().zone_chunks[9], 2, "not even at boot");
    let both = classic.exhaust(9, Movable, AllocFlags::empty());
    assert_eq!(both.len(), 2);
    classic.put_all(CPU0, &both, 9);
    assert_eq!(classic.memory_map().zone_chunks[9], 2);
    assert_eq!((classic.types(Cma), classic.types(Movable)), (1, 1));
    classic.validate().unwrap();
}

#[test]
fn a_highatomic_block_joins_no_ordinary_one() {
    let mut config = config("7.2", 128);
    // Always below low, so that requests come to use their rights.
    config.zones[0].watermarks = Some(Watermarks { min: 0, low: 1 << 20, high: 1 << 20 });
    let classic = zone_only_of(config);
    let pfn = classic.try_with(4, Unmovable, AllocFlags::HIGH_ATOMIC).unwrap();
    assert_eq!(classic.types(HighAtomic), 1);
    classic.put(CPU0, pfn, 4);
    let map = classic.memory_map();
    // The claimed pair was split for it: its halves stay apart although both are free.
    assert_eq!((map.zone_chunks[9], map.zone_chunks[10]), (2, 63));
    classic.validate().unwrap();
}

#[test]
fn an_isolated_block_joins_no_ordinary_one_and_halves_of_order_10_keep_their_own_type() {
    let classic = zone_only("7.2", 2);
    let pfn = classic.take(CPU0, 10, Movable);
    classic.isolate(block(1)).unwrap();
    classic.put(CPU0, pfn, 10);
    assert_eq!(classic.memory_map().zone_chunks[9], 2);
    classic.validate().unwrap();
    assert_eq!(
        classic.exhaust(9, Movable, AllocFlags::empty()),
        [at(0)],
        "the isolated half is nobody's"
    );
    classic.put(CPU0, at(0), 9);
    classic.unisolate(block(1)).unwrap();
    assert_eq!(classic.memory_map().zone_chunks[10], 1, "joined again when isolation ends");
    classic.validate().unwrap();
}

#[test]
fn isolated_blocks_that_were_emptied_by_frees_come_back_whole() {
    // Both blocks of a pair isolated, then freed into: they join to order 10 on the isolated list.
    for engine in ["7.1", "7.2"] {
        let classic = zone_only(engine, 4);
        let pfns = classic.take_many(CPU0, 0, Movable, 1024);
        classic.isolate(range(0, 1024)).unwrap();
        classic.put_all(CPU0, &pfns, 0);
        assert_eq!(classic.memory_map().zone_chunks[10], 2, "{engine}: joined while isolated");
        assert_eq!(classic.exhaust(10, Movable, AllocFlags::empty()), [at(1024)], "{engine}");
        classic.unisolate(range(0, 1024)).unwrap();
        classic.validate().unwrap();
        assert_eq!(
            classic.exhaust(10, Movable, AllocFlags::empty()),
            [at(0)],
            "{engine}: available again"
        );
    }
}

#[test]
fn isolation_ends_block_by_block() {
    let classic = zone_only("7.2", 2);
    let pfns = classic.take_many(CPU0, 0, Movable, 1024);
    classic.isolate(range(0, 1024)).unwrap();
    classic.put_all(CPU0, &pfns, 0);
    classic.unisolate(block(1)).unwrap();
    classic.validate().unwrap();
    assert_eq!((classic.types(Isolate), classic.types(Movable)), (1, 1));
    assert_eq!(classic.exhaust(9, Movable, AllocFlags::empty()), [at(512)]);
}

#[test]
fn holes_are_never_handed_out_and_nothing_joins_across_them() {
    let mut config = config("7.2", 4);
    config.zones[0].holes = vec![range(512 + 100, 24), range(1024, 512)];
    let classic = zone_only_of(config);
    let map = classic.memory_map();
    assert_eq!((map.managed, map.free), (2048 - 24 - 512, 2048 - 24 - 512));
    assert_eq!((map.zone_chunks[9], map.zone_chunks[10]), (2, 0));
    let pfns = classic.exhaust(0, Movable, AllocFlags::empty());
    assert_eq!(pfns.len(), 2048 - 24 - 512);
    let in_hole = |pfn| range(512 + 100, 24).contains(pfn) || range(1024, 512).contains(pfn);
    assert!(!pfns.iter().any(|&pfn| in_hole(pfn)));
    let hole = at(512 + 100);
    assert_eq!(classic.free(CPU0, hole, order(0)), Err(freehold::FreeError::Hole { pfn: hole }));
    classic.put_all(CPU0, &pfns, 0);
    assert_eq!(classic.memory_map().zone_chunks, map.zone_chunks);
    classic.validate().unwrap();
}
