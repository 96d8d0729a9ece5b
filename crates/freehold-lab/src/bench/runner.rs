//! In what order things are measured.
//!
//! ```text
//!  for each benchmark:  build every engine, count what can be counted, warm each up
//!                       for each run:  the yardstick, then engine A, B, C ...
//!                       check every engine, forget it
//! ```

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::calls::Machine;
use super::clock::Cpus;
#[cfg(feature = "peers")]
use super::engines::HeapMachine;
use super::engines::{
    BenchEngine, BuddySystem, ClassicMachine, FREEHOLD, FreeholdMachine, HostThreads, Peer,
};
use super::figures::Figures;
use super::kind::Kind;
use super::result::{Report, Row, Spread};
use super::scale::Scale;
use super::workloads::{self, Run};
use super::{threads, yardstick};

/// What is to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub benchmarks: Vec<Kind>,
    pub engines: Vec<BenchEngine>,
    pub runs: usize,
    pub scale: Scale,
}

type Turn<'a> = Box<dyn FnMut(u64) -> Result<Figures, String> + 'a>;

/// An engine that takes turns in a benchmark.
///
/// The one call through a table that a run makes is that of a turn, outside the loops.
struct Side<'a> {
    name: String,
    /// What was counted on one thread, on an engine just built: runs would say the same.
    counted: Figures,
    /// Measures once; told how many turns there have been.
    turn: Turn<'a>,
    /// Says what is not whole when its turns are over.
    check: Box<dyn Fn() -> Result<(), String> + 'a>,
    found: Vec<Figures>,
}

impl Side<'_> {
    /// Its runs' figures of a metric, or what was counted of it; `None` where there is none.
    fn spread(&self, metric: &str) -> Option<Spread> {
        let mut spread = Spread::default();
        match self.counted.get(metric) {
            Some(exact) => spread.add(exact),
            None => self.found.iter().filter_map(|run| run.get(metric)).for_each(|n| spread.add(n)),
        }
        (spread.runs() > 0).then_some(spread)
    }
}

/// Threads that a benchmark runs on this machine.
fn threads_of(kind: Kind, cpus: &Cpus) -> u16 {
    let about = kind.about();
    let there = u16::try_from(cpus.count()).unwrap_or(u16::MAX);
    about.threads.min(there).max(about.fewest_threads)
}

/// Measures. `progress` is told the benchmark, its run and the engine before each engine's turn;
/// when `stop` is set, what is under way is finished and the report has what there is. An error is
/// an engine's that cannot be built, refuses what it must do, does what it must not, or is not
/// whole afterwards.
pub fn run(
    plan: &Plan,
    stop: &AtomicBool,
    progress: impl FnMut(Kind, usize, &str) + Send,
) -> Result<Report, String> {
    // On a thread of its own, so that the caller's stays where it may run.
    std::thread::scope(|scope| threads::joined(scope.spawn(|| run_here(plan, stop, progress))))
}

fn run_here(
    plan: &Plan,
    stop: &AtomicBool,
    mut progress: impl FnMut(Kind, usize, &str),
) -> Result<Report, String> {
    let cpus = Cpus::allowed();
    let host = HostThreads::new();
    let most =
        plan.benchmarks.iter().map(|&kind| threads_of(kind, &cpus)).max().unwrap_or(1).max(2);
    let mut report = Report {
        cpus: cpus.numbers().take(usize::from(most)).collect(),
        pinned: cpus.pin(0),
        barrier: host.has_barrier(),
        ..Report::default()
    };
    // Relaxed: a flag that carries nothing.
    let stopped = || stop.load(Ordering::Relaxed);
    // The first steps on a cold core are no measure.
    let _ = yardstick::rmw_ns(plan.scale.yardstick);
    for &kind in &plan.benchmarks {
        if stopped() {
            break;
        }
        if usize::from(kind.about().fewest_threads) > cpus.count().max(1) {
            report.left_out.push(format!("{kind}: it needs two CPUs, and there is one"));
            continue;
        }
        let threads = threads_of(kind, &cpus);
        let run =
            Run { cpus: &cpus, threads, scale: &plan.scale, number: 0, frames: kind.frames() };
        let mut told = |number: usize, name: &str| {
            if !stopped() {
                progress(kind, number, name);
            }
            !stopped()
        };
        let mut sides = allocators(plan, kind, run, host, &mut told)?;
        take_turns(kind, plan.runs, &mut sides, run, &mut told, &mut report)?;
        rows(kind, &sides, &mut report);
    }
    report.interrupted = stopped();
    Ok(report)
}

/// By metric, then engine; the first engine is what others are compared with.
fn rows(kind: Kind, sides: &[Side<'_>], report: &mut Report) {
    for metric in kind.metrics() {
        let baseline =
            sides.first().and_then(|side| Some((&*side.name, side.spread(metric.name)?)));
        for (at, side) in sides.iter().enumerate() {
            let Some(spread) = side.spread(metric.name) else { continue };
            let base = baseline.as_ref().filter(|_| at > 0).map(|(name, base)| (*name, base));
            if let Some(mut row) = Row::new(kind, metric, &side.name, &spread, base) {
                row.exact = side.counted.get(row.metric).is_some();
                report.rows.push(row);
            }
        }
    }
}

/// Has each measure once in every turn. `told` says whether to go on.
fn take_turns(
    kind: Kind,
    runs: usize,
    sides: &mut [Side<'_>],
    run: Run<'_>,
    told: &mut impl FnMut(usize, &str) -> bool,
    report: &mut Report,
) -> Result<(), String> {
    'turns: for number in 0..runs {
        run.cpus.pin(0);
        report.yardstick.rmw.add(yardstick::rmw_ns(run.scale.yardstick));
        for side in &mut *sides {
            if !told(number, &side.name) {
                break 'turns;
            }
            run.cpus.pin(0);
            let found = (side.turn)(number as u64);
            side.found.push(found.map_err(|reason| failed(kind, &side.name, &reason))?);
        }
    }
    sides.iter().try_for_each(|side| {
        (side.check)().map_err(|finding| {
            failed(kind, &side.name, &format!("not whole afterwards: {finding}"))
        })
    })
}

fn failed(kind: Kind, engine: &str, reason: &str) -> String {
    format!("{kind}: engine '{engine}': {reason}")
}

/// The plan's engines that a benchmark of page allocators suits, ready for their turns.
fn allocators<'a>(
    plan: &Plan,
    kind: Kind,
    run: Run<'a>,
    host: HostThreads,
    told: &mut impl FnMut(usize, &str) -> bool,
) -> Result<Vec<Side<'a>>, String> {
    let mut sides = Vec::new();
    for engine in &plan.engines {
        let name = engine.name();
        if !told(0, name) {
            break;
        }
        let ready = Ready { name, kind, run };
        sides.push(build(engine, host, ready).map_err(|reason| failed(kind, name, &reason))?);
    }
    Ok(sides)
}

fn build<'a>(
    engine: &BenchEngine,
    host: HostThreads,
    ready: Ready<'a, '_>,
) -> Result<Side<'a>, String> {
    let (cpus, frames) = (ready.kind.cpus(ready.run.threads), ready.run.frames);
    let unbuildable = |reason| format!("cannot be built: {reason}");
    match engine {
        BenchEngine::Peer(Peer::BuddySystem) => ready.with(BuddySystem::new(frames)),
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Mimalloc) => ready.with(HeapMachine::new(mimalloc::MiMalloc)),
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Jemalloc) => {
            ready.with(HeapMachine::new(tikv_jemallocator::Jemalloc))
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Snmalloc) => ready.with(HeapMachine::new(snmalloc_rs::SnMalloc)),
        #[cfg(feature = "llfree")]
        BenchEngine::Peer(Peer::Llfree) => {
            ready.with(super::engines::LlfreeMachine::new(cpus, frames).map_err(unbuildable)?)
        }
        #[cfg(not(all(feature = "peers", feature = "llfree")))]
        BenchEngine::Peer(peer) => Err(peer.needs().unwrap_or_default()),
        BenchEngine::Design(spec) => match spec.name() {
            FREEHOLD => ready.with(FreeholdMachine::new(cpus, frames, host).map_err(unbuildable)?),
            name => ready.with(ClassicMachine::new(name, cpus, frames).map_err(unbuildable)?),
        },
    }
}

/// What an engine that is being built is for.
struct Ready<'a, 'r> {
    name: &'r str,
    kind: Kind,
    run: Run<'a>,
}

impl<'a> Ready<'a, '_> {
    /// Counts what can be counted of a machine just built, and warms it up.
    fn with<M: Machine + 'a>(self, machine: M) -> Result<Side<'a>, String> {
        let Self { name, kind, run } = self;
        let counted = workloads::count(&machine, kind)?;
        workloads::measure(&machine, kind, &Run { scale: &Scale::WARM_UP, ..run })?;
        machine.drain();
        machine.check(0)?;
        let machine = Rc::new(machine);
        let whole = Rc::clone(&machine);
        let turn = move |number| Ok(workloads::measure(&*machine, kind, &Run { number, ..run })?);
        let check = Box::new(move || {
            whole.drain();
            whole.check(0)
        });
        let (name, turn) = (name.to_owned(), Box::new(turn));
        Ok(Side { name, counted, turn, check, found: Vec::new() })
    }
}
