//! One workload on one machine by one engine, and what came of it.

use freehold::{FRAME_SIZE, Order};
use serde::Serialize;

use super::books::Books;
use super::output::Figure;
use super::{aging, fill, idle, kernel_build, two_cpu_mix};
use crate::engine::{Memory, Simulated};
use crate::engines::{self, EngineError, EngineSpec, MachineConfig};
use crate::kinds::kinds;

kinds! {
    /// What the CPUs do.
    Workload, About, ("workload", "bench fragmentation --help"):
    KernelBuildLike: kernel_build::ABOUT,
    Aging: aging::ABOUT,
    Idle: idle::ABOUT,
    Fill: fill::ABOUT,
    TwoCpuMix: two_cpu_mix::ABOUT,
}

/// What a workload is, and what is shown of it.
pub struct About {
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub what: &'static str,
    /// The percentages of memory in use that it is run at; one `None` where it finds its own.
    pub levels: &'static [Option<u8>],
    /// The orders that it is run with, one after the other; one `None` where it has orders of its own.
    pub orders: &'static [Option<u8>],
    /// What is shown of it; the first is what its picture shows.
    pub figures: &'static [Figure],
    /// What is said of the engine that is best by the first.
    pub best: &'static str,
}

/// A cell that is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// What the CPUs do.
    pub workload: Workload,
    pub cpus: u16,
    /// Frames of the machine.
    pub frames: u64,
    /// The percentage of memory in use, where the workload is given one.
    pub used_percent: Option<u8>,
    /// The order, where the workload is given one.
    pub order: Option<u8>,
    /// What random numbers are drawn from.
    pub seed: u64,
    pub engine: EngineSpec,
    /// How many chunks `aging` allocates once memory is as full as it gets; a tenth of it `two-cpu-mix`.
    pub allocations: u64,
}

/// The share of free memory that cannot serve requests of three orders.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Unusable {
    /// Order 3, the largest that the kernel counts as cheap.
    #[serde(rename = "3")]
    pub order3: f64,
    /// Order 4.
    #[serde(rename = "4")]
    pub order4: f64,
    /// Order 9: a huge page.
    #[serde(rename = "9")]
    pub order9: f64,
}

impl Unusable {
    /// Of free memory as it is.
    pub fn of(memory: &Memory) -> Self {
        Self::by(|order| memory.unusable_index(order))
    }

    /// The same by chunks as they lie on the engine's lists.
    pub fn of_lists(memory: &Memory) -> Self {
        Self::by(|order| memory.unusable_index_of_lists(order))
    }

    fn by(index: impl Fn(Order) -> f64) -> Self {
        let index = |order| Order::new(order).map_or(0.0, &index);
        Self { order3: index(3), order4: index(4), order9: index(9) }
    }
}

/// What a workload found; `None` where it does not ask.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// The share of free memory that cannot serve a request, by order, at the end; by frames free next to each other.
    pub unusable: Option<Unusable>,
    /// The same by chunks as they lie on the engine's lists, neighbours on different lists apart.
    pub unusable_lists: Option<Unusable>,
    /// Times the zone lock was taken for each 1,000 frames allocated.
    pub zone_locks_per_1000: Option<f64>,
    /// Times a lock was taken that a group of CPUs shares, for each 1,000 frames allocated; 0 for designs without groups.
    pub group_locks_per_1000: Option<f64>,
    /// The share of free memory that can serve requests of order 9, at the end.
    pub order9_share: Option<f64>,
    /// Allocations of order 9 that failed.
    pub order9_failures: Option<u64>,
    /// Blocks in which chunks of more than one migratetype are in use at the end.
    pub mixed_blocks: Option<u64>,
    /// The share of memory that idle CPUs hold free.
    pub idle_share: Option<f64>,
    /// Wholly free blocks at the end.
    pub free_blocks: Option<u64>,
    /// Allocations that failed, of all orders.
    pub failures: Option<u64>,
    /// Of these, such as succeed once all CPUs have given back what they hold.
    pub false_failures: Option<u64>,
    pub heavy_barriers: Option<u64>,
}

/// A row of the output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// What the CPUs did.
    pub workload: &'static str,
    /// How many there were.
    pub cpus: u16,
    pub memory_mib: u64,
    /// The percentage of memory in use; with `fill`, when the first allocation failed.
    pub used_percent: Option<f64>,
    /// The order, of `fill`.
    pub order: Option<u8>,
    /// How many chunks were to be allocated, where that is given: `aging`, and `two-cpu-mix`, which takes a tenth.
    pub allocations: Option<u64>,
    pub seed: u64,
    pub engine: String,
    #[serde(flatten)]
    pub figures: Figures,
}

/// Why a cell has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotWhole {
    /// The engine cannot be built.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It did what it must not.
    #[error(
        "engine {engine} is not whole after {workload} on {cpus} CPUs with {memory_mib} MiB, seed {seed}: {reason}"
    )]
    Wrong { engine: String, workload: Workload, cpus: u16, memory_mib: u64, seed: u64, reason: String },
}

/// Machines up to this size have every invariant of the engine checked at the end (1 GiB); that walks all frames.
const VALIDATED: u64 = 1 << 18;

impl Scenario {
    pub fn memory_mib(&self) -> u64 {
        (self.frames * FRAME_SIZE) >> 20
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`NotWhole`]: a defect of the engine, or an engine that cannot be built.
    pub fn run(&self) -> Result<Cell, NotWhole> {
        let config = MachineConfig::new(self.frames, self.cpus);
        engines::with_simulated(&self.engine, &config, |engine| self.run_on(engine, &config))?
    }

    /// Runs it on an engine just built for that machine, whatever it is called.
    pub fn run_on(&self, engine: &dyn Simulated, config: &MachineConfig) -> Result<Cell, NotWhole> {
        engine.start();
        let mut books = Books::new(engine, config);
        let figures = match self.workload {
            Workload::KernelBuildLike => kernel_build::run(self, &mut books),
            Workload::Aging => aging::run(self, &mut books),
            Workload::Idle => idle::run(self, &mut books),
            Workload::Fill => fill::run(self, &mut books),
            Workload::TwoCpuMix => two_cpu_mix::run(self, &mut books),
        };
        let used = books.used_percent();
        let ran = books.close(self.frames <= VALIDATED).map(|()| (figures, used));
        let (mut figures, used) = ran.map_err(|reason| NotWhole::Wrong {
            engine: self.engine.name().to_owned(),
            workload: self.workload,
            cpus: self.cpus,
            memory_mib: self.memory_mib(),
            seed: self.seed,
            reason,
        })?;
        let measured = (self.workload == Workload::Fill).then_some(used);
        if self.workload == Workload::Fill {
            // A full machine has no free memory to speak of.
            (figures.unusable, figures.unusable_lists) = (None, None);
        }
        Ok(Cell {
            workload: self.workload.name(),
            cpus: self.cpus,
            memory_mib: self.memory_mib(),
            used_percent: measured.or(self.used_percent.map(f64::from)),
            order: self.order,
            allocations: matches!(self.workload, Workload::Aging | Workload::TwoCpuMix).then_some(self.allocations),
            seed: self.seed,
            engine: self.engine.name().to_owned(),
            figures,
        })
    }
}
