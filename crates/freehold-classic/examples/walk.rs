//! Follows one pageblock out, split, freed on another CPU, and home again, in several designs, and prints what each
//! step cost under the zone lock and under a CPU's own lock.
//!
//! ```sh
//! cargo run --release -p freehold-classic --example walk
//! ```
//!
//! DESIGN.md tells the story; this prints its numbers.

use freehold::{CpuId, FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::{Classic, Config, Design, Request, Stats};

const DESIGNS: [&str; 5] = ["5.17", "7.1", "vanilla", "pcp-buddy", "pcp-buddy-fixed"];
const OURS: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "1 GiB, 2 CPUs; per step: zone-lock holds / steps of work under it / merges under it / merges under PCP locks"
    );
    println!();
    print!("{:<44}", "step");
    DESIGNS.iter().for_each(|design| print!("{design:>26}"));
    println!();
    let walks: Vec<Vec<Step>> = DESIGNS.iter().map(|design| walk(design)).collect::<Result<_, _>>()?;
    for step in 0..walks[0].len() {
        print!("{:<44}", walks[0][step].0);
        for walk in &walks {
            let [holds, work, merges_zone, merges_pcp] = walk[step].1;
            print!("{:>26}", format!("{holds} / {work} / {merges_zone} / {merges_pcp}"));
        }
        println!();
    }
    Ok(())
}

/// A step's name, and what it cost: holds, work, merges under the zone lock, merges under PCP locks.
type Step = (&'static str, [u64; 4]);

/// The steps of the walk, each with what it cost.
fn walk(design: &str) -> Result<Vec<Step>, Box<dyn std::error::Error>> {
    let classic = Classic::new(Config::single_zone(Design::parse(design)?, 2, 1 << 18))?;
    let mut steps = Vec::new();
    let mut before = classic.stats();
    let mut step = |name, classic: &Classic| {
        let after = classic.stats();
        steps.push((name, cost(&before, &after)));
        before = after;
    };
    let single = |classic: &Classic| classic.alloc(OURS, Request::new(Order::ZERO, Migratetype::Movable));

    // Enough allocations that refills have grown to whole pageblocks.
    let out: Vec<Pfn> = (0..4096).map(|_| single(&classic)).collect::<Result<_, _>>()?;
    step("CPU 0 allocates 4096 frames one by one", &classic);

    let block = classic.alloc(OURS, Request::new(Order::PAGEBLOCK, Migratetype::Movable))?;
    step("CPU 0 allocates one pageblock", &classic);

    classic.split(block, Order::PAGEBLOCK, Order::ZERO)?;
    step("splits it into 512 frames", &classic);

    let range = FrameRange::new(block, PAGEBLOCK_FRAMES).ok_or("the block ends where numbers do")?;
    classic.free_contig_range(OTHER, range)?;
    step("CPU 1 frees the range", &classic);

    for chunk in out.chunks(freehold_classic::FOLIO_BATCH) {
        let folios: Vec<(Pfn, Order)> = chunk.iter().map(|&pfn| (pfn, Order::ZERO)).collect();
        classic.free_folios(OTHER, &folios)?;
    }
    step("CPU 1 frees the 4096 frames, 31 at a time", &classic);

    let again: Vec<Pfn> = (0..4096).map(|_| single(&classic)).collect::<Result<_, _>>()?;
    step("CPU 0 allocates 4096 frames again", &classic);

    for pfn in again {
        let _ = classic.free(OURS, pfn, Order::ZERO)?;
    }
    classic.drain_all();
    step("CPU 0 frees them; all CPUs are drained", &classic);

    classic.validate()?;
    assert_eq!(classic.memory_map().free_blocks, 512, "everything is home");
    Ok(steps)
}

fn cost(before: &Stats, after: &Stats) -> [u64; 4] {
    [
        after.zone_lock.holds() - before.zone_lock.holds(),
        after.zone_lock.total() - before.zone_lock.total(),
        after.zone.merges - before.zone.merges,
        after.pcp.merges - before.pcp.merges,
    ]
}
