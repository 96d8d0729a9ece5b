//! Which frames are chosen, as one number for each workload: two versions of the allocator that
//! print the same lines have handed out the same frames, whatever instructions that took them.
//!
//! ```sh
//! cargo run --release -p freehold-lab --example choices
//! ```
//!
//! One thread plays all CPUs. Each line: seed, CPUs, frames, the most percent in use; a hash of
//! every frame handed out, how many requests failed, how many blocks of 2 MiB are wholly free at
//! the end.

use freehold::{
    Config, CpuId, FrameRange, FreeError, Freehold, Migratetype, On, Order, Pfn, Request,
    SingleCpu, ZoneConfig,
};
use freehold_lab::trials::random::Random;

/// CPUs, frames, and how many percent are in use at most.
const MACHINES: [(u16, u64, u64); 6] = [
    (1, 1 << 16, 70),
    (2, 1 << 18, 50),
    (4, 1 << 16, 85),
    (8, 1 << 19, 60),
    (16, 1 << 16, 90),
    (2, 1 << 19, 30),
];
const SEEDS: u64 = 8;
const STEPS: u64 = 400_000;
/// Steps after which the share in use changes.
const PHASE: u64 = 50_000;

/// What is in use, and what was chosen so far.
struct Held {
    chunks: Vec<(Pfn, Order)>,
    frames: u64,
    hash: u64,
    failed: u64,
}

impl Held {
    fn new() -> Self {
        Self { chunks: Vec::new(), frames: 0, hash: 0xcbf2_9ce4_8422_2325, failed: 0 }
    }

    fn keep(&mut self, pfn: Pfn, order: Order) {
        // FNV-1a.
        self.hash = (self.hash ^ pfn.get()).wrapping_mul(0x100_0000_01b3);
        self.frames += order.frames();
        self.chunks.push((pfn, order));
    }

    /// A chunk of random order and type, a bulk call, or a run of any length.
    fn allocate(&mut self, cpu: &On<'_, '_, SingleCpu>, random: &mut Random) {
        let drawn = random.step();
        let kind = match drawn >> 8 & 15 {
            0 | 1 => Migratetype::Unmovable,
            2 => Migratetype::Reclaimable,
            _ => Migratetype::Movable,
        };
        match drawn >> 20 & 63 {
            0 | 32 => {
                let mut out = [Pfn::default(); 100];
                match cpu.alloc_bulk(Request::new(Order::ZERO, kind), &mut out) {
                    Ok(n) => out[..n].iter().for_each(|&pfn| self.keep(pfn, Order::ZERO)),
                    Err(_) => self.failed += 1,
                }
            }
            1 => match cpu.alloc_run(1 + (drawn >> 30) % 700) {
                Ok(run) => (run.start.get()..run.end.get())
                    .for_each(|pfn| self.keep(Pfn::new(pfn), Order::ZERO)),
                Err(_) => self.failed += 1,
            },
            _ => {
                let order = Order::new(drawn.trailing_zeros().min(9) as u8).unwrap_or(Order::ZERO);
                match cpu.alloc(Request::new(order, kind)) {
                    Ok(pfn) => self.keep(pfn, order),
                    Err(_) => self.failed += 1,
                }
            }
        }
    }

    /// Up to 64 chunks in the order in which they were allocated, or one at random.
    fn free(&mut self, cpu: &On<'_, '_, SingleCpu>, random: &mut Random) -> Result<(), FreeError> {
        let at = random.below(self.chunks.len() as u64) as usize;
        if random.below(64) == 0 {
            let end = self.chunks.len().min(at + 64);
            let burst: Vec<(Pfn, Order)> = self.chunks.drain(at..end).collect();
            self.frames -= burst.iter().map(|(_, order)| order.frames()).sum::<u64>();
            if random.below(2) == 0 && burst.iter().all(|&(_, order)| order == Order::ZERO) {
                let frames: Vec<Pfn> = burst.iter().map(|&(pfn, _)| pfn).collect();
                return cpu.free_bulk(&frames).map_err(|refused| refused.error);
            }
            return burst.into_iter().try_for_each(|(pfn, order)| cpu.free(pfn, order));
        }
        let (pfn, order) = self.chunks.swap_remove(at);
        self.frames -= order.frames();
        match FrameRange::new(pfn, order.frames()) {
            Some(range) if order == Order::PAGEBLOCK && random.below(2) == 0 => {
                cpu.free_range(range)
            }
            _ => cpu.free(pfn, order),
        }
    }
}

/// One workload; the part of its line behind its parameters.
fn run(
    (cpus, frames, percent): (u16, u64, u64),
    seed: u64,
) -> Result<String, Box<dyn std::error::Error>> {
    let memory = [FrameRange::new(Pfn::new(1 << 20), frames).ok_or("no such range")?];
    let zones = [ZoneConfig::new(&memory)];
    let config = Config::new(cpus, &zones);
    let mut metadata = Vec::<u8>::with_capacity(config.metadata_size()?);
    let fh = Freehold::new(&config, metadata.spare_capacity_mut(), SingleCpu)?;
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut held, most, mut wanted) = (Held::new(), frames * percent / 100, 0);
    for step in 0..STEPS {
        let cpu = fh.on(CpuId::new(random.below(u64::from(cpus)) as u16));
        if step % PHASE == 0 {
            wanted = most / 2 + random.below(most / 2 + 1);
        }
        if held.chunks.is_empty() || held.frames < wanted {
            held.allocate(&cpu, &mut random);
        } else {
            held.free(&cpu, &mut random)?;
            if random.below(20_000) == 0 {
                cpu.tick()?;
            }
            if random.below(50_000) == 0 {
                cpu.flush()?;
            }
        }
    }
    fh.validate()?;
    let blocks = fh.zone_blocks(0).map_or(0, |blocks| blocks.free_blocks);
    Ok(format!("{:016x} {} failed, {blocks} blocks free", held.hash, held.failed))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for seed in 1..=SEEDS {
        for machine in MACHINES {
            let (cpus, frames, percent) = machine;
            println!("{seed} {cpus:>2} {frames:>6} {percent}: {}", run(machine, seed)?);
        }
    }
    Ok(())
}
