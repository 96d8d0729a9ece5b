//! Follows one pageblock out, split, freed on another CPU, and home again, in several designs, and
//! prints what each step cost under the zone lock and under a CPU's own lock.
//!
//! ```sh
//! cargo run --release -p freehold-lab --example walk
//! ```
//!
//! DESIGN.md tells the story; this prints its numbers. `--markdown` prints them as a table for it.

use std::error::Error;
use std::mem::MaybeUninit;

use freehold::{
    CpuId, FrameRange, Freehold, Migratetype, NodeId, Order, PAGEBLOCK_FRAMES, Pfn, SingleCpu,
};
use freehold_classic::{Classic, Design};

const DESIGNS: [&str; 5] = ["5.17", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"];
const OURS: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
/// 1 GiB.
const FRAMES: u64 = 1 << 18;
const START: Pfn = Pfn::new(1 << 20);

/// Holds of the zone lock, steps of work under it, merges under it, merges under CPUs' locks.
type Cost = [u64; 4];

/// What a walk does to an allocator.
trait Walker {
    fn alloc(&self, order: Order) -> Result<Pfn, Box<dyn Error>>;
    fn split(&self, pfn: Pfn) -> Result<(), Box<dyn Error>>;
    fn free(&self, cpu: CpuId, frames: &[Pfn]) -> Result<(), Box<dyn Error>>;
    fn free_range(&self, range: FrameRange) -> Result<(), Box<dyn Error>>;
    fn drain(&self);
    fn cost(&self) -> Cost;
    fn free_blocks(&self) -> u64;
}

impl Walker for Classic {
    fn alloc(&self, order: Order) -> Result<Pfn, Box<dyn Error>> {
        Ok(self.alloc(OURS, freehold_classic::Request::new(order, Migratetype::Movable))?)
    }
    fn split(&self, pfn: Pfn) -> Result<(), Box<dyn Error>> {
        Ok(self.split(pfn, Order::PAGEBLOCK, Order::ZERO)?)
    }
    fn free(&self, cpu: CpuId, frames: &[Pfn]) -> Result<(), Box<dyn Error>> {
        let folios: Vec<(Pfn, Order)> = frames.iter().map(|&pfn| (pfn, Order::ZERO)).collect();
        self.free_folios(cpu, &folios)?;
        Ok(())
    }
    fn free_range(&self, range: FrameRange) -> Result<(), Box<dyn Error>> {
        self.free_contig_range(OTHER, range)?;
        Ok(())
    }
    fn drain(&self) {
        self.drain_all();
    }
    fn cost(&self) -> Cost {
        let stats = self.stats();
        [stats.zone_lock.holds(), stats.zone_lock.total(), stats.zone.merges, stats.pcp.merges]
    }
    fn free_blocks(&self) -> u64 {
        self.memory_map().free_blocks
    }
}

impl Walker for Freehold<'_, SingleCpu> {
    fn alloc(&self, order: Order) -> Result<Pfn, Box<dyn Error>> {
        Ok(self.on(OURS).alloc(freehold::Request::new(order, Migratetype::Movable))?)
    }
    fn split(&self, _pfn: Pfn) -> Result<(), Box<dyn Error>> {
        Ok(())
    }
    fn free(&self, cpu: CpuId, frames: &[Pfn]) -> Result<(), Box<dyn Error>> {
        Ok(self.on(cpu).free_bulk(frames).map_err(|error| error.error)?)
    }
    fn free_range(&self, range: FrameRange) -> Result<(), Box<dyn Error>> {
        Ok(self.on(OTHER).free_range(range)?)
    }
    fn drain(&self) {
        self.drain_all();
    }
    fn cost(&self) -> Cost {
        let totals = self.totals();
        [0, totals.shared_writes, 0, 0]
    }
    fn free_blocks(&self) -> u64 {
        self.zone_stats(0).map_or(0, |zone| zone.free_blocks)
    }
}

/// The steps, each with what it cost.
fn walk(walker: &dyn Walker) -> Result<Vec<(&'static str, Cost)>, Box<dyn Error>> {
    let mut steps = Vec::new();
    let mut before = walker.cost();
    let mut step = |name| {
        let after = walker.cost();
        steps.push((name, std::array::from_fn(|i| after[i] - before[i])));
        before = after;
    };

    // Enough that refills have grown to whole pageblocks.
    let out: Vec<Pfn> = (0..4096).map(|_| walker.alloc(Order::ZERO)).collect::<Result<_, _>>()?;
    step("CPU 0 allocates 4096 frames one by one");

    let block = walker.alloc(Order::PAGEBLOCK)?;
    step("CPU 0 allocates one pageblock");

    walker.split(block)?;
    step("it is split into 512 frames");

    walker.free_range(
        FrameRange::new(block, PAGEBLOCK_FRAMES).ok_or("the block ends where numbers do")?,
    )?;
    step("CPU 1 frees the range");

    // As many at once as the kernel's batches of folios hold.
    for chunk in out.chunks(freehold_classic::FOLIO_BATCH) {
        walker.free(OTHER, chunk)?;
    }
    step("CPU 1 frees the 4096 frames, 31 at a time");

    let again: Vec<Pfn> = (0..4096).map(|_| walker.alloc(Order::ZERO)).collect::<Result<_, _>>()?;
    step("CPU 0 allocates 4096 frames again");

    for pfn in again {
        walker.free(OURS, &[pfn])?;
    }
    walker.drain();
    step("CPU 0 frees them; all CPUs are drained");

    if walker.free_blocks() != FRAMES / PAGEBLOCK_FRAMES {
        return Err("not everything came home".into());
    }
    Ok(steps)
}

fn walk_design(design: &str) -> Result<Vec<(&'static str, Cost)>, Box<dyn Error>> {
    if design != "freehold" {
        let mut config = freehold_classic::Config::single_zone(Design::parse(design)?, 2, FRAMES);
        config.zones[0] = freehold_classic::ZoneConfig::new("Normal", START, FRAMES);
        return walk(&Classic::new(config)?);
    }
    let span = FrameRange::new(START, FRAMES).ok_or("the zone ends where numbers do")?;
    let zone = freehold::ZoneConfig {
        node: NodeId::new(0),
        span,
        memory: &[span],
        cma: &[],
        spare_sections: 0,
        watermarks: freehold::Watermarks::Kernel,
    };
    let config =
        freehold::Config { cpus: 2, online: 2, cpu_nodes: &[], zones: &[zone], extra_ranges: 0 };
    let mut metadata = vec![MaybeUninit::uninit(); Freehold::<SingleCpu>::metadata_size(&config)?];
    walk(&Freehold::new(&config, &mut metadata, SingleCpu)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let markdown = std::env::args().any(|argument| argument == "--markdown");
    let walks: Vec<Vec<(&str, Cost)>> =
        DESIGNS.iter().map(|design| walk_design(design)).collect::<Result<_, _>>()?;
    let cell = |[holds, work, zone, pcp]: Cost| format!("{holds} / {work} / {zone} / {pcp}");
    if markdown {
        println!("| step | {} |\n|---|{}", DESIGNS.join(" | "), "---|".repeat(DESIGNS.len()));
        for (i, (name, _)) in walks[0].iter().enumerate() {
            let cells: Vec<String> = walks.iter().map(|walk| cell(walk[i].1)).collect();
            println!("| {name} | {} |", cells.join(" | "));
        }
        return Ok(());
    }
    println!(
        "1 GiB, 2 CPUs; holds of the zone lock / steps of work under it / merges under it / merges \
         under CPUs' locks\n"
    );
    print!("{:<44}", "step");
    DESIGNS.iter().for_each(|design| print!("{design:>24}"));
    println!();
    for (i, (name, _)) in walks[0].iter().enumerate() {
        print!("{name:<44}");
        walks.iter().for_each(|walk| print!("{:>24}", cell(walk[i].1)));
        println!();
    }
    Ok(())
}
