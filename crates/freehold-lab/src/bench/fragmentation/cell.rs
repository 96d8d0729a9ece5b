//! One workload on one machine by one engine.

use freehold::{FRAME_SIZE, Order};

use super::books::Books;
use super::figure::{About, Cell};
use super::{aging, fill, idle, kernel_build, two_cpu_mix};
use crate::engines::{EngineSpec, MachineConfig};
use crate::trials::kinds::kinds;
use crate::trials::simulated::{Simulated, with_simulated};

kinds! {
    /// What the CPUs do.
    Workload, About, ("workload", "bench fragmentation --help"):
    KernelBuildLike: kernel_build::ABOUT,
    Aging: aging::ABOUT,
    Idle: idle::ABOUT,
    Fill: fill::ABOUT,
    TwoCpuMix: two_cpu_mix::ABOUT,
}

/// A cell that is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
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
    /// How many chunks `aging` allocates once memory is as full as it gets; a tenth of it
    /// `two-cpu-mix`.
    pub allocations: u64,
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
        let ran = with_simulated(&self.engine, &config, |engine| self.run_on(engine, &config));
        ran.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Runs it on an engine just built for that machine, whatever it is called.
    pub fn run_on(&self, engine: &dyn Simulated, config: &MachineConfig) -> Result<Cell, String> {
        engine.start();
        let mut books = Books::new(engine, config, self.seed);
        let used = self.used_percent.unwrap_or(50);
        let figures = match self.workload {
            Workload::KernelBuildLike => kernel_build::run(&mut books, self.seed),
            Workload::Aging => aging::run(&mut books, used, self.allocations),
            Workload::Idle => idle::run(&mut books, used),
            Workload::Fill => {
                fill::run(&mut books, self.order.and_then(Order::new).unwrap_or(Order::ZERO))
            }
            Workload::TwoCpuMix => two_cpu_mix::run(&mut books, used, self.allocations / 10),
        };
        let found = (self.workload == Workload::Fill).then(|| books.used_percent());
        books.close(self.frames <= VALIDATED).map_err(|reason| {
            let Self { workload, cpus, seed, .. } = self;
            let (engine, mib) = (self.engine.name(), self.memory_mib());
            format!(
                "engine {engine} lost frames or failed its checks after {workload} on {cpus} CPUs with {mib} MiB, seed {seed}: {reason}"
            )
        })?;
        Ok(Cell {
            workload: self.workload.name(),
            cpus: self.cpus,
            memory_mib: self.memory_mib(),
            used_percent: found.or(self.used_percent.map(f64::from)),
            order: self.order,
            allocations: matches!(self.workload, Workload::Aging | Workload::TwoCpuMix)
                .then_some(self.allocations),
            seed: self.seed,
            engine: self.engine.name().to_owned(),
            figures,
        })
    }
}
