//! Using what is mapped: touching pages as a CPU does, pinning them for I/O, resolving write faults.

use freehold::{Order, Pfn};

use crate::folio::flag;
use crate::primitive::Plain;
use crate::{Access, Entry, Fault, Folio, FrameAllocator, Mmu, Space, SpaceId, Vm, VmError, Vpn, VpnRange};

/// How a write fault was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFault {
    /// Somebody else had resolved it already.
    Spurious,
    /// Nobody else shows the frame: it is writable now.
    Reused(Pfn),
    /// The page shows a copy now, in a folio of its own.
    Copied(Pfn),
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Uses a page as a CPU does, by a walk through the software entries: sets the young bit, or young and dirty for a
    /// write, by compare-and-swap, and returns the frame. Where reclaim is just at work on the page this waits for it.
    ///
    /// The frame may be used until something takes the page away; this says nothing about when that is. See
    /// [`Vm::pin`]. Where hardware walks tables of its own the software entries are empty: there programs simply use
    /// the page, and [`Vm::settled`] is for the handler of their faults.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`], [`VmError::NoSpace`].
    pub fn touch(&self, space: SpaceId, vpn: Vpn, write: bool) -> Result<Pfn, VmError> {
        let space = self.space(space)?;
        match space.walk(vpn, write) {
            Ok((pfn, _)) => Ok(pfn),
            Err(Fault::OutOfSpace) => Err(Fault::OutOfSpace.into()),
            // Reclaim may have cleared the entry and be about to restore it. It does both under the table's lock.
            Err(_) => Ok(self.with_table(space, vpn, || space.walk(vpn, write))?.0),
        }
    }

    /// The entry of a page, not as reclaim may have it in the middle of its work: what a page-fault handler looks at,
    /// where hardware walks the tables by itself.
    ///
    /// Reclaim takes entries away and puts them back where it finds that somebody wrote; a CPU that uses the page in
    /// between faults. Both happen under the table's lock, for which this waits, so that what it returns is either what
    /// the CPU should have found (try again) or says that the page is really gone, or not for that access.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`].
    pub fn settled(&self, space: SpaceId, vpn: Vpn) -> Result<Entry, VmError> {
        let range = VpnRange::new(vpn, 1).unwrap_or_default();
        let space = self.space_with(space, range)?;
        // Not `with_table`: nothing is mapped here, so that what waits to be flushed can go on waiting.
        Ok(space.table(vpn).0.with_lock(|| self.mmu.relax(), || self.mmu.load(space.slots(vpn, 1))))
    }

    /// Makes a page's frame stay while a device or another address space uses it, whatever happens to the page:
    /// a reference to its folio. Give it back with [`Vm::unpin`]. Takes no lock where the page is mapped.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`] where it is not mapped, or `write` and it is not writable; [`VmError::NoSpace`],
    /// [`VmError::OutOfSpace`].
    pub fn pin(&self, frames: &impl FrameAllocator, space: SpaceId, vpn: Vpn, write: bool) -> Result<Pfn, VmError> {
        let found = self.space_with(space, VpnRange::new(vpn, 1).unwrap_or_default())?;
        loop {
            if let Some((head, _, entry)) = self.get_at(frames, found, vpn)? {
                let fault = if !entry.is_present() {
                    Fault::AccessDenied
                } else if write && !entry.is_writable() {
                    Fault::WriteProtected
                } else {
                    return Ok(entry.pfn());
                };
                self.put_refs(frames, head, 1)?;
                return Err(fault.into());
            }
            // As in `touch`.
            if !self.with_table(found, vpn, || self.mmu.load(found.slots(vpn, 1))).is_mapped() {
                return Err(Fault::NotMapped.into());
            }
        }
    }

    /// Gives back what [`Vm::pin`] took. `dirty` says that the frame was written to meanwhile, so that its folio must
    /// not be dropped.
    ///
    /// # Errors
    ///
    /// As [`Vm::put`].
    pub fn unpin(&self, frames: &impl FrameAllocator, pfn: Pfn, dirty: bool) -> Result<(), VmError> {
        let index = self.index(pfn)?;
        let head = self.folios.head(index).ok_or(VmError::NotAFolio { pfn })?;
        if dirty {
            // Before the reference goes: reclaim looks at the references first and at this then.
            self.folios.frame(head).set_flags(flag::DIRTY);
        }
        self.put_refs(frames, head, 1)
    }

    /// Resolves [`Fault::WriteProtected`] where the VMA lets its pages be written to: makes the entry writable where
    /// no other entry shows the frame; otherwise puts a copy in its place, a folio of one frame, which `copy` fills
    /// (from, to). The entry comes out young, dirty and soft-dirty.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`] where the VMA does not allow it or nothing is mapped; [`VmError::Occupied`] where somebody
    /// else mapped something at the same moment (the page is as they left it: try again); otherwise see [`VmError`].
    pub fn write_fault(
        &self,
        frames: &impl FrameAllocator,
        space: SpaceId,
        vpn: Vpn,
        copy: impl FnOnce(Pfn, Pfn),
    ) -> Result<WriteFault, VmError> {
        let found = self.space_with(space, VpnRange::new(vpn, 1).unwrap_or_default())?;
        let vma = found.vma(vpn, || self.mmu.relax()).ok_or(VmError::NoVma { vpn })?;
        if !vma.value.access.is_writable() {
            return Err(Fault::AccessDenied.into());
        }
        let (head, entry) = loop {
            if let Some((head, _, entry)) = self.get_at(frames, found, vpn)? {
                break (head, entry);
            }
            // As in `touch`: reclaim may be about to put it back.
            if !self.with_table(found, vpn, || self.mmu.load(found.slots(vpn, 1))).is_mapped() {
                return Err(Fault::NotMapped.into());
            }
        };
        let Ok(index) = self.index(entry.pfn()) else { return Err(VmError::NotAFolio { pfn: entry.pfn() }) };
        // The folio's lock keeps it from being shared with another address space meanwhile.
        self.folios.lock(index, || self.mmu.relax());
        let alone = self.folios.frame(index).page_maps.get() == 1;
        let reused = alone.then(|| self.make_writable(found, vpn, entry.pfn()));
        self.folios.frame(head).unlock();
        let result = match reused {
            Some(done) => Ok(done),
            None => self.copy_page(frames, space, vpn, entry.pfn(), copy),
        };
        self.put_refs(frames, head, 1)?;
        result
    }

    fn make_writable(&self, space: &Space<'m>, vpn: Vpn, pfn: Pfn) -> WriteFault {
        let slots = space.slots(vpn, 1);
        self.with_table(space, vpn, || {
            let mut entry = self.mmu.load(slots);
            loop {
                if !entry.is_present() || entry.pfn() != pfn || entry.is_writable() {
                    return WriteFault::Spurious;
                }
                let bits = Entry::HARDWARE.with(Entry::WRITABLE).with(Entry::SOFT_DIRTY);
                match self.mmu.replace(slots, entry, entry.with(bits)) {
                    Ok(()) => return WriteFault::Reused(pfn),
                    Err(now) => entry = now,
                }
            }
        })
    }

    fn copy_page(
        &self,
        frames: &impl FrameAllocator,
        space: SpaceId,
        vpn: Vpn,
        from: Pfn,
        copy: impl FnOnce(Pfn, Pfn),
    ) -> Result<WriteFault, VmError> {
        let folio: Folio = self.folio_alloc(frames, Order::ZERO)?;
        // The old frame is held by the caller's reference.
        copy(from, folio.0);
        let page = VpnRange { start: vpn, end: vpn.plus(1) };
        let result = self
            .unmap(frames, space, page)
            .and_then(|_| self.map_with(folio, (0, 1), space, vpn, Access::ReadWrite, Entry::HARDWARE))
            .map(|()| WriteFault::Copied(folio.0));
        self.put(frames, folio.0)?;
        result
    }
}
