//! Write faults: what happens when somebody writes to a page that is write-protected, and may be
//! written to.
//!
//! ```text
//!   nobody else shows the frame     its entry becomes writable
//!   somebody does                   another frame          the page
//!                                   copy                   entry: old frame, read-only
//!                                   counts, reverse map    |  table locked: VMA, entry still as they were?
//!                                                          |  entry taken, flushed
//!                                                          v
//!                                                          entry: the copy, writable
//! ```
//!
//! The old entry stays until nothing can fail any more, so that a fault that cannot be resolved
//! leaves the page as it was. Then it is exchanged under the table's lock, so that nobody who waits
//! for that finds the page gone. Two threads that fault on one page make one copy: the second finds
//! that the entry does not show the old frame any more.
//!
//! The old frame's folio is locked from before the copying until after the exchange. Meanwhile
//! nobody makes the page writable, so that what has been copied is what the page holds.

use freehold::{Order, Pfn};

use crate::folio::flag;
use crate::primitive::{Ordering, Plain};
use crate::stats::count;
use crate::{
    Access, Entry, Fault, Flush, FlushKind, Folio, Frames, Mmu, Space, SpaceId, Vm, VmError, Vpn,
    VpnRange,
};

/// How a write fault was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFault {
    /// The page is not write-protected, or does not show the frame any more: somebody else was
    /// first. Try again.
    Spurious,
    /// Nobody else shows the frame: it is writable now.
    Reused(Pfn),
    /// The page shows a copy now, in a folio of its own.
    Copied(Pfn),
}

/// What a fresh entry gets that a write was let through.
const WRITTEN: Entry = Entry::HARDWARE.with(Entry::WRITABLE).with(Entry::SOFT_DIRTY);

impl<'m, M: Mmu> Vm<'m, M> {
    /// Resolves [`Fault::WriteProtected`] where the VMA lets its pages be written to: makes the
    /// entry writable where no other entry shows the frame; otherwise puts a copy in its place, a
    /// folio of one frame, which `copy` fills (from, to). The entry comes out young, dirty and
    /// soft-dirty.
    ///
    /// `copy` is called with the old frame's folio locked, so it must neither call back nor wait
    /// for a caller that does. A copy takes one mapping record, which must be there before the old one's is given
    /// back.
    ///
    /// # Errors
    ///
    /// [`VmError::Fault`] where the VMA does not allow it or nothing is mapped; otherwise see [`VmError`]. The page is as
    /// it was then.
    pub fn write_fault(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        vpn: Vpn,
        copy: impl FnOnce(Pfn, Pfn),
    ) -> Result<WriteFault, VmError> {
        let page = VpnRange::new(vpn, 1).unwrap_or_default();
        let found = self.space_with(space, page)?;
        self.allowed(found, page, Access::ReadWrite)?;
        let Some((head, _, entry)) = self.get_settled(frames, found, vpn)? else {
            return Err(Fault::NotMapped.into());
        };
        let result = self.resolve(frames, found, page, entry.pfn(), copy);
        self.put_refs(frames, head, 1)?;
        result
    }

    /// The caller has a reference to the folio of `pfn`, so that nobody can split it.
    fn resolve(
        &self,
        frames: &impl Frames,
        space: &Space<'m>,
        page: VpnRange,
        pfn: Pfn,
        copy: impl FnOnce(Pfn, Pfn),
    ) -> Result<WriteFault, VmError> {
        let index = self.index(pfn)?;
        // The folio's lock keeps it from being shared with another address space meanwhile.
        let alone = || self.folios.frame(index).page_maps.get() == 1;
        let head = self.folios.lock(index, || self.mmu.relax());
        let reused = alone().then(|| self.make_writable(space, page, pfn));
        self.folios.frame(head).unlock();
        if let Some(reused) = reused {
            return reused;
        }
        // Without the lock: the allocator may take its time.
        let folio = self.folio_alloc(frames, Order::ZERO)?;
        let head = self.folios.lock(index, || self.mmu.relax());
        let result = if alone() {
            self.make_writable(space, page, pfn)
        } else {
            self.copy_page(space, page, (head, index - head), folio, copy)
        };
        self.folios.frame(head).unlock();
        // Frees it where no page shows it.
        self.put(frames, folio.0)?;
        result
    }

    /// Whether a page shows a frame and is write-protected, and may be written to. Under the
    /// table's lock: who takes a right away changes the VMA first, and then comes to this table.
    fn write_protected(
        &self,
        space: &Space<'m>,
        page: VpnRange,
        pfn: Pfn,
    ) -> Result<bool, VmError> {
        self.allowed(space, page, Access::ReadWrite)?;
        let entry = self.mmu.load(space.slots(page.start, 1));
        Ok(entry.is_present() && entry.pfn() == pfn && !entry.is_writable())
    }

    fn make_writable(
        &self,
        space: &Space<'m>,
        page: VpnRange,
        pfn: Pfn,
    ) -> Result<WriteFault, VmError> {
        let slots = space.slots(page.start, 1);
        self.with_table(space, page.start, || {
            // Again and again, against hardware, which may be setting bits.
            while self.write_protected(space, page, pfn)? {
                let entry = self.mmu.load(slots);
                if self.mmu.replace(slots, entry, entry.with(WRITTEN)).is_ok() {
                    return Ok(WriteFault::Reused(pfn));
                }
            }
            Ok(WriteFault::Spurious)
        })
    }

    /// Fills a fresh folio and puts it in the place of frame number `i` of a folio that the caller
    /// has locked and has a reference to.
    fn copy_page(
        &self,
        space: &Space<'m>,
        page: VpnRange,
        (head, i): (u32, u32),
        folio: Folio,
        copy: impl FnOnce(Pfn, Pfn),
    ) -> Result<WriteFault, VmError> {
        let (vpn, from) = (page.start, self.folios.pfn(head + i));
        if !self.with_table(space, vpn, || self.write_protected(space, page, from))? {
            return Ok(WriteFault::Spurious);
        }
        // Acquire: as in `Space::needs_flush`. The entry was found protected before.
        if space.changing.load(Ordering::Acquire) > 0 {
            // Who protected it may not have flushed yet, and a CPU go on writing to the old frame.
            self.flush_changed(space, page);
        }
        copy(from, folio.0);
        let new = self.index(folio.0)?;
        // Nobody knows it yet, but they will before its counts are up to date.
        self.folios.lock(new, || self.mmu.relax());
        let result = self.count_in(new, space.id(), vpn, (0, 1)).and_then(|()| {
            let result =
                self.with_table(space, vpn, || self.exchange(space, page, (head, from), folio.0));
            let (gone, base, i) = match result {
                Ok(WriteFault::Copied(_)) => {
                    (head, Vpn::new(vpn.get().wrapping_sub(u64::from(i))), i)
                }
                _ => (new, vpn, 0),
            };
            self.count_out(gone, space.id(), base, (i, 1));
            // Not the last: the callers have one to each.
            let _ = self.folios.frame(gone).drop_refs(1);
            result
        });
        self.folios.frame(new).unlock();
        result
    }

    /// Under the table's lock, and that of the folio at `head`.
    fn exchange(
        &self,
        space: &Space<'m>,
        page: VpnRange,
        (head, from): (u32, Pfn),
        to: Pfn,
    ) -> Result<WriteFault, VmError> {
        if !self.write_protected(space, page, from)? {
            return Ok(WriteFault::Spurious);
        }
        let slots = space.slots(page.start, 1);
        if self.mmu.get_and_clear(slots).is_dirty() {
            self.folios.frame(head).set_flags(flag::DIRTY);
        }
        // Before anybody writes to the copy: nobody may go on reading the old frame then.
        self.flush_changed(space, page);
        self.mmu.restore(slots, Entry::new(to, Access::ReadWrite).with(WRITTEN));
        Ok(WriteFault::Copied(to))
    }

    fn flush_changed(&self, space: &Space<'m>, range: VpnRange) {
        self.mmu.flush(&[Flush { space: space.id(), range, kind: FlushKind::Changed }]);
        count(&self.counters.flushes, 1);
    }
}
