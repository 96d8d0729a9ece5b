//! Accessed and dirty bits as the processor sets them, and reclaim that goes by them.

use core::sync::atomic::Ordering;

use freehold::Order;
use freehold_kernel::paging::{address, from_hardware};
use freehold_kernel::suite::{Failure, Machine, Member, Team, holds, same, succeeds};
use freehold_vm::{Access, Entry, Fault, SpaceId, UnmapPath, VmError, Vma, VpnRange};

use crate::exceptions::{PageFault, probe_read, probe_write};
use crate::folios::{PAGES, page, read, vm, write};
use crate::machine::Bare;
use crate::{calls, cpu, spaces, tables};

/// The address space of these tests.
pub(super) const SPACE: SpaceId = SpaceId::new(0);
/// All of it.
pub(super) const ALL: VpnRange = VpnRange { start: page(0), end: page(PAGES) };

/// Runs `f` with an address space that pages may be mapped in anywhere; afterwards there is none.
pub(super) fn with_space(
    machine: &Bare,
    f: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    spaces::make(SPACE);
    let vma = Vma { access: Access::ReadWrite, droppable: false };
    succeeds(machine, "no VMA", vm().add_vma(SPACE, ALL, vma))?;
    let result = f();
    let removed = vm().remove_vma(cpu::frames(), SPACE, ALL);
    let result = result.and(succeeds(machine, "the VMA cannot be removed", removed));
    spaces::destroy(SPACE);
    result
}

/// A read as a program does it.
fn can_read(i: u64) -> bool {
    // SAFETY: where the spaces have their folios there are only folios' frames, which are used as
    // shared words.
    unsafe { probe_read(address(page(i))) }.is_ok()
}

/// A write as a program does it.
fn try_write(i: u64) -> Result<(), PageFault> {
    // SAFETY: as in `can_read`.
    unsafe { probe_write(address(page(i)), 1) }
}

fn entry(i: u64) -> Entry {
    // Acquire: after the access that this CPU has just made.
    let bits = tables::walk(spaces::root(SPACE), page(i), 1)
        .map_or(0, |slot| slot.load(Ordering::Acquire));
    from_hardware(bits)
}

pub(super) fn bits(machine: &Bare) -> Result<(), Failure> {
    let frames = cpu::frames();
    with_space(machine, || {
        let order = Order::new(4).unwrap_or(Order::ZERO);
        let mapped = vm().map_new(frames, SPACE, page(0), order, Access::ReadWrite);
        succeeds(machine, "no folio", mapped)?;
        spaces::within(SPACE, || {
            holds("a fresh entry is clean and old", entry(0).only(Entry::HARDWARE) == Entry::NONE)?;
            holds("it can be read", can_read(0))?;
            holds("reading sets accessed", entry(0).only(Entry::HARDWARE) == Entry::YOUNG)?;
            holds("it can be written", try_write(0).is_ok())?;
            holds("writing sets dirty", entry(0).only(Entry::HARDWARE) == Entry::HARDWARE)?;
            holds("and of that page only", entry(1).only(Entry::HARDWARE) == Entry::NONE)?;
            // Cleared and flushed: the next write must look at the entry again and set the bit
            // again, though a moment ago the translation was cached as dirty.
            let advised = succeeds(machine, "madvise_free", vm().madvise_free(frames, SPACE, ALL))?;
            same("pages advised", advised, 16)?;
            holds("advice makes it clean", entry(0).only(Entry::HARDWARE) == Entry::NONE)?;
            holds("it can be written", try_write(0).is_ok())?;
            holds("writing sets dirty again", entry(0).is_dirty())?;
            // Without the right to write there is a fault and no bit.
            let range = VpnRange { start: page(0), end: page(16) };
            succeeds(machine, "protect", vm().protect(SPACE, range, Access::Read))?;
            let fault = try_write(1);
            holds(
                "a write to a read-only page faults",
                fault.is_err_and(|f| !f.not_present() && f.is_write()),
            )?;
            holds("and is not dirty", !entry(1).is_dirty())?;
            let refused = vm().pin(frames, SPACE, page(1), true);
            holds(
                "nor can it be pinned for writing",
                refused == Err(VmError::Fault(Fault::WriteProtected)),
            )?;
            succeeds(machine, "protect", vm().protect(SPACE, range, Access::ReadWrite))
        })
    })
}

const FOLIOS: u64 = 64;
const ORDER: u64 = 4;
const FOLIO_PAGES: u64 = 1 << ORDER;
/// The page of a folio that is written to again.
const REDIRTIED: u64 = 5;

/// What reclaim of 64 folios asked of the machine.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) freed: u64,
    pub(crate) shootdowns: u64,
    pub(crate) calls: u64,
    pub(crate) interrupts: u64,
    pub(crate) frees: u64,
    pub(crate) deferred: u64,
    pub(crate) nanoseconds: u64,
}

/// 64 folios of 64 KiB, written to, made lazyfree, every `redirty`th written to again by another
/// CPU, reclaimed. Checks what stays.
pub(crate) fn reclaim(machine: &Bare, path: UnmapPath, redirty: u64) -> Result<Cost, Failure> {
    let mut cost = Err(Failure { what: "reclaim did not get there", found: 0, expected: 1 });
    let last = cpu::count() - 1;
    let cell = spin::Once::new();
    with_space(machine, || {
        Team::run(machine, |member| {
            spaces::within(SPACE, || {
                fill(machine, member)?;
                if member.cpu == 0 {
                    let advised = vm().madvise_free(cpu::frames(), SPACE, ALL);
                    let advised = succeeds(machine, "madvise_free", advised)?;
                    same("pages advised", advised, FOLIOS * FOLIO_PAGES)?;
                }
                member.meet()?;
                if member.cpu == last && redirty > 0 {
                    for folio in (0..FOLIOS).step_by(redirty as usize) {
                        let i = folio * FOLIO_PAGES + REDIRTIED;
                        let written = write(SPACE, page(i), !i);
                        let (faults, _) = succeeds(machine, "a page cannot be written", written)?;
                        let faults = u64::from(faults);
                        same("a lazyfree page is written to without a fault", faults, 0)?;
                    }
                }
                member.meet()?;
                if member.cpu == 0 {
                    let paid = page_out(machine, path)?;
                    cell.call_once(|| paid);
                }
                member.meet()?;
                what_stays(machine, path, redirty)
            })
        })?;
        cost = cell.try_into_inner().ok_or(Failure { what: "no figures", found: 0, expected: 1 });
        Ok(())
    })?;
    cost
}

/// The folios are mapped; every CPU writes to its share, and reads all, so that all have cached
/// translations.
fn fill(machine: &Bare, member: &Member<'_, Bare>) -> Result<(), Failure> {
    if member.cpu == 0 {
        for folio in 0..FOLIOS {
            let order = Order::new(ORDER as u8).unwrap_or(Order::ZERO);
            let at = page(folio * FOLIO_PAGES);
            let mapped = vm().map_new(cpu::frames(), SPACE, at, order, Access::ReadWrite);
            succeeds(machine, "no folio", mapped)?;
        }
    }
    member.meet()?;
    for i in 0..FOLIOS * FOLIO_PAGES {
        if i as usize % cpu::count() == member.cpu {
            succeeds(machine, "a page cannot be written", write(SPACE, page(i), i + 1))?;
        }
    }
    member.meet()?;
    for i in 0..FOLIOS * FOLIO_PAGES {
        let found = succeeds(machine, "a page cannot be read", read(SPACE, page(i)))?.0;
        same("what a page holds", found.unwrap_or(0), i + 1)?;
    }
    member.meet()
}

/// Reclaims all there is, and counts what that asks for.
fn page_out(machine: &Bare, path: UnmapPath) -> Result<Cost, Failure> {
    vm().set_unmap_path(path);
    let (then, sent) = (vm().stats(), calls::snapshot());
    let start = machine.nanoseconds();
    let freed = vm().madvise_pageout(cpu::frames(), SPACE, ALL);
    let nanoseconds = machine.nanoseconds() - start;
    vm().set_unmap_path(UnmapPath::Batched);
    let freed = succeeds(machine, "reclaim", freed)?;
    let (now, after) = (vm().stats(), calls::snapshot());
    Ok(Cost {
        freed,
        shootdowns: after.shootdowns - sent.shootdowns,
        calls: after.shootdown_calls - sent.shootdown_calls,
        interrupts: after.shootdown_interrupts - sent.shootdown_interrupts,
        frees: now.frees - then.frees,
        deferred: now.deferred_queued - then.deferred_queued,
        nanoseconds,
    })
}

/// On every CPU: what was written again is there, all else is gone.
fn what_stays(machine: &Bare, path: UnmapPath, redirty: u64) -> Result<(), Failure> {
    for folio in 0..FOLIOS {
        let kept = redirty > 0 && folio % redirty == 0;
        for i in folio * FOLIO_PAGES..(folio + 1) * FOLIO_PAGES {
            let found = succeeds(machine, "a page cannot be read", read(SPACE, page(i)))?.0;
            // Page by page, those before the one that was written to have been dropped, as they
            // may be, by the time it is found.
            let kept = kept && (path == UnmapPath::Batched || i % FOLIO_PAGES >= REDIRTIED);
            let written = if i % FOLIO_PAGES == REDIRTIED { !i } else { i + 1 };
            same("a page is there", u64::from(found.is_some()), u64::from(kept))?;
            same("what a page holds", found.unwrap_or(0), if kept { written } else { 0 })?;
        }
    }
    Ok(())
}

pub(super) fn lazyfree(machine: &Bare) -> Result<(), Failure> {
    for (path, name) in [(UnmapPath::PageByPage, "page by page"), (UnmapPath::Batched, "batched")] {
        for redirty in [0, 4] {
            let cost = reclaim(machine, path, redirty)?;
            let kept = FOLIOS.checked_div(redirty).unwrap_or(0);
            machine.print(format_args!(
                "    {name}, {kept:2} of {FOLIOS} folios written again: {} frames freed, {} shootdowns, {} interrupts, \
                 {} seen partly mapped",
                cost.freed, cost.shootdowns, cost.interrupts, cost.deferred
            ));
            same("frames freed", cost.freed, (FOLIOS - kept) * FOLIO_PAGES)?;
            let others = (cpu::count() - 1) as u64;
            if path == UnmapPath::Batched {
                same("shootdowns", cost.shootdowns, others.min(1))?;
                same("calls of other CPUs", cost.calls, others)?;
                same("folios seen partly mapped", cost.deferred, 0)?;
            } else if redirty == 0 {
                same("shootdowns", cost.shootdowns, others.min(1) * FOLIOS * FOLIO_PAGES)?;
                same("calls of other CPUs", cost.calls, others * FOLIOS * FOLIO_PAGES)?;
            }
        }
    }
    Ok(())
}
