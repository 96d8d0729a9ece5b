//! `bulk`, `page-fault1` and the workers of `exit-avalanche`: allocate a set of frames, free all of
//! it, again and again.
//!
//! The first round of each CPU is of random length, so that the CPUs are not in step: real ones are
//! not. Workers of an avalanche are made to be: they wait for one another before they free.

use freehold::{Order, Pfn};

use super::{About, BATCH, Io, MOVABLE, Program, Setting, Step};

pub(super) const BULK_ABOUT: About = About {
    name: "bulk",
    what: "Each CPU allocates 16,384 frames (64 MiB) and frees them one by one in the same order.",
    source: "the bulk test of LLFree's authors (USENIX ATC 2023)",
    fewest_cpus: 1,
    frames_a_cpu: BULK as u64,
    think_ns: 0.0,
};

pub(super) const PAGE_FAULT_ABOUT: About = About {
    name: "page-fault1",
    what: "Each CPU allocates 32,768 frames (128 MiB), zeroing each, and frees them in batches of \
           31.",
    source: "will-it-scale page_fault1",
    fewest_cpus: 1,
    frames_a_cpu: PAGE_FAULT as u64,
    think_ns: 0.0,
};

/// Frames of a round of `bulk`.
pub(super) const BULK: usize = 16_384;
/// Frames of a round of `page-fault1`: 128 MiB.
pub(super) const PAGE_FAULT: usize = 32_768;

#[derive(Debug)]
pub(super) struct Rounds {
    set: usize,
    /// Frames of this round.
    wanted: usize,
    batch: usize,
    zero: bool,
    think_ns: f64,
    frames: Vec<(Pfn, Order)>,
    /// How many of them are free already, while freeing.
    freed: Option<usize>,
    /// Whether all CPUs free at once, and whether this one has still to wait for the others.
    has_barrier: bool,
    waits: bool,
}

impl Rounds {
    fn new(setting: &Setting, set: usize, batch: usize, zero: bool) -> Self {
        Self {
            set,
            wanted: set,
            batch,
            zero,
            think_ns: setting.think_ns,
            frames: Vec::with_capacity(set),
            freed: None,
            has_barrier: false,
            waits: false,
        }
    }

    fn out_of_step(setting: &Setting, cpu: u16, set: usize, batch: usize, zero: bool) -> Self {
        let mut random = setting.random(cpu);
        let set = setting.scaled(set);
        let wanted = if setting.cpus == 1 { set } else { 1 + random.below(set as u64) as usize };
        Self { wanted, ..Self::new(setting, set, batch, zero) }
    }

    pub(super) fn bulk(setting: &Setting, cpu: u16) -> Self {
        Self::out_of_step(setting, cpu, BULK, 1, false)
    }

    /// Batches, as munmap's.
    pub(super) fn page_fault(setting: &Setting, cpu: u16) -> Self {
        Self::out_of_step(setting, cpu, PAGE_FAULT, BATCH, true)
    }

    /// Batches, as exit's, of all CPUs at once.
    pub(super) fn exit(setting: &Setting, set: usize) -> Self {
        Self { has_barrier: true, ..Self::new(setting, set, BATCH, true) }
    }
}

impl Program for Rounds {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        let Some(freed) = self.freed else {
            match io.alloc(MOVABLE) {
                Some(pfn) => self.frames.push((pfn, Order::ZERO)),
                // No memory: free what there is.
                None => self.wanted = self.frames.len(),
            }
            if self.zero {
                io.zero_frame();
            }
            io.think(self.think_ns);
            if self.frames.len() >= self.wanted {
                self.freed = Some(0);
                self.waits = self.has_barrier;
            }
            return Step::Done;
        };
        if std::mem::take(&mut self.waits) {
            return Step::Barrier;
        }
        let end = (freed + self.batch).min(self.frames.len());
        io.free(&self.frames[freed..end]);
        self.freed = Some(end);
        if end == self.frames.len() {
            self.frames.clear();
            self.freed = None;
            self.wanted = self.set;
        }
        Step::Done
    }

    fn has_barrier(&self) -> bool {
        self.has_barrier
    }

    fn live(&self) -> u64 {
        (self.frames.len() - self.freed.unwrap_or(0)) as u64
    }
}
