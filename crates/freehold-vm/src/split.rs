//! Splitting folios, and the queue of those that should be.
//!
//! A folio of which only part is mapped holds on to frames that nobody can use. It is put on a
//! queue, and under memory pressure ([`Vm::split_deferred`]) becomes folios of one frame each;
//! those that nothing shows are freed. No entry changes: entries name frames. What changes is who
//! speaks for each frame.
//!
//! The queue is where the page-by-page way of unmapping hurts twice: it queues each folio in
//! passing, and whoever works on the queue takes a **reference** to find out whether there is
//! something to do. To the unmapping that looks like somebody using the folio: it stops half-way,
//! and now the folio really is partly mapped.

use crate::folio::{NIL, flag};
use crate::frames::free_what_can_be;
use crate::primitive::{Ordering, Plain, fence};
use crate::rmap::NoMapping;
use crate::stats::count;
use crate::{Folio, Frames, Mmu, Vm, VmError};

impl<'m, M: Mmu> Vm<'m, M> {
    /// Splits a folio into folios of one frame; those of its frames that nothing shows are freed.
    /// The caller has a reference, which is to the first frame's folio afterwards.
    ///
    /// # Errors
    ///
    /// [`VmError::Busy`] where anybody else has a reference, or the folio is locked;
    /// [`VmError::NoNodes`]; [`VmError::NotAFolio`]. Nothing has changed then. [`VmError::Free`]
    /// where somebody else has freed its frames.
    pub fn split(&self, frames: &impl Frames, folio: Folio) -> Result<(), VmError> {
        let pfn = folio.pfn();
        let head = self.index(pfn)?;
        if self.folios.head(head) != Some(head) {
            return Err(VmError::NotAFolio { pfn });
        }
        let frame = self.folios.frame(head);
        if !frame.try_lock() {
            return Err(VmError::Busy { pfn });
        }
        let result = self.split_locked(frames, head);
        frame.unlock();
        result
    }

    /// [`Vm::split`] of a folio that the caller has locked. The first frame's folio is locked
    /// afterwards.
    pub(crate) fn split_locked(&self, frames: &impl Frames, head: u32) -> Result<(), VmError> {
        let frame = self.folios.frame(head);
        let busy = VmError::Busy { pfn: self.folios.pfn(head) };
        let pages = frame.pages();
        if pages == 1 {
            return Err(busy);
        }
        let maps = frame.maps.get();
        // Before anything changes: a record for each entry.
        let chain = self.mappings.take(maps, || self.mmu.relax());
        let mut chain = chain.map_err(|NoMapping| VmError::NoNodes)?;
        // The mappings' references and the caller's. From here on nobody can get one, and all that
        // have a mapping wait for the lock.
        if !frame.freeze(maps + 1) {
            self.mappings.give(chain, || self.mmu.relax());
            return Err(busy);
        }
        self.unqueue(head);
        // SeqCst fence: see `Folios::set_dirty`.
        fence(Ordering::SeqCst);
        let inherited = frame.state.get() & flag::INHERITED;
        let old = crate::primitive::AtomicU32::new(frame.rmap.get());
        for i in 0..pages {
            self.folios.frame(head + i).rmap.set(NIL);
        }
        for mapping in self.mappings.iter(&old) {
            let mut i = 0;
            while let Some(live) = mapping.next_live(i) {
                let piece = self.folios.frame(head + live);
                self.mappings.single(&mut chain, &piece.rmap, mapping.space(), mapping.page(live));
                i = live + 1;
            }
        }
        self.mappings.give(old.get(), || self.mmu.relax());
        self.mappings.give(chain, || self.mmu.relax());
        let mut unused: Option<(u32, u32)> = None;
        let mut result = Ok(());
        // From the back: a tail finds its head complete, or the new folio that it is.
        for i in (0..pages).rev() {
            // The first has the caller's reference.
            let shown = i == 0 || self.folios.frame(head + i).page_maps.get() > 0;
            if !shown {
                self.folios.retire(head + i, 1);
                unused = Some((head + i, unused.map_or(1, |(_, len)| len + 1)));
                continue;
            }
            if let Some((first, len)) = unused.take() {
                count(&self.counters.frees, 1);
                result = result.and(
                    free_what_can_be(frames, self.folios.range(first, len)).map_err(VmError::Free),
                );
            }
            // One more than it keeps, so that it is there until it is on the list: who was waiting
            // for the lock with its mappings' references may give them back as soon as it is
            // published.
            let refs = self.folios.frame(head + i).page_maps.get() + u32::from(i == 0);
            self.folios.publish_piece(head + i, i == 0, inherited, refs + 1);
            count(&self.counters.folios, u64::from(i != 0));
            if self.folios.frame(head + i).is_lazyfree() {
                self.lru_add(head + i);
            }
            result = result.and(self.put_refs(frames, head + i, 1));
        }
        count(&self.counters.split, 1);
        result
    }

    /// Takes the folio that waits longest off the deferred-split queue, with a reference, which is
    /// what whoever works on the queue does first. [`Vm::deferred_split`] does the rest.
    #[must_use]
    pub fn deferred_take(&self) -> Option<Folio> {
        let head = self.deferred.with(|| self.mmu.relax(), |queue| queue.take_back(&self.folios));
        head.map(|head| Folio(self.folios.pfn(head)))
    }

    /// Splits a folio that [`Vm::deferred_take`] took, if it still is partly mapped, or puts it
    /// back on the queue where it is busy; gives the reference back. Whether it was split.
    ///
    /// # Errors
    ///
    /// [`VmError::Free`] where somebody else has freed its frames.
    pub fn deferred_split(&self, frames: &impl Frames, folio: Folio) -> Result<bool, VmError> {
        let head = self.index(folio.pfn())?;
        let frame = self.folios.frame(head);
        let mut split = Ok(false);
        if frame.try_lock() {
            let mapped = frame.mapped_pages.get();
            if mapped > 0 && mapped < frame.pages() {
                split = match self.split_locked(frames, head) {
                    Ok(()) => Ok(true),
                    Err(VmError::Free(error)) => Err(VmError::Free(error)),
                    Err(_) => Ok(false),
                };
                if split == Ok(true) {
                    count(&self.counters.deferred_split, 1);
                } else {
                    self.requeue(head);
                }
            }
            frame.unlock();
        } else {
            self.requeue(head);
        }
        let put = self.put_refs(frames, head, 1);
        split.and_then(|split| put.map(|()| split))
    }

    /// Not counted: it was when it was first queued.
    fn requeue(&self, head: u32) {
        self.deferred.with(|| self.mmu.relax(), |queue| queue.push(&self.folios, head));
    }

    /// Works on the deferred-split queue: up to `max` folios, each looked at once. Returns how many
    /// were split.
    ///
    /// # Errors
    ///
    /// As [`Vm::deferred_split`].
    pub fn split_deferred(&self, frames: &impl Frames, max: u64) -> Result<u64, VmError> {
        let mut split = 0;
        for _ in 0..max.min(self.queued().1) {
            let Some(folio) = self.deferred_take() else { break };
            split += u64::from(self.deferred_split(frames, folio)?);
        }
        Ok(split)
    }
}
