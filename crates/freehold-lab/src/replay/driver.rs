//! One engine's side of a replay: carries out operations, remembering which frame is in which slot.
//!
//! Time is counted around the operations only, as CPU time of the thread, so that neither decoding the trace nor
//! waiting for it nor looking at the state of memory counts as the engine's cost. The driver's own work (a table
//! look-up for each operation) is in it and is the same for every engine.
//!
//! Where an engine was filled as a recording says, what the trace frees without having allocated it is taken from what
//! is in use, instead of being allocated from what was free.

use freehold::{AllocError, CpuId, FrameRange, Order, Pfn};
use rustix::time::{ClockId, clock_gettime};

use super::by_order::{self, ByOrder};
use super::errors::Errors;
use super::fill::{InUse, Layout};
use super::memory_map::MapRecorder;
use super::op::{Batch, FREE_BATCH_MAX, Op, SamplePoint};
use super::outcome::{EngineOutcome, Sample};
use super::whole;
use crate::engine::{CmaBook, CmaCounts, Counters, Engine, HoldBucket, ListFlow, Memory, Paths, Request};

/// An empty slot: no frame has this number in any engine.
const EMPTY: u64 = u64::MAX;
/// How many of an engine's errors are kept word for word.
const ERRORS_KEPT: usize = 5;

/// Drives one engine.
pub struct Driver<'a> {
    engine: &'a dyn Engine,
    /// Where each slot's chunk is in this engine.
    frames: Vec<u64>,
    /// The chunk split last, for the pieces that follow.
    split: (u64, Order),
    counted: Counted,
    /// What is in use besides the slots, where the engine was filled.
    in_use: Option<InUse>,
    /// Whether the trace has begun.
    started: bool,
    /// Allocations that failed until then.
    set_up_failed: u64,
    cpu_time_ns: u64,
    samples: Vec<Sample>,
    memory: Option<MapRecorder>,
    /// What CMA serves, where the machine has any.
    cma: Option<CmaBook>,
    end: Option<AtEnd>,
    errors: Errors<ERRORS_KEPT>,
}

/// The engine's state when the trace was over.
struct AtEnd {
    counters: Counters,
    memory: Memory,
    holds: Vec<HoldBucket>,
    flow: Option<ListFlow>,
    paths: Option<Paths>,
    cma: Option<CmaCounts>,
}

/// What the driver itself counted, to compare with what the engine says.
#[derive(Clone, Copy, Default)]
struct Counted {
    allocs: u64,
    allocs_by_order: by_order::Table,
    frees: u64,
    failed: u64,
    frees_skipped: u64,
}

impl<'a> Driver<'a> {
    /// A driver for an engine that is as it was made.
    #[must_use]
    pub fn new(engine: &'a dyn Engine) -> Self {
        Self {
            engine,
            frames: Vec::new(),
            split: (EMPTY, Order::ZERO),
            counted: Counted::default(),
            in_use: None,
            started: false,
            set_up_failed: 0,
            cpu_time_ns: 0,
            samples: Vec::new(),
            memory: None,
            cma: None,
            end: None,
            errors: Errors::default(),
        }
    }

    /// Has the state of every pageblock recorded as well, at the samples that `recorder` wants.
    pub fn record_memory(&mut self, recorder: MapRecorder) {
        self.memory = Some(recorder);
    }

    /// Has an account kept of what that CMA serves; before the engine is filled.
    pub fn watch_cma(&mut self, ranges: &[FrameRange]) {
        self.cma = CmaBook::new(ranges, 0);
    }

    /// Puts the engine into a recorded state; before the first batch.
    pub fn fill(&mut self, layout: &Layout, cpus: u16) {
        self.cma.iter_mut().for_each(|book| book.in_use(layout.cma_used()));
        match layout.apply(self.engine, cpus) {
            Ok(in_use) => self.in_use = Some(in_use),
            Err(error) => self.errors.add(error),
        }
    }

    /// Carries out a batch.
    pub fn apply(&mut self, batch: &Batch) {
        let mut started = thread_cpu_time_ns();
        let mut ops = batch.ops.iter();
        while let Some(&op) = ops.next() {
            match op {
                Op::Alloc { slot, cpu, order, migratetype, flags } => {
                    *self.slot(slot) = self.alloc_one(cpu, Request { order, migratetype, flags });
                }
                Op::Free { slot, cpu, order } => {
                    let pfn = std::mem::replace(self.slot(slot), EMPTY);
                    self.free_one(cpu, pfn, order);
                }
                Op::FreeBatch { cpu, members } => {
                    let members = ops.by_ref().take(usize::from(members));
                    self.free_batch(cpu, members);
                }
                Op::Split { slot, from, to } => {
                    let pfn = *self.slot(slot);
                    self.split = (pfn, to);
                    if pfn != EMPTY
                        && let Err(error) = self.engine.split(Pfn::new(pfn), from, to)
                    {
                        self.errors.add(format!("splitting {from} into {to} at {}: {error}", Pfn::new(pfn)));
                    }
                }
                Op::Piece { slot, index } => {
                    let (head, to) = self.split;
                    *self.slot(slot) = if head == EMPTY { EMPTY } else { head + u64::from(index) * to.frames() };
                }
                // A member that no batch announced cannot come from the mapper.
                Op::Member { slot, .. } => self.errors.add(format!("slot {slot} is in no batch of frees")),
                Op::Start => {
                    self.engine.start();
                    self.started = true;
                    self.cma.iter_mut().for_each(CmaBook::begin);
                    self.set_up_failed = self.counted.failed;
                    self.counted = Counted::default();
                    self.cpu_time_ns = 0;
                    started = thread_cpu_time_ns();
                }
                Op::Tick { cpu } => self.engine.tick(CpuId::new(cpu)),
                Op::Sample { index } => {
                    self.cpu_time_ns += thread_cpu_time_ns() - started;
                    self.sample(batch.samples[index as usize]);
                    started = thread_cpu_time_ns();
                }
                Op::End => {
                    self.cpu_time_ns += thread_cpu_time_ns() - started;
                    self.end = Some(self.at_end());
                    started = thread_cpu_time_ns();
                }
            }
        }
        // Giving back what the trace left live is no part of the trace.
        if self.end.is_none() {
            self.cpu_time_ns += thread_cpu_time_ns() - started;
        }
    }

    /// Drains the engine, checks that it is whole and sums up. To be called after the batch with [`Op::End`].
    #[must_use]
    pub fn finish(mut self, name: &str) -> EngineOutcome {
        let (after, made) = (self.engine.counters(), self.counted);
        for (pfn, order) in self.in_use.take().into_iter().flat_map(InUse::into_chunks) {
            self.free_one(0, pfn.get(), order);
        }
        self.engine.drain_all();
        let memory = self.engine.memory();
        let mut findings = whole::check(self.engine, &memory);
        findings.extend(whole::miscounted((after.allocs, after.frees), (made.allocs, made.frees)));
        findings.extend(self.errors.finding());
        findings.extend(self.cma_findings());
        let AtEnd { counters, memory: end, holds, flow, paths, cma } = self.end.take().unwrap_or_else(|| self.at_end());
        let by_order = ByOrder::new(made.allocs_by_order, flow.as_ref(), &end);
        // Of what was carried out: what failed, and the frees of what failed, is no event of this engine's.
        let ns_per_event = self.cpu_time_ns as f64 / (counters.allocs + counters.frees).max(1) as f64;
        let outcome = EngineOutcome::new(
            name,
            counters,
            &end,
            self.samples,
            self.counted.failed,
            memory.managed_frames.saturating_sub(memory.free_frames),
            ns_per_event,
            findings,
        );
        EngineOutcome {
            set_up_failed: self.set_up_failed,
            zone_lock_work_histogram: holds.iter().map(|bucket| [bucket.from, bucket.to, bucket.holds]).collect(),
            by_order,
            memory_map: self.memory.and_then(MapRecorder::finish),
            flow,
            paths,
            cma,
            ..outcome
        }
    }

    fn at_end(&self) -> AtEnd {
        AtEnd {
            counters: self.engine.counters(),
            memory: self.engine.memory(),
            holds: self.engine.zone_lock_holds(),
            flow: self.engine.list_flow(),
            paths: self.engine.paths(),
            cma: self.cma.as_ref().map(CmaBook::counts),
        }
    }

    /// What contradicts the account of CMA, in words.
    fn cma_findings(&self) -> Vec<String> {
        self.cma.as_ref().map_or_else(Vec::new, |book| book.findings(&self.engine.blocks()))
    }

    fn slot(&mut self, slot: u32) -> &mut u64 {
        let slot = slot as usize;
        if slot >= self.frames.len() {
            self.frames.resize((slot + 1).next_power_of_two(), EMPTY);
        }
        &mut self.frames[slot]
    }

    /// Where the chunk is, or `EMPTY`. What the trace had before it began comes out of what is in use already.
    #[inline(always)]
    fn alloc_one(&mut self, cpu: u16, request: Request) -> u64 {
        let order = request.order;
        if !self.started
            && let Some(pfn) = self.in_use.as_mut().and_then(|in_use| in_use.take(self.engine, order))
        {
            return pfn.get();
        }
        match self.engine.alloc(CpuId::new(cpu), request) {
            Ok(pfn) => {
                self.counted.allocs += 1;
                by_order::count(&mut self.counted.allocs_by_order, order, request.migratetype);
                self.cma.iter_mut().for_each(|book| book.served(request, pfn));
                if !pfn.is_aligned(order) {
                    self.errors.add(format!("{order} allocated at {pfn}, which is not aligned to it"));
                }
                pfn.get()
            }
            Err(error) => {
                self.counted.failed += 1;
                self.cma.iter_mut().for_each(|book| book.failed(request));
                if !matches!(error, AllocError::NoMemory { .. } | AllocError::WouldBlock) {
                    self.errors.add(format!("allocating {order} on CPU {cpu}: {error}"));
                }
                EMPTY
            }
        }
    }

    fn free_one(&mut self, cpu: u16, pfn: u64, order: Order) {
        if pfn == EMPTY {
            // The allocation failed in this engine.
            self.counted.frees_skipped += 1;
            return;
        }
        match self.engine.free(CpuId::new(cpu), Pfn::new(pfn), order) {
            Ok(()) => {
                self.counted.frees += 1;
                self.cma.iter_mut().for_each(|book| book.freed(Pfn::new(pfn), order));
            }
            Err(error) => self.errors.add(format!("freeing {order} at {} on CPU {cpu}: {error}", Pfn::new(pfn))),
        }
    }

    fn free_batch<'b>(&mut self, cpu: u16, members: impl Iterator<Item = &'b Op>) {
        let mut chunks = [(Pfn::new(0), Order::ZERO); FREE_BATCH_MAX];
        let mut len = 0;
        for member in members {
            let &Op::Member { slot, order } = member else { continue };
            let pfn = std::mem::replace(self.slot(slot), EMPTY);
            if pfn == EMPTY {
                self.counted.frees_skipped += 1;
            } else {
                chunks[len] = (Pfn::new(pfn), order);
                len += 1;
            }
        }
        if len == 0 {
            return;
        }
        match self.engine.free_batch(CpuId::new(cpu), &chunks[..len]) {
            Ok(()) => {
                self.counted.frees += len as u64;
                let freed = |book: &mut CmaBook| chunks[..len].iter().for_each(|&(pfn, order)| book.freed(pfn, order));
                self.cma.iter_mut().for_each(freed);
            }
            Err(error) => self.errors.add(format!("freeing a batch of {len} on CPU {cpu}: {error}")),
        }
    }

    fn sample(&mut self, point: SamplePoint) {
        if self.memory.as_mut().is_some_and(MapRecorder::is_wanted) {
            let blocks = self.engine.blocks();
            self.memory.iter_mut().for_each(|recorder| recorder.record(point, &blocks));
        }
        self.samples.push(Sample { point, memory: self.engine.memory(), counters: self.engine.counters() });
    }
}

fn thread_cpu_time_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
