//! Virtual areas on real page tables.

use core::sync::atomic::Ordering;

use freehold::{FRAME_SIZE, PAGEBLOCK_FRAMES};
use freehold_kernel::paging::address;
use freehold_kernel::suite::{Failure, Machine, Team, at_least, holds, same, succeeds};
use freehold_vm::{Layout, Vpn, VpnRange};

use crate::areas::areas as kernel_areas;
use crate::exceptions::{probe_read, probe_write};
use crate::layout::words;
use crate::machine::Bare;
use crate::{cpu, mmu};

/// A number for each page that nobody else uses.
fn mark(vpn: Vpn) -> u64 {
    vpn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Writes through the area's addresses, then looks at the frames in the direct map.
fn fill_and_compare(machine: &Bare, area: Vpn, pages: u64) -> Result<(), Failure> {
    for i in 0..pages {
        let vpn = Vpn::new(area.get() + i);
        // SAFETY: the caller's own area.
        let written = unsafe { probe_write(address(vpn) + 8 * (i % 512), mark(vpn)) };
        holds("an area can be written to", written.is_ok())?;
    }
    let (mut seen, mut wrong) = (0, 0);
    let walked = kernel_areas().for_each_run(area, |at, run| {
        for (k, pfn) in (run.start.get()..run.end.get()).enumerate() {
            let vpn = Vpn::new(at.get() + k as u64);
            let word = (vpn.get() - area.get()) as usize % 512;
            // Relaxed: this CPU wrote it.
            wrong += u64::from(
                words(freehold::Pfn::new(pfn))[word].load(Ordering::Relaxed) != mark(vpn),
            );
            seen += 1;
        }
    });
    succeeds(machine, "the area's runs", walked)?;
    same("pages in the area's runs", seen, pages)?;
    same("pages that show another frame", wrong, 0)
}

pub(super) fn areas(machine: &Bare) -> Result<(), Failure> {
    let before = kernel_areas().stats();
    Team::run(machine, |member| {
        let frames = cpu::frames();
        for round in 0..3 {
            let mut mine = [None; 6];
            for (slot, pages) in mine.iter_mut().zip([1, 4, 17, 100, 512, 700]) {
                let area = succeeds(
                    machine,
                    "no area",
                    kernel_areas().vmalloc(frames, Layout::pages(pages)),
                )?;
                fill_and_compare(machine, area, pages)?;
                *slot = Some((area, pages));
            }
            member.meet()?;
            for (area, pages) in mine.into_iter().flatten() {
                // All CPUs have written to theirs: nothing of this one's may have changed.
                for vpn in (area.get()..area.get() + pages).map(Vpn::new) {
                    let at = address(vpn) + 8 * ((vpn.get() - area.get()) % 512);
                    // SAFETY: this test's own area.
                    let found = unsafe { probe_read(at) }.unwrap_or(0);
                    same("what an area holds", found, mark(vpn))?;
                }
                // A part first, now and then.
                if round == 1 && pages > 4 {
                    let part =
                        VpnRange { start: Vpn::new(area.get() + 1), end: Vpn::new(area.get() + 3) };
                    succeeds(machine, "a part", kernel_areas().unmap_part(frames, area, part))?;
                    // SAFETY: as above.
                    let gone = unsafe { probe_read(address(part.start)) }.is_err();
                    holds("an unmapped part faults", gone)?;
                }
                succeeds(machine, "the area cannot be freed", kernel_areas().vfree(frames, area))?;
            }
        }
        Ok(())
    })?;
    let stats = kernel_areas().stats();
    machine.print(format_args!(
        "    {} areas of {} frames: {} calls to map, {} to free, {} flushes",
        stats.areas - before.areas,
        stats.frames - before.frames,
        stats.maps - before.maps,
        stats.frees - before.frees,
        stats.flushes - before.flushes,
    ));
    Ok(())
}

pub(super) fn huge(machine: &Bare) -> Result<(), Failure> {
    const PAGES: u64 = 2 * PAGEBLOCK_FRAMES;
    let frames = cpu::frames();
    // Relaxed, here and below: statistics.
    let counters = || {
        [&mmu::COUNTERS.huge, &mmu::COUNTERS.splits].map(|counter| counter.load(Ordering::Relaxed))
    };
    let before = counters();
    for round in 0..4 {
        // Ordinary pages first, so that in the second round a table stands where a 2 MiB entry is
        // to be.
        let small =
            succeeds(machine, "no area", kernel_areas().vmalloc(frames, Layout::pages(PAGES)))?;
        fill_and_compare(machine, small, PAGES)?;
        succeeds(machine, "the area cannot be freed", kernel_areas().vfree(frames, small))?;
        let layout = Layout::pages(PAGES).huge(true);
        let area = succeeds(machine, "no area", kernel_areas().vmalloc(frames, layout))?;
        fill_and_compare(machine, area, PAGES)?;
        if round % 2 == 1 {
            // The middle of the second 2 MiB: its entry becomes 512, and the rest stays.
            let start = area.get() + PAGEBLOCK_FRAMES + 100;
            let part = VpnRange { start: Vpn::new(start), end: Vpn::new(start + 50) };
            succeeds(machine, "a part", kernel_areas().unmap_part(frames, area, part))?;
            for i in 0..PAGES {
                let vpn = Vpn::new(area.get() + i);
                // SAFETY: this test's own area.
                let found = unsafe { probe_read(address(vpn) + 8 * (i % 512)) };
                match found {
                    Ok(value) => same("what an area holds", value, mark(vpn))?,
                    Err(_) => holds("only the part is gone", part.contains(vpn))?,
                }
                holds("all of the part is gone", found.is_err() || !part.contains(vpn))?;
            }
        }
        succeeds(machine, "the area cannot be freed", kernel_areas().vfree(frames, area))?;
    }
    let after = counters();
    machine.print(format_args!(
        "    {} entries of 2 MiB, {} split",
        after[0] - before[0],
        after[1] - before[1]
    ));
    at_least("entries of 2 MiB", after[0] - before[0], 8)?;
    same("entries split", after[1] - before[1], 2)?;
    debug_assert_eq!(FRAME_SIZE * PAGEBLOCK_FRAMES, 2 << 20);
    Ok(())
}
