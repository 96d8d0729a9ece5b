//! One engine's side of a replay: carries out operations, remembering which frame is in which slot.
//!
//! Time is counted around the operations only, as CPU time of the thread, so that neither decoding
//! the trace nor waiting for it nor looking at the state of memory counts as the engine's cost. The
//! driver's own work (a table look-up for each operation) is in it and is the same for every
//! engine.
//!
//! Where an engine was filled as a recording says, what the trace frees without having allocated it
//! is taken from what is in use, instead of being allocated from what was free.

use freehold::{CpuId, FrameRange, Order, Pfn};
use rustix::time::{ClockId, clock_gettime};

use super::applier::Applier;
use super::fill::{InUse, Layout};
use super::op::{Batch, FREE_BATCH_MAX, Op, SamplePoint};
use super::outcome::{EngineOutcome, Sample};
use super::whole;
use crate::engine::{CmaBook, Engine, Request};

/// An empty slot: no frame has this number in any engine.
const EMPTY: u64 = u64::MAX;

pub struct Driver<'a> {
    applier: Applier<'a>,
    /// Where each slot's chunk is in this engine.
    frames: Vec<u64>,
    /// The chunk split last, for the pieces that follow.
    split: (u64, Order),
    /// What is in use besides the slots, where the engine was filled.
    in_use: Option<InUse>,
    cpus: u16,
    started: bool,
    /// Allocations that failed until then.
    set_up_failed: u64,
    cpu_time_ns: u64,
    samples: Vec<Sample>,
    /// The engine when the trace was over.
    end: Option<EngineOutcome>,
}

impl<'a> Driver<'a> {
    /// A driver for an engine that is as it was made.
    pub fn new(engine: &'a dyn Engine) -> Self {
        Self {
            applier: Applier::new(engine, None),
            frames: Vec::new(),
            split: (EMPTY, Order::ZERO),
            in_use: None,
            cpus: 1,
            started: false,
            set_up_failed: 0,
            cpu_time_ns: 0,
            samples: Vec::new(),
            end: None,
        }
    }

    /// Has an account kept of what that CMA serves; before the engine is filled.
    pub fn watch_cma(&mut self, ranges: &[FrameRange]) {
        self.applier.cma = CmaBook::new(ranges, 0);
    }

    /// Puts the engine into a recorded state; before the first batch.
    pub fn fill(&mut self, layout: &Layout, cpus: u16) {
        self.cpus = cpus;
        let Applier { engine, cma, errors, .. } = &mut self.applier;
        cma.iter_mut().for_each(|book| book.in_use(layout.cma_used()));
        self.in_use = layout.apply(*engine, cpus).map_err(|error| errors.add(error)).ok();
    }

    pub fn apply(&mut self, batch: &Batch) {
        let mut started = thread_cpu_time_ns();
        let mut ops = batch.ops.iter();
        while let Some(&op) = ops.next() {
            match op {
                Op::Alloc { slot, cpu, order, migratetype, flags } => {
                    *self.slot(slot) =
                        self.alloc(CpuId::new(cpu), Request { order, migratetype, flags });
                }
                Op::Free { slot, cpu, order } => {
                    let chunk = self.take(slot);
                    self.applier.free(CpuId::new(cpu), chunk, order);
                }
                Op::FreeBatch { cpu, members } => {
                    let members = ops.by_ref().take(usize::from(members));
                    self.free_batch(CpuId::new(cpu), members);
                }
                Op::Split { slot, from, to } => {
                    let pfn = *self.slot(slot);
                    self.split = (pfn, to);
                    self.applier.split(chunk(pfn), from, to);
                }
                Op::Piece { slot, index } => {
                    let (head, to) = self.split;
                    *self.slot(slot) =
                        if head == EMPTY { EMPTY } else { head + u64::from(index) * to.frames() };
                }
                // A member that no batch announced cannot come from the mapper.
                Op::Member { slot, .. } => {
                    self.applier.errors.add(format!("slot {slot} is in no batch of frees"))
                }
                Op::Start => {
                    self.applier.engine.start();
                    self.applier.engine.set_recorded();
                    self.fill_lists();
                    self.started = true;
                    self.applier.cma.iter_mut().for_each(CmaBook::begin);
                    self.set_up_failed = std::mem::take(&mut self.applier.made).failed;
                    self.cpu_time_ns = 0;
                    started = thread_cpu_time_ns();
                }
                Op::Tick { cpu } => self.applier.engine.tick(CpuId::new(cpu)),
                Op::Reclaim { active } => self.applier.engine.set_reclaim(active),
                Op::Sample { index } => {
                    self.cpu_time_ns += thread_cpu_time_ns() - started;
                    self.sample(batch.samples[index as usize]);
                    started = thread_cpu_time_ns();
                }
                Op::End => {
                    self.cpu_time_ns += thread_cpu_time_ns() - started;
                    self.end = Some(EngineOutcome::at_end(&self.applier));
                    started = thread_cpu_time_ns();
                }
            }
        }
        // Giving back what the trace left live is no part of the trace.
        if self.end.is_none() {
            self.cpu_time_ns += thread_cpu_time_ns() - started;
        }
    }

    /// Drains the engine, checks that it is whole and sums up. To be called after the batch with
    /// [`Op::End`].
    pub fn finish(mut self, name: &str) -> EngineOutcome {
        let Applier { engine, made, .. } = self.applier;
        let counted = engine.counters();
        let miscounted =
            whole::miscounted((counted.allocs, counted.frees), (made.allocs, made.frees));
        for (pfn, order) in self.in_use.take().into_iter().flat_map(InUse::into_chunks) {
            self.applier.free(CpuId::new(0), Some(pfn), order);
        }
        let end = self
            .end
            .take()
            .unwrap_or_else(|| EngineOutcome::at_end(&self.applier))
            .over_time(self.samples);
        // Of what was carried out: what failed, and the frees of what failed, is no event of this
        // engine's.
        let events = (end.counters.allocs + end.counters.frees).max(1);
        let outcome = EngineOutcome {
            set_up_failed: self.set_up_failed,
            ns_per_event: self.cpu_time_ns as f64 / events as f64,
            ..end
        };
        outcome.given_back(name, &self.applier, miscounted.into_iter().collect())
    }

    fn fill_lists(&mut self) {
        let Some(in_use) = &mut self.in_use else { return };
        let listed = in_use.take_listed(self.cpus);
        if let Err(error) = self.applier.engine.fill_lists(&listed) {
            self.applier.errors.add(format!("filling the CPUs' lists: {error}"));
        }
    }

    fn slot(&mut self, slot: u32) -> &mut u64 {
        let slot = slot as usize;
        if slot >= self.frames.len() {
            self.frames.resize((slot + 1).next_power_of_two(), EMPTY);
        }
        &mut self.frames[slot]
    }

    /// What was in a slot, which is empty then.
    fn take(&mut self, slot: u32) -> Option<Pfn> {
        chunk(std::mem::replace(self.slot(slot), EMPTY))
    }

    /// Where the chunk is, or `EMPTY`. What the trace had before it began comes out of what is in
    /// use already.
    #[inline(always)]
    fn alloc(&mut self, cpu: CpuId, request: Request) -> u64 {
        if !self.started
            && let Some(pfn) = self
                .in_use
                .as_mut()
                .and_then(|in_use| in_use.take(self.applier.engine, request.order))
        {
            return pfn.get();
        }
        self.applier.alloc(cpu, request).map_or(EMPTY, Pfn::get)
    }

    fn free_batch<'b>(&mut self, cpu: CpuId, members: impl Iterator<Item = &'b Op>) {
        let mut chunks = [(Pfn::new(0), Order::ZERO); FREE_BATCH_MAX];
        let mut len = 0;
        for member in members {
            let &Op::Member { slot, order } = member else { continue };
            match self.take(slot) {
                Some(pfn) => {
                    chunks[len] = (pfn, order);
                    len += 1;
                }
                None => self.applier.made.skipped += 1,
            }
        }
        self.applier.free_batch(cpu, &chunks[..len]);
    }

    fn sample(&mut self, point: SamplePoint) {
        let engine = self.applier.engine;
        self.samples.push(Sample { point, memory: engine.memory(), counters: engine.counters() });
    }
}

/// What a place of `frames` says.
fn chunk(pfn: u64) -> Option<Pfn> {
    (pfn != EMPTY).then(|| Pfn::new(pfn))
}

fn thread_cpu_time_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
