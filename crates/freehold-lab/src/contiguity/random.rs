//! Cells that nobody chose: machines, levels and workloads drawn at random.
//!
//! ```text
//!  kernel-build-like, aging   CPUs from CPUS; memory a CPU log-uniform in 2 MiB to 1 GiB; 128 GiB
//!                             in all at most
//!  aging                      30 to 85 % in use
//!  cache, slab, net, day, thp CPUs from CPUS; log-uniform in 24 MiB to 64 GiB in all; 20 to 98 %
//!                             in use; at least two allocations for each frame
//!  two-cpu-mix                two CPUs; log-uniform in 64 MiB to 4 GiB in all; 10 to 80 % in use
//! ```
//!
//! A grid that is looked at often becomes the grid that a design is tuned for. Cell `n` of a seed
//! is drawn from the seed and `n` alone, so that more cells of one seed begin with the fewer.

use freehold::{FRAME_SIZE, Order};

use super::cell::{Scenario, Workload};
use super::engine::GridEngine;
use super::grid::MEMORY_MOST;
use crate::trials::random::Random;

/// The workloads that are drawn: those that say something of contiguity as memory ages.
pub const DRAWN: [Workload; 3] = [Workload::KernelBuildLike, Workload::Aging, Workload::TwoCpuMix];

/// Those that are drawn where they are named: page cache fills memory in them.
pub const DRAWN_IF_NAMED: [Workload; 5] =
    [Workload::Cache, Workload::Slab, Workload::Net, Workload::Day, Workload::Thp];

/// The numbers of CPUs that are drawn.
const CPUS: [u16; 17] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024];

/// Chunks that `aging` allocates in a quick cell, in place of
/// [`ALLOCATIONS`](crate::trials::defaults::ALLOCATIONS).
pub const QUICK_ALLOCATIONS: u64 = 300_000;

const fn mib(mib: u64) -> u64 {
    (mib << 20) / FRAME_SIZE
}

/// Memory for each CPU, in frames.
const A_CPU: [u64; 2] = [mib(2), mib(1 << 10)];
/// Memory of a mix, in frames.
const MIX: [u64; 2] = [mib(64), mib(4 << 10)];
/// Memory of a machine that page cache fills, in frames, and the percentages in use.
const FULL: [u64; 2] = [mib(24), mib(64 << 10)];
const FULL_USED: [u64; 2] = [20, 98];
/// The largest quick machine, in frames: 2 GiB, which take seconds.
const QUICK_MOST: u64 = mib(2 << 10);
/// Percentages of memory in use.
const AGING_USED: [u64; 2] = [30, 85];
const MIX_USED: [u64; 2] = [10, 80];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draw {
    pub cells: u16,
    /// What they are drawn from.
    pub seed: u64,
    /// Whether only small machines are drawn.
    pub quick: bool,
    /// Of [`DRAWN`] and [`DRAWN_IF_NAMED`], those that are.
    pub workloads: Vec<Workload>,
    /// What each cell's workload draws its numbers from: each cell runs once with each.
    pub seeds: Vec<u64>,
    /// Each cell runs once by each.
    pub engines: Vec<GridEngine>,
    pub allocations: u64,
    pub moves: bool,
}

impl Draw {
    /// Every cell, by place, seed and engine. No place comes twice.
    ///
    /// Fewer than [`cells`](Self::cells) where nothing new is found among a hundred times as many.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let wanted = usize::from(self.cells);
        let mut places: Vec<Scenario> = Vec::new();
        for place in (0..u64::from(self.cells) * 100).filter_map(|n| self.place(n)) {
            if places.len() < wanted && !places.contains(&place) {
                places.push(place);
            }
        }
        let with = |place: &Scenario, seed, engine: &GridEngine| Scenario {
            seed,
            engine: engine.clone(),
            ..place.clone()
        };
        let runs = |place: &Scenario| -> Vec<Scenario> {
            let of = |&seed| self.engines.iter().map(move |engine| with(place, seed, engine));
            self.seeds.iter().flat_map(of).collect()
        };
        places.iter().flat_map(runs).collect()
    }

    /// Cell `n` of the seed, with the first engine; `None` where there is none.
    fn place(&self, n: u64) -> Option<Scenario> {
        let mut random = Random::split(self.seed, n + 1);
        let workload = self.workloads[random.scaled(self.workloads.len() as u64) as usize];
        let most = if self.quick { QUICK_MOST } else { MEMORY_MOST };
        let drawn_cpus = CPUS[random.scaled(CPUS.len() as u64) as usize];
        let (cpus, [least, largest], used) = match workload {
            Workload::TwoCpuMix => (2, MIX, Some(MIX_USED)),
            Workload::Aging => (drawn_cpus, A_CPU, Some(AGING_USED)),
            of if of.fills_memory() => (drawn_cpus, FULL, Some(FULL_USED)),
            _ => (drawn_cpus, A_CPU, None),
        };
        let in_all = workload == Workload::TwoCpuMix || workload.fills_memory();
        let machines = if in_all { 1 } else { u64::from(cpus) };
        let largest = largest.min(most / machines);
        let frames = (log_uniform(&mut random, least, largest) * machines as f64).round() as u64;
        let used = used.map(|[from, to]| (from + random.scaled(to - from + 1)) as u8);
        let frames = whole(frames);
        // Memory is to be full, and in use for a while.
        let least = if workload.fills_memory() { 2 * frames } else { 0 };
        Some(Scenario {
            workload,
            cpus,
            frames,
            used_percent: used,
            seed: 0,
            engine: self.engines.first()?.clone(),
            allocations: self.allocations.max(least),
            moves: self.moves,
        })
    }
}

/// A number from `least` to `most`, each doubling as likely as any other.
fn log_uniform(random: &mut Random, least: u64, most: u64) -> f64 {
    // 53 bits: as many as a double holds.
    let share = random.scaled(1 << 53) as f64 / (1u64 << 53) as f64;
    least as f64 * (most.max(least) as f64 / least as f64).powf(share)
}

/// To the nearest whole number of the largest chunks, two pageblocks, as every machine of the lab.
fn whole(frames: u64) -> u64 {
    let chunk = Order::LINUX_MAX.frames();
    ((frames + chunk / 2) / chunk).max(1) * chunk
}
