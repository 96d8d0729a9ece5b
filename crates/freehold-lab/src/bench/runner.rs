//! In what order things are measured.
//!
//! ```text
//!  for each benchmark:  build every engine, count what can be counted, warm each up with its frames stamped
//!                       for each run:  the yardstick, then engine A, B, C ...
//!                       check every engine, forget it
//! ```

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::backing::Backing;
use super::budget::Turns;
use super::calls::{Machine, Refused};
use super::clock::Cpus;
use super::engines::{
    BenchEngine, BuddySystem, ClassicMachine, FreeholdMachine, HostThreads, MmapMachine, Peer,
    RingAlone, Stamped,
};
#[cfg(feature = "peers")]
use super::engines::{HeapMachine, purging};
use super::gathered::Gathered;
use super::kind::Kind;
use super::plan::Plan;
use super::result::{Report, Unsuited};
use super::scale::Scale;
use super::side::Side;
use super::workloads::{self, Run};
use super::{memory, threads, yardstick};
use crate::engines::freehold_owned;
#[cfg(feature = "peers")]
use tikv_jemallocator::Jemalloc;

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
        engines: plan.engines.iter().map(|engine| engine.name().to_owned()).collect(),
        benchmarks: plan.benchmarks.iter().map(|kind| (kind.name(), kind.about())).collect(),
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
        if stopped() {
            break;
        }
        let turns = Turns::new(plan.runs, plan.budget, at, start);
        if usize::from(kind.about().fewest_threads) > cpus.count().max(1) {
            report.left_out.push(kind.name());
            continue;
        }
        let threads = threads_of(kind, &cpus);
        let frames = kind.frames(threads);
        if kind.writes_memory() && backing.as_ref().is_none_or(|backing| backing.frames() < frames)
        {
            let made = Backing::new(frames).map_err(|error| {
                let mib = frames >> 8;
                format!("{kind} needs {mib} MiB of memory: {error}; name the benchmarks that are to run without it")
            });
            backing = Some(made?);
        }
        let run = Run {
            cpus: &cpus,
            threads,
            scale: &plan.scale,
            number: 0,
            frames,
            backing: backing.as_ref(),
        };
        let mut told = |number: usize, name: &str| {
            if !stopped() {
                progress(kind, number, name);
            }
            !stopped()
        };
        let mut found = Gathered::new(kind);
        let sides = if memory::is_here(kind) {
            memory::sides(kind, plan, &cpus, host, &mut found, &mut report)?
        } else {
            found.engines.clone_from(&report.engines);
            allocators(plan, kind, run, host, &mut told, &mut found, &mut report)?
        };
        take_turns(kind, sides, turns, run, &mut told, &mut found, &mut report)?;
        found.report(&mut report);
    }
    report.interrupted = stopped();
    Ok(report)
}

/// Has each measure once in every turn. `told` says whether to go on.
fn take_turns(
    kind: Kind,
    mut sides: Vec<Side<'_>>,
    turns: Turns,
    run: Run<'_>,
    told: &mut impl FnMut(usize, &str) -> bool,
    found: &mut Gathered,
    report: &mut Report,
) -> Result<(), String> {
    'turns: for number in turns {
        measure_yardstick(report, kind, run.cpus, run.scale)?;
        for side in &mut sides {
            if !told(number, &side.name) {
                break 'turns;
            }
            run.cpus.pin(0);
            (side.turn)(number, found).map_err(|reason| failed(kind, &side.name, &reason))?;
        }
    }
    for side in &sides {
        (side.check)().map_err(|finding| {
            failed(kind, &side.name, &format!("not whole afterwards: {finding}"))
        })?;
    }
    Ok(())
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
    found: &mut Gathered,
    report: &mut Report,
) -> Result<Vec<Side<'a>>, String> {
    let mut sides = Vec::new();
    for engine in &plan.engines {
        let name = engine.name();
        if !told(0, name) {
            break;
        }
        let ready = Ready { name, kind, run, found, report };
        sides.extend(build(engine, host, ready).map_err(|reason| failed(kind, name, &reason))?);
    }
    Ok(sides)
}

fn build<'a>(
    engine: &BenchEngine,
    host: HostThreads,
    ready: Ready<'a, '_>,
) -> Result<Option<Side<'a>>, String> {
    let (cpus, frames) = (ready.kind.cpus(ready.run.threads), ready.run.frames);
    let unbuildable = |reason| format!("cannot be built: {reason}");
    match engine {
        BenchEngine::Peer(Peer::BuddySystem) => ready.with(BuddySystem::new(frames)),
        BenchEngine::Peer(Peer::Mmap) => ready.with(MmapMachine),
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Bitmap) => {
            ready.with(super::engines::BitmapMachine::new(frames).map_err(unbuildable)?)
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Mimalloc) => {
            ready.with(HeapMachine::new(mimalloc::MiMalloc, || purging::mimalloc_purges(true)))
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::MimallocKeeps) => {
            ready.with(HeapMachine::new(mimalloc::MiMalloc, || purging::mimalloc_purges(false)))
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Jemalloc) => {
            ready.with(HeapMachine::new(Jemalloc, || purging::jemalloc_purges(true)))
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::JemallocKeeps) => {
            ready.with(HeapMachine::new(Jemalloc, || purging::jemalloc_purges(false)))
        }
        #[cfg(feature = "peers")]
        BenchEngine::Peer(Peer::Snmalloc) => {
            ready.with(HeapMachine::new(snmalloc_rs::SnMalloc, || ()))
        }
        #[cfg(feature = "llfree")]
        BenchEngine::Peer(Peer::Llfree) => {
            ready.with(super::engines::LlfreeMachine::new(cpus, frames).map_err(unbuildable)?)
        }
        #[cfg(feature = "dpdk")]
        BenchEngine::Peer(Peer::Dpdk) => {
            let machine = super::engines::DpdkMachine::new(ready.kind, cpus, frames);
            ready.with(machine.map_err(unbuildable)?)
        }
        #[cfg(not(all(feature = "peers", feature = "llfree", feature = "dpdk")))]
        BenchEngine::Peer(peer) => Err(peer.needs().unwrap_or_default()),
        BenchEngine::Design(spec) => match freehold_owned(spec.name()) {
            Some(_) => ready.with(FreeholdMachine::new(cpus, frames, host).map_err(unbuildable)?),
            None => {
                ready.with(ClassicMachine::new(spec.name(), cpus, frames).map_err(unbuildable)?)
            }
        },
    }
}

/// What an engine that is being built is for.
struct Ready<'a, 'r> {
    name: &'r str,
    kind: Kind,
    run: Run<'a>,
    found: &'r mut Gathered,
    report: &'r mut Report,
}

impl<'a> Ready<'a, '_> {
    /// Counts what can be counted of a machine just built, and warms it up with its frames stamped;
    /// `None` where the benchmark does not suit it.
    fn with<M: Machine + 'a>(self, machine: M) -> Result<Option<Side<'a>>, String> {
        let Self { name, kind, run, found, report } = self;
        let unsuited = machine.unsuited(kind).or(match kind {
            Kind::Doors if !M::DOORS => Some("all of its calls go the same way in"),
            Kind::StartUp if !M::STARTS => {
                Some("nobody builds it: it is there when the process begins")
            }
            _ => None,
        });
        if let Some(reason) = unsuited {
            report.unsuited.push(Unsuited {
                benchmark: kind.name(),
                engine: name.to_owned(),
                reason,
            });
            return Ok(None);
        }
        if let Some(counted) = workloads::count(&machine, kind)? {
            found.add_counted(name, &counted);
        }
        // These measure what is the engine's own, by no calls that could be stamped.
        if !matches!(kind, Kind::Doors | Kind::StartUp) {
            let stamped = Stamped::new(&machine, run.frames);
            workloads::measure(&stamped, kind, &Run { scale: &Scale::WARM_UP, ..run })?;
            match stamped.in_use() {
                0 => drop(stamped),
                frames => return Err(Refused::Kept { frames }.into()),
            }
        }
        let machine = Rc::new(machine);
        let (whole, engine) = (Rc::clone(&machine), name.to_owned());
        let turn = move |number: usize, found: &mut Gathered| {
            let figures =
                workloads::measure(&*machine, kind, &Run { number: number as u64, ..run })?;
            found.add_run(&engine, figures);
            Ok(())
        };
        Ok(Some(Side::new(name, turn).checked(move || {
            whole.drain();
            whole.check(0)
        })))
    }
}

/// What the machine costs at this moment.
fn measure_yardstick(
    report: &mut Report,
    kind: Kind,
    cpus: &Cpus,
    scale: &Scale,
) -> Result<(), String> {
    cpus.pin(0);
    report.yardstick.rmw.add(yardstick::rmw_ns(scale.yardstick));
    if let Some(handover) = yardstick::handover_ns(cpus, scale.yardstick / 20) {
        report.yardstick.handover.add(handover);
    }
    if kind == Kind::ProducerConsumer {
        report.yardstick.ring_alone.add(threads::through_rings(
            &RingAlone,
            cpus,
            scale.messages,
            (1, threads::RING),
            false,
        )?);
    }
    Ok(())
}
