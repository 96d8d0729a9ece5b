//! freehold-vm's `Mmu` on the processor's own page tables.
//!
//! | the trait asks | here |
//! |---|---|
//! | map, unmap | entries of level 1: 4 KiB |
//! | entries read and cleared in one step | `xchg`: no bit that the processor sets is lost |
//! | no write through a clean cached translation | the walk for the dirty bit looks again |
//! | flush | `invlpg` |
//!
//! A kernel with more CPUs also sends an interrupt to each that has the address space loaded, and
//! waits for their answers: docs/kernels.md.

use core::sync::atomic::{AtomicU64, Ordering};

use freehold::{FrameRange, Order, Pfn};
use freehold_vm::{Access, Entry, Flush, FlushKind, MapError, Mmu, Slots, SpaceId, Vpn, VpnRange};

use super::tables::{self, from_hardware, to_hardware};
use super::{space, tlb};

/// The processor. There is nothing in it: what it works on is the machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware;

/// The entries of level 1 for these pages; none where there is no table.
fn entries(slots: Slots<'_>) -> &'static [AtomicU64] {
    let from_here = tables::walk(space::root(), slots.first(), || None);
    from_here.map_or(&[], |entries| &entries[..slots.len() as usize])
}

impl Mmu for Hardware {
    fn map(
        &self,
        space: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        _leaf: Order,
    ) -> Result<(), MapError> {
        for i in 0..frames.len() {
            let page = Vpn::new(at.get() + i);
            let Some(entries) = tables::walk(space::root(), page, tables::make) else {
                let range = VpnRange { start: at, end: page };
                self.unmap(space, range);
                self.flush(&[Flush { space, range, kind: FlushKind::Unmapped }]);
                return Err(MapError::NoMemory);
            };
            let entry = Entry::new(Pfn::new(frames.start.get() + i), access);
            // Release: what was put into the frame before comes before the entry.
            entries[0].store(to_hardware(entry), Ordering::Release);
        }
        Ok(())
    }

    fn unmap(&self, _space: SpaceId, range: VpnRange) {
        for page in range.start.get()..range.end.get() {
            if let Some(entries) = tables::walk(space::root(), Vpn::new(page), || None) {
                // AcqRel: after what was done through the entry, before what the caller does next.
                entries[0].swap(0, Ordering::AcqRel);
            }
        }
    }

    fn flush(&self, batch: &[Flush]) {
        // The feature is a defect, built in on purpose: translations stay.
        if !cfg!(feature = "no-flush") {
            tlb::forget(batch);
        }
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }

    fn load(&self, slots: Slots<'_>) -> Entry {
        // Acquire: who finds a frame here sees what was put into it before.
        entries(slots)
            .first()
            .map_or(Entry::NONE, |slot| from_hardware(slot.load(Ordering::Acquire)))
    }

    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        tables::walk(space::root(), slots.first(), tables::make).ok_or(MapError::NoMemory)?;
        self.restore(slots, first);
        Ok(())
    }

    fn restore(&self, slots: Slots<'_>, first: Entry) {
        for (i, slot) in entries(slots).iter().enumerate() {
            // Release: as in `map`. Nothing is overwritten: the entries are empty, so the
            // processor leaves them alone, and the table's lock keeps everybody else away.
            slot.store(to_hardware(first.advance(i as u64)), Ordering::Release);
        }
    }

    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        let mut merged = Entry::NONE;
        for (i, slot) in entries(slots).iter().enumerate() {
            // AcqRel: after what was done through the entry, before what the caller does next.
            let old = from_hardware(slot.swap(0, Ordering::AcqRel));
            merged = if i == 0 { old } else { merged.with(old.only(Entry::HARDWARE)) };
        }
        merged
    }

    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        let mut merged = Entry::NONE;
        for slot in entries(slots) {
            // A read first: most entries have nothing to clear. Acquire: as in `load`.
            let now = from_hardware(slot.load(Ordering::Acquire));
            if now.is_mapped() && now.only(bits) != Entry::NONE {
                // AcqRel: as in `get_and_clear`.
                merged = merged
                    .with(from_hardware(slot.fetch_and(!bits.bits(), Ordering::AcqRel)).only(bits));
            }
        }
        merged
    }

    fn replace(&self, slots: Slots<'_>, old: Entry, new: Entry) -> Result<(), Entry> {
        let Some(slot) = entries(slots).first() else { return Err(Entry::NONE) };
        // AcqRel: as in `get_and_clear`. Acquire where it fails: as in `load`.
        slot.compare_exchange(
            to_hardware(old),
            to_hardware(new),
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .map(|_| ())
        .map_err(from_hardware)
    }
}
