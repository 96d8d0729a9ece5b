//! Accessed and dirty bits as the processor sets them, and translations that it has cached.

use core::sync::atomic::Ordering;

use freehold::{FrameRange, Frames, Migratetype, Order, Pfn, Request};
use freehold_vm::{Access, Entry, Fault, Flush, FlushKind, Mmu, VmError, VpnRange};
use ostd::early_println;
use ostd::prelude::ktest;

use super::space::{ALL, with_space};
use crate::machine::folios::{page, vm};
use crate::machine::mmu::Hardware;
use crate::machine::probe::{probe_read, probe_write};
use crate::machine::space::{SPACE, root, within};
use crate::machine::tables::{address, from_hardware, words};
use crate::machine::{tables, zone};

/// A read as a program does it.
fn read(i: u64) -> Option<u64> {
    // SAFETY: where the spaces have their folios there are only the tests' frames, which are used
    // as shared words.
    unsafe { probe_read(address(page(i))) }
}

/// A write as a program does it.
fn try_write(i: u64) -> Result<(), u64> {
    // SAFETY: as in `read`.
    unsafe { probe_write(address(page(i)), 1) }
}

/// What the processor has set in a page's entry.
fn bits(i: u64) -> Entry {
    // Acquire: after the access that this CPU has just made.
    let bits = tables::walk(root(), page(i), || None)
        .map_or(0, |entries| entries[0].load(Ordering::Acquire));
    from_hardware(bits).only(Entry::HARDWARE)
}

#[ktest]
fn the_processor_sets_accessed_and_dirty_bits() {
    let frames = zone::freehold;
    with_space(|| {
        let order = Order::new(4).unwrap();
        vm().map_new(frames(), SPACE, page(0), order, Access::ReadWrite).unwrap();
        within(|| {
            assert_eq!(bits(0), Entry::NONE, "a fresh entry is clean and old");
            assert!(read(0).is_some());
            assert_eq!(bits(0), Entry::YOUNG, "reading sets accessed");
            assert_eq!(try_write(0), Ok(()));
            assert_eq!(bits(0), Entry::HARDWARE, "writing sets dirty");
            assert_eq!(bits(1), Entry::NONE, "and of that page only");
            // Cleared and flushed: the next write must look at the entry again and set the bit
            // again, though a moment ago the translation was cached as dirty.
            assert_eq!(vm().madvise_free(frames(), SPACE, ALL), Ok(16));
            assert_eq!(bits(0), Entry::NONE, "advice makes it clean");
            assert_eq!(try_write(0), Ok(()));
            assert!(bits(0).is_dirty(), "writing sets dirty again");
            // Without the right to write there is a fault and no bit.
            let range = VpnRange { start: page(0), end: page(16) };
            vm().protect(SPACE, range, Access::Read).unwrap();
            let fault = try_write(1);
            assert!(fault.is_err_and(|code| code & 0b11 == 0b11), "{fault:?}");
            assert!(!bits(1).is_dirty());
            let refused = vm().pin(frames(), SPACE, page(1), true);
            assert_eq!(refused, Err(VmError::Fault(Fault::WriteProtected)));
            vm().protect(SPACE, range, Access::ReadWrite).unwrap();
        });
    });
}

/// Entries are changed by the machinery itself, not through folios.
#[ktest]
fn a_translation_is_gone_after_its_flush() {
    const ROUNDS: u64 = 30;
    let range = VpnRange { start: page(0), end: page(1) };
    let gone = Flush { space: SPACE, range, kind: FlushKind::Unmapped };
    let mut stale = 0;
    with_space(|| {
        within(|| {
            for round in 1..=ROUNDS {
                let request = Request::new(Order::ZERO, Migratetype::Unmovable);
                let pfn = zone::freehold().alloc(request).unwrap();
                // Relaxed: the entry publishes it.
                words(pfn)[0].store(round, Ordering::Relaxed);
                let run = FrameRange { start: pfn, end: Pfn::new(pfn.get() + 1) };
                Hardware.map(SPACE, page(0), run, Access::ReadWrite, Order::ZERO).unwrap();
                assert_eq!(read(0), Some(round));
                Hardware.unmap(SPACE, range);
                // The processor may have forgotten it by itself; if it has not, it is the old frame
                // that shows.
                let value = read(0);
                assert!(value.is_none_or(|value| value == round), "{value:?}");
                stale += u64::from(value.is_some());
                Hardware.flush(&[gone]);
                assert_eq!(read(0), None, "unmapped and flushed");
                zone::freehold().free(pfn, Order::ZERO).unwrap();
            }
        });
    });
    early_println!("    {} of {} reads between unmap and flush saw the old frame", stale, ROUNDS);
}
