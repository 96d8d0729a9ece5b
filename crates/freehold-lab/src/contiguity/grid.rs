//! Which cells there are.

use freehold::Order;

use super::cell::{Scenario, Workload};
use super::engine::GridEngine;

/// The largest machine, in frames: 128 GiB. What would be larger is as large as that.
pub const MEMORY_MOST: u64 = 128 << 18;

/// All machines, workloads, seeds and engines that are to be combined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grid {
    pub workloads: Vec<Workload>,
    pub cpus: Vec<u16>,
    pub frames_a_cpu: Vec<u64>,
    /// Frames of the whole machine; where there are any, instead of those a CPU.
    pub frames: Vec<u64>,
    /// Percentages of memory in use; where there are any, instead of the workload's own.
    pub used_percent: Vec<u8>,
    pub seeds: Vec<u64>,
    pub engines: Vec<GridEngine>,
    pub allocations: u64,
    pub moves: bool,
}

impl Grid {
    /// Every cell: by workload, CPUs, memory, level, seed, engine. Machines that are the
    /// same are one.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut all: Vec<Scenario> = Vec::new();
        for &workload in &self.workloads {
            for (cpus, frames) in self.machines(workload) {
                for used_percent in self.levels(workload) {
                    for &seed in &self.seeds {
                        all.extend(self.engines.iter().map(|engine| Scenario {
                            workload,
                            cpus,
                            frames,
                            used_percent,
                            seed,
                            engine: engine.clone(),
                            allocations: self.allocations,
                            moves: self.moves,
                        }));
                    }
                }
            }
        }
        all
    }

    fn machines(&self, workload: Workload) -> Vec<(u16, u64)> {
        let whole = |frames: u64| frames.max(1).next_multiple_of(Order::LINUX_MAX.frames());
        let mut machines: Vec<(u16, u64)> = Vec::new();
        let mut add = |machine| {
            if !machines.contains(&machine) {
                machines.push(machine);
            }
        };
        // The mix of two CPUs is about two CPUs.
        let two = [2];
        let cpus = if workload == Workload::TwoCpuMix { &two[..] } else { &self.cpus[..] };
        for &cpus in cpus {
            self.frames.iter().for_each(|&frames| add((cpus, whole(frames))));
            if self.frames.is_empty() {
                let sizes =
                    self.frames_a_cpu.iter().map(|frames| frames.saturating_mul(u64::from(cpus)));
                sizes.for_each(|frames| add((cpus, whole(frames.min(MEMORY_MOST)))));
            }
        }
        machines
    }

    fn levels(&self, workload: Workload) -> Vec<Option<u8>> {
        let own = workload.about().levels;
        let given: Vec<Option<u8>> = self.used_percent.iter().copied().map(Some).collect();
        if given.is_empty() || own == [None] { own.to_vec() } else { given }
    }
}
