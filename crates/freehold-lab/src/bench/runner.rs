//! In what order things are measured.
//!
//! ```text
//!  for each benchmark:  build every engine, warm each up with its frames stamped
//!                       for each run:  the yardstick, then engine A, B, C ...
//!                       check every engine, forget it
//! ```

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::calls::{Machine, Refused};
use super::clock::Cpus;
use super::engines::{BenchEngine, BuddySystem, ClassicMachine, FreeholdMachine, HostThreads, RingAlone, Stamped};
use super::result::{Report, Row, Spread};
use super::{Kind, loops, memory, threads, yardstick};

/// Frames of every engine's machine: 4 GiB.
pub(super) const FRAMES: u64 = 1 << 20;
/// CPUs of every engine's machine, but where a benchmark runs more threads.
const CPUS: u16 = 2;

/// How much is done in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    pairs: u64,
    block_pairs: u64,
    frames: usize,
    batches: u64,
    messages: u64,
    remote: usize,
    yardstick: u64,
}

impl Scale {
    /// What published figures are of.
    pub const FULL: Self = Self {
        pairs: 1_000_000,
        block_pairs: 200_000,
        frames: 262_144,
        batches: 32,
        messages: 20_000,
        remote: 960 * 512,
        yardstick: 500_000,
    };

    /// As many frames, but what repeats itself repeats itself less.
    pub const QUICK: Self =
        Self { pairs: 200_000, block_pairs: 50_000, batches: 8, messages: 5_000, yardstick: 200_000, ..Self::FULL };

    /// For the warm-up: every frame is used once, which is what matters.
    const WARM_UP: Self = Self { pairs: 20_000, block_pairs: 2_000, batches: 2, messages: 2_000, ..Self::QUICK };
}

/// What to measure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Benchmarks, in this order.
    pub benchmarks: Vec<Kind>,
    /// Engines, in this order.
    pub engines: Vec<BenchEngine>,
    /// Runs of each.
    pub runs: usize,
    /// How much is done in a run.
    pub scale: Scale,
}

impl Plan {
    /// How many times [`run`] will tell of progress if it is not stopped.
    #[must_use]
    pub fn steps(&self) -> usize {
        let steps = |&kind: &Kind| match memory::is_here(kind) {
            true => memory::steps(kind, self),
            false => self.engines.len() * (self.runs + 1),
        };
        self.benchmarks.iter().map(steps).sum()
    }
}

/// Why there are no figures.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// An engine cannot be built.
    Unbuildable {
        /// The engine.
        engine: String,
        /// Why.
        reason: String,
    },
    /// An engine refused what it must do, or did wrong.
    Engine {
        /// The engine.
        engine: String,
        /// In which benchmark.
        benchmark: Kind,
        /// What it did.
        refused: Refused,
    },
    /// An engine did what it must not, said in words.
    Failed {
        /// The engine.
        engine: String,
        /// In which benchmark.
        benchmark: Kind,
        /// What it did.
        reason: String,
    },
    /// An engine is not whole after a benchmark.
    NotWhole {
        /// The engine.
        engine: String,
        /// After which benchmark.
        benchmark: Kind,
        /// What is wrong.
        finding: String,
    },
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbuildable { engine, reason } => write!(f, "engine '{engine}' cannot be built: {reason}"),
            Self::Engine { engine, benchmark, refused } => write!(f, "{benchmark}: engine '{engine}': {refused}"),
            Self::Failed { engine, benchmark, reason } => write!(f, "{benchmark}: engine '{engine}': {reason}"),
            Self::NotWhole { engine, benchmark, finding } => {
                write!(f, "{benchmark}: engine '{engine}' is not whole afterwards: {finding}")
            }
        }
    }
}

impl std::error::Error for BenchError {}

/// An engine, however it is typed. The one call through a table that a run makes is [`Rig::run`], outside the loops.
trait Rig {
    fn warm_up(&self, kind: Kind, cpus: &Cpus) -> Result<(), Refused>;
    fn run(&self, kind: Kind, scale: &Scale, cpus: &Cpus, run: u64) -> Result<Vec<f64>, Refused>;
    fn check(&self) -> Result<(), String>;
}

impl<M: Machine> Rig for M {
    fn warm_up(&self, kind: Kind, cpus: &Cpus) -> Result<(), Refused> {
        measure(&Stamped::new(self, FRAMES), kind, &Scale::WARM_UP, cpus, 0).map(drop)
    }

    fn run(&self, kind: Kind, scale: &Scale, cpus: &Cpus, run: u64) -> Result<Vec<f64>, Refused> {
        measure(self, kind, scale, cpus, run)
    }

    fn check(&self) -> Result<(), String> {
        self.drain();
        Machine::check(self, 0)
    }
}

/// One run of a benchmark: its metrics in the catalogue's order. Each part begins with nothing in the CPUs' stocks.
fn measure<M: Machine>(machine: &M, kind: Kind, scale: &Scale, cpus: &Cpus, run: u64) -> Result<Vec<f64>, Refused> {
    // Each run another order, the same for every engine.
    let seed = 0x9e37_79b9_7f4a_7c15 ^ (run + 1);
    let drained = || {
        cpus.pin(0);
        machine.drain();
        machine
    };
    Ok(match kind {
        Kind::Pair => {
            vec![loops::pair::<_, 0>(drained(), scale.pairs)?, loops::pair::<_, 9>(drained(), scale.block_pairs)?]
        }
        Kind::Bulk => {
            let bulk = loops::bulk(drained(), scale.frames)?;
            vec![bulk.alloc, bulk.free, bulk.free_reversed, bulk.bulk_alloc, bulk.bulk_free]
        }
        Kind::RandomFree => vec![loops::random_free(drained(), scale.frames, seed)?],
        Kind::Order9Split => vec![loops::groups_single(drained(), scale.batches)?],
        Kind::Contig => vec![loops::groups_range(drained(), scale.batches)?],
        Kind::ProducerConsumer => vec![
            threads::producer_consumer(drained(), cpus, scale.messages, false)?,
            threads::producer_consumer(drained(), cpus, scale.messages, true)?,
        ],
        Kind::RemoteFree => vec![
            threads::remote_free(drained(), cpus, scale.remote, None)?,
            threads::remote_free(drained(), cpus, scale.remote, Some(seed))?,
        ],
        Kind::TwoThreads => {
            let (alone, slower) = threads::independent(drained(), cpus, 2, scale.pairs)?;
            vec![slower, alone]
        }
        // They have runners of their own: see `run_here`.
        Kind::Vmalloc | Kind::Lazyfree | Kind::GiveBack => Vec::new(),
        Kind::SixteenThreads => {
            let threads = threads_of(kind, cpus);
            // As many pairs in all as two threads run: behind one lock for all of them they take long.
            let pairs = (scale.pairs * 2 / u64::from(threads)).max(1);
            let (alone, slowest) = threads::independent(drained(), cpus, threads, pairs)?;
            let many = threads::allocator_and_freers(drained(), cpus, scale.messages, threads - 1, false)?;
            let one = threads::allocator_and_freers(drained(), cpus, scale.messages, 1, false)?;
            vec![slowest, alone, many, one, f64::from(threads)]
        }
    })
}

/// Threads that a benchmark runs on this machine.
fn threads_of(kind: Kind, cpus: &Cpus) -> u16 {
    let about = kind.about();
    let there = u16::try_from(cpus.count()).unwrap_or(u16::MAX);
    about.threads.min(there).max(about.fewest_threads)
}

fn build(engine: &BenchEngine, host: HostThreads, cpus: u16) -> Result<Box<dyn Rig>, BenchError> {
    let unbuildable = |reason| BenchError::Unbuildable { engine: engine.name().to_owned(), reason };
    Ok(match engine {
        BenchEngine::Freehold => {
            let machine = FreeholdMachine::new(cpus, FRAMES, host);
            Box::new(machine.map_err(|error| unbuildable(error.to_string()))?)
        }
        BenchEngine::BuddySystem => Box::new(BuddySystem::new(FRAMES)),
        BenchEngine::Classic(spec) => Box::new(ClassicMachine::new(spec.name(), cpus, FRAMES).map_err(unbuildable)?),
    })
}

/// Measures. `progress` is told before each engine's turn; when `stop` is set, what is under way is finished and the
/// report has what there is.
///
/// # Errors
///
/// See [`BenchError`].
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
    let most = plan.benchmarks.iter().map(|&kind| threads_of(kind, &cpus)).max().unwrap_or(1).max(CPUS);
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
    for &kind in &plan.benchmarks {
        if usize::from(kind.about().fewest_threads) > cpus.count().max(1) {
            report.left_out.push(kind);
            continue;
        }
        if memory::is_here(kind) {
            measure_yardstick(&mut report, kind, &cpus, &plan.scale).map_err(|refused| BenchError::Engine {
                engine: BenchEngine::Freehold.name().to_owned(),
                benchmark: kind,
                refused,
            })?;
            let progress = &mut |engine: &str| progress(kind, engine);
            memory::run(kind, memory::Run { plan, cpus: &cpus, host, stopped: &stopped, progress }, &mut report)?;
            if stopped() {
                break;
            }
            continue;
        }
        let metrics = kind.about().metrics;
        let mut spreads = vec![vec![Spread::default(); plan.engines.len()]; metrics.len()];
        let fail = |engine: &BenchEngine, refused| BenchError::Engine {
            engine: engine.name().to_owned(),
            benchmark: kind,
            refused,
        };
        let mut rigs = Vec::new();
        for engine in &plan.engines {
            if stopped() {
                break;
            }
            progress(kind, engine.name());
            let rig = build(engine, host, threads_of(kind, &cpus).max(CPUS))?;
            rig.warm_up(kind, &cpus).map_err(|refused| fail(engine, refused))?;
            rigs.push((engine, rig));
        }
        for run in 0..plan.runs {
            if stopped() {
                break;
            }
            measure_yardstick(&mut report, kind, &cpus, &plan.scale)
                .map_err(|refused| fail(&BenchEngine::Freehold, refused))?;
            for (at, (engine, rig)) in rigs.iter().enumerate() {
                if stopped() {
                    break;
                }
                progress(kind, engine.name());
                let figures = rig.run(kind, &plan.scale, &cpus, run as u64).map_err(|refused| fail(engine, refused))?;
                for (spread, figure) in spreads.iter_mut().zip(figures) {
                    spread[at].add(figure);
                }
            }
        }
        for (engine, rig) in &rigs {
            rig.check().map_err(|finding| BenchError::NotWhole {
                engine: engine.name().to_owned(),
                benchmark: kind,
                finding,
            })?;
        }
        for (metric, spreads) in metrics.iter().zip(&spreads) {
            for (engine, spread) in plan.engines.iter().zip(spreads) {
                let (Some(median), Some(min), Some(max)) = (spread.median(), spread.min(), spread.max()) else {
                    continue;
                };
                report.rows.push(Row {
                    benchmark: kind.name(),
                    engine: engine.name().to_owned(),
                    metric: metric.name,
                    unit: metric.unit,
                    median,
                    min,
                    max,
                    runs: spread.runs(),
                });
            }
        }
        if stopped() {
            break;
        }
    }
    report.interrupted = stopped();
    Ok(report)
}

/// What the machine costs at this moment.
fn measure_yardstick(report: &mut Report, kind: Kind, cpus: &Cpus, scale: &Scale) -> Result<(), Refused> {
    cpus.pin(0);
    report.rmw.add(yardstick::rmw_ns(scale.yardstick));
    if let Some(handover) = yardstick::handover_ns(cpus, scale.yardstick / 20) {
        report.handover.add(handover);
    }
    if kind == Kind::ProducerConsumer {
        report.ring_alone.add(threads::producer_consumer(&RingAlone, cpus, scale.messages, false)?);
    }
    Ok(())
}
