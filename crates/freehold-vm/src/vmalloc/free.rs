//! Freeing areas: unmapped, flushed, and then their frames by the run.

use freehold::{FrameRange, FreeError, Order, Pfn};

use super::{Kind, POP, Vmalloc};
use crate::area::VmallocError;
use crate::frames::free_what_can_be;
use crate::primitive::Plain;
use crate::runs::Runs;
use crate::stats::count;
use crate::{Flush, FlushKind, Frames, Mmu, Vpn, VpnRange};

impl<'m, M: Mmu> Vmalloc<'m, M> {
    pub(super) fn unmap_and_flush(&self, range: VpnRange) {
        self.unmap(range);
        count(&self.counters.flushes, 1);
        self.mmu.flush(&[Flush { space: self.space, range, kind: FlushKind::Unmapped }]);
    }

    /// Frees frames that no CPU can reach any more, and gives back the addresses of the area that
    /// starts at `area`.
    pub(crate) fn free_runs(
        &self,
        frames: &impl Frames,
        mut runs: Runs,
        mut area: Option<Vpn>,
    ) -> Result<(), FreeError> {
        let contig = self.contig_free.get();
        let mut in_order = !contig;
        let mut result = Ok(());
        loop {
            let mut some = [FrameRange::default(); POP];
            let n = self.with(|state| {
                if let Some(area) = area.take() {
                    state.areas.remove(area.get());
                }
                if !core::mem::replace(&mut in_order, true) {
                    state.runs.coalesce(&mut runs);
                }
                let mut n = 0;
                while n < POP {
                    let Some(run) = state.runs.pop(&mut runs) else { break };
                    some[n] = run;
                    n += 1;
                }
                n
            });
            for run in &some[..n] {
                count(&self.counters.frames_freed, run.len());
                // By branches, not by `Result::and`: to copy the result after every frame took four
                // times as long as the free itself.
                if contig && run.len() > 1 {
                    count(&self.counters.frees, 1);
                    if let Err(error) = free_what_can_be(frames, *run) {
                        result = result.and(Err(error));
                    }
                } else {
                    count(&self.counters.frees, run.len());
                    for pfn in run.start.get()..run.end.get() {
                        if let Err(error) = frames.free(Pfn::new(pfn), Order::ZERO) {
                            result = result.and(Err(error));
                        }
                    }
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
            let found = state.areas.get(start.get()).filter(|area| area.start == start.get());
            let Some(area) = state.areas.get_mut(start.get()).filter(|_| found.is_some()) else {
                return Err(VmallocError::NotAnArea { start });
            };
            if area.kind != Kind::Owned {
                return Err(VmallocError::NotAnArea { start });
            }
            area.kind = Kind::Busy;
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
        self.free_runs(frames, runs, Some(start)).map_err(VmallocError::Free)
    }
}
