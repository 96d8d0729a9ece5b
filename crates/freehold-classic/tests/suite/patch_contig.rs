//! "Free contiguous order-0 pages efficiently", January 2026, and "batch page freeing", October
//! 2025: what they claim, by counts.

use crate::support::*;
use freehold::{FrameRange, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Stats, Tuning};

/// The default machine of 1 GiB, as it boots.
fn booted(engine: &str) -> Classic {
    Classic::new(Config::single_zone(design(engine), 2, 1 << 18)).unwrap()
}

/// The proposal's own loop: 100 x {allocate order 9, split, free the range}.
fn loop_of_the_thread(engine: &str) -> Stats {
    let classic = booted(engine);
    classic.counted(|| {
        for _ in 0..100 {
            let pfn = classic.take(CPU0, 9, Movable);
            classic.split(pfn, order(9), order(0)).unwrap();
            classic
                .free_contig_range(CPU0, FrameRange::new(pfn, PAGEBLOCK_FRAMES).unwrap())
                .unwrap();
        }
    })
}

#[test]
fn a_split_block_goes_back_as_one_chunk_instead_of_512() {
    let (before, after) = (loop_of_the_thread("7.2,-contig-free"), loop_of_the_thread("7.2"));
    assert_eq!((before.pcp.frees, after.pcp.frees), (51_200, 100));
    // Single frames overflow the PCP, and the zone has to put every block together again.
    assert!(before.zone_lock.holds() > 500, "{}", before.zone_lock.holds());
    assert!(before.zone.merges > 40_000, "{}", before.zone.merges);
    assert!(after.zone_lock.holds() <= 2 * 100 && after.zone.merges <= 100, "{after:?}");
    assert!(
        20 * after.zone_lock.total() < before.zone_lock.total(),
        "a twentieth of the work at most"
    );
    // The block that was freed is the next to be allocated.
    assert!(after.pcp.hits >= 50, "{}", after.pcp.hits);
}

#[test]
fn as_first_posted_a_range_goes_back_in_chunks_of_at_most_a_pageblock() {
    for (engine, on_pcp, in_zone) in [("7.2", 0, 1), ("7.2,-contig-max-order", 2, 0)] {
        let classic = booted(engine);
        let pair = classic.take(CPU0, 10, Movable);
        classic.split(pair, order(10), order(0)).unwrap();
        let range = FrameRange::new(pair, 2 * PAGEBLOCK_FRAMES).unwrap();
        let stats = classic.counted(|| _ = classic.free_contig_range(CPU0, range).unwrap());
        assert_eq!((stats.pcp.frees, stats.zone.frees), (on_pcp, in_zone), "{engine}");
    }
}

/// vmalloc(100 pages) and vfree: an array of chunks of orders 6, 5 and 2, split.
fn vmalloc(engine: &str) -> Stats {
    let classic = booted(engine);
    classic.counted(|| {
        for _ in 0..200 {
            let mut pages: Vec<Pfn> = Vec::new();
            for o in [6, 5, 2] {
                let pfn = classic.take(CPU0, o, Unmovable);
                classic.split(pfn, order(o), order(0)).unwrap();
                pages.extend((0..1 << o).map(|i| pfn.checked_add(i).unwrap()));
            }
            classic.free_array(CPU0, &pages).unwrap();
        }
    })
}

#[test]
fn vfree_gives_an_array_back_in_the_chunks_it_came_in() {
    let (before, after) = (vmalloc("7.2,-contig-free"), vmalloc("7.2"));
    assert_eq!(before.pcp.frees, 200 * 100);
    // At least the chunks it came in, unless neighbours made a run of their own.
    assert!(after.pcp.frees + after.zone.frees <= 200 * 4, "{after:?}");
    assert!(
        after.zone.merges < before.zone.merges / 10,
        "{} {}",
        after.zone.merges,
        before.zone.merges
    );
    assert!(after.zone_lock.total() < before.zone_lock.total() / 2);
}

#[test]
fn a_cma_area_of_64_mib_is_released_in_32_pieces_instead_of_16384() {
    let release = |engine: &str| {
        let mut config = Config::single_zone(design(engine), 2, 1 << 18);
        let area = range(1 << 17, 16_384);
        config.zones[0].cma = vec![area];
        let classic = Classic::new(config).unwrap();
        classic.alloc_contig_range(CPU0, area, &mut |_| false).unwrap();
        classic.counted(|| _ = classic.free_contig_range(CPU0, area).unwrap())
    };
    let (before, after) = (release("7.1"), release("7.2"));
    assert_eq!((before.pcp.frees, before.zone.frees), (16_384, 0));
    // Order 10 goes past the PCP.
    assert_eq!((after.pcp.frees, after.zone.frees, after.zone_lock.holds()), (0, 16, 16));
    assert!(after.zone_lock.total() * 100 < before.zone_lock.total());
}

/// Exit of a large process: one CPU frees what another has allocated, 20,000 frames in a row.
fn exit(engine: &str) -> (Classic, Stats) {
    let classic = booted(engine);
    classic.set_tuning(0, CPU1, Tuning::new(63, 4000, 8000, false));
    let pfns = classic.take_many(CPU0, 0, Movable, 20_000);
    let stats = classic.counted(|| {
        for batch in pfns.chunks(31) {
            let folios: Vec<_> = batch.iter().map(|&pfn| (pfn, order(0))).collect();
            classic.free_folios(CPU1, &folios).unwrap();
        }
    });
    (classic, stats)
}

#[test]
fn chunked_drains_bound_the_work_of_one_hold() {
    let ((_, before), (_, after)) = (exit("7.1,-chunked-drain"), exit("7.1"));
    assert!(
        before.zone_lock.max() > 2000,
        "more than 2,000 frames in one hold: {}",
        before.zone_lock.max()
    );
    // A batch of 63 frames: each is unlinked, joined at most ten times and linked again.
    assert!(after.zone_lock.max() <= 63 * (2 + 3 * 10), "{}", after.zone_lock.max());
    assert!(8 * after.zone_lock.max() < before.zone_lock.max());
    // As many frames go back, in more and shorter holds.
    assert_eq!(before.pcp.drained_frames, after.pcp.drained_frames);
    assert!(after.zone_lock.holds() > 10 * before.zone_lock.holds());
}

#[test]
fn the_fixed_design_takes_the_chunking_up_again_that_the_rfc_dropped() {
    let longest = |engine: &str| {
        let (classic, _) = exit(engine);
        // Fragments only, on the freeing CPU: frames that nobody owns.
        let chunks = classic.take_many(CPU0, 10, Movable, 8);
        let singles: Vec<Pfn> =
            chunks.iter().flat_map(|pfn| (0..1024).map(|i| pfn.checked_add(i).unwrap())).collect();
        chunks.iter().for_each(|&pfn| classic.split(pfn, order(10), order(0)).unwrap());
        let stats = classic.counted(|| singles.iter().for_each(|&pfn| classic.put(CPU1, pfn, 0)));
        assert!(stats.pcp.drained_frames > 1000);
        stats.zone_lock.max()
    };
    let (rfc, fixed) = (longest("pcp-buddy"), longest("pcp-buddy-fixed"));
    assert!(4 * fixed < rfc, "{fixed} {rfc}");
}

/// A pageblock split into single frames, the hundredth of them pinned by somebody, and freed as one
/// range.
fn around_a_pin(engine: &str) -> (Classic, Pfn, Stats) {
    let classic = booted(engine);
    let block = classic.take(CPU0, 9, Movable);
    classic.split(block, order(9), order(0)).unwrap();
    let pinned = block.checked_add(100).unwrap();
    classic.get(pinned).unwrap();
    let range = FrameRange::new(block, PAGEBLOCK_FRAMES).unwrap();
    let stats = classic.counted(|| assert_eq!(classic.free_contig_range(CPU0, range), Ok(1)));
    (classic, pinned, stats)
}

#[test]
fn a_split_folio_with_one_page_pinned_is_freed_around_it() {
    for (engine, pcp, zone) in [("7.1", 511, 0), ("7.2", 4, 5)] {
        let (classic, pinned, stats) = around_a_pin(engine);
        // 64 + 32 + 4 before it; 1 + 2 + 8 + 16 + 128 + 256 behind it. Orders above 3 go past the
        // PCP.
        assert_eq!((stats.pcp.frees, stats.zone.frees), (pcp, zone), "{engine}");
        assert_eq!(stats.kept, 1, "{engine}");
        classic.drain_all();
        assert_eq!(classic.memory_map().free, (1 << 18) - 1, "{engine}");
        assert_eq!(classic.memory_map().free_blocks, 511, "{engine}");
        // The pin's end is the end of the hole.
        classic.put(CPU0, pinned, 0);
        classic.whole_again(512);
    }
}

/// The punch-hole race: a pageblock that was split is freed while somebody allocates 64 frames for
/// good. Page by page they come in between; a range is in the zone before they look. Returns how
/// many they got of the block, and whether the block is whole in the end.
fn punch_hole(engine: &str, by_range: bool) -> (usize, bool) {
    let classic = booted(engine);
    let block = classic.take(CPU0, 9, Movable);
    classic.split(block, order(9), order(0)).unwrap();
    classic.drain_all();
    let mut kept = Vec::new();
    let range = FrameRange::new(block, PAGEBLOCK_FRAMES).unwrap();
    if by_range {
        classic.free_contig_range(CPU0, range).unwrap();
        kept = classic.take_many(CPU0, 0, Movable, 64);
    } else {
        for i in 0..PAGEBLOCK_FRAMES {
            classic.put(CPU0, block.checked_add(i).unwrap(), 0);
            if i % 8 == 7 {
                kept.push(classic.take(CPU0, 0, Movable));
            }
        }
    }
    let reused = kept.iter().filter(|&&pfn| range.contains(pfn)).count();
    classic.drain_all();
    let whole = classic.pageblocks(0).iter().any(|found| found.start == block && found.free == 512);
    (reused, whole)
}

#[test]
fn a_hole_that_is_punched_page_by_page_is_filled_again_before_it_is_whole() {
    assert_eq!(punch_hole("7.1", false), (64, false));
    assert_eq!(punch_hole("7.2", true), (0, true));
}
