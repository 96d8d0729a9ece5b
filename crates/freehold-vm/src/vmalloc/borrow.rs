//! Areas of frames that stay the caller's: vmap and vm_map_ram.

use freehold::{FrameRange, Order, Pfn};

use super::{Kind, Vmalloc};
use crate::area::VmallocError;
use crate::runs::Runs;
use crate::stats::count;
use crate::{Access, Mmu, Vpn, VpnRange};

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// An area that shows the caller's frames, in the order given, each run of neighbours mapped
    /// with one call.
    ///
    /// Where areas are freed lazily and there is no room, [purge](Vmalloc::purge) and try again.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vmap(&self, pages: &[Pfn], access: Access) -> Result<Vpn, VmallocError> {
        self.show(pages, access, true)
    }

    /// Takes away an area of [`Vmalloc::vmap`]. The frames stay the caller's.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vunmap(&self, start: Vpn) -> Result<(), VmallocError> {
        let (range, _) = self.claim(start, Kind::Borrowed)?;
        if let Err(error) = self.unmap_and_flush(range) {
            self.publish(start, Kind::Borrowed, Runs::EMPTY);
            return Err(error);
        }
        self.unreserve(start);
        count(&self.counters.areas_freed, 1);
        Ok(())
    }

    /// [`Vmalloc::vmap`] without a guard page, to read and write: for short-lived views of a few frames. The same holds
    /// for areas that are freed lazily.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vm_map_ram(&self, pages: &[Pfn]) -> Result<Vpn, VmallocError> {
        self.show(pages, Access::ReadWrite, false)
    }

    /// Takes away what [`Vmalloc::vm_map_ram`] made.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vm_unmap_ram(&self, start: Vpn) -> Result<(), VmallocError> {
        self.vunmap(start)
    }

    fn show(&self, pages: &[Pfn], access: Access, guard: bool) -> Result<Vpn, VmallocError> {
        let start = self.reserve(pages.len() as u64, 1, guard)?;
        let mut at = 0;
        // No list of runs is kept: unmapping needs none, and the frames are not the area's to free.
        for run in pages.chunk_by(|a, b| a.get().wrapping_add(1) == b.get()) {
            let frames =
                FrameRange { start: run[0], end: Pfn::new(run[0].get() + run.len() as u64) };
            if let Err(error) =
                self.mmu.map(self.space, start.plus(at), frames, access, Order::ZERO)
            {
                if at > 0 && self.unmap_and_flush(VpnRange { start, end: start.plus(at) }).is_err()
                {
                    self.leave(start, pages.len() as u64, Runs::EMPTY);
                } else {
                    self.unreserve(start);
                }
                return Err(VmallocError::Map(error));
            }
            count(&self.counters.maps, 1);
            at += run.len() as u64;
        }
        self.publish(start, Kind::Borrowed, Runs::EMPTY);
        count(&self.counters.areas, 1);
        Ok(start)
    }
}
