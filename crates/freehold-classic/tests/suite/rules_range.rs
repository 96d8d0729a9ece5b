//! Freeing many single frames at once: splitting, runs, chunks at every alignment, and what
//! interrupts them.

use crate::support::*;
use freehold::{AllocFlags, FrameRange, FreeError, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Stats, Tuning, Watermarks, ZoneConfig};

/// The first four pageblocks in use as single frames, nothing on the PCPs, which keep whatever they
/// are given.
fn singles(engine: &str) -> Classic {
    let classic = machine(engine, 8);
    for half in classic.take_many(CPU0, 10, Movable, 2) {
        classic.split(half, Order::LINUX_MAX, order(0)).unwrap();
    }
    for cpu in [CPU0, CPU1] {
        classic.set_tuning(0, cpu, Tuning::new(63, 4000, 4000, false));
    }
    classic
}

/// Chunks that went to a PCP and to the zone.
fn chunks(stats: &Stats) -> (u64, u64) {
    (stats.pcp.frees, stats.zone.frees)
}

/// The largest aligned chunks that make up a range: computed anew, bit by bit.
fn expected(start: u64, frames: u64) -> (u64, u64) {
    let (mut pcp, mut zone) = (0, 0);
    let (mut at, end) = (BASE.get() + start, BASE.get() + start + frames);
    while at < end {
        let mut o = 0;
        while o < 10 && at % (2 << o) == 0 && at + (2 << o) <= end {
            o += 1;
        }
        if o <= 3 || o == 9 {
            pcp += 1
        } else {
            zone += 1
        }
        at += 1 << o;
    }
    (pcp, zone)
}

#[test]
fn a_range_is_freed_in_the_largest_aligned_chunks_at_every_alignment() {
    // All small alignments and lengths; then around a pageblock, a pair of blocks, and all of it.
    let small = (0..33).flat_map(|start| (1..40).map(move |frames| (start, frames)));
    let large =
        [(1, 511), (0, 512), (511, 2), (500, 600), (0, 1024), (3, 2040), (512, 1024), (0, 2048)];
    let classic = singles("7.2");
    let old = singles("7.2,-contig-free");
    for (start, frames) in small.chain(large) {
        let stats = classic
            .counted(|| assert_eq!(classic.free_contig_range(CPU0, range(start, frames)), Ok(0)));
        assert_eq!(chunks(&stats), expected(start, frames), "{start}+{frames}");
        let stats =
            old.counted(|| assert_eq!(old.free_contig_range(CPU0, range(start, frames)), Ok(0)));
        assert_eq!(stats.pcp.frees, frames, "one by one");
        // Take the very same frames again.
        for classic in [&classic, &old] {
            classic.alloc_contig_range(CPU0, range(start, frames), &mut |_| false).unwrap();
        }
    }
    for classic in [classic, old] {
        classic.free_contig_range(CPU1, range(0, 4 * PAGEBLOCK_FRAMES)).unwrap();
        classic.whole_again(8);
    }
}

#[test]
fn a_chunk_of_order_10_reaches_the_zone_as_two_pageblocks_under_one_hold() {
    let classic = singles("7.2");
    let stats = classic.counted(|| _ = classic.free_contig_range(CPU0, range(0, 1024)).unwrap());
    assert_eq!((stats.zone.frees, stats.zone_lock.holds(), stats.zone.merges), (1, 1, 1));
}

#[test]
fn a_frame_that_others_hold_interrupts_a_run_and_stays_in_use() {
    let classic = singles("7.2");
    classic.get(at(7)).unwrap();
    classic.get(at(7)).unwrap();
    classic.get(at(12)).unwrap();
    let stats =
        classic.counted(|| assert_eq!(classic.free_contig_range(CPU0, range(3, 13)), Ok(2)));
    // 3 | 4 5 | 6 | (7) | 8..12 | (12) | 13 | 14 15
    assert_eq!(chunks(&stats), (6, 0));
    assert_eq!(stats.kept, 2);
    assert_eq!(classic.free(CPU0, at(8), order(0)), Err(FreeError::DoubleFree { pfn: at(8) }));
    for (pfn, references) in [(7, 2), (12, 1)] {
        for last in 1..=references {
            let put = classic.free(CPU0, at(pfn), order(0)).unwrap();
            assert_eq!(put == freehold_classic::Put::Freed, last == references);
        }
    }
}

#[test]
fn an_array_is_freed_by_runs_of_neighbours_in_the_order_given() {
    for (engine, together) in [("7.2", true), ("7.1", false)] {
        let classic = singles(engine);
        // A run of 16, the same number backwards, a lone frame.
        let pfns: Vec<Pfn> = (16..32).chain((64..80).rev()).chain([200]).map(at).collect();
        let stats = classic.counted(|| assert_eq!(classic.free_array(CPU0, &pfns), Ok(0)));
        assert_eq!(chunks(&stats), if together { (17, 1) } else { (33, 0) }, "{engine}");
    }
}

#[test]
fn a_wrong_frame_anywhere_in_a_range_or_array_leaves_everything_as_it_was() {
    for engine in ["7.2", "7.1", "pcp-buddy-fixed"] {
        let classic = singles(engine);
        classic.put(CPU0, at(20), 0);
        let before = classic.memory_map().free;
        let error = FreeError::DoubleFree { pfn: at(20) };
        assert_eq!(classic.free_contig_range(CPU0, range(0, 40)), Err(error));
        assert_eq!(classic.free_array(CPU0, &[at(1), at(2), at(20)]), Err(error));
        // A frame named twice is a double free of the second.
        assert_eq!(
            classic.free_array(CPU0, &[at(1), at(1)]),
            Err(FreeError::DoubleFree { pfn: at(1) })
        );
        let past = FrameRange::new(at(0), 9 * PAGEBLOCK_FRAMES).unwrap();
        assert_eq!(
            classic.free_contig_range(CPU0, past),
            Err(FreeError::PastEnd { pfn: at(8 * PAGEBLOCK_FRAMES) })
        );
        assert_eq!(classic.free_contig_range(CPU0, range(0, 0)), Err(FreeError::ZeroLength));
        assert_eq!(classic.memory_map().free, before);
        classic.validate().unwrap();
        classic.free_contig_range(CPU0, range(0, 20)).unwrap();
    }
}

#[test]
fn a_split_gives_every_part_a_reference_of_its_own() {
    let classic = machine("7.2", 4);
    let pfn = classic.take(CPU0, 4, Movable);
    let inside = |frames| Pfn::new(pfn.get() + frames);
    assert_eq!(
        classic.free(CPU0, inside(2), order(0)),
        Err(FreeError::InsideAllocation { pfn: inside(2), head: pfn }),
        "before the split"
    );
    classic.split(pfn, order(4), order(2)).unwrap();
    assert_eq!(
        classic.free(CPU0, pfn, order(4)),
        Err(FreeError::WrongOrder { pfn, allocated: order(2), freed: order(4) })
    );
    classic.split(inside(4), order(2), order(0)).unwrap();
    classic.put(CPU0, inside(0), 2);
    (4..8).for_each(|frame| classic.put(CPU0, inside(frame), 0));
    classic.put_all(CPU0, &[inside(8), inside(12)], 2);
    classic.whole_again(4);
    // What others hold references to cannot be split.
    let pfn = classic.take(CPU0, 4, Movable);
    classic.get(pfn).unwrap();
    assert!(classic.split(pfn, order(4), order(0)).is_err());
    assert_eq!(classic.free(CPU0, pfn, order(4)), Ok(freehold_classic::Put::Kept));
    classic.split(pfn, order(4), order(0)).unwrap();
}

#[test]
fn a_range_over_the_edge_between_two_zones_goes_back_to_both() {
    // The kernel frees frame by frame there, too. The edge lies inside a pageblock; there is a
    // hole behind the second.
    let zone = |name: &str, start, len| ZoneConfig {
        watermarks: Some(Watermarks::default()),
        ..ZoneConfig::new(name, at(start), len)
    };
    for engine in ["5.18", "6.18", "7.2", "pcp-buddy"] {
        let zones =
            vec![zone("DMA32", 100, 1300), zone("Normal", 1400, 1300), zone("Movable", 4096, 512)];
        let classic = Classic::new(Config { zones, ..config(engine, 1) }).unwrap();
        assert_eq!(classic.exhaust(0, Movable, AllocFlags::empty()).len(), 2600 + 512);
        let past = FreeError::PastEnd { pfn: at(2700) };
        assert_eq!(classic.free_contig_range(CPU0, range(1390, 1311)), Err(past), "{engine}");
        assert_eq!(classic.free_contig_range(CPU0, range(1390, 20)), Ok(0), "{engine}");
        assert_eq!(classic.free_contig_range(CPU0, range(100, 1290)), Ok(0), "{engine}");
        assert_eq!(classic.free_contig_range(CPU0, range(1410, 1290)), Ok(0), "{engine}");
        classic.drain_all();
        classic.validate().unwrap();
        assert_eq!(classic.memory_map().free, 2600, "{engine}");
    }
}

#[test]
fn two_zones_that_share_a_chunk_of_the_largest_order_are_not_one_run() {
    // Their frames are numbered from the same chunk on, so that the number after the last of one is
    // the first of the other.
    let zone = |name: &str, start| ZoneConfig {
        watermarks: Some(Watermarks::default()),
        ..ZoneConfig::new(name, at(start), 512)
    };
    for engine in ["7.3", "7.3,-contig-max-order"] {
        let zones = vec![zone("DMA32", 0), zone("Normal", 512)];
        let classic = Classic::new(Config { zones, ..config(engine, 1) }).unwrap();
        assert_eq!(classic.exhaust(0, Movable, AllocFlags::empty()).len(), 1024);
        assert_eq!(classic.free_contig_range(CPU0, range(256, 512)), Ok(0), "{engine}");
        classic.drain_all();
        classic.validate().unwrap();
        let free = |zone| classic.pageblocks(zone).iter().map(|block| block.free).sum::<u16>();
        assert_eq!((free(0), free(1)), (256, 256), "{engine}");
    }
}

#[test]
fn a_range_over_an_isolated_block_goes_to_its_isolated_lists() {
    let classic = singles("7.2");
    classic.isolate(block(1)).unwrap();
    let stats = classic.counted(|| _ = classic.free_contig_range(CPU0, range(0, 1024)).unwrap());
    assert_eq!(stats.pcp.frees, 0);
    // Half of it is free for everybody, half for nobody.
    assert_eq!(classic.exhaust(9, Movable, AllocFlags::empty()).len(), 4 + 1);
}

#[test]
fn a_reference_count_that_overflowed_leaks_the_frame_instead_of_freeing_it_early() {
    let classic = machine("7.2", 4);
    let pfn = classic.take(CPU0, 0, Movable);
    (0..70_000).for_each(|_| classic.get(pfn).unwrap());
    for _ in 0..70_001 {
        assert_eq!(classic.free(CPU0, pfn, order(0)), Ok(freehold_classic::Put::Kept));
    }
    // Taking back a put that had no effect does not unsettle it either.
    assert!(classic.free_array(CPU0, &[pfn, at(1000)]).is_err());
    assert_eq!(classic.free(CPU0, pfn, order(0)), Ok(freehold_classic::Put::Kept));
}
