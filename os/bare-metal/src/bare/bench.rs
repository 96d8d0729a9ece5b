//! The benchmarks that need a machine: virtual areas, reclaim, barriers and shootdowns, with what
//! each asked of the machine.

use core::fmt;

use freehold_kernel::suite::{Failure, Machine, succeeds};
use freehold_vm::{Flush, FlushKind, Layout, Mmu, UnmapPath, Vpn, VpnRange};

use crate::areas::areas;
use crate::layout::{KERNEL_SPACE, VMALLOC};
use crate::machine::Bare;
use crate::mmu::Hardware;
use crate::tests::lazyfree::reclaim;
use crate::{calls, cpu};

const AREAS: u64 = 200;
const PAGES: u64 = 512;
const ROUNDS: u64 = 200;

fn row(machine: &Bare, name: &str, cells: &[impl fmt::Display; 6]) {
    let [a, b, c, d, e, f] = cells;
    machine.print(format_args!("{name:<34} {a:>8} {b:>8} {c:>8} {d:>10} {e:>10} {f:>10}"));
}

/// Runs them all.
pub(crate) fn run(machine: &Bare) -> Result<(), Failure> {
    row(machine, "benchmark", &["number", "maps", "frees", "shootdowns", "interrupts", "ns each"]);
    for (name, contig, huge) in [
        ("vmalloc of 512 pages, by page", false, false),
        ("vmalloc of 512 pages, by run", true, false),
        ("vmalloc of 512 pages, one entry", true, true),
    ] {
        measured(machine, name, AREAS, || vmalloc(machine, contig, huge))?;
    }
    measured(machine, "vfree of 64 areas at once, an area", 64, || vfree_many(machine))?;
    for (name, path) in [
        ("lazyfree, a folio, by page", UnmapPath::PageByPage),
        ("lazyfree, a folio, batched", UnmapPath::Batched),
    ] {
        let cost = reclaim(machine, path, 0)?;
        let folios = cost.freed / 16;
        let cells = [
            folios,
            0,
            cost.frees,
            cost.shootdowns,
            cost.interrupts,
            cost.nanoseconds / folios.max(1),
        ];
        row(machine, name, &cells);
    }
    measured(machine, "heavy barrier", ROUNDS, || {
        (0..ROUNDS).for_each(|_| calls::barrier());
        Ok(())
    })?;
    let page = VpnRange { start: Vpn::new(VMALLOC.end.get() - 1), end: VMALLOC.end };
    let flush = Flush { space: KERNEL_SPACE, range: page, kind: FlushKind::Unmapped };
    measured(machine, "shootdown of a page", ROUNDS, || {
        (0..ROUNDS).for_each(|_| Hardware.flush(&[flush]));
        Ok(())
    })
}

/// Runs `f` on the first CPU while the others do nothing, which is to sleep.
fn measured(
    machine: &Bare,
    name: &str,
    number: u64,
    f: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    // Frames of whole blocks, as on a machine that has just been started.
    machine.tidy();
    machine.freehold().drain_all();
    let (before, sent, start) = (areas().stats(), calls::snapshot(), machine.nanoseconds());
    f()?;
    let nanoseconds = machine.nanoseconds() - start;
    let (after, now) = (areas().stats(), calls::snapshot());
    let interrupts = now.shootdown_interrupts + now.barrier_interrupts;
    let cells = [
        number,
        after.maps - before.maps,
        after.frees - before.frees,
        now.shootdowns - sent.shootdowns,
        interrupts - sent.shootdown_interrupts - sent.barrier_interrupts,
        nanoseconds / number,
    ];
    row(machine, name, &cells);
    Ok(())
}

fn vmalloc(machine: &Bare, contig: bool, huge: bool) -> Result<(), Failure> {
    areas().set_contig_free(contig);
    let work = || {
        for _ in 0..AREAS {
            let area = areas().vmalloc(cpu::frames(), Layout::pages(PAGES).huge(huge));
            let area = succeeds(machine, "no area", area)?;
            succeeds(machine, "cannot be freed", areas().vfree(cpu::frames(), area))?;
        }
        Ok(())
    };
    let result = work();
    areas().set_contig_free(true);
    result
}

fn vfree_many(machine: &Bare) -> Result<(), Failure> {
    let mut starts = [Vpn::new(0); 64];
    for start in &mut starts {
        *start = succeeds(machine, "no area", areas().vmalloc(cpu::frames(), Layout::pages(16)))?;
    }
    succeeds(machine, "cannot be freed", areas().vfree_many(cpu::frames(), &starts))
}
