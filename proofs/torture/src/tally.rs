//! What one thread's calls have cost.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::bounds::Counts;
use super::call::Call;

/// The longest call that is told apart: ten minutes, in ns.
const LONGEST: u64 = 600_000_000_000;

/// The calls of one kind through one door.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) times: Histogram<u64>,
    pub(super) count: u64,
    /// Calls that were refused, as they may be: no memory, busy, offline.
    pub(super) refused: u64,
    /// Calls in which the thread was stopped: their times say nothing.
    pub(super) stopped: u64,
    /// The most of each in one call. Shared writes are counted where one thread runs alone.
    pub(super) most: Counts,
}

impl Line {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST, 2).expect("bounds that suit each other");
        Self { times, count: 0, refused: 0, stopped: 0, most: [None; 3] }
    }

    fn raise(&mut self, counts: Counts) {
        self.most.iter_mut().zip(counts).for_each(|(most, count)| *most = (*most).max(count));
    }
}

#[derive(Clone)]
pub(super) struct Tally {
    lines: Vec<Option<Box<Line>>>,
    /// Allocations and frees that the allocator should have counted.
    pub(super) allocs: u64,
    pub(super) frees: u64,
    /// Allocations that it may not have counted, or that count as a free of their own.
    pub(super) unseen: u64,
    /// Aligned allocations that may have freed what a larger chunk had too much.
    pub(super) trims: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { lines: vec![None; Call::COUNT], allocs: 0, frees: 0, unseen: 0, trims: 0 }
    }
}

impl Tally {
    /// A call has ended; `time` is none where its thread was stopped meanwhile.
    pub(super) fn note(
        &mut self,
        call: Call,
        time: Option<Duration>,
        counts: Counts,
        refused: bool,
    ) {
        let line = self.lines[call.index()].get_or_insert_with(|| Box::new(Line::new()));
        line.count += 1;
        line.refused += u64::from(refused);
        match time {
            Some(time) => line.times.saturating_record((time.as_nanos() as u64).max(1)),
            None => line.stopped += 1,
        }
        line.raise(counts);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.lines.iter_mut().zip(&other.lines) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(|| Box::new(Line::new()));
            // Both histograms have equal bounds: nothing can fall out.
            let _ = mine.times.add(&theirs.times);
            mine.count += theirs.count;
            mine.refused += theirs.refused;
            mine.stopped += theirs.stopped;
            mine.raise(theirs.most);
        }
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.unseen += other.unseen;
        self.trims += other.trims;
    }

    /// The calls of that kind, if there were any.
    pub(super) fn line(&self, call: Call) -> Option<&Line> {
        self.lines[call.index()].as_deref()
    }
}
