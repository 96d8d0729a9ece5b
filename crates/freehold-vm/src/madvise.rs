//! `madvise_free`: the contents of these pages may be dropped, unless somebody writes to them
//! again.

use crate::folio::flag;
use crate::primitive::{Ordering, Plain};
use crate::rmap::Mapping;
use crate::stats::count;
use crate::{
    Entry, FlushBatch, FlushKind, Frames, Mmu, Space, SpaceId, Vm, VmError, Vpn, VpnRange,
};

/// What was done about one folio.
enum Advice {
    /// Its pages are done with.
    Done,
    /// The folio has been split: look again.
    Again,
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Makes the folios of a range lazyfree (`MADV_FREE`): their entries clean and old, the folios
    /// not swap-backed, on the list that [`Vm::reclaim`] works on. From the call's return on, what
    /// a page holds stays or is gone, until the page is written to; from then on it stays. Returns
    /// how many pages became lazyfree.
    ///
    /// A folio that lies in the range only in part is split first; it may lie across a page table's
    /// end. Left as they are: folios that are mapped elsewhere, too, or locked by somebody else;
    /// and those that would have to be split while pinned. One flush for up to
    /// [`BATCH`](crate::BATCH) ranges.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`]; [`VmError::Free`] as in [`Vm::put`].
    pub fn madvise_free(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        range: VpnRange,
    ) -> Result<u64, VmError> {
        let space = self.space_with(space, range)?;
        // AcqRel: as in `unmap`.
        space.changing.fetch_add(1, Ordering::AcqRel);
        let mut batch = FlushBatch::new();
        let mut pages = 0;
        let mut result = Ok(());
        let mut vpn = range.start;
        while vpn < range.end && result.is_ok() {
            match self.get_at(frames, space, vpn) {
                Ok(None) => vpn = vpn.plus(1),
                Ok(Some((head, i, entry))) => {
                    let frame = self.folios.frame(head);
                    let rest = u64::from(frame.pages() - i).min(range.end.get() - vpn.get());
                    let shown = self.shown_from(space, vpn, entry, rest);
                    let advice = if frame.try_lock() {
                        let advice = self.free_folio(
                            frames,
                            head,
                            i,
                            space,
                            (vpn, range),
                            &mut batch,
                            &mut pages,
                        );
                        frame.unlock();
                        advice
                    } else {
                        Ok(Advice::Done)
                    };
                    match advice {
                        Ok(Advice::Done) => vpn = vpn.plus(shown),
                        Ok(Advice::Again) => {}
                        Err(error) => result = Err(error),
                    }
                    let put = self.put_refs(frames, head, 1);
                    result = result.and(put);
                }
                Err(error) => result = Err(error),
            }
        }
        // Before it returns: a write from now on must look at the entry, and find it clean.
        self.flush(&mut batch);
        // AcqRel: as in `unmap`.
        space.changing.fetch_sub(1, Ordering::AcqRel);
        result.map(|()| pages)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one step of the loop above, in a function for its early returns"
    )]
    fn free_folio(
        &self,
        frames: &impl Frames,
        head: u32,
        i: u32,
        space: &Space<'m>,
        (vpn, range): (Vpn, VpnRange),
        batch: &mut FlushBatch,
        pages: &mut u64,
    ) -> Result<Advice, VmError> {
        let frame = self.folios.frame(head);
        let skip = Ok(Advice::Done);
        if self.folios.head(head) != Some(head) {
            return Ok(Advice::Again);
        }
        let base = Vpn::new(vpn.get().wrapping_sub(u64::from(i)));
        let Some(mapping) = self.mappings.find(&frame.rmap, space.id(), base, i) else {
            return skip;
        };
        if mapping
            .next_live(0)
            .is_some_and(|first| first < i && range.contains(mapping.page(first)))
        {
            // Dealt with at its first page; since then came another folio's.
            return skip;
        }
        // Whoever shows it elsewhere has not said that it may go.
        if mapping.live() != frame.maps.get() {
            return skip;
        }
        let mut live = 0;
        while let Some(next) = mapping.next_live(live) {
            if !range.contains(mapping.page(next)) {
                return match self.split_locked(frames, head) {
                    Ok(()) => Ok(Advice::Again),
                    Err(VmError::Free(error)) => Err(VmError::Free(error)),
                    Err(_) => skip,
                };
            }
            live = next + 1;
        }
        // First the folio's flag, then the entries' bits: what was written before this call may go
        // either way, what is written after it sets a bit that this does not clear.
        frame.clear_flags(flag::DIRTY | flag::SWAP_BACKED);
        *pages += self.clean_entries(space, head, mapping, batch);
        if frame.maps.get() > 0 {
            self.lru_add(head);
            count(&self.counters.lazyfree, 1);
        }
        skip
    }

    /// Clears the hardware's bits of the entries that show a folio at one mapping; how many entries
    /// those are.
    fn clean_entries(
        &self,
        space: &Space<'m>,
        head: u32,
        mapping: &Mapping,
        batch: &mut FlushBatch,
    ) -> u64 {
        let frame = self.folios.frame(head);
        let mut pages = 0;
        let mut at = 0;
        while let Some(first) = mapping.next_live(at) {
            let start = mapping.page(first);
            let end = space.table_end(start).min(mapping.page(frame.pages()));
            at = self.with_table(space, start, || {
                let mut at = first;
                // The runs of entries that really show this folio: another folio's dirty bit must
                // not be cleared.
                while let Some(first) =
                    mapping.next_live(at).filter(|first| mapping.page(*first) < end)
                {
                    let page = mapping.page(first);
                    let entry = self.mmu.load(space.slots(page, 1));
                    if !entry.is_mapped() || entry.pfn() != self.folios.pfn(head + first) {
                        at = first + 1;
                        continue;
                    }
                    let len = self.batch_len(space, page, entry, end.get() - page.get());
                    let slots = space.slots(page, len);
                    if self.mmu.clear_bits(slots, Entry::HARDWARE) != Entry::NONE {
                        self.add_flush(batch, slots.flush(FlushKind::Changed));
                    }
                    pages += len;
                    at = first + len as u32;
                }
                at.max(first + (end.get() - start.get()) as u32)
            });
        }
        pages
    }
}
