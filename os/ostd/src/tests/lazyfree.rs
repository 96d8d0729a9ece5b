//! Reclaim that goes by the dirty bits that the processor sets, and what it asks of the machine.

use freehold::Order;
use freehold_vm::{Access, SpaceId, UnmapPath, Vma, VpnRange};
use ostd::prelude::ktest;

use super::team::{Failure, Member, Team, same, say, succeeds, test};
use crate::machine::folios::{PAGES, page, read, vm, write};
use crate::machine::{calls, cpu, spaces};

/// The address space of these tests.
pub(super) const SPACE: SpaceId = SpaceId::new(0);
/// All of it.
pub(super) const ALL: VpnRange = VpnRange { start: page(0), end: page(PAGES) };

/// Runs `f` with an address space that pages may be mapped in anywhere; afterwards there is none.
pub(super) fn with_space(f: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    spaces::make(SPACE);
    let vma = Vma { access: Access::ReadWrite, droppable: false };
    succeeds("no VMA", vm().add_vma(SPACE, ALL, vma))?;
    let result = f();
    let removed = vm().remove_vma(cpu::frames(), SPACE, ALL);
    let result = result.and(succeeds("the VMA cannot be removed", removed));
    spaces::destroy(SPACE);
    result
}

const FOLIOS: u64 = 64;
const ORDER: u64 = 4;
const FOLIO_PAGES: u64 = 1 << ORDER;
/// The page of a folio that is written to again.
const REDIRTIED: u64 = 5;

/// What reclaim of 64 folios asked of the machine.
#[derive(Clone, Copy)]
struct Cost {
    freed: u64,
    shootdowns: u64,
    calls: u64,
    interrupts: u64,
    deferred: u64,
}

/// 64 folios of 64 KiB, written to, made lazyfree, every `redirty`th written to again by another
/// CPU, reclaimed. Checks what stays.
fn reclaim(path: UnmapPath, redirty: u64) -> Result<Cost, Failure> {
    let mut cost = Err(Failure { what: "reclaim did not get there", found: 0, expected: 1 });
    let last = cpu::count() - 1;
    let cell = spin::Once::new();
    with_space(|| {
        Team::run(|member| {
            spaces::within(SPACE, || {
                fill(member)?;
                if member.cpu == 0 {
                    let advised = vm().madvise_free(cpu::frames(), SPACE, ALL);
                    let advised = succeeds("madvise_free", advised)?;
                    same("pages advised", advised, FOLIOS * FOLIO_PAGES)?;
                }
                member.meet()?;
                if member.cpu == last && redirty > 0 {
                    for folio in (0..FOLIOS).step_by(redirty as usize) {
                        let i = folio * FOLIO_PAGES + REDIRTIED;
                        let written = write(SPACE, page(i), !i);
                        let (faults, _) = succeeds("a page cannot be written", written)?;
                        let faults = u64::from(faults);
                        same("a lazyfree page is written to without a fault", faults, 0)?;
                    }
                }
                member.meet()?;
                if member.cpu == 0 {
                    let paid = page_out(path)?;
                    cell.call_once(|| paid);
                }
                member.meet()?;
                what_stays(path, redirty)
            })
        })?;
        cost = cell.try_into_inner().ok_or(Failure { what: "no figures", found: 0, expected: 1 });
        Ok(())
    })?;
    cost
}

/// The folios are mapped; every CPU writes to its share, and reads all, so that all have cached
/// translations.
fn fill(member: &Member<'_>) -> Result<(), Failure> {
    if member.cpu == 0 {
        for folio in 0..FOLIOS {
            let order = Order::new(ORDER as u8).unwrap_or(Order::ZERO);
            let at = page(folio * FOLIO_PAGES);
            let mapped = vm().map_new(cpu::frames(), SPACE, at, order, Access::ReadWrite);
            succeeds("no folio", mapped)?;
        }
    }
    member.meet()?;
    for i in 0..FOLIOS * FOLIO_PAGES {
        if i as usize % cpu::count() == member.cpu {
            succeeds("a page cannot be written", write(SPACE, page(i), i + 1))?;
        }
    }
    member.meet()?;
    for i in 0..FOLIOS * FOLIO_PAGES {
        let found = succeeds("a page cannot be read", read(SPACE, page(i)))?.0;
        same("what a page holds", found.unwrap_or(0), i + 1)?;
    }
    member.meet()
}

/// Reclaims all there is, and counts what that asks for.
fn page_out(path: UnmapPath) -> Result<Cost, Failure> {
    vm().set_unmap_path(path);
    let (then, sent) = (vm().stats(), calls::snapshot());
    let freed = vm().madvise_pageout(cpu::frames(), SPACE, ALL);
    vm().set_unmap_path(UnmapPath::Batched);
    let freed = succeeds("reclaim", freed)?;
    let (now, after) = (vm().stats(), calls::snapshot());
    Ok(Cost {
        freed,
        shootdowns: after.shootdowns - sent.shootdowns,
        calls: after.shootdown_calls - sent.shootdown_calls,
        interrupts: after.shootdown_interrupts - sent.shootdown_interrupts,
        deferred: now.deferred_queued - then.deferred_queued,
    })
}

/// On every CPU: what was written again is there, all else is gone.
fn what_stays(path: UnmapPath, redirty: u64) -> Result<(), Failure> {
    for folio in 0..FOLIOS {
        let kept = redirty > 0 && folio % redirty == 0;
        for i in folio * FOLIO_PAGES..(folio + 1) * FOLIO_PAGES {
            let found = succeeds("a page cannot be read", read(SPACE, page(i)))?.0;
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

#[ktest]
fn lazyfree_folios_go_unless_written_to() {
    test(lazyfree);
}

fn lazyfree() -> Result<(), Failure> {
    for (path, name) in [(UnmapPath::PageByPage, "page by page"), (UnmapPath::Batched, "batched")] {
        for redirty in [0, 4] {
            let cost = reclaim(path, redirty)?;
            let kept = FOLIOS.checked_div(redirty).unwrap_or(0);
            say(format_args!(
                "    {name}, {kept:2} of {FOLIOS} folios written again: {} frames freed, {} shootdowns, {} interrupts, \
                 {} seen partly mapped",
                cost.freed, cost.shootdowns, cost.interrupts, cost.deferred
            ));
            same("frames freed", cost.freed, (FOLIOS - kept) * FOLIO_PAGES)?;
            let others = (cpu::count() - 1) as u64;
            let batched = path == UnmapPath::Batched;
            // Page by page a folio that stays is flushed at once, since a split may free its pages.
            if batched || redirty == 0 {
                same("shootdowns", cost.shootdowns, others.min(1))?;
                same("calls of other CPUs", cost.calls, others)?;
            }
            let partly = if batched { 0 } else { FOLIOS };
            same("folios seen partly mapped", cost.deferred, partly)?;
        }
    }
    Ok(())
}
