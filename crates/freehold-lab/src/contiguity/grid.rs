//! Which cells there are, and running them on several threads.

use std::sync::atomic::AtomicBool;

use freehold::Order;

use super::cell::{Scenario, Workload};
use super::engine::GridEngine;
use super::figure::Cell;
use crate::trials::pool;

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
    /// See [`Scenario::allocations`].
    pub allocations: u64,
    /// See [`Scenario::moves`].
    pub moves: bool,
}

#[derive(Debug, Default)]
pub struct Outcome {
    /// The cells that are done, in the grid's order.
    pub cells: Vec<Cell>,
    pub interrupted: bool,
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

/// Runs scenarios, so many at a time. `done` is told of each that is over, in the order in which
/// they end; when `stop` is set, those under way are finished. An error is the first, by the order
/// of the scenarios.
pub fn run(
    scenarios: &[Scenario],
    jobs: usize,
    stop: &AtomicBool,
    mut done: impl FnMut(usize, &Scenario),
) -> Result<Outcome, String> {
    let places: Vec<usize> = (0..scenarios.len()).collect();
    let mut slots: Vec<Option<Result<Cell, String>>> = scenarios.iter().map(|_| None).collect();
    let mut over = 0;
    let work = |place: usize| scenarios[place].run();
    pool::each(&places, jobs, stop, work, |place, cell| {
        let whole = cell.is_ok();
        slots[place] = Some(cell);
        over += 1;
        done(over, &scenarios[place]);
        whole
    });
    let interrupted = slots.iter().any(Option::is_none);
    let cells = slots.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    Ok(Outcome { cells, interrupted })
}
