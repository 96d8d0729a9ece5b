//! Reclaim of lazyfree folios: which to look at, and what becomes of them.
//!
//! ```text
//!   list of lazyfree folios
//!   front <- madvise_free, second chances ... oldest -> back
//!                                                        | off the list, one reference, trylock
//!                                                        v
//!                used since?  written to?  pinned?  -> back to the front, or swap-backed again
//!                                                        | all entries cleared, references frozen
//!                                                        v
//!   up to 128 folios: one flush, then their frames, neighbours together, go back to the allocator
//! ```

use freehold::FrameRange;

use crate::mmu::BATCH;
use crate::stats::count;
use crate::unmap::Kept;
use crate::{Entry, Frames, Mmu, SpaceId, Vm, VmError, VpnRange};

/// Folios that are unmapped and have no reference, waiting for the flush after which they can be
/// freed.
struct Reclaimed {
    ranges: [FrameRange; BATCH],
    len: usize,
    /// Frames, over all batches.
    frames: u64,
}

impl Reclaimed {
    fn new() -> Self {
        Self { ranges: [FrameRange::default(); BATCH], len: 0, frames: 0 }
    }
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Reclaims lazyfree folios, those that became so first, until `frames` frames are free or
    /// every folio on the list has been looked at twice. Folios that were used since are passed
    /// over the first time. Returns how many frames were freed.
    ///
    /// # Errors
    ///
    /// [`VmError::Free`] where somebody else has freed frames of a folio; everything else has been
    /// done.
    pub fn reclaim(&self, allocator: &impl Frames, frames: u64) -> Result<u64, VmError> {
        let mut reclaimed = Reclaimed::new();
        let mut result = Ok(());
        let mut looks = 2 * self.lru.with(|| self.mmu.relax(), |lru| lru.len());
        while reclaimed.frames < frames && looks > 0 {
            looks -= 1;
            let oldest = self.lru.with(|| self.mmu.relax(), |lru| lru.take_back(&self.folios));
            let Some(head) = oldest else { break };
            result = result.and(self.reclaim_folio(allocator, head, false, &mut reclaimed));
        }
        result.and(self.finish(allocator, &mut reclaimed)).map(|()| reclaimed.frames)
    }

    /// Reclaims the lazyfree folios of a range now, whether used since or not (`MADV_PAGEOUT`).
    /// There is no swap here: folios whose contents matter stay. Returns how many frames were
    /// freed.
    ///
    /// # Errors
    ///
    /// As [`Vm::reclaim`]; [`VmError::NoSpace`], [`VmError::OutOfSpace`]; [`VmError::NotAFolio`]
    /// where a page shows a frame of which there is no record: what comes before it has been done.
    pub fn madvise_pageout(
        &self,
        allocator: &impl Frames,
        space: SpaceId,
        range: VpnRange,
    ) -> Result<u64, VmError> {
        let space = self.space_with(space, range)?;
        let mut reclaimed = Reclaimed::new();
        let mut result = Ok(());
        let mut vpn = range.start;
        while vpn < range.end {
            let (head, i, entry) = match self.get_at(allocator, space, vpn) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    vpn = vpn.plus(1);
                    continue;
                }
                // What has been reclaimed until here waits for its flush and its free.
                Err(error) => {
                    result = result.and(Err(error));
                    break;
                }
            };
            let rest =
                u64::from(self.folios.frame(head).pages() - i).min(range.end.get() - vpn.get());
            vpn = vpn.plus(self.shown_from(space, vpn, entry, rest));
            let mine = self.folios.frame(head).is_lazyfree()
                && self.lru.with(|| self.mmu.relax(), |lru| lru.remove(&self.folios, head));
            result = result.and(if mine {
                self.reclaim_folio(allocator, head, true, &mut reclaimed)
            } else {
                self.put_refs(allocator, head, 1)
            });
        }
        result.and(self.finish(allocator, &mut reclaimed)).map(|()| reclaimed.frames)
    }

    /// Decides about one folio, off the list and with a reference of the caller's, which is given
    /// back.
    fn reclaim_folio(
        &self,
        allocator: &impl Frames,
        head: u32,
        ignore_references: bool,
        reclaimed: &mut Reclaimed,
    ) -> Result<(), VmError> {
        let frame = self.folios.frame(head);
        if !frame.try_lock() {
            count(&self.counters.kept_busy, 1);
            self.lru_add(head);
            return self.put_refs(allocator, head, 1);
        }
        if !frame.is_lazyfree() {
            // Written to and found out by somebody else.
            frame.unlock();
            return self.put_refs(allocator, head, 1);
        }
        let unmapped = if !ignore_references && self.was_used(head) {
            count(&self.counters.kept_referenced, 1);
            self.lru_add(head);
            frame.unlock();
            return self.put_refs(allocator, head, 1);
        } else {
            self.unmap_folio(head)
        };
        if unmapped.is_ok() && frame.freeze(1) {
            let pages = frame.pages();
            count(&self.counters.reclaimed_folios, 1);
            count(&self.counters.reclaimed_frames, u64::from(pages));
            let range = self.retire(head);
            frame.unlock();
            reclaimed.ranges[reclaimed.len] = range;
            reclaimed.len += 1;
            reclaimed.frames += range.len();
            if reclaimed.len == BATCH {
                return self.finish(allocator, reclaimed);
            }
            return Ok(());
        }
        match unmapped {
            Err(Kept::Dirty) => count(&self.counters.redirtied, 1),
            Err(Kept::Busy) => {
                count(&self.counters.kept_busy, 1);
                self.lru_add(head);
            }
            Ok(()) => {
                // A pin came too late to keep the entries, but in time to keep the folio. When it
                // goes, so does the folio, and by then no CPU may have a translation.
                self.flush_pending();
                count(&self.counters.kept_busy, 1);
                self.lru_add(head);
            }
        }
        frame.unlock();
        self.put_refs(allocator, head, 1)
    }

    /// Whether a folio was used since reclaim last looked; forgets it.
    fn was_used(&self, head: u32) -> bool {
        let frame = self.folios.frame(head);
        let mut used = false;
        count(&self.counters.rmap_walks, 1);
        for mapping in self.mappings.iter(&frame.rmap) {
            let Ok(space) = self.space(mapping.space()) else { continue };
            let mut i = 0;
            while let Some(live) = mapping.next_live(i) {
                let slots = space.slots(mapping.page(live), 1);
                // A bit may be left from an entry that is gone, and another folio's be there: that
                // one then has a chance less. No lock and no flush: a TLB that goes on using its
                // copy hides a use at worst.
                used |= self.mmu.clear_bits(slots, Entry::YOUNG).is_young();
                i = live + 1;
            }
        }
        used
    }

    /// One flush, then the frames go.
    fn finish(&self, allocator: &impl Frames, reclaimed: &mut Reclaimed) -> Result<(), VmError> {
        if reclaimed.len == 0 {
            return Ok(());
        }
        self.flush_pending();
        let ranges = &mut reclaimed.ranges[..reclaimed.len];
        reclaimed.len = 0;
        self.free_ranges(allocator, ranges).map_err(VmError::Free)
    }
}
