//! Putting folios into address spaces and taking them out: VMAs, map, unmap.
//!
//! Unmapping goes as the kernel's `mmu_gather` does: entries are cleared under their table's lock
//! and noted; then, with no table locked, the folios' counts are brought up to date; then one
//! flush; then the references go, and with the last ones the folios. What of a folio is cleared but
//! not yet taken off its counts still holds references, so nobody can take the folio for unused
//! meanwhile.

use freehold::{Order, Pfn};

use crate::folio::flag;
use crate::interval::{InsertError, Interval};
use crate::primitive::{Ordering, Plain};
use crate::rmap::NoMapping;
use crate::{
    Access, Entry, FlushBatch, FlushKind, Folio, Frames, Mmu, Space, SpaceId, Vm, VmError, Vma,
    Vpn, VpnRange,
};

/// Pieces of folios unmapped between two flushes.
const GATHER: usize = 64;

/// Entries that were cleared together.
#[derive(Clone, Copy)]
struct Gathered {
    vpn: Vpn,
    pfn: Pfn,
    len: u32,
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Makes a VMA: pages that folios may be mapped at.
    ///
    /// # Errors
    ///
    /// [`VmError::VmaOverlap`], [`VmError::NoNodes`], [`VmError::OutOfSpace`],
    /// [`VmError::NoSpace`].
    pub fn add_vma(&self, space: SpaceId, range: VpnRange, vma: Vma) -> Result<(), VmError> {
        let space = self.space_with(space, range)?;
        let inserted = space
            .vmas
            .with(|| self.mmu.relax(), |vmas| vmas.insert(range.start.get(), range.end.get(), vma));
        inserted.map_err(|error| match error {
            InsertError::NoNode => VmError::NoNodes,
            InsertError::Overlap => VmError::VmaOverlap { range },
        })
    }

    /// Replaces what VMAs there are in a range by others made of them, or nothing; those at the
    /// ends are split.
    pub(crate) fn change_vmas(
        &self,
        space: &Space<'m>,
        range: VpnRange,
        f: impl Fn(Vma) -> Option<Vma>,
    ) -> Result<(), VmError> {
        let (start, end) = (range.start.get(), range.end.get());
        // What becomes of a VMA: what lies before the range, in it, behind it.
        let pieces = |old: Interval<Vma>| {
            let (from, to) = (old.start.max(start), old.end.min(end));
            let new = f(old.value);
            let all = if new == Some(old.value) {
                [(old.start, old.end, new), (0, 0, None), (0, 0, None)]
            } else {
                [
                    (old.start, from, Some(old.value)),
                    (from, to, new),
                    (to, old.end, Some(old.value)),
                ]
            };
            all.into_iter().filter_map(|(from, to, value)| {
                value.filter(|_| from < to).map(|value| (from, to, value))
            })
        };
        space.vmas.with(
            || self.mmu.relax(),
            |vmas| {
                // Before anything changes: a node for each piece that there is more, at any time.
                let (mut at, mut more, mut most) = (start, 0, 0);
                while let Some(old) = vmas.next_from(at).filter(|old| old.start < end) {
                    more += pieces(old).count() as isize - 1;
                    most = most.max(more);
                    at = old.end;
                }
                if (vmas.room() as isize) < most {
                    return Err(VmError::NoNodes);
                }
                let mut at = start;
                while let Some(old) = vmas.next_from(at).filter(|old| old.start < end) {
                    vmas.remove(old.start);
                    for (from, to, value) in pieces(old) {
                        vmas.insert(from, to, value).map_err(|_| VmError::NoNodes)?;
                    }
                    at = old.end;
                }
                // What is alike and adjoins is one, so that batches of entries do not end where
                // nothing does.
                let mut at = start.saturating_sub(1);
                while let Some(low) = vmas.next_from(at).filter(|low| low.end <= end) {
                    at = low.end;
                    let Some(high) = vmas.get(low.end).filter(|high| high.value == low.value)
                    else {
                        continue;
                    };
                    vmas.remove(low.start);
                    vmas.remove(high.start);
                    vmas.insert(low.start, high.end, low.value).map_err(|_| VmError::NoNodes)?;
                    at = low.start;
                }
                Ok(())
            },
        )
    }

    /// Unmaps a range and takes its VMAs away (`munmap`).
    ///
    /// # Errors
    ///
    /// As [`Vm::unmap`], and [`VmError::NoNodes`] where a VMA would have to be split.
    pub fn remove_vma(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        range: VpnRange,
    ) -> Result<(), VmError> {
        self.change_vmas(self.space_with(space, range)?, range, |_| None)?;
        self.unmap(frames, space, range).map(|_| ())
    }

    /// Shows `pages` frames of a folio, from its frame number `first` on, at the pages from `at`
    /// on. The caller must have a reference to the folio. Entries come out clean and old; writable
    /// where `access` and the VMA say so.
    ///
    /// One [`Mmu::map_entries`] for each page table.
    ///
    /// # Errors
    ///
    /// [`VmError::Busy`] where a frame of a lazyfree folio that is mapped already would become
    /// writable in a second place: its clean entry here could be dropped while it is written to
    /// there. Otherwise see [`VmError`]. Nothing has changed then.
    pub fn map(
        &self,
        folio: Folio,
        (first, pages): (u32, u32),
        space: SpaceId,
        at: Vpn,
        access: Access,
    ) -> Result<(), VmError> {
        let index = self.index(folio.0)?;
        if self.folios.head(index) != Some(index) {
            return Err(VmError::NotAFolio { pfn: folio.0 });
        }
        let head = self.folios.lock(index, || self.mmu.relax());
        let result = self.map_locked(head, (first, pages), space, at, access);
        self.folios.frame(head).unlock();
        result
    }

    /// [`Vm::map`] of a folio that the caller has locked.
    fn map_locked(
        &self,
        head: u32,
        (first, pages): (u32, u32),
        space: SpaceId,
        at: Vpn,
        access: Access,
    ) -> Result<(), VmError> {
        let frame = self.folios.frame(head);
        let range = VpnRange::new(at, u64::from(pages)).unwrap_or_default();
        let space = self.space_with(space, range)?;
        if first.checked_add(pages).is_none_or(|end| end > frame.pages()) {
            return Err(VmError::OutOfFolio { pages: frame.pages() });
        }
        let mut mine = (first..first + pages).map(|i| self.folios.frame(head + i));
        if access.is_writable()
            && frame.is_lazyfree()
            && mine.any(|frame| frame.page_maps.get() > 0)
        {
            return Err(VmError::Busy { pfn: self.folios.pfn(head) });
        }
        self.allowed(space, range, access)?;
        let base = Vpn::new(at.get().wrapping_sub(u64::from(first)));
        // References and counts come first: whoever finds an entry finds a folio that knows of it.
        self.count_in(head, space.id(), base, (first, pages))?;
        let mut done = 0;
        let result = loop {
            if done == pages {
                return Ok(());
            }
            let vpn = at.plus(u64::from(done));
            let len = (space.table_end(vpn).get() - vpn.get()).min(u64::from(pages - done));
            let slots = space.slots(vpn, len);
            let entry = Entry::new(self.folios.pfn(head + first + done), access);
            let pmd = self.pmd_mappings.get() && done == 0 && len == Order::PAGEBLOCK.frames();
            let entry = if pmd { entry.with(Entry::HUGE) } else { entry };
            let mapped = self.with_table(space, vpn, || {
                // Once more: who takes a VMA or a right away does that first, and then comes to
                // this table. Either that is seen here, or what is mapped here is seen there.
                self.allowed(space, slots.range(), access)?;
                for i in 0..len {
                    if self.mmu.load(space.slots(vpn.plus(i), 1)).is_mapped() {
                        return Err(VmError::Occupied { vpn: vpn.plus(i) });
                    }
                }
                self.mmu.map_entries(slots, entry).map_err(VmError::Map)
            });
            match mapped {
                Ok(()) => done += len as u32,
                Err(error) => break Err(error),
            }
        };
        self.unmap_locked(head, space, (at, first), done);
        // What was never mapped at all.
        let rest = pages - done;
        self.count_out(head, space.id(), base, (first + done, rest));
        // Not the last: the caller has one.
        let _ = frame.drop_refs(rest);
        result
    }

    /// Undoes the part of [`Vm::map_locked`] that was done. Whatever others have unmapped since is
    /// theirs.
    fn unmap_locked(&self, head: u32, space: &Space<'m>, (at, first): (Vpn, u32), done: u32) {
        let frame = self.folios.frame(head);
        let base = Vpn::new(at.get().wrapping_sub(u64::from(first)));
        let mut batch = FlushBatch::new();
        let mut removed = 0;
        for i in 0..done {
            let vpn = at.plus(u64::from(i));
            let slots = space.slots(vpn, 1);
            let ours = self.with_table(space, vpn, || {
                let entry = self.mmu.load(slots);
                let ours = entry.is_mapped() && entry.pfn() == self.folios.pfn(head + first + i);
                if ours && self.mmu.get_and_clear(slots).is_dirty() {
                    frame.set_flags(flag::DIRTY);
                }
                ours
            });
            if ours {
                self.add_flush(&mut batch, slots.flush(FlushKind::Unmapped));
                self.count_out(head, space.id(), base, (first + i, 1));
                removed += 1;
            }
        }
        self.flush(&mut batch);
        // Not the last: the caller has one.
        let _ = frame.drop_refs(removed);
    }

    /// Whether VMAs cover a range and let it be used so.
    pub(crate) fn allowed(
        &self,
        space: &Space<'m>,
        range: VpnRange,
        access: Access,
    ) -> Result<(), VmError> {
        let mut vpn = range.start;
        while vpn < range.end {
            let vma = space.vma(vpn, || self.mmu.relax()).ok_or(VmError::NoVma { vpn })?;
            if access > vma.value.access {
                return Err(crate::Fault::AccessDenied.into());
            }
            vpn = Vpn::new(vma.end);
        }
        Ok(())
    }

    /// Counts entries that are about to show frames of a folio, with their references and in its
    /// reverse map. Under the folio lock, for someone with a reference.
    fn count_in(
        &self,
        head: u32,
        space: SpaceId,
        base: Vpn,
        part: (u32, u32),
    ) -> Result<(), VmError> {
        let frame = self.folios.frame(head);
        let noted = self.mappings.add(&frame.rmap, space, base, part, || self.mmu.relax());
        noted.map_err(|NoMapping| VmError::NoNodes)?;
        self.folios.add_maps(head, part.0, part.1);
        frame.get(part.1);
        Ok(())
    }

    /// Takes entries that are gone, or were never made, off a folio's counts and its reverse map;
    /// their references are the caller's then. Returns how many frames no entry shows any more.
    /// Under the folio lock.
    pub(crate) fn count_out(&self, head: u32, space: SpaceId, base: Vpn, part: (u32, u32)) -> u32 {
        let (first, n) = part;
        self.mappings.remove(&self.folios.frame(head).rmap, space, base, part, || self.mmu.relax());
        let gone = self.folios.remove_page_maps(head, first, n);
        self.folios.update_map_counts(head, n, gone);
        gone
    }

    /// A fresh folio, mapped as a whole, with the entries' references only.
    ///
    /// # Errors
    ///
    /// See [`VmError`]; nothing has changed then.
    pub fn map_new(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        at: Vpn,
        order: Order,
        access: Access,
    ) -> Result<Folio, VmError> {
        let folio = self.folio_alloc(frames, order)?;
        let result = self.map(folio, (0, order.frames() as u32), space, at, access);
        self.put(frames, folio.0)?;
        result.map(|()| folio)
    }

    /// Takes away whatever is mapped in a range; frees what nobody else uses. Returns how many
    /// pages there were.
    ///
    /// One flush for every 64 pieces of folios.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`], [`VmError::OutOfSpace`]; [`VmError::Free`] where somebody else has
    /// freed the frames of a folio.
    pub fn unmap(
        &self,
        frames: &impl Frames,
        space: SpaceId,
        range: VpnRange,
    ) -> Result<u64, VmError> {
        let space = self.space_with(space, range)?;
        // AcqRel: comes before the entries are changed, for whoever finds one changed; see
        // `Space::needs_flush`.
        space.changing.fetch_add(1, Ordering::AcqRel);
        let mut result = Ok(0);
        let mut vpn = range.start;
        while vpn < range.end {
            let mut gathered = [Gathered { vpn, pfn: Pfn::new(0), len: 0 }; GATHER];
            let mut n = 0;
            let mut batch = FlushBatch::new();
            while vpn < range.end && n < GATHER {
                let end = space.table_end(vpn).min(range.end);
                vpn = self.with_table(space, vpn, || {
                    self.clear_table(space, vpn, end, &mut gathered, &mut n)
                });
            }
            for piece in &gathered[..n] {
                let slots = space.slots(piece.vpn, piece.len.into());
                // As many ranges fit as pieces.
                let _ = batch.add(slots.flush(FlushKind::Unmapped));
                self.forget(space, piece);
            }
            self.flush(&mut batch);
            for piece in &gathered[..n] {
                let put = self.put_piece(frames, piece);
                result = result.and_then(|pages| put.map(|()| pages + u64::from(piece.len)));
            }
        }
        // AcqRel: comes after the flush.
        space.changing.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Clears the entries of `vpn..end`, within one table that is locked, until there is no room to
    /// note more; where it stopped.
    fn clear_table(
        &self,
        space: &Space<'m>,
        mut vpn: Vpn,
        end: Vpn,
        gathered: &mut [Gathered; GATHER],
        n: &mut usize,
    ) -> Vpn {
        while vpn < end && *n < GATHER {
            let entry = self.mmu.load(space.slots(vpn, 1));
            if !entry.is_mapped() {
                vpn = vpn.plus(1);
                continue;
            }
            let len = self.batch_len(space, vpn, entry, end.get() - vpn.get());
            let merged = self.mmu.get_and_clear(space.slots(vpn, len));
            if merged.is_dirty() {
                self.note_dirty(entry.pfn(), len as u32);
            }
            gathered[*n] = Gathered { vpn, pfn: entry.pfn(), len: len as u32 };
            *n += 1;
            vpn = vpn.plus(len);
        }
        vpn
    }

    /// Notes what entries that have just been cleared say, in their folios. Still under the table's
    /// lock: reclaim, which may be about to decide about another entry of the frame, passes that
    /// lock and then looks at the flag.
    fn note_dirty(&self, pfn: Pfn, len: u32) {
        let Some(start) = self.folios.index(pfn) else { return };
        let mut i = 0;
        while i < len {
            // The entries' references are still there, so there is a folio.
            let head = self.folios.set_dirty(start + i, || self.mmu.relax());
            i = head + self.folios.frame(head).pages() - start;
        }
    }

    /// How many entries from a page on go together with its own, at most `limit`, which must not
    /// pass the table's end.
    pub(crate) fn batch_len(&self, space: &Space<'m>, vpn: Vpn, entry: Entry, limit: u64) -> u64 {
        let alike = |i: &u64| entry.batches_with(self.mmu.load(space.slots(vpn.plus(*i), 1)), *i);
        1 + (1..limit).take_while(alike).count() as u64
    }

    /// Takes cleared entries off the counts of their folios.
    fn forget(&self, space: &Space<'m>, piece: &Gathered) {
        let Some(start) = self.folios.index(piece.pfn) else { return };
        let mut i = 0;
        while i < piece.len {
            // The entries' references are still there, so there is a folio; it may have been split
            // meanwhile.
            let head = self.folios.lock(start + i, || self.mmu.relax());
            let frame = self.folios.frame(head);
            let first = start + i - head;
            let n = (frame.pages() - first).min(piece.len - i);
            let base = Vpn::new((piece.vpn.get() + u64::from(i)).wrapping_sub(u64::from(first)));
            let gone = self.count_out(head, space.id(), base, (first, n));
            if gone > 0 && frame.mapped_pages.get() > 0 {
                self.note_partly_mapped(head);
            }
            frame.unlock();
            i += n;
        }
    }

    fn put_piece(&self, frames: &impl Frames, piece: &Gathered) -> Result<(), VmError> {
        let start = self.index(piece.pfn)?;
        let mut result = Ok(());
        let mut i = 0;
        while i < piece.len {
            let pfn = self.folios.pfn(start + i);
            // No lock: a folio with more references than mappings and one cannot be split.
            let head = self.folios.head(start + i).ok_or(VmError::NotAFolio { pfn })?;
            let n = (head + self.folios.frame(head).pages() - (start + i)).min(piece.len - i);
            result = result.and(self.put_refs(frames, head, n));
            i += n;
        }
        result
    }
}
