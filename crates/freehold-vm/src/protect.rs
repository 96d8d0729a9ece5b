//! Changing entries in place: what may be done with their pages, and whether they were written to.

use crate::primitive::Ordering;
use crate::{
    Access, Entry, Fault, FlushBatch, FlushKind, Mmu, Space, SpaceId, Vm, VmError, Vma, Vpn,
    VpnRange,
};

/// What an entry gets that a write is let through.
const WRITTEN: Entry = Entry::HARDWARE.with(Entry::WRITABLE).with(Entry::SOFT_DIRTY);

impl<'m, M: Mmu> Vm<'m, M> {
    /// Changes what may be done with a range (`mprotect`). Entries lose what they may not do any
    /// more at once, with one flush; what they gain they gain by faulting ([`Vm::write_fault`]),
    /// but for reading, which they gain at once.
    ///
    /// # Errors
    ///
    /// [`VmError::NoNodes`] where a VMA would have to be split, [`VmError::NoSpace`],
    /// [`VmError::OutOfSpace`].
    pub fn protect(&self, space: SpaceId, range: VpnRange, access: Access) -> Result<(), VmError> {
        let found = self.space_with(space, range)?;
        self.change_vmas(found, range, |vma| Some(Vma { access, ..vma }))?;
        self.change_entries(found, range, |entry| match access {
            Access::None => {
                entry.without(Entry::PRESENT.with(Entry::WRITABLE)).with(Entry::PROT_NONE)
            }
            Access::Read => {
                entry.without(Entry::PROT_NONE.with(Entry::WRITABLE)).with(Entry::PRESENT)
            }
            Access::ReadWrite => entry.without(Entry::PROT_NONE).with(Entry::PRESENT),
        });
        Ok(())
    }

    /// Clears the soft-dirty bits of a range and write-protects it, so that the next write to each
    /// page faults and sets its bit again (`/proc/self/clear_refs`). One flush.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`].
    pub fn clear_soft_dirty(&self, space: SpaceId, range: VpnRange) -> Result<(), VmError> {
        let found = self.space_with(space, range)?;
        self.change_entries(found, range, |entry| {
            entry.without(Entry::SOFT_DIRTY.with(Entry::WRITABLE))
        });
        Ok(())
    }

    /// Resolves [`Fault::WriteProtected`]: makes the entry writable where its VMA allows that. The
    /// entry comes out young, dirty and soft-dirty. One that is writable already stays as it is.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`] where the VMA does not allow it or nothing is mapped;
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`]. The page is as it was then.
    pub fn write_fault(&self, space: SpaceId, vpn: Vpn) -> Result<(), VmError> {
        let page = VpnRange::new(vpn, 1).unwrap_or_default();
        let found = self.space_with(space, page)?;
        let slots = found.slots(vpn, 1);
        // Under the table's lock: who takes a right away changes the VMA first, and then comes to
        // this table. Reclaim, too, has the entry in hand under that lock only.
        self.with_table(found, vpn, || {
            self.allowed(found, page, Access::ReadWrite)?;
            loop {
                let entry = self.mmu.load(slots);
                if !entry.is_mapped() {
                    return Err(Fault::NotMapped.into());
                }
                if !entry.is_present() {
                    return Err(Fault::AccessDenied.into());
                }
                let written = entry.with(WRITTEN);
                // Again and again, against hardware, which may be setting bits.
                if entry.is_writable() || self.mmu.replace(slots, entry, written).is_ok() {
                    return Ok(());
                }
            }
        })
    }

    fn change_entries(&self, space: &Space<'m>, range: VpnRange, f: impl Fn(Entry) -> Entry) {
        // AcqRel: as in `unmap`.
        space.changing.fetch_add(1, Ordering::AcqRel);
        let mut batch = FlushBatch::new();
        let mut vpn = range.start;
        while vpn < range.end {
            let end = space.table_end(vpn).min(range.end);
            self.with_table(space, vpn, || {
                while vpn < end {
                    let slots = space.slots(vpn, 1);
                    let mut entry = self.mmu.load(slots);
                    while entry.is_mapped() && f(entry) != entry {
                        // Against hardware, which may be setting bits.
                        match self.mmu.replace(slots, entry, f(entry)) {
                            Ok(()) => break,
                            Err(now) => entry = now,
                        }
                    }
                    let lost = entry.without(f(entry)).only(Entry::PRESENT.with(Entry::WRITABLE));
                    if entry.is_mapped() && lost != Entry::NONE {
                        self.add_flush(&mut batch, slots.flush(FlushKind::Changed));
                    }
                    vpn = vpn.plus(1);
                }
            });
        }
        self.flush(&mut batch);
        // AcqRel: as in `unmap`.
        space.changing.fetch_sub(1, Ordering::AcqRel);
    }
}
