//! Accessed and dirty bits as the processor sets them.

use core::sync::atomic::Ordering;

use freehold::Order;
use freehold_vm::{Access, Entry, Fault, VmError, VpnRange};
use ostd::prelude::ktest;

use super::space::{ALL, SPACE, with_space};
use super::team::{Failure, holds, same, succeeds, test};
use crate::machine::folios::{page, vm};
use crate::machine::probe::{PageFault, probe_read, probe_write};
use crate::machine::tables::{address, from_hardware};
use crate::machine::{cpu, spaces, tables};

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

#[ktest]
fn the_processor_sets_accessed_and_dirty_bits() {
    test(bits);
}

fn bits() -> Result<(), Failure> {
    let frames = cpu::frames();
    with_space(|| {
        let order = Order::new(4).unwrap_or(Order::ZERO);
        let mapped = vm().map_new(frames, SPACE, page(0), order, Access::ReadWrite);
        succeeds("no folio", mapped)?;
        spaces::within(SPACE, || {
            holds("a fresh entry is clean and old", entry(0).only(Entry::HARDWARE) == Entry::NONE)?;
            holds("it can be read", can_read(0))?;
            holds("reading sets accessed", entry(0).only(Entry::HARDWARE) == Entry::YOUNG)?;
            holds("it can be written", try_write(0).is_ok())?;
            holds("writing sets dirty", entry(0).only(Entry::HARDWARE) == Entry::HARDWARE)?;
            holds("and of that page only", entry(1).only(Entry::HARDWARE) == Entry::NONE)?;
            // Cleared and flushed: the next write must look at the entry again and set the bit
            // again, though a moment ago the translation was cached as dirty.
            let advised = succeeds("madvise_free", vm().madvise_free(frames, SPACE, ALL))?;
            same("pages advised", advised, 16)?;
            holds("advice makes it clean", entry(0).only(Entry::HARDWARE) == Entry::NONE)?;
            holds("it can be written", try_write(0).is_ok())?;
            holds("writing sets dirty again", entry(0).is_dirty())?;
            // Without the right to write there is a fault and no bit.
            let range = VpnRange { start: page(0), end: page(16) };
            succeeds("protect", vm().protect(SPACE, range, Access::Read))?;
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
            succeeds("protect", vm().protect(SPACE, range, Access::ReadWrite))
        })
    })
}
