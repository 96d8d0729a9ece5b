//! Runs of any length: that memory can be filled with them, and what each costs.

use crate::block::bits;
use crate::block::words::{free_tail, smallest_gap};
use crate::tests::testing::*;

/// Runs of that length until there is none.
fn fill(fh: &Machine, len: u64) -> Vec<FrameRange> {
    let cpu = fh.here();
    let mut runs = Vec::new();
    while let Ok(run) = cpu.alloc_run(len) {
        runs.push(run);
    }
    runs.sort_unstable_by_key(|run| run.start);
    assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start), "length {len}");
    runs
}

/// All that is free is in split blocks, whose sum nobody has made, or has of too little.
#[test]
fn a_run_counts_what_is_free_each_time() {
    let movable = movable(0);
    for too_little_at_first in [false, true] {
        let fh = unmarked(2, 4096);
        let [cpu, other] = [0, 1].map(|id| fh.on(CpuId::new(id)));
        let frames: Vec<Pfn> = (0..4096).map(|_| cpu.alloc(movable).unwrap()).collect();
        let free = |offsets: core::ops::Range<u64>| {
            let back = frames.iter().filter(|pfn| offsets.contains(&(pfn.get() % 512)));
            back.for_each(|&pfn| cpu.free(pfn, Order::ZERO).unwrap());
            fh.drain_all();
        };
        free(448..512);
        fh.set_watermarks(0, 600, 700, 800).unwrap();
        if too_little_at_first {
            other.alloc_run(5).unwrap_err();
        }
        free(1..448);
        other.alloc_run(5).unwrap();
    }
}

/// The second of two that ask for many blocks at once sees what the first one leaves.
#[test]
fn whole_blocks_of_a_run_leave_the_mark() {
    let fh = unmarked(1, 1 << 16);
    fh.set_watermarks(0, 20_000, 20_000, 20_000).unwrap();
    let cpu = fh.here();
    let runs = core::iter::from_fn(|| cpu.alloc_run(8192).ok()).count() as u64;
    assert!(runs > 0 && (1 << 16) - runs * 8192 >= 20_000, "{runs} runs");
}

#[test]
fn memory_is_full_of_runs_of_any_length() {
    for len in [2, 3, 5, 17, 33, 64, 129, 171, 257, 300, 511, 512, 513, 700, 1025, 3000] {
        let fh = unmarked(1, 1 << 15);
        let cpu = fh.here();
        let runs = fill(&fh, len);
        let left = (1 << 15) - runs.len() as u64 * len;
        assert!(left < len + 512, "length {len}: {left} frames are left");
        // Every other one, and all of it again.
        runs.iter().step_by(2).for_each(|&run| cpu.free_range(run).unwrap());
        cpu.flush().unwrap();
        let again = fill(&fh, len).len() + runs.len() / 2;
        let lost = runs.len().saturating_sub(again);
        // Where gaps are of two lengths, or over blocks of which one was split meanwhile.
        assert!(lost <= 1 + runs.len() / 50, "length {len}: {again} of {}", runs.len());
        fh.validate().unwrap();
    }
}

/// Gaps of 9, 6 and 30 frames: 5 frames go to the one of 6, and what is left is no smaller.
#[test]
fn the_smallest_gap_is_used() {
    let fh = unmarked(1, 512);
    let cpu = fh.here();
    let all = cpu.alloc_run(511).unwrap();
    let first = all.start.get();
    for (at, len) in [(10, 9), (60, 6), (100, 30)] {
        let gap = frames_at(first + at, len);
        cpu.free_range(gap).unwrap();
    }
    cpu.flush().unwrap();
    assert_eq!(cpu.alloc_run(5).unwrap().start.get(), first + 60);
    assert_eq!(cpu.alloc_run(7).unwrap().start.get(), first + 10);
    assert_eq!(cpu.alloc_run(31), Err(AllocError::NoMemory { order: of_order(4) }));
    assert_eq!(cpu.alloc_run(30).unwrap().start.get(), first + 100);
}

/// A run lies over the end of a block in use, whole blocks, and the start of another in use.
#[test]
fn a_run_over_whole_blocks_has_what_is_free_beside_them() {
    let fh = unmarked(1, 2048);
    let cpu = fh.here();
    let before = cpu.alloc_run(500).unwrap();
    let rest = cpu.alloc_run(1548).unwrap();
    assert_eq!((before.start.get(), rest.start.get(), rest.end.get()), (0, 500, 2048));
    assert!(cpu.alloc_run(1).is_err() && cpu.alloc_run(600).is_err());
    fh.validate().unwrap();
    cpu.free_range(FrameRange { start: Pfn::new(490), end: Pfn::new(1600) }).unwrap();
    cpu.flush().unwrap();
    // 10 and 12 frames, a block and one more, and 64 frames of the last block.
    assert_eq!(cpu.alloc_run(1110).unwrap().start.get(), 490);
    fh.validate().unwrap();
}

#[test]
fn no_run_of_nothing_and_none_that_memory_is_too_small_for() {
    let fh = unmarked(1, 1024);
    let cpu = fh.here();
    assert_eq!(cpu.alloc_run(0), Err(AllocError::ZeroLength));
    for len in [1025, 1 << 40, u64::MAX] {
        assert!(matches!(cpu.alloc_run(len), Err(AllocError::NoMemory { .. })));
    }
    assert_eq!(cpu.alloc_run(1024).unwrap().len(), 1024);
    fh.validate().unwrap();
}

/// As with chunks: what is left after a run is anybody's.
#[test]
fn runs_and_chunks_share_blocks() {
    let fh = unmarked(2, 4096);
    let (a, b) = (fh.here(), fh.on(CpuId::new(1)));
    let mut taken = Vec::new();
    for n in 0..200u64 {
        taken.push(a.alloc_run(1 + n % 13).unwrap());
        let chunk = movable((n % 4) as u8);
        let pfn = b.alloc(chunk).unwrap();
        taken.push(FrameRange::new(pfn, chunk.order.frames()).unwrap());
    }
    taken.sort_unstable_by_key(|run| run.start);
    assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start));
    taken.into_iter().for_each(|run| b.free_range(run).unwrap());
    fh.drain_all();
    fh.validate().unwrap();
    assert_eq!(fh.zone_blocks(0).unwrap().free_blocks, 8);
}

#[test]
fn gaps_are_those_that_looking_at_every_frame_finds() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..400 {
        let words: [u64; 8] = core::array::from_fn(|_| {
            let word = random.u64(..);
            [word, word | word << 9 | word >> 3, 0, !0][random.usize(..4)]
        });
        let free: Vec<bool> = (0..512).map(|at| words[at / 64] >> (at % 64) & 1 != 0).collect();
        let mut gaps = Vec::new();
        let mut at = 0;
        while at < 512 {
            let len = free[at..].iter().take_while(|&&free| free).count();
            if len > 0 {
                gaps.push((len, at));
            }
            at += len + 1;
        }
        let len = 1 + round * 37 % 512;
        let best = gaps.iter().filter(|gap| gap.0 >= len).min();
        let found = smallest_gap(&words, len);
        assert_eq!(found.ok(), best.copied(), "{words:x?} for {len}");
        if let Err(no_gap) = found {
            let longest = gaps.iter().map(|gap| gap.0).max().unwrap_or(0);
            assert!((longest + 1..=len).contains(&no_gap), "{words:x?} has none of {no_gap}");
        }
        let ends = (bits::next(&words, 0, false), free_tail(&words));
        let count = |free: &mut dyn Iterator<Item = &bool>| free.take_while(|&&free| free).count();
        assert_eq!(ends, (count(&mut free.iter()), count(&mut free.iter().rev())));
    }
}

/// A second free into a word leases it, and a leased word is nobody's to cut a run of: not where
/// what is freed is no chunk.
#[test]
fn runs_that_are_freed_side_by_side_are_a_longer_one_at_once() {
    for len in [3, 30] {
        let fh = unmarked(1, 2048);
        let cpu = fh.here();
        let runs = fill(&fh, len);
        cpu.alloc_run(3 * len).unwrap_err();
        let [first, .., last] = [runs[1], runs[2], runs[3]];
        runs[1..4].iter().for_each(|&run| cpu.free_range(run).unwrap());
        let run = FrameRange { start: first.start, end: last.end };
        assert_eq!(cpu.alloc_run(3 * len), Ok(run), "length {len}");
        fh.validate().unwrap();
    }
}
