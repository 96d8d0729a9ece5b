//! Folios, address spaces and what belongs to them together, and a folio's life from allocation to
//! its last reference.

use freehold::{FrameRange, FreeError, Migratetype, Order, Pfn, Request};

use crate::folio::{DeferredSplit, Folios, Frame, List, Lru, flag};
use crate::frames::free_what_can_be;
use crate::lock::Spin;
use crate::primitive::{AtomicBool, AtomicU32, Ordering, Plain, fence};
use crate::rmap::{Mapping, Mappings};
use crate::stats::{Counters, count};
use crate::{BATCH, Flush, FlushBatch, Frames, Mmu, Space, SpaceId, VmError, VmStats, VpnRange};

/// A folio, named by its first frame. A name only: it does not keep the folio alive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Folio(pub(crate) Pfn);

impl Folio {
    /// The first frame.
    #[must_use]
    pub const fn pfn(self) -> Pfn {
        self.0
    }
}

/// What a folio is like at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FolioState {
    /// The folio.
    pub folio: Folio,
    /// Its size.
    pub order: Order,
    /// References: one for each mapped entry, and those of everybody else who uses it.
    pub references: u32,
    /// Entries that show one of its frames.
    pub maps: u32,
    /// Frames that at least one entry shows.
    pub mapped_pages: u32,
    /// Written to in a way that no entry tells.
    pub dirty: bool,
    /// Its contents matter whether it is written to or not.
    pub swap_backed: bool,
    /// Its contents may be dropped unless it is written to: not swap-backed.
    pub lazyfree: bool,
    /// On the deferred-split queue.
    pub deferred: bool,
}

/// How reclaim takes a folio's entries away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnmapPath {
    /// One entry at a time, the flush put off and shared with other folios: the baseline, since
    /// Linux until 6.14 did so wherever it paid (`should_defer_flush`). The folio is seen partly
    /// mapped from its first page to its last but one, and so is queued for a split each time.
    PageByPage,
    /// All or nothing, as posted and as in Linux 6.15: all entries of a folio at once where one
    /// table and one VMA have them all alike, otherwise one by one.
    Whole,
    /// As many entries at a time as the page table, the VMA and the folio have alike. Linux 6.16
    /// and later.
    Batched,
}

impl UnmapPath {
    /// All of them, from the oldest on.
    pub const ALL: [Self; 3] = [Self::PageByPage, Self::Whole, Self::Batched];
}

/// Folios in address spaces. Any number of threads may call.
pub struct Vm<'m, M> {
    pub(crate) mmu: M,
    pub(crate) folios: Folios<'m>,
    pub(crate) mappings: Mappings<'m>,
    spaces: &'m [Space<'m>],
    pub(crate) lru: Spin<List<Lru>>,
    pub(crate) deferred: Spin<List<DeferredSplit>>,
    /// What reclaim has cleared and not flushed yet. Anybody may flush it.
    pending: Spin<FlushBatch>,
    /// The place of an [`UnmapPath`] among all of them.
    path: AtomicU32,
    pub(crate) pmd_mappings: AtomicBool,
    pub(crate) counters: Counters,
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Manages folios of the frames from `first` on, as many as there are records in `frames`, in
    /// these address spaces.
    ///
    /// Every folio takes one of `mappings` for each place where it is mapped; splitting one takes a
    /// record for each entry. Nothing is allocated besides.
    ///
    /// # Panics
    ///
    /// Where an address space's number is not its place in the slice.
    #[must_use]
    pub fn new(
        mmu: M,
        first: Pfn,
        frames: &'m [Frame],
        mappings: &'m [Mapping],
        spaces: &'m [Space<'m>],
    ) -> Self {
        for (i, space) in spaces.iter().enumerate() {
            assert!(space.id().index() == i, "{} stands at place {i}", space.id());
        }
        Self {
            mmu,
            folios: Folios::new(first, frames),
            mappings: Mappings::new(mappings),
            spaces,
            lru: Spin::new(List::new()),
            deferred: Spin::new(List::new()),
            pending: Spin::new(FlushBatch::new()),
            path: AtomicU32::new(UnmapPath::Batched as u32),
            pmd_mappings: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// The machine that was given to [`Vm::new`].
    #[must_use]
    pub fn mmu(&self) -> &M {
        &self.mmu
    }

    /// How reclaim takes entries away: [`UnmapPath::Batched`] at first.
    pub fn set_unmap_path(&self, path: UnmapPath) {
        self.path.set(path as u32);
    }

    pub(crate) fn unmap_path(&self) -> UnmapPath {
        UnmapPath::ALL[self.path.get() as usize]
    }

    /// Whether a folio of 512 frames that comes to be mapped as a whole, by a whole page table, is
    /// mapped by one entry (a PMD): not at first. Only for an [`Mmu`] that uses the software
    /// entries through [`Slots`](crate::Slots), as its own methods and [`SoftMmu`](crate::SoftMmu)
    /// do.
    ///
    /// Whoever changes less than all of it splits the PMD first. So do the ways of reclaim that go
    /// page by page; the others take it in one step.
    pub fn set_pmd_mappings(&self, on: bool) {
        self.pmd_mappings.set(on);
    }

    /// What has been done so far. Takes no lock.
    #[must_use]
    pub fn stats(&self) -> VmStats {
        self.counters.read()
    }

    /// Folios on the list of lazyfree ones, and on the deferred-split queue.
    #[must_use]
    pub fn queued(&self) -> (u64, u64) {
        (
            self.lru.with(|| self.mmu.relax(), |l| l.len()),
            self.deferred.with(|| self.mmu.relax(), |l| l.len()),
        )
    }

    /// An address space.
    ///
    /// # Errors
    ///
    /// [`VmError::NoSpace`].
    pub fn space(&self, space: SpaceId) -> Result<&'m Space<'m>, VmError> {
        self.spaces.get(space.index()).ok_or(VmError::NoSpace { space })
    }

    pub(crate) fn space_with(
        &self,
        space: SpaceId,
        range: VpnRange,
    ) -> Result<&'m Space<'m>, VmError> {
        let found = self.space(space)?;
        let all = found.range();
        if range.is_empty() || range.start < all.start || all.end < range.end {
            return Err(VmError::OutOfSpace { range });
        }
        Ok(found)
    }

    pub(crate) fn index(&self, pfn: Pfn) -> Result<u32, VmError> {
        self.folios.index(pfn).ok_or(VmError::NotAFolio { pfn })
    }

    /// Runs `f` while nobody else changes which frames the table of that page shows, and after
    /// everything that reclaim has cleared in this space has been flushed: what is mapped now must
    /// not be hidden by an older translation.
    pub(crate) fn with_table<R>(
        &self,
        space: &Space<'m>,
        vpn: crate::Vpn,
        f: impl FnOnce() -> R,
    ) -> R {
        space.table(vpn).0.with_lock(
            || self.mmu.relax(),
            || {
                // Acquire: pairs with the Release of `flush_now`: who finds the flag clear comes
                // after the flush. That it is found set is up to this table's lock, under which
                // reclaim clears entries and sets it.
                if space.pending.load(Ordering::Acquire) {
                    self.flush_pending();
                }
                f()
            },
        )
    }

    /// Notes entries that reclaim has cleared. Under their table's lock.
    pub(crate) fn flush_later(&self, space: &Space<'m>, flush: Flush) {
        self.pending.with(
            || self.mmu.relax(),
            |pending| {
                if !pending.add(flush) {
                    self.flush_now(pending);
                    // Empty now.
                    let _ = pending.add(flush);
                }
                space.pending.set(true);
            },
        );
    }

    fn flush_now(&self, pending: &mut FlushBatch) {
        let mut flushed = [SpaceId::new(0); BATCH];
        let n = pending.ranges().len();
        flushed.iter_mut().zip(pending.ranges()).for_each(|(space, flush)| *space = flush.space);
        if pending.flush(&self.mmu) {
            count(&self.counters.flushes, 1);
            count(&self.counters.reclaim_flushes, 1);
        }
        // Only now, or somebody would map while the flush is under way; and while the list is
        // locked, before new ranges can be added.
        let spaces = flushed[..n].iter().filter_map(|id| self.spaces.get(id.index()));
        spaces.for_each(|space| space.pending.store(false, Ordering::Release));
    }

    /// Flushes what reclaim has cleared so far, its own and others'.
    pub(crate) fn flush_pending(&self) {
        self.pending.with(|| self.mmu.relax(), |pending| self.flush_now(pending));
    }

    /// A flush of one's own.
    pub(crate) fn flush(&self, batch: &mut FlushBatch) {
        count(&self.counters.flushes, u64::from(batch.flush(&self.mmu)));
    }

    /// Adds to a batch of one's own, flushing it first where it is full.
    pub(crate) fn add_flush(&self, batch: &mut FlushBatch, flush: Flush) {
        if !batch.add(flush) {
            self.flush(batch);
            // Empty now.
            let _ = batch.add(flush);
        }
    }

    /// A fresh folio, swap-backed, mapped nowhere, with one reference, which is the caller's:
    /// [`Vm::put`] gives it back.
    ///
    /// # Errors
    ///
    /// [`VmError::OrderTooLarge`], [`VmError::Alloc`], and [`VmError::NotAFolio`] where the
    /// allocator hands out frames that there are no records for. Nothing has changed then.
    pub fn folio_alloc(&self, frames: &impl Frames, order: Order) -> Result<Folio, VmError> {
        if order > Order::PAGEBLOCK {
            return Err(VmError::OrderTooLarge { order });
        }
        let pfn =
            frames.alloc(Request::new(order, Migratetype::Movable)).map_err(VmError::Alloc)?;
        let last = Pfn::new(pfn.get() + order.frames() - 1);
        let (Some(head), Some(_)) = (self.folios.index(pfn), self.folios.index(last)) else {
            frames.free(pfn, order).map_err(VmError::Free)?;
            return Err(VmError::NotAFolio { pfn });
        };
        self.folios.publish(head, order, flag::SWAP_BACKED, 1);
        count(&self.counters.folios, 1);
        Ok(Folio(pfn))
    }

    /// What the folio that `pfn` is part of is like; `None` where it is part of none. Exact while
    /// nothing runs.
    #[must_use]
    pub fn folio_state(&self, pfn: Pfn) -> Option<FolioState> {
        let head = self.folios.head(self.folios.index(pfn)?)?;
        let frame = self.folios.frame(head);
        Some(FolioState {
            folio: Folio(self.folios.pfn(head)),
            order: frame.order(),
            references: frame.refs.get(),
            maps: frame.maps.get(),
            mapped_pages: frame.mapped_pages.get(),
            dirty: frame.has(flag::DIRTY),
            swap_backed: frame.has(flag::SWAP_BACKED),
            lazyfree: frame.is_lazyfree(),
            deferred: frame.has(flag::DEFERRED),
        })
    }

    /// Another reference to a folio that the caller knows to be alive: it has one, or has it
    /// mapped.
    ///
    /// # Errors
    ///
    /// [`VmError::NotAFolio`] where it is not alive after all.
    pub fn get(&self, folio: Folio) -> Result<(), VmError> {
        let index = self.index(folio.0)?;
        if self.folios.head(index) == Some(index) && self.folios.frame(index).try_get() {
            return Ok(());
        }
        Err(VmError::NotAFolio { pfn: folio.0 })
    }

    /// Gives one reference back, to whichever folio has that frame now. The last one frees the
    /// folio.
    ///
    /// # Errors
    ///
    /// [`VmError::NotAFolio`], and [`VmError::Free`] where somebody else has freed its frames.
    pub fn put(&self, frames: &impl Frames, pfn: Pfn) -> Result<(), VmError> {
        let index = self.index(pfn)?;
        let head = self.folios.head(index).ok_or(VmError::NotAFolio { pfn })?;
        self.put_refs(frames, head, 1)
    }

    pub(crate) fn put_refs(&self, frames: &impl Frames, head: u32, n: u32) -> Result<(), VmError> {
        if !self.folios.frame(head).drop_refs(n) {
            return Ok(());
        }
        free_what_can_be(frames, self.retire(head)).map_err(VmError::Free)
    }

    /// Takes a folio without references apart; its frames.
    pub(crate) fn retire(&self, head: u32) -> FrameRange {
        let frame = self.folios.frame(head);
        debug_assert!(frame.maps.get() == 0, "a mapped folio has no reference left");
        self.unqueue(head);
        let pages = frame.pages();
        self.folios.retire(head, pages);
        count(&self.counters.folios_freed, 1);
        self.folios.range(head, pages)
    }

    /// Takes a folio off both lists.
    pub(crate) fn unqueue(&self, head: u32) {
        let frame = self.folios.frame(head);
        // Flags are looked at first, without the locks: who calls this has the folio for itself, so
        // nobody can be putting it on a list at this moment.
        if frame.has(flag::ON_LRU) {
            self.lru.with(|| self.mmu.relax(), |lru| lru.remove(&self.folios, head));
        }
        if frame.has(flag::DEFERRED) {
            self.deferred.with(|| self.mmu.relax(), |queue| queue.remove(&self.folios, head));
        }
    }

    /// Puts a lazyfree folio at the front of their list.
    pub(crate) fn lru_add(&self, head: u32) {
        self.lru.with(|| self.mmu.relax(), |lru| lru.push(&self.folios, head));
    }

    /// Notes that part of a folio is unmapped while the rest is not. Under the folio lock.
    pub(crate) fn note_partly_mapped(&self, head: u32) {
        let frame = self.folios.frame(head);
        // A folio of two pages is not worth it, as Linux has it.
        if frame.order().get() >= 2
            && self.deferred.with(|| self.mmu.relax(), |queue| queue.push(&self.folios, head))
        {
            count(&self.counters.deferred_queued, 1);
        }
    }

    /// The folio that a page shows at this moment, its head, with a new reference; and the number
    /// of the frame in it.
    ///
    /// This is the fast way to a reference, without any lock: take one on the folio that the entry
    /// names, then look at the entry again.
    pub(crate) fn get_at(
        &self,
        frames: &impl Frames,
        space: &Space<'m>,
        vpn: crate::Vpn,
    ) -> Result<Option<(u32, u32, crate::Entry)>, VmError> {
        loop {
            let slots = space.slots(vpn, 1);
            let entry = self.mmu.load(slots);
            if !entry.is_mapped() {
                return Ok(None);
            }
            let index = self.index(entry.pfn())?;
            if let Some(head) = self.folios.head(index) {
                if self.folios.frame(head).try_get() {
                    // SeqCst fence: pairs with the one in `Vm::verdict`. There an entry is cleared
                    // and then the references are counted; here a reference is taken and then the
                    // entry is looked at. Each has a full barrier between its store and its load,
                    // so that at least one of the two sees the other: reclaim counts this
                    // reference, or this sees that the entry is gone.
                    fence(Ordering::SeqCst);
                    let same = self.mmu.load(slots).without(crate::Entry::HARDWARE)
                        == entry.without(crate::Entry::HARDWARE);
                    if same && self.folios.head(index) == Some(head) {
                        return Ok(Some((head, index - head, entry)));
                    }
                    self.put_refs(frames, head, 1)?;
                }
            }
            self.mmu.relax();
        }
    }

    /// How many pages from `vpn` on, fewer than or equal to `limit`, show the frames from an
    /// entry's on: those that are dealt with when the entry's folio is. Pages of other folios may
    /// lie where some of its own have been unmapped.
    pub(crate) fn shown_from(
        &self,
        space: &Space<'m>,
        vpn: crate::Vpn,
        entry: crate::Entry,
        limit: u64,
    ) -> u64 {
        let next = |i: &u64| {
            let now = self.mmu.load(space.slots(vpn.plus(*i), 1));
            now.is_mapped() && now.pfn() == entry.advance(*i).pfn()
        };
        1 + (1..limit).take_while(next).count() as u64
    }

    /// See [`Vm::settled`].
    pub(crate) fn settled_in(&self, space: &Space<'m>, vpn: crate::Vpn) -> crate::Entry {
        // Not `with_table`: nothing is mapped here, so that what waits to be flushed can go on
        // waiting.
        space.table(vpn).0.with_lock(|| self.mmu.relax(), || self.mmu.load(space.slots(vpn, 1)))
    }

    pub(crate) fn free_ranges(
        &self,
        frames: &impl Frames,
        ranges: &mut [FrameRange],
    ) -> Result<(), FreeError> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut result = Ok(());
        for run in ranges.chunk_by(|a, b| a.end == b.start) {
            let (first, last) = (run[0], run[run.len() - 1]);
            count(&self.counters.frees, 1);
            result = result
                .and(free_what_can_be(frames, FrameRange { start: first.start, end: last.end }));
        }
        result
    }
}
