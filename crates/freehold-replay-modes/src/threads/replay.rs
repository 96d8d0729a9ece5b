//! Replaying a trace on real threads: each CPU's stream on a thread of its own, all against one
//! engine with its real locks.
//!
//! ```text
//!  trace rows ──> mapper ──> [Op] ──> plan ──┬──> stream of CPU 0 ──> thread ──┐
//!                                            └──> stream of CPU 1 ──> thread ──┴──> one engine
//! ```
//!
//! A CPU's calls stay in its own order. Between CPUs order is kept only where a chunk depends on
//! it: a free, or a split, waits until the allocation has happened. Everything else happens as the
//! threads get to it, one at most [`LEAD`] operations of the trace ahead of another. So how often a
//! lock was held, and where frames ended up, differs from run to run; what was applied, and that
//! nothing is lost, does not.
//!
//! **Interrupts.** A share of the frees arrives inside another call of their CPU: the CPU's own
//! state is in use, and what an engine does then is what it does in an interrupt. Kernel designs
//! cannot have the PCP lock and go to the zone; Freehold puts the frame into its block's word.
//! Which frees these are is the same in every run and for every engine. Batches of folios are freed
//! by tasks and never among them.
//!
//! **CMA.** Each thread keeps its own account of what CMA served it. How much of CMA is in use is
//! one number for all of them, so that calls which CMA serves meet at that number too.
//!
//! **What it can show**: that a design is correct under real concurrency, that its locks are
//! contended and which, which calls find a lock held and what they do then. **What it cannot**:
//! threads run at full speed, without the work that a kernel does between two calls, so locks are
//! contended more often than on the recorded machine; on a machine with fewer cores than the trace
//! has CPUs, a thread that is put off while it holds a lock makes others wait as no kernel would
//! (its locks switch preemption off); and two CPUs cannot show what a thousand do
//! (`freehold simulate` is for that). A wait's time is of the machine and what else runs on it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold_labkit::replay::{
    Beginning, EngineOutcome, Machine, NamedEngine, Replay, ReplayOptions, SourceError, Survey,
    Trace, mapper_options,
};
use serde::Serialize;

use super::carry_out;
use super::plan::Plan;

/// Operations of the trace that one thread may be ahead of another.
pub(super) const LEAD: u32 = 4096;
/// The most CPUs that are given threads.
pub const CPUS_MAX: u16 = 256;

/// How a replay on threads was made: the same for every engine.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ThreadsReport {
    /// Threads: one for each CPU of the machine.
    pub threads: u16,
    /// Processors of the machine that ran them.
    pub processors: u64,
    /// The share of single frees asked to arrive inside another call.
    pub interrupts: f64,
    /// Frees that did.
    pub interrupt_frees: u64,
    /// Operations that one thread may be ahead of another.
    pub lead: u32,
}

/// Replays a surveyed trace on threads, one engine after another. As
/// [`freehold_labkit::replay::replay`] otherwise.
pub fn replay_on_threads(
    beginning: Beginning,
    trace: &dyn Trace,
    survey: &Survey,
    engines: &[NamedEngine],
    memory_frames: u64,
    options: ReplayOptions,
    interrupts: f64,
) -> Result<(Replay, ThreadsReport), SourceError> {
    let mapper = mapper_options(&beginning, survey, options, 1);
    let plan = Plan::of(trace, mapper, options.cpus, interrupts)?;
    let outcomes = engines.iter().map(|engine| outcome(engine, &plan, &beginning, options.cpus));
    let outcomes = outcomes.collect();
    let report = ThreadsReport {
        threads: options.cpus,
        processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
        interrupts,
        interrupt_frees: plan.interrupt_frees,
        lead: LEAD,
    };
    let replay = Replay {
        survey: survey.clone(),
        replayed: plan.replayed,
        injected: plan.injected,
        machine: Machine::new(&beginning, memory_frames, options.cpus),
        beginning,
        engines: outcomes,
    };
    Ok((replay, report))
}

fn outcome(engine: &NamedEngine, plan: &Plan, beginning: &Beginning, cpus: u16) -> EngineOutcome {
    let run = || carry_out::carry_out(&*engine.engine, &engine.name, plan, beginning, cpus);
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| EngineOutcome::crashed(&engine.name, &*panic))
}
