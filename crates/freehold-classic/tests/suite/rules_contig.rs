//! Getting hold of one particular range: isolation, migration, and undoing all of it.

use crate::support::*;
use freehold::{AllocError, AllocFlags, FrameRange, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, InUse};

const ENGINES: [&str; 5] = ["5.18", "7.1", "7.2", "pcp-buddy", "pcp-buddy-fixed"];

#[test]
fn a_free_range_is_taken_frame_by_frame_and_what_lies_beside_it_stays_free() {
    for engine in ENGINES {
        let classic = machine(engine, 4);
        // Neither end is aligned to anything, and it crosses two pageblocks.
        let wanted = range(301, 700);
        classic.alloc_contig_range(CPU0, wanted, &mut |_| panic!("nothing is in use")).unwrap();
        classic.validate().unwrap();
        let map = classic.memory_map();
        assert_eq!(map.free, 4 * PAGEBLOCK_FRAMES - 700, "{engine}");
        assert_eq!(map.blocks_by_type[Isolate.index()], 0, "{engine}");
        let rest = classic.exhaust(0, Movable, AllocFlags::empty());
        assert_eq!(rest.len() as u64, 4 * PAGEBLOCK_FRAMES - 700, "{engine}");
        assert!(!rest.iter().any(|&pfn| wanted.contains(pfn)), "{engine}");
        classic.put_all(CPU0, &rest, 0);
        classic.free_contig_range(CPU1, wanted).unwrap();
        classic.whole_again(4);
    }
}

/// A machine with frames on both CPUs' lists, and the pageblock that they are of.
fn on_both_cpus_lists(engine: &str) -> (Classic, FrameRange) {
    let classic = machine(engine, 64);
    let pfns = classic.take_many(CPU0, 0, Movable, 20);
    classic.put_all(CPU0, &pfns[..10], 0);
    classic.put_all(CPU1, &pfns[10..], 0);
    assert!(classic.memory_map().on_pcp > 0);
    (classic, FrameRange::new(pfns[0].pageblock(), PAGEBLOCK_FRAMES).unwrap())
}

#[test]
fn frames_on_every_cpus_lists_are_drained_into_the_range() {
    for engine in ENGINES {
        let (classic, wanted) = on_both_cpus_lists(engine);
        classic.alloc_contig_range(CPU1, wanted, &mut |_| panic!("all of it is free")).unwrap();
        classic.validate().unwrap();
    }
}

#[test]
fn what_is_in_use_moves_out_of_the_way() {
    for engine in ENGINES {
        let classic = machine(engine, 8);
        let held: Vec<(Pfn, u8)> =
            [0, 3, 5, 0, 9].map(|o| (classic.take(CPU0, o, Movable), o)).into();
        let start = held.iter().map(|(pfn, _)| pfn.pageblock()).min().unwrap();
        let wanted = FrameRange::new(start, 3 * PAGEBLOCK_FRAMES).unwrap();
        let mut moved = Vec::new();
        let mut migrate = |in_use: InUse| {
            let elsewhere = classic.take(CPU0, in_use.order.get(), Movable);
            assert!(
                !wanted.contains(elsewhere),
                "{engine}: nobody is given a frame of an isolated block"
            );
            moved.push((elsewhere, in_use.order.get()));
            classic.put(CPU0, in_use.pfn, in_use.order.get());
            true
        };
        classic.alloc_contig_range(CPU0, wanted, &mut migrate).unwrap();
        classic.validate().unwrap();
        let in_range = held.iter().filter(|(pfn, _)| wanted.contains(*pfn)).count();
        assert_eq!(moved.len(), in_range, "{engine}");
        // All of it can be given back, whichever way.
        classic.free_contig_range(CPU1, wanted).unwrap();
        for (pfn, o) in
            moved.into_iter().chain(held.into_iter().filter(|(pfn, _)| !wanted.contains(*pfn)))
        {
            classic.put(CPU1, pfn, o);
        }
        classic.whole_again(8);
    }
}

/// Free memory, chunk by chunk, and the blocks' types.
fn picture(classic: &Classic) -> (u64, [u64; 11], [u64; 6]) {
    classic.drain_all();
    let map = classic.memory_map();
    (map.free, map.zone_chunks, map.blocks_by_type)
}

#[test]
fn an_unmovable_frame_makes_the_range_busy_and_nothing_has_changed() {
    for engine in ENGINES {
        let classic = machine(engine, 8);
        let stone = classic.take(CPU0, 0, Unmovable);
        let before = picture(&classic);
        let all = range(0, 8 * PAGEBLOCK_FRAMES);
        let busy = classic.alloc_contig_range(CPU0, all, &mut |_| panic!("it is not even tried"));
        assert_eq!(busy, Err(AllocError::Busy { pfn: stone }), "{engine}");
        classic.validate().unwrap();
        assert_eq!(picture(&classic).0, before.0, "{engine}");
        assert_eq!(classic.types(Isolate), 0, "{engine}");
        classic.put(CPU0, stone, 0);
        classic.whole_again(8);
    }
}

#[test]
fn a_chunk_that_will_not_move_makes_the_range_busy_and_isolation_is_undone() {
    let classic = machine("7.2", 8);
    let held = classic.take_many(CPU0, 0, Movable, 3);
    let refuses = held[1];
    let before = classic.memory_map().free;
    let mut migrate = |in_use: InUse| {
        let moves = in_use.pfn != refuses;
        if moves {
            classic.put(CPU0, in_use.pfn, 0);
        }
        moves
    };
    let all = range(0, 8 * PAGEBLOCK_FRAMES);
    let busy = classic.alloc_contig_range(CPU0, all, &mut migrate);
    assert_eq!(busy, Err(AllocError::Busy { pfn: refuses }));
    classic.validate().unwrap();
    assert_eq!(classic.types(Isolate), 0);
    assert_eq!(classic.memory_map().free, before + 1, "what was migrated stays migrated");
    classic.put_all(CPU1, &held[1..], 0);
    classic.whole_again(8);
    // Every block serves again.
    assert_eq!(classic.exhaust(9, Movable, AllocFlags::empty()).len(), 8);
}

#[test]
fn cma_blocks_are_claimed_back_from_movable_users_and_stay_cma() {
    for engine in ENGINES {
        let mut config = config(engine, 4);
        config.zones[0].cma = vec![range(1024, 1024)];
        let classic = Classic::new(config).unwrap();
        let held = classic.exhaust(3, Movable, AllocFlags::empty());
        let (cma, rest): (Vec<_>, Vec<_>) = held.into_iter().partition(|&pfn| offset(pfn) >= 1024);
        assert_eq!(cma.len(), 128, "{engine}");
        classic.put_all(CPU0, &rest, 3);
        let mut migrate = |in_use: InUse| {
            classic.put(CPU1, in_use.pfn, in_use.order.get());
            true
        };
        classic.alloc_contig_range(CPU0, range(1024, 1024), &mut migrate).unwrap();
        assert_eq!(classic.types(Cma), 2, "{engine}");
        classic.free_contig_range(CPU0, range(1024, 1024)).unwrap();
        classic.whole_again(4);
        assert_eq!(
            classic.exhaust(9, Unmovable, AllocFlags::empty()).len(),
            2,
            "{engine}: lent to movable users only"
        );
    }
}

#[test]
fn a_range_that_is_isolated_already_is_busy_and_one_that_is_no_memory_is_wrong() {
    let mut config = config("7.2", 8);
    config.zones[0].holes = vec![range(3 * 512, 512)];
    let classic = Classic::new(config).unwrap();
    let nobody = &mut |_: InUse| false;
    classic.isolate(block(1)).unwrap();
    assert_eq!(classic.isolate(range(0, 600)), Err(AllocError::Busy { pfn: at(512) }));
    assert_eq!(classic.types(Isolate), 1, "the block before it is given back");
    assert_eq!(
        classic.alloc_contig_range(CPU0, range(600, 1), nobody),
        Err(AllocError::Busy { pfn: at(600) })
    );
    classic.unisolate(block(1)).unwrap();
    let bad = |pfn| Err(AllocError::BadRange { pfn });
    assert_eq!(classic.alloc_contig_range(CPU0, range(1500, 100), nobody), bad(at(3 * 512)));
    assert_eq!(classic.alloc_contig_range(CPU0, range(8 * 512 - 1, 2), nobody), bad(at(8 * 512)));
    assert_eq!(classic.alloc_contig_range(CPU0, range(5, 0), nobody), Err(AllocError::ZeroLength));
    classic.validate().unwrap();
}

#[test]
fn nothing_is_allocated_from_an_isolated_block_and_frees_go_past_the_pcp() {
    for engine in ENGINES {
        let classic = machine(engine, 4);
        let pfn = classic.take(CPU0, 0, Movable);
        let isolated = FrameRange::new(pfn.pageblock(), PAGEBLOCK_FRAMES).unwrap();
        classic.isolate(isolated).unwrap();
        assert_eq!(classic.memory_map().on_pcp, 0, "{engine}");
        let stats = classic.counted(|| classic.put(CPU0, pfn, 0));
        assert_eq!((stats.pcp.frees, stats.zone.frees), (0, 1), "{engine}");
        let rest = classic.exhaust(0, Movable, AllocFlags::NO_WATERMARKS);
        assert_eq!(rest.len() as u64, 3 * PAGEBLOCK_FRAMES, "{engine}");
        classic.unisolate(isolated).unwrap();
        assert_eq!(
            classic.exhaust(0, Movable, AllocFlags::empty()).len() as u64,
            PAGEBLOCK_FRAMES,
            "{engine}"
        );
    }
}

#[test]
fn isolation_gathers_what_is_on_lists() {
    for engine in ENGINES {
        let (classic, isolated) = on_both_cpus_lists(engine);
        classic.isolate(isolated).unwrap();
        for cpu in [CPU0, CPU1] {
            assert!(!isolated.contains(classic.take(cpu, 0, Movable)), "{engine}");
        }
    }
}

#[test]
fn isolation_puts_what_it_moves_behind_what_was_there() {
    // The other half of a pair that isolation parts waits behind a block that was free before.
    let classic = zone_only("7.2", 4);
    classic.take_many(CPU0, 9, Movable, 4);
    classic.put_all(CPU0, &[at(2 * 512), at(0), at(512)], 9);
    classic.isolate(block(0)).unwrap();
    assert_eq!(classic.take(CPU0, 9, Movable), at(2 * 512));
    assert_eq!(classic.take(CPU0, 9, Movable), at(512));
    // And what comes back when it ends goes to the tails, too.
    let classic = zone_only("7.2", 4);
    classic.take_many(CPU0, 4, Movable, 64);
    classic.put_all(CPU0, &[at(512), at(0)], 4);
    classic.isolate(block(0)).unwrap();
    classic.unisolate(block(0)).unwrap();
    assert_eq!(classic.take(CPU0, 4, Movable), at(512), "although the other one was freed last");
    assert_eq!(classic.take(CPU0, 4, Movable), at(0));
}
