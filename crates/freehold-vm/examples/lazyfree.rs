//! The proposal's microbenchmark in software, counted: 128 MiB of 64 KiB folios, written to, made
//! lazyfree, reclaimed, in each of the ways that there are; then once more with every eighth folio
//! written to again; and then as folios that one entry of 2 MiB maps.
//!
//! ```text
//! cargo run --release -p freehold-vm --example lazyfree
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use freehold::{Config, FrameRange, Freehold, Order, Pfn, SingleCpu, Watermarks, ZoneConfig};
use freehold_vm::{
    Access, Frame, IntervalNode, Mapping, PageTable, SoftMmu, SoftStats, Space, SpaceId,
    TABLE_ENTRIES, UnmapPath, Vm, VmStats, Vma, Vpn, VpnRange,
};

/// Pages: 128 MiB.
const PAGES: u64 = 1 << 15;

/// What is reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Lazyfree folios.
    Lazyfree,
    /// Every eighth of which has been written to again.
    Rewritten,
    /// Of 2 MiB, each mapped by one entry.
    Pmd,
}

impl What {
    const ALL: [Self; 3] = [Self::Lazyfree, Self::Rewritten, Self::Pmd];

    fn order(self) -> u8 {
        if self == Self::Pmd { 9 } else { 4 }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:<9} {:<18} {:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>15} {:>9}",
        "folios",
        "path",
        "redirtied",
        "freed",
        "restored",
        "clears",
        "entries",
        "flushes",
        "frees",
        "deferred splits",
        "ns/folio"
    );
    // One of the ways only, to be counted by callgrind.
    let only = std::env::args().nth(1);
    for what in What::ALL {
        for path in UnmapPath::ALL {
            let counted = what == What::Lazyfree && only == Some(format!("{path:?}"));
            if only.is_none() || counted {
                show(what, path)?;
            }
        }
    }
    Ok(())
}

/// What a way has done: of the folios, and of the machine before and after reclaim; and how long
/// that took.
type Counts = (VmStats, [SoftStats; 2], Duration);

pub(crate) fn run(what: What, path: UnmapPath) -> Result<Counts, Box<dyn Error>> {
    let order = Order::new(what.order()).ok_or("no such order")?;
    let folios = PAGES / order.frames();
    let memory = [FrameRange::new(Pfn::new(512), 2 * PAGES).ok_or("no such range")?];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let frames = Freehold::leaked(&Config::new(1, &[zone]), SingleCpu)?;

    let records: Vec<Frame> = (0..2 * PAGES).map(|_| Frame::new()).collect();
    let mappings: Vec<Mapping> = (0..folios).map(|_| Mapping::new()).collect();
    let tables: Vec<PageTable> = (0..PAGES / TABLE_ENTRIES).map(|_| PageTable::new()).collect();
    let mut vmas = [IntervalNode::new(); 4];
    let (id, all) = (SpaceId::new(0), VpnRange::new(Vpn::new(0), PAGES).ok_or("no such range")?);
    let spaces = [Space::new(id, all.start, &tables, &mut vmas)];
    let vm = Vm::new(SoftMmu::<1>::new(), Pfn::new(512), &records, &mappings, &spaces);
    vm.set_unmap_path(path);
    vm.set_pmd_mappings(what == What::Pmd);
    vm.add_vma(id, all, Vma { access: Access::ReadWrite, droppable: false })?;

    for at in (0..folios).map(|folio| Vpn::new(folio * order.frames())) {
        vm.map_new(&frames, id, at, order, Access::ReadWrite)?;
    }
    for page in 0..PAGES {
        vm.touch(id, Vpn::new(page), true)?;
    }
    vm.madvise_free(&frames, id, all)?;
    let rewritten = if what == What::Rewritten { folios } else { 0 };
    for folio in (0..rewritten).step_by(8) {
        vm.touch(id, Vpn::new(folio * order.frames() + 3), true)?;
    }
    let before = vm.mmu().stats();
    let start = Instant::now();
    vm.madvise_pageout(&frames, id, all)?;
    let elapsed = start.elapsed();
    Ok((vm.stats(), [before, vm.mmu().stats()], elapsed))
}

fn show(what: What, path: UnmapPath) -> Result<(), Box<dyn Error>> {
    let (stats, [before, after], elapsed) = run(what, path)?;
    let folios = PAGES >> what.order();
    println!(
        "{:<9} {:<18} {:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7} {:>15} {:>9}",
        format!("{what:?}"),
        format!("{path:?}"),
        stats.redirtied,
        stats.reclaimed_frames,
        stats.entries_restored,
        after.clears - before.clears,
        after.entries_cleared - before.entries_cleared,
        after.flushes - before.flushes,
        stats.frees,
        stats.deferred_queued,
        elapsed.as_nanos() / u128::from(folios),
    );
    Ok(())
}
