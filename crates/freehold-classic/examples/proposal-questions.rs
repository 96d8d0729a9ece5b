//! Questions of the contiguous-free and pcp-buddy proposals that need no recording, answered by
//! counts: the same on every machine and in every run.
//!
//! ```text
//! cargo run --release -p freehold-classic --example proposal-questions
//! ```

use freehold::{
    AllocError, CpuId, FrameRange, FreeError, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn,
};
use freehold_classic::{Classic, Config, Design, Request, Tuning, Watermarks};

const MOVABLE: Migratetype = Migratetype::Movable;
const BLOCKS: u64 = 512;
/// Loops of vmalloc's pages that are counted, after a hundred that are not.
const LOOPS: u64 = 1000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn cpu(n: usize) -> CpuId {
    CpuId::new(n as u16)
}

/// A machine of 1 GiB whose CPUs take `batch` frames at once.
fn machine(engine: &str, cpus: u16, batch: u32, cma: u64) -> Outcome<(Classic, Pfn)> {
    let mut config = Config::single_zone(Design::parse(engine)?, cpus, BLOCKS * PAGEBLOCK_FRAMES);
    let start = config.zone.range.start;
    if cma > 0 {
        let first = Pfn::new(start.get() + (BLOCKS - cma) * PAGEBLOCK_FRAMES);
        config.zone.cma = FrameRange::new(first, cma * PAGEBLOCK_FRAMES).into_iter().collect();
    }
    let classic = Classic::new(config)?;
    let most = 8 * batch.max(512);
    (0..cpus)
        .for_each(|n| classic.set_tuning(CpuId::new(n), Tuning::new(batch, most, most, false)));
    Ok((classic, start))
}

/// One whose requests may take all of it.
fn without_marks(engine: &str, cpus: usize) -> Outcome<Classic> {
    let frames = BLOCKS * PAGEBLOCK_FRAMES;
    let mut config = Config::single_zone(Design::parse(engine)?, cpus as u16, frames);
    config.zone.watermarks = Some(Watermarks::default());
    Ok(Classic::new(config)?)
}

fn take(classic: &Classic, n: usize, order: Order) -> Result<Pfn, AllocError> {
    classic.alloc(cpu(n), Request::new(order, MOVABLE))
}

fn put(classic: &Classic, n: usize, pfn: Pfn) -> Result<(), FreeError> {
    classic.free(cpu(n), pfn, Order::ZERO).map(drop)
}

fn at(pfn: Pfn, i: u64) -> Pfn {
    Pfn::new(pfn.get() + i)
}

/// A pageblock that was split is freed, one page of it pinned or not, while somebody allocates a
/// frame for every eighth.
fn punch_hole(engine: &str, by_range: bool, pinned: bool) -> Outcome<()> {
    let (classic, _) = machine(engine, 2, 63, 0)?;
    let block = take(&classic, 0, Order::PAGEBLOCK)?;
    classic.split(block, Order::PAGEBLOCK, Order::ZERO)?;
    classic.drain_all();
    if pinned {
        classic.get(at(block, 100))?;
    }
    classic.reset_stats();
    let range = FrameRange::new(block, PAGEBLOCK_FRAMES).ok_or("no such range")?;
    let mut kept = Vec::new();
    if by_range {
        classic.free_contig_range(cpu(0), range)?;
    }
    for i in 0..PAGEBLOCK_FRAMES {
        if !by_range {
            put(&classic, 0, at(block, i))?;
        }
        if i % 8 == 7 {
            kept.push(take(&classic, 0, Order::ZERO)?);
        }
    }
    let stats = classic.stats();
    let frees = stats.pcp.frees + stats.zone.frees;
    let reused = kept.iter().filter(|&&pfn| range.contains(pfn)).count();
    if pinned {
        put(&classic, 0, at(block, 100))?;
    }
    classic.drain_all();
    let blocks = classic.pageblocks();
    let free = blocks.iter().find(|found| found.start == block).map_or(0, |found| found.free);
    let pin = if pinned { "one" } else { "none" };
    let how = if by_range { "one range" } else { "page by page" };
    println!("{engine:<6} {how:<13} {pin:<6} {frees:>6} {reused:>7} {free:>11}");
    Ok(())
}

/// Half of the memory is taken by movable requests, where `cma` per cent of it are CMA.
fn cma_share(engine: &str, cma: u64, fragmented: bool) -> Outcome<String> {
    let (classic, start) = machine(engine, 1, 63, BLOCKS * cma / 100)?;
    if fragmented {
        for block in 0..BLOCKS {
            let one = FrameRange::new(at(start, block * PAGEBLOCK_FRAMES), 1);
            classic.alloc_contig_range(cpu(0), one.ok_or("no such range")?, &mut |_| false)?;
        }
    }
    classic.reset_stats();
    for _ in 0..BLOCKS * PAGEBLOCK_FRAMES / 2 {
        take(&classic, 0, Order::ZERO)?;
    }
    let zone = classic.stats().zone;
    Ok(format!("{:.0} %", 100.0 * zone.cma_frames as f64 / zone.movable_frames as f64))
}

/// Eight CPUs with half a block each; the block of one of them is wanted as a range, 100 times.
fn ranges(engine: &str) -> Outcome<()> {
    const CPUS: usize = 8;
    let (classic, _) = machine(engine, CPUS as u16, 512, 0)?;
    let (mut busy, mut stats) = (0, [0; 4]);
    let mut held: Vec<Vec<Pfn>> = vec![Vec::new(); CPUS];
    for round in 0..100 {
        for (n, held) in held.iter_mut().enumerate() {
            while held.len() < 512 {
                held.push(take(&classic, n, Order::ZERO)?);
            }
            // Half of it by the CPU itself, half by its neighbour.
            for (i, pfn) in held.drain(..).enumerate() {
                put(&classic, (n + i % 2) % CPUS, pfn)?;
            }
        }
        let wanted = take(&classic, round % CPUS, Order::ZERO)?;
        put(&classic, round % CPUS, wanted)?;
        let range = FrameRange::new(wanted.pageblock(), PAGEBLOCK_FRAMES).ok_or("no such range")?;
        classic.reset_stats();
        match classic.alloc_contig_range(cpu(0), range, &mut |_| false) {
            Ok(()) => _ = classic.free_contig_range(cpu(0), range)?,
            Err(_) => busy += 1,
        }
        let (now, lock) = (classic.stats(), classic.stats().zone_lock);
        let counted = [now.range_visits, now.pcp.drained_frames, lock.holds(), lock.total()];
        stats.iter_mut().zip(counted).for_each(|(sum, n)| *sum += n);
    }
    let [visits, drained, holds, steps] = stats.map(|n| n as f64 / 100.0);
    println!("{engine:<34} {busy:>4} {visits:>7.2} {drained:>8.1} {holds:>7.2} {steps:>8.1}");
    Ok(())
}

/// Zi Yan's worst case: neighbouring pages are in the hands of all CPUs. CPU 0 has owned 64 blocks
/// of which all but a frame each has gone back to the zone, the rest of memory is in use, and eight
/// CPUs take those frames in turn and give them back, each its own.
fn spread(engine: &str) -> Outcome<()> {
    const CPUS: usize = 8;
    const OWNED: u64 = 64;
    const EACH: usize = 256;
    let classic = without_marks(engine, CPUS)?;
    classic.set_tuning(cpu(0), Tuning::new(512, 4096, 4096, false));
    let mut first = Vec::new();
    for _ in 0..OWNED * PAGEBLOCK_FRAMES {
        first.push(take(&classic, 0, Order::ZERO)?);
    }
    while take(&classic, 1, Order::PAGEBLOCK).is_ok() {}
    for pfn in first.into_iter().filter(|pfn| !pfn.is_aligned(Order::PAGEBLOCK)) {
        put(&classic, 0, pfn)?;
    }
    classic.drain_all();
    (0..CPUS as u16)
        .for_each(|n| classic.set_tuning(CpuId::new(n), Tuning::new(63, 443, 2000, false)));
    classic.reset_stats();
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let mut held: Vec<(usize, Pfn)> = Vec::new();
        for i in 0..EACH * CPUS {
            held.push((i % CPUS, take(&classic, i % CPUS, Order::ZERO)?));
        }
        held.into_iter().try_for_each(|(n, pfn)| put(&classic, n, pfn))?;
    }
    let stats = classic.stats();
    let each = |n: u64| 1000.0 * n as f64 / (ROUNDS * EACH * CPUS) as f64;
    let [holds, steps] = [stats.zone_lock.holds(), stats.zone_lock.total()].map(each);
    let [pcp_holds, pcp_steps] = [stats.pcp.lock_holds, stats.pcp.lock_steps].map(each);
    let (remote, merges) = (each(stats.pcp.remote_frees), each(stats.zone.merges));
    let pcp_merges = each(stats.pcp.merges);
    println!(
        "{engine:<34} {holds:>7.2} {steps:>8.0} {pcp_holds:>9.0} {pcp_steps:>9.0} {remote:>7.0} \
         {merges:>7.0} {pcp_merges:>10.0}"
    );
    Ok(())
}

/// `pages` pages taken and given back as vmalloc does in three kernels, and what that asks of the
/// zone, a hundred times.
fn vmalloc(kernel: &str, pages: u64) -> Outcome<()> {
    let design = Design::parse("6.18,+contig-max-order")?;
    let classic = Classic::new(Config::single_zone(design, 2, BLOCKS * PAGEBLOCK_FRAMES))?;
    vmalloc_loops(&classic, kernel, pages)?;
    let stats = classic.stats();
    let each = |n: u64| 100.0 * n as f64 / LOOPS as f64;
    let (frees, merges) = (stats.pcp.frees + stats.zone.frees, each(stats.zone.merges));
    let (holds, steps) = (each(stats.zone_lock.holds()), each(stats.zone_lock.total()));
    let frees = frees / LOOPS;
    println!("{pages:>5} {kernel:<10} {frees:>6} {holds:>7.1} {steps:>9.0} {merges:>8.0}");
    Ok(())
}

/// By itself, so that its instructions can be counted.
#[inline(never)]
fn vmalloc_loops(classic: &Classic, kernel: &str, pages: u64) -> Outcome<()> {
    let order = Order::fitting(pages).ok_or("no such order")?;
    for round in 0..LOOPS + 100 {
        if round == 100 {
            classic.reset_stats();
        }
        let mut slots = vec![None; pages as usize];
        let range = if kernel == "v6.18" {
            let flags = freehold::AllocFlags::empty();
            slots.chunks_mut(100).try_for_each(|some| {
                classic.alloc_bulk(cpu(0), Migratetype::Unmovable, flags, some).map(drop)
            })?;
            None
        } else {
            let pfn = classic.alloc(cpu(0), Request::new(order, Migratetype::Unmovable))?;
            classic.split(pfn, order, Order::ZERO)?;
            slots.iter_mut().zip(0..).for_each(|(slot, i)| *slot = Some(at(pfn, i)));
            FrameRange::new(pfn, pages)
        };
        match range {
            Some(range) if kernel == "patched" => _ = classic.free_contig_range(cpu(0), range)?,
            _ => slots.into_iter().flatten().try_for_each(|pfn| put(classic, 0, pfn))?,
        }
    }
    Ok(())
}

/// Seven CPUs have 512 free frames each, all other memory is in use, and CPU 0 asks for a thousand
/// frames, one by one; after each of them each of the others takes a frame and gives it back.
fn last_frames(engine: &str) -> Outcome<()> {
    const CPUS: usize = 8;
    let classic = without_marks(engine, CPUS)?;
    let tuning = Tuning::new(63, 4096, 4096, false);
    (0..CPUS).for_each(|n| classic.set_tuning(cpu(n), tuning));
    let mut stock = Vec::new();
    for n in 1..CPUS {
        for _ in 0..PAGEBLOCK_FRAMES {
            stock.push((n, take(&classic, n, Order::ZERO)?));
        }
    }
    while take(&classic, 0, Order::PAGEBLOCK).is_ok() {}
    while take(&classic, 0, Order::ZERO).is_ok() {}
    stock.into_iter().try_for_each(|(n, pfn)| put(&classic, n, pfn))?;
    classic.reset_stats();
    for _ in 0..1000 {
        take(&classic, 0, Order::ZERO)?;
        for n in 1..CPUS {
            let pfn = take(&classic, n, Order::ZERO)?;
            put(&classic, n, pfn)?;
        }
    }
    let stats = classic.stats();
    println!(
        "{engine:<34} {:>7} {:>6} {:>8} {:>8} {:>7} {:>8}",
        stats.drain_all,
        stats.cpus_asked,
        stats.pcp.drained_frames,
        stats.pcp.refills,
        stats.zone_lock.holds(),
        stats.zone_lock.total(),
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [kernel, pages] = arguments.as_slice() {
        // One row alone, to be counted by callgrind.
        return vmalloc(kernel, pages.parse()?);
    }
    println!(
        "A split pageblock is freed while somebody allocates 64 frames, one for every eighth \
         freed\n"
    );
    println!(
        "{:<6} {:<13} {:<6} {:>6} {:>7} {:>11}",
        "engine", "freed", "pinned", "frees", "reused", "free at end"
    );
    for (engine, by_range) in [("7.1", false), ("7.2", false), ("7.1", true), ("7.2", true)] {
        for pinned in [false, true] {
            punch_hole(engine, by_range, pinned)?;
        }
    }
    println!(
        "\nPages as vmalloc takes and gives them back, alone on 6.18's page allocator; zone lock, \
         a hundred loops\n"
    );
    println!(
        "{:>5} {:<10} {:>6} {:>7} {:>9} {:>8}",
        "pages", "kernel", "frees", "holds", "steps", "merges"
    );
    for pages in [4, 16, 64, 256, 512] {
        for kernel in ["v6.18", "v6.19-rc1", "patched"] {
            vmalloc(kernel, pages)?;
        }
    }
    pcp_buddy()
}

/// The questions of the pcp-buddy proposal.
fn pcp_buddy() -> Outcome<()> {
    println!("\nMovable requests take half of the memory: frames of CMA among theirs\n");
    println!("{:<28} {:>8} {:>6} {:>6} {:>6}", "engine", "CMA: 25 %", "50 %", "75 %", "90 %");
    for fragmented in [false, true] {
        let variants = ["vanilla,-cma-half", "pcp-buddy", "pcp-buddy,+cma-phases"];
        for engine in ["vanilla"].into_iter().chain(variants).chain(["pcp-buddy-fixed"]) {
            let [a, b, c, d] = [25, 50, 75, 90].map(|cma| cma_share(engine, cma, fragmented));
            let name = if fragmented { format!("{engine} *") } else { engine.to_owned() };
            println!("{name:<28} {:>9} {:>6} {:>6} {:>6}", a?, b?, c?, d?);
        }
    }
    println!("* a frame of every block is in use, so that no block is whole");
    println!(
        "\nA pageblock wanted as a range (alloc_contig_range) while eight CPUs allocate and free; \
         a range on average\n"
    );
    println!(
        "{:<34} {:>4} {:>7} {:>8} {:>7} {:>8}",
        "engine", "busy", "visited", "drained", "holds", "steps"
    );
    ranges("vanilla")?;
    for engine in ["pcp-buddy", "pcp-buddy-fixed"] {
        ranges(engine)?;
        ranges(&format!("{engine},+targeted-drain"))?;
    }
    println!(
        "\nNeighbouring pages in the hands of eight CPUs, in blocks that one of them owns; for \
         1,000 frames\n"
    );
    println!(
        "{:<34} {:>7} {:>8} {:>9} {:>9} {:>7} {:>7} {:>10}",
        "engine", "holds", "steps", "PCP holds", "PCP steps", "remote", "merges", "PCP merges"
    );
    for engine in ["vanilla", "pcp-buddy", "pcp-buddy,-route", "pcp-buddy-fixed"] {
        spread(engine)?;
    }
    println!(
        "\nThe last free frames lie on the lists of seven CPUs, and the eighth asks for a \
         thousand\n"
    );
    println!(
        "{:<34} {:>7} {:>6} {:>8} {:>8} {:>7} {:>8}",
        "engine", "drains", "asked", "drained", "refills", "holds", "steps"
    );
    for engine in ["vanilla", "pcp-buddy", "pcp-buddy-fixed"] {
        last_frames(engine)?;
        last_frames(&format!("{engine},+least-drain"))?;
    }
    Ok(())
}
