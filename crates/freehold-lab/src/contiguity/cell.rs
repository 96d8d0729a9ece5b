//! One workload on one machine by one engine.

use freehold::FRAME_SIZE;

use super::books::Books;
use super::engine::GridEngine;
use super::figure::{About, Cell, Figures, Moment};
use super::full::{self, Load};
use super::moving::Movements;
use super::{aging, idle, kernel_build, two_cpu_mix};
use crate::engines::MachineConfig;
use crate::trials::kinds::kinds;
use crate::trials::simulated::Simulated;

kinds! {
    /// What the CPUs do.
    Workload, About, ("workload", "contiguity --help"):
    KernelBuildLike: kernel_build::ABOUT,
    Aging: aging::ABOUT,
    Idle: idle::ABOUT,
    TwoCpuMix: two_cpu_mix::ABOUT,
    Cache: full::CACHE,
    Slab: full::SLAB,
    Net: full::NET,
    Day: full::DAY,
    Thp: full::THP,
    Big: full::BIG,
}

impl Workload {
    /// Which load it is of those that fill memory, where it is one.
    pub(super) const fn load(self) -> Option<Load> {
        Some(match self {
            Self::Cache => Load::Cache,
            Self::Slab => Load::Slab,
            Self::Net => Load::Net,
            Self::Day => Load::Day,
            Self::Thp => Load::Thp,
            Self::Big => Load::Big,
            _ => return None,
        })
    }

    /// Whether page cache fills memory in it.
    pub const fn fills_memory(self) -> bool {
        self.load().is_some()
    }
}

/// A cell that is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    pub workload: Workload,
    pub cpus: u16,
    pub frames: u64,
    /// The percentage of memory in use, where the workload is given one.
    pub used_percent: Option<u8>,
    /// What random numbers are drawn from.
    pub seed: u64,
    pub engine: GridEngine,
    /// How many chunks `aging` allocates once memory is as full as it gets; a tenth of it
    /// `two-cpu-mix`. The loads that fill memory allocate so many in all.
    pub allocations: u64,
    /// Whether blocks are emptied after a load that fills memory.
    pub moves: bool,
}

/// Machines up to this size have every invariant of the engine checked at the end (1 GiB); that
/// walks all frames.
const VALIDATED: u64 = 1 << 18;

impl Scenario {
    pub fn memory_mib(&self) -> u64 {
        (self.frames * FRAME_SIZE) >> 20
    }

    /// Runs it. An error is an engine that cannot be built, or is not whole afterwards.
    pub fn run(&self) -> Result<Cell, String> {
        let config = MachineConfig::new(self.frames, self.cpus);
        let ran = self.engine.with(&config, |engine| self.run_on(engine, &config));
        ran.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Runs it on an engine just built for that machine, whatever it is called.
    pub fn run_on(&self, engine: &dyn Simulated, config: &MachineConfig) -> Result<Cell, String> {
        engine.start();
        let mut books = Books::new(engine, config, self.seed);
        let (mut figures, moments, movement) = self.work(&mut books);
        if let GridEngine::Bound(_) = self.engine {
            figures = figures.without_locks();
        }
        books.close(self.frames <= VALIDATED).map_err(|reason| {
            let Self { workload, cpus, seed, .. } = self;
            let (engine, mib) = (self.engine.name(), self.memory_mib());
            format!(
                "engine {engine} lost frames or failed its checks after {workload} on {cpus} CPUs \
                 with {mib} MiB, seed {seed}: {reason}"
            )
        })?;
        Ok(Cell {
            workload: self.workload.name(),
            cpus: self.cpus,
            memory_mib: self.memory_mib(),
            used_percent: self.used_percent.map(f64::from),
            allocations: (self.workload.fills_memory()
                || matches!(self.workload, Workload::Aging | Workload::TwoCpuMix))
            .then_some(self.allocations),
            seed: self.seed,
            engine: self.engine.name().to_owned(),
            guesses: self.engine.guesses(),
            figures,
            moments,
            movement: movement.as_ref().map(|of| of.0),
            layouts: movement.and_then(|of| of.1),
        })
    }

    fn work(&self, books: &mut Books<'_>) -> (Figures, Vec<Moment>, Option<Movements>) {
        let used = self.used_percent.unwrap_or(50);
        if let Some(load) = self.workload.load() {
            return full::run(books, load, used, self.allocations, self.moves);
        }
        let figures = match self.workload {
            Workload::Aging => aging::run(books, used, self.allocations),
            Workload::Idle => idle::run(books, used),
            Workload::TwoCpuMix => two_cpu_mix::run(books, used, self.allocations / 10),
            _ => kernel_build::run(books, self.seed),
        };
        (figures, Vec::new(), None)
    }
}
