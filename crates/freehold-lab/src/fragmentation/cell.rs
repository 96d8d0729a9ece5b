//! One workload on one machine by one engine.

use freehold::FRAME_SIZE;

use super::books::Books;
use super::figure::{Cell, Figure};
use super::{aging, fill, idle, kernel_build, two_cpu_mix};
use crate::engine::Simulated;
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
