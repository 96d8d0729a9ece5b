//! Lazy purging of freed areas: one flush for many [`Vmalloc::vfree`]s.
//!
//! ```text
//!   vfree     unmaps            the area waits: its addresses and its frames are nobody's
//!     ...     unmaps            until more than `lazy_max` pages wait, or somebody runs out of something
//!   purge     one flush for up to 128 ranges, neighbouring areas (with the guard page between them) being one;
//!             then the addresses are free; then the frames, sorted and joined over all of these areas
//! ```
//!
//! A flush interrupts every CPU, and costs as much for a thousand pages as for one; on a host,
//! where a flush is what takes pages away, neighbouring areas become one system call. Linux does
//! the same with `fls(CPUs) * 32 MiB` as the limit.
//!
//! One thing is different. Linux gives the frames back in `vfree`, before the flush, and trusts
//! that nobody uses an area after freeing it. Here the frames wait, too: **no frame is freed while
//! a CPU may reach it** holds for areas that are freed lazily. A stale access between the free and
//! the purge reaches the area's own frames, or faults; never somebody else's. The price is that up
//! to `lazy_max` pages wait with them. Whoever runs out of frames, addresses or nodes in
//! [`Vmalloc::vmalloc`] or [`Vmalloc::unmap_part`] purges and tries again.

use crate::primitive::{AtomicBool, Plain};
use crate::runs::Runs;
use crate::stats::count;
use crate::vmalloc::Kind;
use crate::{
    BATCH, Flush, FlushBatch, FlushKind, Frames, Mmu, Vmalloc, VmallocError, Vpn, VpnRange, lock,
};

/// The right to purge. Given back also where a flush panics: it guards no data, and others would
/// wait for ever.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock::release(self.0);
    }
}

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// From now on [`Vmalloc::vfree`] leaves areas to a later [`Vmalloc::purge`], until more than
    /// `pages` pages wait; 0, as at first, flushes and frees in each call.
    ///
    /// All calls must be given the same page allocator then: a purge frees what others have left.
    /// What waits when this `Vmalloc` is dropped is lost to the allocator, as are areas that were
    /// never freed: purge first.
    pub fn set_lazy_max(&self, pages: u64) {
        self.lazy_max.set(pages);
    }

    /// Pages of freed areas that wait for a purge.
    #[must_use]
    pub fn lazy_pages(&self) -> u64 {
        self.with(|state| state.lazy_pages)
    }

    /// Leaves an area that the caller has claimed to a purge, or makes that purge.
    pub(crate) fn free_later(
        &self,
        frames: &impl Frames,
        range: VpnRange,
        runs: Runs,
    ) -> Result<(), VmallocError> {
        // Before anybody can purge it.
        self.unmap(range);
        let waiting = self.leave(range.start, range.len(), runs);
        count(&self.counters.areas_freed, 1);
        if waiting > self.lazy_max.get() { self.purge(frames).map(drop) } else { Ok(()) }
    }

    /// Leaves an area to a purge; returns how many pages wait for one.
    pub(crate) fn leave(&self, start: Vpn, pages: u64, runs: Runs) -> u64 {
        self.with(|state| {
            let next_lazy = state.lazy.replace(start);
            if let Some(area) = state.areas.get_mut(start.get()) {
                (area.kind, area.runs, area.next_lazy) = (Kind::Lazy, runs, next_lazy);
            }
            state.lazy_pages += pages;
            state.lazy_pages
        })
    }

    /// Flushes what was freed lazily and frees its frames; returns how many pages that were. Waits
    /// for a purge that somebody else is making.
    ///
    /// One flush for every [`BATCH`] areas, O(areas log areas), besides the frees themselves.
    ///
    /// # Errors
    ///
    /// [`VmallocError::Free`], where somebody else has freed frames of an area; everything else has been done.
    /// [`VmallocError::Unmap`], where the host could not take pages away: their areas wait for the next purge.
    pub fn purge(&self, frames: &impl Frames) -> Result<u64, VmallocError> {
        // One at a time, so that who purges for want of something comes back to find it free.
        lock::acquire(&self.purging, || self.mmu.relax());
        let turn = Turn(&self.purging);
        let (mut pages, mut result) = (0, Ok(()));
        // What could not be taken away waits for the next purge.
        let mut refused = false;
        while !refused {
            let mut areas = [(VpnRange::default(), 0, Runs::EMPTY); BATCH];
            let n = self.take_lazy(&mut areas);
            if n == 0 {
                break;
            }
            let areas = &mut areas[..n];
            areas.sort_unstable_by_key(|(range, ..)| range.start);
            let mut batch = FlushBatch::new();
            for (range, ..) in areas.iter() {
                // As many ranges as areas fit.
                let _ = batch.add(Flush {
                    space: self.space,
                    range: *range,
                    kind: FlushKind::Unmapped,
                });
            }
            count(&self.counters.flushes, 1);
            let flushed = batch.try_flush(&self.mmu).is_ok();
            let mut gone = Runs::EMPTY;
            for (range, len, runs) in areas.iter() {
                if !flushed {
                    // Not all of them. One by one, so that it shows which.
                    if let Err(error) = self.flush_one(*range) {
                        self.leave(range.start, *len, *runs);
                        result = result.and(Err(error));
                        refused = true;
                        continue;
                    }
                }
                pages += len;
                // Only now: who gets these addresses must not find old translations.
                self.with(|state| {
                    state.areas.remove(range.start.get());
                    state.runs.append(&mut gone, *runs);
                });
            }
            result = result.and(self.free_runs(frames, gone, None).map_err(VmallocError::Free));
        }
        count(&self.counters.purges, u64::from(pages > 0));
        drop(turn);
        result.map(|()| pages)
    }

    /// Takes areas that wait for a purge: each with its guard page, behind which the next one
    /// begins, the number of its pages, and its runs. Returns how many.
    fn take_lazy(&self, areas: &mut [(VpnRange, u64, Runs); BATCH]) -> usize {
        self.with(|state| {
            let mut n = 0;
            while let Some(area) =
                state.lazy.filter(|_| n < BATCH).and_then(|v| state.areas.get(v.get()))
            {
                state.lazy = area.value.next_lazy;
                state.lazy_pages -= area.value.pages;
                let range = VpnRange { start: Vpn::new(area.start), end: Vpn::new(area.end) };
                areas[n] = (range, area.value.pages, area.value.runs);
                n += 1;
            }
            n
        })
    }

    /// Somebody has run out of something: whether trying again may help.
    pub(crate) fn purge_for_want(&self, frames: &impl Frames) -> bool {
        // What others are purging at this moment helps, too.
        let waiting = self.lazy_max.get() > 0 || self.lazy_pages() > 0 || self.purging.get();
        if waiting {
            // Frames that cannot be freed have been freed by somebody else: nothing that this
            // caller could do.
            let _ = self.purge(frames);
        }
        waiting
    }
}
