//! The proposal's microbenchmark in software, counted: 128 MiB of 64 KiB folios, written to, made
//! lazyfree, reclaimed, in each of the ways that there are; then once more with every eighth folio
//! written to again.
//!
//! ```text
//! cargo run --release -p freehold-vm --example lazyfree
//! ```

use freehold::{Config, FrameRange, Freehold, Order, Pfn, SingleCpu, Watermarks, ZoneConfig};
use freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, SoftMmu, Space, SpaceId, TABLE_ENTRIES,
    UnmapPath, Vm, Vma, Vpn, VpnRange,
};

const FOLIOS: u64 = 2048;
const ORDER: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::ZERO,
};
const PAGES: u64 = FOLIOS * ORDER.frames();

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:<18} {:>9} {:>8} {:>9} {:>9} {:>8} {:>7} {:>15} {:>9}",
        "path",
        "redirtied",
        "freed",
        "restored",
        "clears",
        "flushes",
        "frees",
        "deferred splits",
        "ns/folio"
    );
    // One of the ways only, to be counted by callgrind.
    let only = std::env::args().nth(1);
    for redirty in [None, Some(8)] {
        for path in UnmapPath::ALL {
            if only.as_ref().is_none_or(|only| redirty.is_none() && *only == format!("{path:?}")) {
                run(path, redirty)?;
            }
        }
    }
    Ok(())
}

fn run(path: UnmapPath, redirty: Option<u64>) -> Result<(), Box<dyn std::error::Error>> {
    let memory = [FrameRange::new(Pfn::new(512), 2 * PAGES).ok_or("no such range")?];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let frames = Freehold::leaked(&Config::new(1, &[zone]), SingleCpu)?;

    let records: Vec<Frame> = (0..2 * PAGES).map(|_| Frame::new()).collect();
    let mappings: Vec<Mapping> = (0..FOLIOS).map(|_| Mapping::new()).collect();
    let tables: Vec<PageTable> = (0..PAGES / TABLE_ENTRIES).map(|_| PageTable::new()).collect();
    let mut vmas = [IntervalNode::new(); 4];
    let (id, all) = (SpaceId::new(0), VpnRange::new(Vpn::new(0), PAGES).ok_or("no such range")?);
    let spaces = [Space::new(id, all.start, &tables, &mut vmas)];
    let vm = Vm::new(SoftMmu::<1>::new(), Pfn::new(512), &records, &mappings, &spaces);
    vm.set_unmap_path(path);
    vm.add_vma(id, all, Vma { access: Access::ReadWrite, droppable: false })?;

    for folio in 0..FOLIOS {
        vm.map_new(&frames, id, Vpn::new(folio * ORDER.frames()), ORDER, Access::ReadWrite)?;
    }
    for page in 0..PAGES {
        vm.touch(id, Vpn::new(page), true)?;
    }
    vm.madvise_free(&frames, id, all)?;
    for folio in (0..FOLIOS).filter(|folio| redirty.is_some_and(|share| folio % share == 0)) {
        vm.touch(id, Vpn::new(folio * ORDER.frames() + 3), true)?;
    }
    let (before, soft) = (vm.stats(), vm.mmu().stats());
    let start = std::time::Instant::now();
    let freed = vm.madvise_pageout(&frames, id, all)?;
    let elapsed = start.elapsed();
    let (stats, after) = (vm.stats(), vm.mmu().stats());
    println!(
        "{:<18} {:>9} {:>8} {:>9} {:>9} {:>8} {:>7} {:>15} {:>9}",
        format!("{path:?}"),
        stats.redirtied,
        freed,
        stats.entries_restored,
        after.clears - soft.clears,
        after.flushes - soft.flushes,
        stats.frees - before.frees,
        stats.deferred_queued,
        elapsed.as_nanos() / u128::from(FOLIOS),
    );
    Ok(())
}
