//! Using what is mapped: touching pages as a CPU does, pinning them for I/O.

use freehold::Pfn;

use crate::folio::flag;
use crate::{Entry, Fault, Frames, Mmu, SpaceId, Vm, VmError, Vpn, VpnRange};

impl<'m, M: Mmu> Vm<'m, M> {
    /// Uses a page as a CPU does, by a walk through the software entries: sets the young bit, or
    /// young and dirty for a write, by compare-and-swap, and returns the frame. Where reclaim is
    /// just at work on the page this waits for it.
    ///
    /// The frame may be used until something takes the page away; this says nothing about when that
    /// is. See [`Vm::pin`]. Where hardware walks tables of its own the software entries are empty:
    /// there programs simply use the page, and [`Vm::settled`] is for the handler of their faults.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`], [`VmError::NoSpace`].
    pub fn touch(&self, space: SpaceId, vpn: Vpn, write: bool) -> Result<Pfn, VmError> {
        let space = self.space(space)?;
        match space.walk(vpn, write) {
            Ok((pfn, _)) => Ok(pfn),
            Err(Fault::OutOfSpace) => Err(Fault::OutOfSpace.into()),
            // Reclaim may have cleared the entry and be about to restore it. It does both under the
            // table's lock.
            Err(_) => Ok(self.with_table(space, vpn, || space.walk(vpn, write))?.0),
        }
    }

    /// The entry of a page, not as reclaim may have it in the middle of its work: what a page-fault
    /// handler looks at, where hardware walks the tables by itself.
    ///
    /// Reclaim takes entries away and puts them back where it finds that somebody wrote. A CPU that
    /// uses the page in between faults. Reclaim has the table's lock, for which this waits, so that
    /// what it returns is either what the CPU should have found (try again) or says that the page
    /// is really gone, or not for that access.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`].
    pub fn settled(&self, space: SpaceId, vpn: Vpn) -> Result<Entry, VmError> {
        Ok(self.settled_in(self.space_with(space, VpnRange::new(vpn, 1).unwrap_or_default())?, vpn))
    }

    /// Makes a page's frame stay while a device or another address space uses it, whatever happens
    /// to the page: a reference to its folio. Give it back with [`Vm::unpin`]. Takes no lock where
    /// the page is mapped.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`] where it is not mapped, or `write` and it is not writable;
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`].
    pub fn pin(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        vpn: Vpn,
        write: bool,
    ) -> Result<Pfn, VmError> {
        let found = self.space_with(space, VpnRange::new(vpn, 1).unwrap_or_default())?;
        let (head, _, entry) = loop {
            match self.get_at(frames, found, vpn)? {
                Some(got) => break got,
                None if !self.settled_in(found, vpn).is_mapped() => {
                    return Err(Fault::NotMapped.into());
                }
                // Somebody has the entry in hand, and may put it back.
                None => {}
            }
        };
        let fault = if !entry.is_present() {
            Fault::AccessDenied
        } else if write && !entry.is_writable() {
            Fault::WriteProtected
        } else {
            return Ok(entry.pfn());
        };
        self.put_refs(frames, head, 1)?;
        Err(fault.into())
    }

    /// Gives back what [`Vm::pin`] took. `dirty` says that the frame was written to meanwhile, so
    /// that its folio must not be dropped.
    ///
    /// # Errors
    ///
    /// As [`Vm::put`].
    pub fn unpin(&self, frames: &impl Frames, pfn: Pfn, dirty: bool) -> Result<(), VmError> {
        let index = self.index(pfn)?;
        let head = self.folios.head(index).ok_or(VmError::NotAFolio { pfn })?;
        if dirty {
            // Before the reference goes: reclaim looks at the references first and at this then.
            self.folios.frame(head).set_flags(flag::DIRTY);
        }
        self.put_refs(frames, head, 1)
    }
}
