//! In what order things are measured.
//!
//! ```text
//!  for each benchmark:  build every engine, count what can be counted, warm each up with its frames stamped
//!                       for each run:  the yardstick, then engine A, B, C ...
//!                       check every engine, forget it
//! ```

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::backing::Backing;
use super::budget::Turns;
use super::calls::{Machine, Refused};
use super::clock::Cpus;
use super::engines::{
    BenchEngine, BuddySystem, ClassicMachine, FreeholdMachine, HostThreads, MmapMachine, Peer, RingAlone, Stamped,
};
use super::figures::{Figures, Meter};
use super::gathered::Gathered;
use super::kind::Kind;
use super::metric::{GROUP_LOCKS, THREADS, ZONE_LOCKS, ZONE_WORK};
use super::plan::{BenchError, Plan};
use super::result::{Report, Unsuited};
use super::scale::Scale;
use super::workloads::{self, Run};
use super::{loops, memory, threads, yardstick};
use crate::engines::FreeholdOptions;

/// Frames that each of two churning threads holds: 256 MiB.
const CHURNED: u64 = 1 << 16;

impl Plan {
    /// How many times [`run`] will tell of progress if it is not stopped and time does not run out.
    pub fn steps(&self) -> usize {
        let steps = |&kind: &Kind| match memory::is_here(kind) {
            true => memory::steps(kind, self),
            false => self.engines.len() * (self.runs + 1),
        };
        self.benchmarks.iter().map(steps).sum()
    }
}

/// An engine, however it is typed. The one call through a table that a run makes is [`Rig::run`], outside the loops.
trait Rig {
    fn unsuited(&self, kind: Kind) -> Option<&'static str>;
    /// On an engine just built.
    fn count(&self, kind: Kind) -> Result<Option<Figures>, Refused>;
    fn warm_up(&self, kind: Kind, run: &Run<'_>) -> Result<(), Refused>;
    fn run(&self, kind: Kind, run: &Run<'_>, number: u64) -> Result<Figures, Refused>;
    fn check(&self) -> Result<(), String>;
}

impl<M: Machine> Rig for M {
    fn unsuited(&self, kind: Kind) -> Option<&'static str> {
        Machine::unsuited(self, kind)
    }

    fn count(&self, kind: Kind) -> Result<Option<Figures>, Refused> {
        workloads::count(self, kind)
    }

    fn warm_up(&self, kind: Kind, run: &Run<'_>) -> Result<(), Refused> {
        let stamped = Stamped::new(self, run.frames);
        measure(&stamped, kind, &Run { scale: &Scale::WARM_UP, ..*run }, 0)?;
        match stamped.in_use() {
            0 => Ok(()),
            frames => Err(Refused::Kept { frames }),
        }
    }

    fn run(&self, kind: Kind, run: &Run<'_>, number: u64) -> Result<Figures, Refused> {
        measure(self, kind, run, number)
    }

    fn check(&self) -> Result<(), String> {
        self.drain();
        Machine::check(self, 0)
    }
}

/// One run of a benchmark. Each part begins with nothing in the CPUs' stocks.
fn measure<M: Machine>(machine: &M, kind: Kind, run: &Run<'_>, number: u64) -> Result<Figures, Refused> {
    if let Some(figures) = workloads::measure(machine, kind, run)? {
        return Ok(figures);
    }
    let (scale, cpus) = (run.scale, run.cpus);
    // Each run another order, the same for every engine.
    let seed = 0x9e37_79b9_7f4a_7c15 ^ (number + 1);
    let drained = || run.drained(machine);
    let mut meter = Meter::default();
    let values = match kind {
        Kind::Pair => {
            vec![loops::pair::<_, 0>(drained(), scale.pairs)?, loops::pair::<_, 9>(drained(), scale.block_pairs)?]
        }
        Kind::Bulk => loops::bulk(drained(), scale.frames)?.to_vec(),
        Kind::RandomFree => vec![loops::random_free(drained(), scale.frames, seed)?],
        Kind::Order9Split => vec![loops::groups_single(drained(), scale.batches)?],
        Kind::Contig => vec![loops::groups_range(drained(), scale.batches)?],
        Kind::RemoteFree => vec![
            threads::remote_free(drained(), cpus, scale.remote, threads::Freed::InSequence)?,
            threads::remote_free(drained(), cpus, scale.remote, threads::Freed::Scattered(seed))?,
            threads::remote_free(drained(), cpus, scale.remote, threads::Freed::ScatteredBulk(seed))?,
        ],
        Kind::TwoThreads => {
            let (alone, slower) = threads::independent(drained(), cpus, 2, scale.pairs)?;
            vec![slower, alone, threads::churning(drained(), cpus, CHURNED, scale.churn_steps)?]
        }
        // They have runners of their own: see `run_here`.
        Kind::Vmalloc | Kind::Lazyfree | Kind::GiveBack | Kind::Arena => Vec::new(),
        Kind::SixteenThreads => {
            // As many pairs in all as two threads run: behind one lock for all of them they take long.
            let pairs = (scale.pairs * 2 / u64::from(run.threads)).max(1);
            let (alone, slowest) = threads::independent(drained(), cpus, run.threads, pairs)?;
            let frames = scale.messages * loops::BULK as u64;
            let freers = run.threads - 1;
            let drained = drained();
            let work = || threads::allocator_and_freers(drained, cpus, scale.messages, freers, false);
            let many = meter.part(machine, frames, work)?;
            let one = threads::allocator_and_freers(run.drained(machine), cpus, scale.messages, 1, false)?;
            vec![slowest, alone, many, one]
        }
        // Measured above.
        _ => Vec::new(),
    };
    let figures = Figures::default().with_all(kind.about().metrics, values).with_zone_lock(&meter);
    let threads = (kind == Kind::SixteenThreads).then(|| f64::from(run.threads));
    Ok(figures.with_any(THREADS, threads))
}

/// Threads that a benchmark runs on this machine.
fn threads_of(kind: Kind, cpus: &Cpus) -> u16 {
    let about = kind.about();
    let there = u16::try_from(cpus.count()).unwrap_or(u16::MAX);
    about.threads.min(there).max(about.fewest_threads)
}

fn build(engine: &BenchEngine, host: HostThreads, cpus: u16, frames: u64) -> Result<Box<dyn Rig>, BenchError> {
    let unbuildable = |reason| BenchError::Unbuildable { engine: engine.name().to_owned(), reason };
    Ok(match engine {
        BenchEngine::BuddySystem => Box::new(BuddySystem::new(frames)),
        BenchEngine::Mmap => Box::new(MmapMachine),
        BenchEngine::Peer(peer) => build_peer(*peer, frames).map_err(unbuildable)?,
        BenchEngine::Freehold | BenchEngine::Classic(_) => match FreeholdOptions::of(engine.name()) {
            Some(options) => Box::new(FreeholdMachine::with_options(options, cpus, frames, host).map_err(unbuildable)?),
            None => Box::new(ClassicMachine::new(engine.name(), cpus, frames).map_err(unbuildable)?),
        },
    })
}

#[cfg(feature = "peers")]
fn build_peer(peer: Peer, frames: u64) -> Result<Box<dyn Rig>, String> {
    use super::engines::{BitmapMachine, HeapMachine};
    Ok(match peer {
        Peer::Bitmap => Box::new(BitmapMachine::new(frames)?),
        Peer::Mimalloc => Box::new(HeapMachine(mimalloc::MiMalloc)),
        Peer::Jemalloc => Box::new(HeapMachine(tikv_jemallocator::Jemalloc)),
        Peer::Snmalloc => Box::new(HeapMachine(snmalloc_rs::SnMalloc)),
    })
}

#[cfg(not(feature = "peers"))]
fn build_peer(peer: Peer, _: u64) -> Result<Box<dyn Rig>, String> {
    Err(peer.needs().unwrap_or_default())
}

/// Measures. `progress` is told before each engine's turn; when `stop` is set, what is under way is finished and the
/// report has what there is.
///
/// # Panics
///
/// Where an engine panics.
pub fn run(plan: &Plan, stop: &AtomicBool, progress: impl FnMut(Kind, &str) + Send) -> Result<Report, BenchError> {
    // On a thread of its own, so that the caller's stays where it may run.
    std::thread::scope(|scope| {
        let handle = scope.spawn(|| run_here(plan, stop, progress));
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_here(plan: &Plan, stop: &AtomicBool, mut progress: impl FnMut(Kind, &str)) -> Result<Report, BenchError> {
    let cpus = Cpus::allowed();
    let host = HostThreads::new();
    let most = plan.benchmarks.iter().map(|&kind| threads_of(kind, &cpus)).max().unwrap_or(1).max(2);
    let mut report = Report {
        cpus: cpus.numbers().take(usize::from(most)).collect(),
        pinned: cpus.pin(0),
        barrier: host.has_barrier(),
        engines: plan.engines.iter().map(|engine| engine.name().to_owned()).collect(),
        ..Report::default()
    };
    // Relaxed: a flag that carries nothing.
    let stopped = || stop.load(Ordering::Relaxed);
    // The first steps on a cold core are no measure.
    let _ = yardstick::rmw_ns(plan.scale.yardstick);
    // Filled once for all benchmarks that need so much.
    let mut backing: Option<Backing> = None;
    let start = Instant::now();
    for (at, &kind) in plan.benchmarks.iter().enumerate() {
        let turns = Turns::new(plan.runs, plan.budget, at, start);
        if stopped() {
            break;
        }
        if usize::from(kind.about().fewest_threads) > cpus.count().max(1) {
            report.left_out.push(kind.name());
            continue;
        }
        if memory::is_here(kind) {
            measure_yardstick(&mut report, kind, &cpus, &plan.scale)?;
            let progress = &mut |engine: &str| progress(kind, engine);
            memory::run(
                kind,
                memory::Run { plan, turns, cpus: &cpus, host, stopped: &stopped, progress },
                &mut report,
            )?;
            if stopped() {
                break;
            }
            continue;
        }
        let threads = threads_of(kind, &cpus);
        let frames = kind.frames(threads);
        if kind.writes_memory() && backing.as_ref().is_none_or(|backing| backing.frames() < frames) {
            let made = Backing::new(frames);
            let failed = |error: io::Error| BenchError::NoMemory { benchmark: kind, frames, reason: error.to_string() };
            backing = Some(made.map_err(failed)?);
        }
        let run = Run { cpus: &cpus, threads, scale: &plan.scale, frames, backing: backing.as_ref() };
        benchmark(plan, kind, (&run, turns), host, &stopped, &mut progress, &mut report)?;
    }
    report.interrupted = stopped();
    Ok(report)
}

fn benchmark(
    plan: &Plan,
    kind: Kind,
    (run, turns): (&Run<'_>, Turns),
    host: HostThreads,
    stopped: &dyn Fn() -> bool,
    progress: &mut impl FnMut(Kind, &str),
    report: &mut Report,
) -> Result<(), BenchError> {
    let mut found = Gathered::new(kind, report.engines.clone());
    let fail = |engine: &BenchEngine, refused: Refused| BenchError::engine(kind, engine.name(), refused);
    let mut rigs = Vec::new();
    for engine in &plan.engines {
        if stopped() {
            break;
        }
        progress(kind, engine.name());
        let rig = build(engine, host, kind.cpus(run.threads), run.frames)?;
        if let Some(reason) = rig.unsuited(kind) {
            report.unsuited.push(Unsuited { benchmark: kind.name(), engine: engine.name().to_owned(), reason });
            continue;
        }
        let counted = rig.count(kind).map_err(|refused| fail(engine, refused))?;
        let exact = counted.is_some();
        counted.into_iter().for_each(|counted| found.add_counted(engine.name(), counted));
        rig.warm_up(kind, run).map_err(|refused| fail(engine, refused))?;
        rigs.push((engine, rig, exact));
    }
    for number in turns {
        if stopped() {
            break;
        }
        measure_yardstick(report, kind, run.cpus, &plan.scale)?;
        for (engine, rig, exact) in &rigs {
            if stopped() {
                break;
            }
            progress(kind, engine.name());
            let mut figures = rig.run(kind, run, number as u64).map_err(|refused| fail(engine, refused))?;
            if *exact {
                figures.values.retain(|(name, _)| ![ZONE_LOCKS, GROUP_LOCKS, ZONE_WORK].contains(name));
            }
            found.add_run(engine.name(), figures);
        }
    }
    for (engine, rig, _) in &rigs {
        rig.check()
            .map_err(|finding| BenchError::engine(kind, engine.name(), format!("not whole afterwards: {finding}")))?;
    }
    found.report(report);
    Ok(())
}

/// What the machine costs at this moment.
fn measure_yardstick(report: &mut Report, kind: Kind, cpus: &Cpus, scale: &Scale) -> Result<(), BenchError> {
    cpus.pin(0);
    report.yardstick.rmw.add(yardstick::rmw_ns(scale.yardstick));
    if let Some(handover) = yardstick::handover_ns(cpus, scale.yardstick / 20) {
        report.yardstick.handover.add(handover);
    }
    if kind == Kind::ProducerConsumer {
        let alone = threads::producer_consumer(&RingAlone, cpus, scale.messages, false);
        report.yardstick.ring_alone.add(alone.map_err(|refused| BenchError::engine(kind, "none", refused))?);
    }
    Ok(())
}
