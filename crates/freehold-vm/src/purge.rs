//! Areas whose pages the host could not take away, and which wait for a purge.
//!
//! A host may refuse to unmap: taking a page out of a mapping may need one mapping more than a
//! process may have. An area that was being made and has to be given up again is nobody's then, and
//! waits here with its addresses and its frames. Nothing of it is used again before its pages are
//! gone. Whoever runs out of frames, addresses or nodes in [`Vmalloc::vmalloc`] purges and tries
//! again.

use crate::primitive::{AtomicBool, Plain};
use crate::runs::Runs;
use crate::vmalloc::Kind;
use crate::{Frames, Mmu, Vmalloc, VmallocError, Vpn, VpnRange, lock};

/// The right to purge. Given back also where a flush panics: it guards no data, and others would
/// wait for ever.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock::release(self.0);
    }
}

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// Pages of areas that wait for a purge.
    #[must_use]
    pub fn waiting_pages(&self) -> u64 {
        self.with(|state| state.waiting_pages)
    }

    /// Leaves an area to a purge.
    pub(crate) fn leave(&self, start: Vpn, pages: u64, runs: Runs) {
        self.with(|state| {
            let next = state.waiting.replace(start);
            if let Some(area) = state.areas.get_mut(start.get()) {
                (area.kind, area.runs, area.next_waiting) = (Kind::Waiting, runs, next);
            }
            state.waiting_pages += pages;
        });
    }

    /// Takes away the pages of areas that wait, and frees their frames; returns how many pages that
    /// were. Waits for a purge that somebody else is making.
    ///
    /// # Errors
    ///
    /// [`VmallocError::Free`], where somebody else has freed frames of an area; everything else has
    /// been done. [`VmallocError::Unmap`], where the host refuses again: what is left waits for the
    /// next purge.
    pub fn purge(&self, frames: &impl Frames) -> Result<u64, VmallocError> {
        // One at a time, so that who purges for want of something comes back to find it free.
        lock::acquire(&self.purging, || self.mmu.relax());
        let _turn = Turn(&self.purging);
        let (mut pages, mut result) = (0, Ok(()));
        while let Some((range, len, runs)) = self.take_waiting() {
            if let Err(error) = self.flush_one(range) {
                self.leave(range.start, len, runs);
                return Err(error);
            }
            pages += len;
            let freed = self.free_runs(frames, runs, Some(range.start));
            result = result.and(freed.map_err(VmallocError::Free));
        }
        result.map(|()| pages)
    }

    /// Takes an area that waits: with its guard page, the number of its pages, and its runs.
    fn take_waiting(&self) -> Option<(VpnRange, u64, Runs)> {
        self.with(|state| {
            let area = state.areas.get(state.waiting?.get())?;
            state.waiting = area.value.next_waiting;
            state.waiting_pages -= area.value.pages;
            let range = VpnRange { start: Vpn::new(area.start), end: Vpn::new(area.end) };
            Some((range, area.value.pages, area.value.runs))
        })
    }

    /// Somebody has run out of something: whether trying again may help.
    pub(crate) fn purge_for_want(&self, frames: &impl Frames) -> bool {
        // What others are purging at this moment helps, too.
        let waiting = self.waiting_pages() > 0 || self.purging.get();
        if waiting {
            // Frames that cannot be freed have been freed by somebody else: nothing that this
            // caller could do.
            let _ = self.purge(frames);
        }
        waiting
    }
}
