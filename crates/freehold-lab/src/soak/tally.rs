//! What one thread's calls have cost.

use hdrhistogram::Histogram;

use super::call::Call;

/// The longest call that is told apart: ten minutes, in ns.
const LONGEST: u64 = 600_000_000_000;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cost {
    pub(super) ns: u64,
    /// Turns of waits.
    pub(super) waits: u64,
    pub(super) barriers: u64,
    /// Holds of groups' and zones' locks; counted where one thread runs alone.
    pub(super) locks: Option<u64>,
    /// Steps under zones' locks; counted there, too.
    pub(super) steps: Option<u64>,
    /// The thread was stopped meanwhile: its time says nothing.
    pub(super) stopped: bool,
}

/// The calls of one kind through one door.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) times: Histogram<u64>,
    pub(super) count: u64,
    /// Calls that were refused, as they may be: no memory, busy, offline.
    pub(super) refused: u64,
    pub(super) stopped: u64,
    pub(super) waits: u64,
    pub(super) barriers: u64,
    pub(super) locks: Option<u64>,
    pub(super) steps: Option<u64>,
}

impl Line {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST, 2).expect("bounds that suit each other");
        Self { times, count: 0, refused: 0, stopped: 0, waits: 0, barriers: 0, locks: None, steps: None }
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

impl Tally {
    pub(super) fn new() -> Self {
        Self { lines: vec![None; Call::COUNT], allocs: 0, frees: 0, unseen: 0, trims: 0 }
    }

    pub(super) fn note(&mut self, call: Call, cost: Cost, refused: bool) {
        let line = self.lines[call.index()].get_or_insert_with(|| Box::new(Line::new()));
        line.count += 1;
        line.refused += u64::from(refused);
        if cost.stopped {
            line.stopped += 1;
        } else {
            line.times.saturating_record(cost.ns.max(1));
        }
        line.waits = line.waits.max(cost.waits);
        line.barriers = line.barriers.max(cost.barriers);
        line.locks = line.locks.max(cost.locks);
        line.steps = line.steps.max(cost.steps);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.lines.iter_mut().zip(&other.lines) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(|| Box::new(Line::new()));
            // The same bounds everywhere: nothing can fall out.
            let _ = mine.times.add(&theirs.times);
            mine.count += theirs.count;
            mine.refused += theirs.refused;
            mine.stopped += theirs.stopped;
            mine.waits = mine.waits.max(theirs.waits);
            mine.barriers = mine.barriers.max(theirs.barriers);
            mine.locks = mine.locks.max(theirs.locks);
            mine.steps = mine.steps.max(theirs.steps);
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
