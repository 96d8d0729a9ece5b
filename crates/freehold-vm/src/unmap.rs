//! Taking all of a folio's entries away, of a lazyfree one if nothing was written to it and nobody
//! else uses it: page by page, all or nothing, and in batches.
//!
//! ```text
//!   page by page (baseline)               batched
//!   for each entry:                       for each batch of entries that agree, within a table, a
//!                                           VMA, the folio:
//!     clear it                              clear them, merging dirty and young
//!     note the flush for later              full barrier; references == 1 + mappings?  not dirty?
//!     full barrier; unused, not dirty?        no: put them back, each with its own rights; stop
//!     take it off the folio's counts        note the range for a later flush
//!       -> the folio is partly mapped:    once, at the end: take all off the folio's counts
//!          queued for a split               -> it goes from mapped to unmapped in one step
//!
//!   all or nothing (as posted): page by page, but a folio whose entries all agree is one entry
//! ```
//!
//! # The question
//!
//! May the contents be dropped? Not where somebody wrote since `madvise_free`: through an entry
//! (its dirty bit), or through a pin (the folio's dirty flag, set before the pin goes). And not
//! while somebody holds a pin, since they may still write. All of this is asked **after** the
//! entries have been cleared, when no new write through them and no new pin can begin:
//!
//! | | clears / takes | then, after a full barrier | |
//! |---|---|---|---|
//! | reclaim | clears the entry | reads the references | sees the pin's reference: puts the entry back |
//! | pin | takes a reference | reads the entry again | sees it gone: gives the reference back |
//!
//! Reading the references before the folio's dirty flag matters as much: a pin sets the flag before
//! its reference goes, so that a count without the pin's reference comes with the flag.
//!
//! # A folio that takes more than one batch
//!
//! That lies across a table's end, is mapped in several places or has entries that disagree. While
//! the counts stay as they were until the end, nobody sees it partly mapped. Before the first batch
//! is cleared all entries are looked at without clearing, so that a folio that was written to is
//! left alone as a whole; only a write or a pin *during* the walk can make a later batch fail. Then
//! the pages of the batches before it are gone, as they may be, the folio really is partly mapped,
//! and is queued once.

use crate::folio::{Frame, flag};
use crate::primitive::{Ordering, Plain, fence};
use crate::rmap::Mapping;
use crate::stats::count;
use crate::{Entry, FlushKind, Mmu, Slots, Space, UnmapPath, Vm, Vpn};

/// Why a folio was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// It was written to. It is swap-backed again.
    Dirty,
    /// Somebody else uses it.
    Busy,
}

/// What a walk over a folio's entries has taken off so far, and not yet taken off the folio's
/// counts.
#[derive(Default)]
struct Removed {
    entries: u32,
    /// Frames that no entry shows any more.
    gone: u32,
    /// Page by page: something has been cleared whose flush was put off.
    waits: bool,
}

/// One table's part of a mapping: what to do after its lock is given back.
enum Step {
    /// Go on with this frame of the folio.
    Next(u32),
    /// All entries have to be looked at first.
    Look,
    Kept(Kept),
}

impl<'m, M: Mmu> Vm<'m, M> {
    /// Takes all entries of a locked lazyfree folio away. The caller has one reference. On failure
    /// some may be gone, and have been flushed.
    pub(crate) fn unmap_folio(&self, head: u32) -> Result<(), Kept> {
        let frame = self.folios.frame(head);
        let path = self.unmap_path();
        // Where one batch takes everything there is no need to look first. Nor where the pages of
        // one mapping go one by one.
        let mut looked = path != UnmapPath::Batched;
        if looked && self.mappings.iter(&frame.rmap).nth(1).is_some() {
            self.look(head)?;
        }
        let mut removed = Removed::default();
        let mut result = Ok(());
        count(&self.counters.rmap_walks, 1);
        for mapping in self.mappings.iter(&frame.rmap) {
            let mut i = 0;
            while result.is_ok() {
                let Some(live) = mapping.next_live(i) else { break };
                let vpn = mapping.page(live);
                let Ok(space) = self.space(mapping.space()) else { break };
                // Not `with_table`: flushing what this very walk has cleared in the space can wait.
                let step = space.table(vpn).0.with_lock(
                    || self.mmu.relax(),
                    || {
                        let place = (mapping, space, live);
                        if path == UnmapPath::Batched {
                            self.take_table::<true>(head, place, (path, looked), &mut removed)
                        } else {
                            self.take_table::<false>(head, place, (path, looked), &mut removed)
                        }
                    },
                );
                match step {
                    Step::Next(next) => i = next,
                    Step::Look => {
                        result = self.look(head);
                        looked = true;
                    }
                    Step::Kept(kept) => result = Err(kept),
                }
            }
        }
        if removed.waits && (result.is_err() || frame.maps.get() > 0) {
            // The folio stays, partly mapped, and may be split as soon as it is unlocked, which
            // frees frames.
            self.flush_pending();
        }
        if removed.entries > 0 {
            if removed.entries < frame.maps.get() {
                // Really partly mapped. What is gone must be out of the TLBs before its references
                // go, since a split of the folio may free its frames.
                self.flush_pending();
            }
            self.uncount(head, removed.entries, removed.gone);
        }
        self.mappings.sweep(&frame.rmap, || self.mmu.relax());
        if result.is_ok() && frame.maps.get() > 0 {
            // Entries that somebody is just unmapping, and has not taken off the counts yet.
            return Err(Kept::Busy);
        }
        result
    }

    /// Whether an entry shows that frame of the folio.
    fn shows(&self, entry: Entry, head: u32, i: u32) -> bool {
        entry.is_mapped() && entry.pfn() == self.folios.pfn(head + i)
    }

    /// Looks at all entries without clearing any.
    fn look(&self, head: u32) -> Result<(), Kept> {
        let frame = self.folios.frame(head);
        count(&self.counters.rmap_walks, 1);
        for mapping in self.mappings.iter(&frame.rmap) {
            let Ok(space) = self.space(mapping.space()) else { continue };
            let droppable =
                |vpn| space.vma(vpn, || self.mmu.relax()).is_some_and(|vma| vma.value.droppable);
            let mut i = 0;
            while let Some(live) = mapping.next_live(i) {
                let vpn = mapping.page(live);
                let entry = self.mmu.load(space.slots(vpn, 1));
                if self.shows(entry, head, live) && entry.is_dirty() && !droppable(vpn) {
                    frame.set_flags(flag::DIRTY | flag::SWAP_BACKED);
                    return Err(Kept::Dirty);
                }
                i = live + 1;
            }
        }
        // Entries that were gone have said what they knew after this, for `verdict` to see.
        self.pass_tables(head);
        // Relaxed: a first look only; what decides is `verdict`.
        if frame.refs.load(Ordering::Relaxed) == 1 + frame.maps.get() {
            Ok(())
        } else {
            Err(Kept::Busy)
        }
    }

    /// Waits for everybody who is just taking entries of a folio away.
    fn pass_tables(&self, head: u32) {
        for mapping in self.mappings.iter(&self.folios.frame(head).rmap) {
            let Ok(space) = self.space(mapping.space()) else { continue };
            let mut i = 0;
            while let Some(live) = mapping.next_live(i) {
                let vpn = mapping.page(live);
                space.table(vpn).0.with_lock(|| self.mmu.relax(), || ());
                i = live + (space.table_end(vpn).get() - vpn.get()) as u32;
            }
        }
    }

    /// Takes the entries of one table, from frame `i` of the folio on, as many at a time as is
    /// `path`'s way. Compiled for batches and for the others apart: neither is to pay for both.
    fn take_table<const BATCHED: bool>(
        &self,
        head: u32,
        (mapping, space, mut i): (&Mapping, &Space<'m>, u32),
        (path, looked): (UnmapPath, bool),
        removed: &mut Removed,
    ) -> Step {
        let frame = self.folios.frame(head);
        let table_end = space.table_end(mapping.page(i));
        while let Some(live) = mapping.next_live(i) {
            let vpn = mapping.page(live);
            if vpn >= table_end {
                return Step::Next(live);
            }
            let entry = self.mmu.load(space.slots(vpn, 1));
            if !self.shows(entry, head, live) {
                i = live + 1;
                continue;
            }
            let vma = space.vma(vpn, || self.mmu.relax());
            let agree = || {
                // The end of the table, of the VMA, of the folio.
                let vma_end = vma.map_or(vpn.plus(1), |vma| Vpn::new(vma.end));
                let limit = (table_end.get() - vpn.get())
                    .min(vma_end.get() - vpn.get())
                    .min(u64::from(frame.pages() - live));
                self.batch_len(space, vpn, entry, limit) as u32
            };
            let len = if BATCHED {
                agree()
            } else if path == UnmapPath::Whole && live == 0 && agree() == frame.pages() {
                frame.pages()
            } else {
                1
            };
            if BATCHED && !looked && len < frame.maps.get() {
                return Step::Look;
            }
            let slots = space.slots(vpn, u64::from(len));
            let merged = self.mmu.get_and_clear(slots);
            let droppable = vma.is_some_and(|vma| vma.value.droppable);
            if let Err(kept) = self.verdict(frame, merged, droppable) {
                self.put_back(slots, merged);
                return Step::Kept(kept);
            }
            // One answer for all of them, which agree. Not before the verdict: a host drops the
            // contents when it flushes.
            let flushes = space.needs_flush(merged);
            if flushes {
                self.flush_later(space, slots.flush(FlushKind::Unmapped));
            }
            count(&self.counters.batches_cleared, 1);
            mapping.unmark(live, len);
            let gone = self.folios.remove_page_maps(head, live, len);
            i = live + len;
            if BATCHED {
                removed.entries += len;
                removed.gone += gone;
            } else {
                removed.waits |= flushes;
                self.uncount(head, len, gone);
            }
        }
        Step::Next(i)
    }

    /// Takes entries that are gone, and frames that no entry shows any more, off a folio's counts.
    #[inline(always)]
    fn uncount(&self, head: u32, entries: u32, gone: u32) {
        let frame = self.folios.frame(head);
        self.folios.update_map_counts(head, entries, gone);
        if frame.mapped_pages.get() > 0 && gone > 0 {
            self.note_partly_mapped(head);
        }
        // Not the last: the caller of `unmap_folio` has one.
        let _ = frame.drop_refs(entries);
    }

    /// Whether what has just been cleared may stay so.
    fn verdict(&self, frame: &Frame, merged: Entry, droppable: bool) -> Result<(), Kept> {
        if merged.is_dirty() {
            frame.set_flags(flag::DIRTY);
        }
        // SeqCst fence: pairs with the one in `Vm::get_at`. The entries are cleared before the
        // references are read.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fences around it.
        let refs = frame.refs.load(Ordering::Relaxed);
        // Acquire fence: pairs with the Release of `Frame::drop_refs` in `Vm::unpin`, which sets
        // the dirty flag first. Who is not counted any more has said what they wrote.
        fence(Ordering::Acquire);
        if frame.has(flag::DIRTY) && !droppable {
            frame.set_flags(flag::SWAP_BACKED);
            return Err(Kept::Dirty);
        }
        // One for each mapping, the caller's own, and nobody else's. The mappings are counted under
        // the folio lock, which the caller has, and have their references until after they are
        // uncounted: a reference may be there for a moment without its mapping, but never the other
        // way round.
        if refs != 1 + frame.maps.get() { Err(Kept::Busy) } else { Ok(()) }
    }

    /// Puts cleared entries back: each with the rights it had, since the batch agreed on them, and
    /// as dirty and young as any of them. Nothing has been flushed, nor need be: what TLBs still
    /// hold is what the entries say again.
    fn put_back(&self, slots: Slots<'_>, merged: Entry) {
        self.mmu.restore(slots, merged);
        count(&self.counters.batches_restored, 1);
        count(&self.counters.entries_restored, slots.len());
    }
}
