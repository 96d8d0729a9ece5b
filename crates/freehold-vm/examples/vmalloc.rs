//! vmalloc and vfree of areas of some sizes, with contiguous freeing on and off: what each asks of
//! the machine and of the page allocator. Nothing is mapped for real: the software Mmu only counts,
//! so that the times are those of the bookkeeping and of the page allocator.
//!
//! ```text
//! cargo run --release -p freehold-vm --example vmalloc
//! ```

use freehold::{Config, CpuId, FrameRange, Freehold, Pfn, SingleCpu, ZoneConfig};
use freehold_vm::{IntervalNode, Layout, RunNode, SoftMmu, SpaceId, Vmalloc, Vpn, VpnRange};

const LOOPS: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let memory = [FrameRange::new(Pfn::new(512), 1 << 16).ok_or("no such range")?];
    let freehold = Freehold::leaked(&Config::new(1, &[ZoneConfig::new(&memory)]), SingleCpu)?;
    let cpu = freehold.own(CpuId::new(0))?;
    let range = VpnRange::new(Vpn::new(0), 1 << 20).ok_or("no such range")?;

    println!("a vmalloc and a vfree, on average over {LOOPS}");
    println!(
        "{:>5} {:>6} {:>5} {:>6} {:>7} {:>8} {:>8}",
        "pages", "contig", "maps", "unmaps", "flushes", "frees", "ns"
    );
    for pages in [1, 4, 16, 64, 100, 256, 512] {
        for contig in [true, false] {
            let mut areas = vec![IntervalNode::new(); 64];
            let mut runs = vec![RunNode::new(); 1024];
            let vmalloc =
                Vmalloc::new(SoftMmu::<1>::new(), SpaceId::new(0), range, &mut areas, &mut runs);
            vmalloc.set_contig_free(contig);
            let start = std::time::Instant::now();
            for _ in 0..LOOPS {
                let area = vmalloc.vmalloc(&cpu, Layout::pages(pages))?;
                vmalloc.vfree(&cpu, area)?;
            }
            let ns = start.elapsed().as_nanos() / u128::from(LOOPS);
            let (stats, each) = (vmalloc.stats(), |n: u64| n as f64 / LOOPS as f64);
            println!(
                "{pages:>5} {contig:>6} {:>5} {:>6} {:>7} {:>8} {ns:>8}",
                each(stats.maps),
                each(stats.unmaps),
                each(stats.flushes),
                each(stats.frees),
            );
        }
    }
    Ok(())
}
