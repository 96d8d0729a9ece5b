//! Carries out a plan on one engine: the set-up on this thread, then a thread for each CPU, then
//! everything back.
//!
//! Every frame in use is stamped, so that a frame handed out twice is found whoever the two were.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use std::thread;

use freehold::{CpuId, Order, Pfn};

use freehold_labkit::engine::{CmaBook, Engine, Request};
use freehold_labkit::replay::applier::Applier;
use freehold_labkit::replay::fill::{InUse, Layout};
use freehold_labkit::replay::op::{FREE_BATCH_MAX, Op};
use freehold_labkit::replay::outcome::Met;
use freehold_labkit::replay::whole;
use freehold_labkit::replay::{Beginning, EngineOutcome};

use super::plan::{Plan, Stream};
use super::replay::LEAD;
use super::waits;

const NOT_YET: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;
/// Steps between two looks at how far the others are.
const LOOK: usize = 32;
/// Turns of a wait before the processor is left to others.
const SPINS: u32 = 64;

/// What all threads share.
struct Field<'a> {
    engine: &'a dyn Engine,
    plan: &'a Plan,
    /// Where each number's chunk is.
    frames: Vec<AtomicU64>,
    /// The place in the trace of the step that each thread is at.
    at: Vec<AtomicU32>,
    /// Whether a frame is in use, from frame `start` on.
    stamps: Vec<AtomicU8>,
    start: u64,
    /// A thread has panicked: nobody may wait for it.
    broken: AtomicBool,
}

impl<'a> Field<'a> {
    fn new(engine: &'a dyn Engine, plan: &'a Plan) -> Self {
        let blocks = engine.blocks();
        let start = blocks.first().map_or(0, |block| block.start.get());
        let end = blocks.last().map_or(0, |block| block.start.get() + u64::from(block.frames));
        Self {
            engine,
            plan,
            frames: (0..plan.ids).map(|_| AtomicU64::new(NOT_YET)).collect(),
            at: plan.streams.iter().map(|_| AtomicU32::new(0)).collect(),
            stamps: (start..end).map(|_| AtomicU8::new(0)).collect(),
            start,
            broken: AtomicBool::new(false),
        }
    }

    /// Changes the stamps of a chunk; whether all were as they had to be.
    fn stamp(&self, pfn: u64, order: Order, to: u8) -> bool {
        // An engine that cannot say where its memory is has no stamps.
        let first = pfn.wrapping_sub(self.start) as usize;
        let stamps = self.stamps.get(first..first + order.frames() as usize).unwrap_or(&[]);
        // AcqRel: a frame's stamps follow one another as it changes hands.
        stamps.iter().filter(|stamp| stamp.swap(to, AcqRel) == to).count() == 0
    }

    /// The frame of number `id`; [`NOT_YET`] and [`FAILED`] are none.
    fn frame(&self, id: u32) -> u64 {
        // Acquire: pairs with `publish`, so that what the allocating thread did is seen.
        self.frames[id as usize].load(Acquire)
    }

    /// Waits while `waiting`, unless what is waited for cannot come any more.
    fn wait(&self, waiting: impl Fn() -> bool) {
        let mut spins = 0;
        // Relaxed: nothing is read because of it.
        while waiting() && !self.broken.load(Relaxed) {
            relax(&mut spins);
        }
    }

    fn publish(&self, id: u32, pfn: u64) {
        // Release: pairs with `frame`.
        self.frames[id as usize].store(pfn, Release);
    }
}

fn relax(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

/// One CPU's thread, and what it did.
struct Worker<'f, 'a> {
    field: &'f Field<'a>,
    cpu: CpuId,
    applier: Applier<'a>,
    /// The chunk split last, for the pieces that follow.
    split: (Option<Pfn>, Order),
    applied: u64,
    order_waits: u64,
    lead_waits: u64,
    /// Waits in calls of Freehold, and nanoseconds of them.
    waits: [u64; 2],
}

/// Lets the others go on, whatever becomes of this thread.
struct Leaving<'f, 'a>(&'f Field<'a>, CpuId);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        // Relaxed, both: see where they are read.
        self.0.broken.fetch_or(thread::panicking(), Relaxed);
        self.0.at[self.1.index()].store(u32::MAX, Relaxed);
    }
}

impl<'f, 'a> Worker<'f, 'a> {
    fn new(field: &'f Field<'a>, cpu: CpuId, applier: Applier<'a>) -> Self {
        Self {
            field,
            cpu,
            applier,
            split: (None, Order::ZERO),
            applied: 0,
            order_waits: 0,
            lead_waits: 0,
            waits: [0, 0],
        }
    }

    /// Adds what another one did.
    fn join(&mut self, other: Self) {
        self.applier.join(other.applier);
        self.applied += other.applied;
        self.order_waits += other.order_waits;
        self.lead_waits += other.lead_waits;
        self.waits = [0, 1].map(|n| self.waits[n] + other.waits[n]);
    }

    fn run(mut self, stream: &Stream) -> Self {
        let _leaving = Leaving(self.field, self.cpu);
        let mut next = 0;
        while next < stream.ops.len() {
            let place = stream.places[next];
            if next % LOOK == 0 {
                self.keep_up(place);
            }
            next += self.step(&stream.ops[next..], place);
        }
        self
    }

    /// Says where this thread is.
    fn tell(&self, place: u32) {
        // Relaxed: the number alone is what others act on.
        self.field.at[self.cpu.index()].store(place, Relaxed);
    }

    /// Waits until no thread is more than [`LEAD`] behind. The one that is farthest behind never
    /// waits here, and what a step depends on lies before it in the trace, so somebody can always
    /// go on.
    fn keep_up(&mut self, place: u32) {
        self.tell(place);
        // Relaxed: as in `tell`.
        let behind =
            || self.field.at.iter().any(|at| at.load(Relaxed).saturating_add(LEAD) < place);
        if behind() {
            self.lead_waits += 1;
            self.field.wait(behind);
        }
    }

    /// Carries out the first of `ops`, and the members behind a batch; how many that were.
    fn step(&mut self, ops: &[Op], place: u32) -> usize {
        match ops[0] {
            Op::Alloc { slot, order, migratetype, flags, .. } => {
                let pfn = self.alloc(Request { order, migratetype, flags });
                self.field.publish(slot, pfn);
            }
            Op::Free { slot, order, .. } => {
                let chunk = self.frame(slot, place);
                self.free(chunk, order, self.field.plan.is_interrupt(slot));
            }
            Op::FreeBatch { members, .. } => {
                return 1 + self.free_batch(&ops[1..1 + usize::from(members)], place);
            }
            Op::Split { slot, from, to } => {
                let head = self.frame(slot, place);
                self.applier.split(head, from, to);
                self.split = (head, to);
            }
            Op::Piece { slot, index } => {
                let (head, to) = self.split;
                self.field.publish(
                    slot,
                    head.map_or(FAILED, |head| head.get() + u64::from(index) * to.frames()),
                );
                return 1;
            }
            Op::Tick { .. } => {
                self.field.engine.tick(self.cpu);
                self.call_ended();
            }
            // No batch announced it, or it is of no stream: that cannot come from the planner.
            Op::Member { .. } | Op::Start | Op::Reclaim { .. } | Op::Sample { .. } | Op::End => {
                self.applier.errors.add(format!("{:?} has no place in a stream", ops[0]));
            }
        }
        self.applied += 1;
        1
    }

    /// The frame of a number, unless its allocation failed; waits for it, and then tells the others
    /// how far this thread is.
    fn frame(&mut self, id: u32, place: u32) -> Option<Pfn> {
        let mut pfn = self.field.frame(id);
        if pfn == NOT_YET {
            self.tell(place);
            self.order_waits += 1;
            self.field.wait(|| self.field.frame(id) == NOT_YET);
            pfn = self.field.frame(id);
        }
        chunk(pfn)
    }

    fn alloc(&mut self, request: Request) -> u64 {
        let allocated = self.applier.alloc(self.cpu, request);
        self.call_ended();
        let Some(pfn) = allocated else { return FAILED };
        let order = request.order;
        if !self.field.stamp(pfn.get(), order, 1) {
            self.applier
                .errors
                .add(format!("{order} at {pfn} was handed out while some of it was in use"));
        }
        pfn.get()
    }

    /// Counts what the call waited.
    fn call_ended(&mut self) {
        if let Some(ns) = waits::ended() {
            self.waits = [self.waits[0] + 1, self.waits[1].saturating_add(ns)];
        }
    }

    /// Takes the stamps off, before the engine can hand the frames to somebody else.
    fn unstamp(&mut self, pfn: Pfn, order: Order) {
        if !self.field.stamp(pfn.get(), order, 0) {
            self.applier
                .errors
                .add(format!("{order} at {pfn} was freed while some of it was not in use"));
        }
    }

    fn free(&mut self, chunk: Option<Pfn>, order: Order, interrupt: bool) {
        chunk.into_iter().for_each(|pfn| self.unstamp(pfn, order));
        self.applier.free(self.cpu, chunk, order, interrupt);
    }

    fn free_batch(&mut self, members: &[Op], place: u32) -> usize {
        let mut chunks = [(Pfn::new(0), Order::ZERO); FREE_BATCH_MAX];
        let mut len = 0;
        for member in members {
            let &Op::Member { slot, order } = member else { continue };
            self.applied += 1;
            let Some(pfn) = self.frame(slot, place) else {
                self.applier.made.skipped += 1;
                continue;
            };
            chunks[len] = (pfn, order);
            self.unstamp(pfn, order);
            len += 1;
        }
        self.applier.free_batch(self.cpu, &chunks[..len]);
        members.len()
    }
}

/// What a place of [`Field::frames`] says.
fn chunk(pfn: u64) -> Option<Pfn> {
    (pfn != NOT_YET && pfn != FAILED).then(|| Pfn::new(pfn))
}

/// Carries out all of `plan`, gives everything back, and says what came of it.
pub(super) fn carry_out(
    engine: &dyn Engine,
    name: &str,
    plan: &Plan,
    beginning: &Beginning,
    cpus: u16,
) -> EngineOutcome {
    let field = Field::new(engine, plan);
    let mut findings = Vec::new();
    let layout = beginning.layout.as_ref();
    let mut in_use = layout
        .and_then(|layout| layout.apply(engine, cpus).map_err(|error| findings.push(error)).ok());
    let mut book = CmaBook::new(&beginning.cma, 0);
    book.iter_mut().for_each(|book| book.in_use(layout.map_or(0, Layout::cma_used)));
    let mut done = Worker::new(&field, CpuId::new(0), Applier::new(engine, book));
    let set_up_failed = set_up(&done, plan, in_use.as_mut(), &mut findings);
    engine.start();

    done.applier.cma.iter_mut().for_each(CmaBook::begin);
    thread::scope(|scope| {
        let threads: Vec<_> = (0u16..)
            .zip(&plan.streams)
            .map(|(cpu, stream)| {
                let worker = Worker::new(&field, CpuId::new(cpu), done.applier.beside());
                scope.spawn(move || worker.run(stream))
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(other) => done.join(other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });

    let mut contention = engine.contention();
    contention.shared_lock_waits += done.waits[0];
    contention.shared_lock_wait_ns += done.waits[1];
    let met = Met {
        applied: done.applied,
        order_waits: done.order_waits,
        lead_waits: done.lead_waits,
        contention,
    };
    let end = EngineOutcome::at_end(&done.applier);
    findings.extend(compare(plan, &done, (end.counters.allocs, end.counters.frees)));
    give_back(&mut done, plan, in_use);
    // Other in every run: told as totals, without a histogram of holds and without lists.
    let outcome = EngineOutcome {
        set_up_failed,
        met: Some(met),
        zone_lock_work_histogram: Vec::new(),
        flow: None,
        ..end
    };
    outcome.given_back(name, &done.applier, findings)
}

/// Allocations that stand for memory in use before the trace begins: taken from what is in use,
/// where the engine was filled. How many failed.
fn set_up(
    main: &Worker<'_, '_>,
    plan: &Plan,
    mut in_use: Option<&mut InUse>,
    findings: &mut Vec<String>,
) -> u64 {
    let field = main.field;
    let mut worker = Worker::new(field, main.cpu, main.applier.beside());
    for &op in &plan.before {
        let Op::Alloc { slot, cpu, order, migratetype, flags } = op else { continue };
        worker.cpu = CpuId::new(cpu);
        let taken = in_use.as_deref_mut().and_then(|in_use| in_use.take(field.engine, order));
        let pfn = match taken {
            Some(pfn) => {
                field.stamp(pfn.get(), order, 1);
                pfn.get()
            }
            None => worker.alloc(Request { order, migratetype, flags }),
        };
        field.publish(slot, pfn);
    }
    findings.extend(worker.applier.errors.finding());
    worker.applier.made.failed
}

/// What was asked for and what was done.
fn compare(plan: &Plan, done: &Worker<'_, '_>, counted: (u64, u64)) -> Vec<String> {
    let Applier { made, errors, .. } = &done.applier;
    let mut findings = Vec::new();
    if done.applied != plan.applied {
        findings.push(format!("{} of {} operations were applied", done.applied, plan.applied));
    }
    let asked = (made.allocs + made.failed, made.frees + made.skipped + errors.count());
    if asked.0 != plan.allocs || asked.1 < plan.frees {
        let (allocs, frees) = (plan.allocs, plan.frees);
        findings.push(format!(
            "{} of {allocs} allocations and {} of {frees} frees were made",
            asked.0, asked.1
        ));
    }
    findings.extend(whole::miscounted(counted, (made.allocs, made.frees)));
    findings
}

/// Frees what the trace left live, and what was in use besides.
fn give_back(worker: &mut Worker<'_, '_>, plan: &Plan, in_use: Option<InUse>) {
    for &(cpu, id, order) in &plan.left {
        worker.cpu = CpuId::new(cpu);
        // Relaxed: the threads have been joined.
        let pfn = worker.field.frames[id as usize].load(Relaxed);
        worker.free(chunk(pfn), order, false);
    }
    worker.cpu = CpuId::new(0);
    for (pfn, order) in in_use.into_iter().flat_map(InUse::into_chunks) {
        worker.field.stamp(pfn.get(), order, 1);
        worker.free(Some(pfn), order, false);
    }
}
