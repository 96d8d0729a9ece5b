//! Freeing areas: unmapped, flushed, and then their frames by the run.

use freehold::{FrameRange, FreeError, Order};

use super::{POP, Vmalloc};
use crate::area::VmallocError;
use crate::frames::free_what_can_be;
use crate::runs::Runs;
use crate::stats::count;
use crate::{Flush, FlushKind, Frames, Mmu, Vpn, VpnRange};

impl<'m, M: Mmu> Vmalloc<'m, M> {
    pub(super) fn unmap_and_flush(&self, range: VpnRange) {
        self.mmu.unmap(self.space, range);
        count(&self.counters.unmaps, 1);
        count(&self.counters.flushes, 1);
        self.mmu.flush(&[Flush { space: self.space, range, kind: FlushKind::Unmapped }]);
    }

    /// Frees frames that no CPU can reach any more, and gives back the addresses of the area that
    /// starts at `area`.
    pub(crate) fn free_runs(
        &self,
        frames: &impl Frames,
        mut runs: Runs,
        area: Vpn,
    ) -> Result<(), FreeError> {
        let mut is_first = true;
        let mut result = Ok(());
        loop {
            let mut some = [FrameRange::default(); POP];
            let n = self.with(|state| {
                if core::mem::replace(&mut is_first, false) {
                    state.areas.remove(area.get());
                    state.runs.coalesce(&mut runs);
                }
                let runs = core::iter::from_fn(|| state.runs.pop(&mut runs));
                some.iter_mut().zip(runs).map(|(place, run)| *place = run).count()
            });
            for run in &some[..n] {
                count(&self.counters.frames_freed, run.len());
                count(&self.counters.frees, 1);
                // A single frame takes the page allocator's shortest way.
                let freed = match run.len() {
                    1 => frames.free(run.start, Order::ZERO),
                    _ => free_what_can_be(frames, *run),
                };
                if let Err(error) = freed {
                    result = result.and(Err(error));
                }
            }
            if n < POP {
                return result;
            }
        }
    }

    /// Takes an area for freeing: nobody else can, and its addresses stay taken.
    pub(super) fn claim(&self, start: Vpn) -> Result<(VpnRange, Runs), VmallocError> {
        self.with(|state| {
            let found = state.areas.get(start.get()).is_some_and(|area| area.start == start.get());
            let area = state.areas.get_mut(start.get()).filter(|area| found && !area.busy);
            let area = area.ok_or(VmallocError::NotAnArea { start })?;
            area.busy = true;
            let runs = core::mem::replace(&mut area.runs, Runs::EMPTY);
            Ok((VpnRange { start, end: start.plus(area.pages) }, runs))
        })
    }

    /// Unmaps an area, flushes, and frees its frames.
    ///
    /// Expected O(log areas + runs), besides the frees themselves; O(runs log runs) where the
    /// frames are not in rising order.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then, but for [`VmallocError::Free`].
    pub fn vfree(&self, frames: &impl Frames, start: Vpn) -> Result<(), VmallocError> {
        let (range, runs) = self.claim(start)?;
        self.unmap_and_flush(range);
        count(&self.counters.areas_freed, 1);
        self.free_runs(frames, runs, start).map_err(VmallocError::Free)
    }
}
