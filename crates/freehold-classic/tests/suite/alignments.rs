//! Ranges of single frames at every small alignment and length, against chunks computed anew.

use freehold::{CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Design, Request, Tuning, Watermarks};

const CPU: CpuId = CpuId::new(0);
const BLOCKS: u64 = 8;

/// The first four of eight pageblocks in use as single frames, nothing on the PCPs, which keep
/// whatever they are given; and where they begin.
fn singles(design: &str) -> (Classic, Pfn) {
    let design = Design::parse(design).unwrap();
    let mut config = Config::single_zone(design, 1, BLOCKS * PAGEBLOCK_FRAMES);
    config.zones[0].watermarks = Some(Watermarks::default());
    let start = config.zones[0].range.start;
    let classic = Classic::new(config).unwrap();
    for _ in 0..2 {
        let request = Request::new(Order::LINUX_MAX, Migratetype::Movable);
        let pfn = classic.alloc(CPU, request).unwrap();
        assert!(pfn.get() - start.get() < 4 * PAGEBLOCK_FRAMES);
        classic.split(pfn, Order::LINUX_MAX, Order::ZERO).unwrap();
    }
    classic.set_tuning(0, CPU, Tuning::new(63, 4000, 4000, false));
    (classic, start)
}

/// The largest aligned chunks that make up a range, bit by bit: those that go to a PCP, and those
/// that go to the zone.
fn expected(range: FrameRange) -> (u64, u64) {
    let (mut pcp, mut zone) = (0, 0);
    let (mut at, end) = (range.start.get(), range.end.get());
    while at < end {
        let mut order = 0;
        while order < 10 && at % (2 << order) == 0 && at + (2 << order) <= end {
            order += 1;
        }
        if order <= 3 || order == 9 {
            pcp += 1
        } else {
            zone += 1
        }
        at += 1 << order;
    }
    (pcp, zone)
}

#[test]
fn a_range_is_freed_in_the_largest_aligned_chunks_at_every_alignment() {
    // All small alignments and lengths; then around a pageblock, a pair of blocks, and all of it.
    let small = (0..33).flat_map(|start| (1..40).map(move |frames| (start, frames)));
    let large =
        [(1, 511), (0, 512), (511, 2), (500, 600), (0, 1024), (3, 2040), (512, 1024), (0, 2048)];
    for design in ["7.2", "7.2,-contig-free"] {
        let (classic, base) = singles(design);
        for (start, frames) in small.clone().chain(large) {
            let range = FrameRange::new(base.checked_add(start).unwrap(), frames).unwrap();
            classic.reset_stats();
            assert_eq!(classic.free_contig_range(CPU, range), Ok(0));
            let stats = classic.stats();
            let one_by_one = design != "7.2";
            let chunks = if one_by_one { (frames, 0) } else { expected(range) };
            assert_eq!((stats.pcp.frees, stats.zone.frees), chunks, "{design}: {range}");
            // Take the very same frames again.
            classic.alloc_contig_range(CPU, range, &mut |_| false).unwrap();
            classic.validate().unwrap();
        }
        let all = FrameRange::new(base, 4 * PAGEBLOCK_FRAMES).unwrap();
        classic.free_contig_range(CPU, all).unwrap();
        classic.drain_all();
        classic.validate().unwrap();
        assert_eq!(classic.memory_map().free_blocks, BLOCKS);
    }
}
