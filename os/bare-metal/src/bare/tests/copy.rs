//! Copy on write: two address spaces that show the same frames until one of them writes, as after a
//! `fork`.
//!
//! The first space's pages are writable and cached, dirty, by every CPU; sharing must take the
//! right to write away from all of them before it returns, or a write through an old translation
//! would be seen in both.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{Order, Pfn};
use freehold_kernel::suite::{Failure, Machine, Team, at_least, same, succeeds};
use freehold_vm::{Access, SpaceId, Vma, VpnRange, WriteFault};

use super::lazyfree::{ALL, SPACE, with_space};
use crate::exceptions::probe_write;
use crate::folios::{page, read, vm};
use crate::layout::words;
use crate::machine::Bare;
use crate::{cpu, spaces};

const OTHER: SpaceId = SpaceId::new(1);
const PAGES: u64 = 64;

fn copy(from: Pfn, to: Pfn) {
    for (from, to) in words(from).iter().zip(words(to)) {
        // Relaxed: the entry publishes it; the source is read-only to everybody.
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Writes as a program does, with a handler that resolves write faults; says what the last one came
/// to.
fn write(
    machine: &Bare,
    space: SpaceId,
    i: u64,
    value: u64,
) -> Result<Option<WriteFault>, Failure> {
    let mut resolved = None;
    // SAFETY: where the spaces have their folios there are only folios' frames, which are used as
    // shared words.
    while let Err(fault) = unsafe { probe_write(freehold_kernel::paging::address(page(i)), value) }
    {
        same("a write fault on a page that is there", fault.code & 0b11, 0b11)?;
        let done = vm().write_fault(cpu::frames(), space, page(i), copy);
        resolved = Some(succeeds(machine, "a write fault cannot be resolved", done)?);
    }
    Ok(resolved)
}

fn holds_in(machine: &Bare, space: SpaceId, i: u64, expected: u64) -> Result<(), Failure> {
    same(
        "what a page holds",
        succeeds(machine, "a page", read(space, page(i)))?.0.unwrap_or(0),
        expected,
    )
}

/// Folios of 16 pages, writable, all over the first space.
fn map(machine: &Bare) -> Result<(), Failure> {
    let order = Order::new(4).unwrap_or(Order::ZERO);
    for i in (0..PAGES).step_by(16) {
        let mapped = vm().map_new(cpu::frames(), SPACE, page(i), order, Access::ReadWrite);
        succeeds(machine, "no folio", mapped)?;
    }
    Ok(())
}

pub(super) fn on_write(machine: &Bare) -> Result<(), Failure> {
    let (copied, reused) = (AtomicU64::new(0), AtomicU64::new(0));
    let cpus = cpu::count() as u64;
    with_space(machine, || {
        spaces::make(OTHER);
        let vma = Vma { access: Access::ReadWrite, droppable: false };
        succeeds(machine, "no VMA", vm().add_vma(OTHER, ALL, vma))?;
        let result = Team::run(machine, |member| {
            let frames = cpu::frames();
            let mine = (0..PAGES).filter(|i| i % cpus == member.cpu as u64);
            spaces::within(SPACE, || {
                if member.cpu == 0 {
                    map(machine)?;
                }
                member.meet()?;
                // Every CPU writes to every page, so that all have it cached as writable and dirty.
                for i in 0..PAGES {
                    write(machine, SPACE, i, i + 1)?;
                }
                member.meet()?;
                if member.cpu == 0 {
                    let range = VpnRange { start: page(0), end: page(PAGES) };
                    let shared = vm().share(frames, SPACE, range, OTHER, page(0));
                    succeeds(machine, "the pages cannot be shared", shared)?;
                }
                member.meet()?;
                for i in mine.clone() {
                    holds_in(machine, SPACE, i, i + 1)?;
                    match write(machine, SPACE, i, 1000 + i)? {
                        // Relaxed: statistics.
                        Some(WriteFault::Copied(_)) => drop(copied.fetch_add(1, Ordering::Relaxed)),
                        other => {
                            return same("a shared page is copied", u64::from(other.is_some()), 2);
                        }
                    }
                }
                member.meet()?;
                (0..PAGES).try_for_each(|i| holds_in(machine, SPACE, i, 1000 + i))
            })?;
            spaces::within(OTHER, || {
                (0..PAGES).try_for_each(|i| holds_in(machine, OTHER, i, i + 1))?;
                member.meet()?;
                // Nobody else has them now: they need not be copied.
                for i in mine {
                    match write(machine, OTHER, i, 2000 + i)? {
                        Some(WriteFault::Reused(_)) => drop(reused.fetch_add(1, Ordering::Relaxed)),
                        other => {
                            return same(
                                "a page of one's own is reused",
                                u64::from(other.is_some()),
                                2,
                            );
                        }
                    }
                }
                member.meet()?;
                (0..PAGES).try_for_each(|i| holds_in(machine, OTHER, i, 2000 + i))
            })
        });
        let removed = vm().remove_vma(cpu::frames(), OTHER, ALL);
        let result = result.and(succeeds(machine, "the VMA cannot be removed", removed));
        spaces::destroy(OTHER);
        result
    })?;
    let [copied, reused] = [copied, reused].map(AtomicU64::into_inner);
    machine.print(format_args!(
        "    {PAGES} pages shared: {copied} copied by the first writer, {reused} reused by the last"
    ));
    same("pages copied", copied, PAGES)?;
    at_least("pages reused", reused, PAGES)
}
