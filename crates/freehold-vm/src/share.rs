//! Folios shared by two address spaces, as after `fork`: read-only in both, until whoever writes
//! first gets a copy.

use crate::primitive::{Ordering, Plain, fence};
use crate::{
    Access, Entry, Flush, FlushBatch, FlushKind, Frames, Mmu, Space, SpaceId, Vm, VmError, Vpn,
    VpnRange,
};

impl<'m, M: Mmu> Vm<'m, M> {
    /// Shows what is mapped in a range at the pages from `at` on in another address space, too, as
    /// `fork` does: both are read-only from now on, and whoever writes first gets a copy
    /// ([`Vm::write_fault`]). Dirty bits are inherited.
    ///
    /// # Errors
    ///
    /// [`VmError::Busy`] where a folio is pinned: whoever pinned it would keep seeing what only one of the two will see.
    /// Otherwise see [`VmError`]. What was shared before stays shared.
    pub fn share(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        range: VpnRange,
        to: SpaceId,
        at: Vpn,
    ) -> Result<(), VmError> {
        let from = self.space_with(space, range)?;
        self.space_with(to, VpnRange::new(at, range.len()).unwrap_or_default())?;
        let mut batch = FlushBatch::new();
        let mut result = Ok(());
        let mut vpn = range.start;
        // AcqRel: as in `unmap`.
        from.changing.fetch_add(1, Ordering::AcqRel);
        while vpn < range.end && result.is_ok() {
            match self.get_settled(frames, from, vpn) {
                Ok(None) => vpn = vpn.plus(1),
                Ok(Some((head, first, entry))) => {
                    let locked = self.folios.lock(head + first, || self.mmu.relax());
                    let most = (self.folios.frame(locked).pages() - (head + first - locked)).into();
                    let most = (range.end.get() - vpn.get()).min(most);
                    let most = most.min(from.table_end(vpn).get() - vpn.get());
                    let there = at.plus(vpn.get() - range.start.get());
                    result = self
                        .share_locked(locked, from, (vpn, entry, most), to, there, &mut batch)
                        .map(|pages| {
                            vpn = vpn.plus(pages);
                        });
                    self.folios.frame(locked).unlock();
                    let put = self.put_refs(frames, locked, 1);
                    result = result.and(put);
                }
                Err(error) => result = Err(error),
            }
        }
        self.flush(&mut batch);
        // AcqRel: as in `unmap`.
        from.changing.fetch_sub(1, Ordering::AcqRel);
        result
    }

    fn share_locked(
        &self,
        head: u32,
        from: &Space<'m>,
        (vpn, entry, most): (Vpn, Entry, u64),
        to: SpaceId,
        at: Vpn,
        batch: &mut FlushBatch,
    ) -> Result<u64, VmError> {
        let frame = self.folios.frame(head);
        // This call's own reference is the one above the mappings. Acquire: what was written
        // through a pin that is not counted any more has been written.
        let pinned = || frame.refs.load(Ordering::Acquire) != frame.maps.get() + 1;
        let busy = VmError::Busy { pfn: self.folios.pfn(head) };
        if pinned() {
            // Found out before anything is changed, as it mostly is.
            return Err(busy);
        }
        let shared = self.with_table(from, vpn, || {
            let now = self.mmu.load(from.slots(vpn, 1));
            if !now.is_mapped() || now.pfn() != entry.pfn() {
                return Ok(None);
            }
            let len = self.batch_len(from, vpn, now, most);
            let slots = from.slots(vpn, len);
            if now.is_writable() {
                self.mmu.clear_bits(slots, Entry::WRITABLE);
                // SeqCst fence: pairs with the one in `Vm::get_at`. Here an entry is
                // write-protected and then the references are counted; there a reference is taken
                // and then the entry is looked at. At least one of the two sees the other.
                fence(Ordering::SeqCst);
                if pinned() {
                    (0..len).for_each(|i| self.set_writable(from, vpn.plus(i)));
                    return Err(busy);
                }
                self.add_flush(
                    batch,
                    Flush { space: from.id(), range: slots.range(), kind: FlushKind::Changed },
                );
            }
            let all = (0..len).map(|i| self.mmu.load(from.slots(vpn.plus(i), 1)));
            Ok(Some((
                len,
                now,
                all.fold(Entry::NONE, |bits, entry| bits.with(entry.only(Entry::DIRTY))),
            )))
        })?;
        // Changed under our eyes: look again.
        let Some((len, now, bits)) = shared else { return Ok(0) };
        let Some(index) = self.folios.index(now.pfn()) else { return Ok(len) };
        let access = if now.is_present() { Access::Read } else { Access::None };
        self.map_locked(head, (index - head, len as u32), to, at, access, bits)?;
        Ok(len)
    }

    /// Gives an entry back what it has just lost. Nothing has been flushed, nor need be.
    fn set_writable(&self, space: &Space<'m>, vpn: Vpn) {
        let slots = space.slots(vpn, 1);
        let mut entry = self.mmu.load(slots);
        // Against hardware, which may be setting bits.
        while let Err(now) = self.mmu.replace(slots, entry, entry.with(Entry::WRITABLE)) {
            entry = now;
        }
    }
}
