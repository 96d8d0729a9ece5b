//! Making an area: addresses, frames from the largest orders on, one mapping a run.

use freehold::{FrameRange, Migratetype, Order, Pfn, Request};

use super::{BULK, POP, Vmalloc};
use crate::area::{Layout, VmallocError};
use crate::runs::{NoNode, Runs};
use crate::stats::count;
use crate::{Access, Frames, Mmu, Vpn, VpnRange};

/// What areas are made of where no larger chunk will do.
const SINGLE: Request = Request::new(Order::ZERO, Migratetype::Unmovable);

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// An area of fresh frames, mapped.
    ///
    /// Expected O(log areas + runs), besides the frames themselves. The contents of the frames are
    /// the host's affair: [`Vmalloc::for_each_run`] tells what to fill.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vmalloc(&self, frames: &impl Frames, layout: Layout) -> Result<Vpn, VmallocError> {
        let huge = Order::PAGEBLOCK.frames();
        if layout.huge && layout.pages >= huge {
            if let Some(pages) = layout.pages.checked_next_multiple_of(huge) {
                let aligned = Layout { pages, align: layout.align.max(huge), ..layout };
                let lacks = |made: &Result<Vpn, VmallocError>| {
                    matches!(made, Err(VmallocError::Alloc(_) | VmallocError::NoSpace { .. }))
                };
                let made = self.vmalloc_with(frames, aligned, Order::PAGEBLOCK);
                // No whole pageblocks, or no room for the alignment: ordinary entries will do.
                if !lacks(&made) {
                    return made;
                }
            }
        }
        self.vmalloc_with(frames, layout, Order::ZERO)
    }

    fn vmalloc_with(
        &self,
        frames: &impl Frames,
        layout: Layout,
        base: Order,
    ) -> Result<Vpn, VmallocError> {
        let start = self.reserve(layout.pages, layout.align)?;
        let mut runs = Runs::EMPTY;
        let mut left = layout.pages;
        let filled = self.fill(frames, &mut runs, &mut left, base);
        count(&self.counters.frames, layout.pages - left);
        let made =
            filled.map_err(|error| (error, 0)).and_then(|()| self.map_runs(start, &runs, base));
        if let Err((error, mapped)) = made {
            if mapped > 0 {
                self.unmap_and_flush(VpnRange { start, end: start.plus(mapped) });
            }
            // What was allocated is this call's own, so that freeing it cannot fail.
            let _ = self.free_runs(frames, runs, start);
            return Err(error);
        }
        self.publish(start, runs);
        count(&self.counters.areas, 1);
        Ok(start)
    }

    fn push(
        &self,
        frames: &impl Frames,
        runs: &mut Runs,
        pfn: Pfn,
        len: u64,
    ) -> Result<(), VmallocError> {
        self.with(|state| state.runs.push(runs, pfn, len)).map_err(|NoNode| {
            if let Some(range) = FrameRange::new(pfn, len) {
                // Just allocated here: cannot fail.
                let _ = frames.free_range(range);
            }
            VmallocError::NoNodes
        })
    }

    /// Allocates `left` frames, and counts them down: see the module's documentation for the rule.
    fn fill(
        &self,
        frames: &impl Frames,
        runs: &mut Runs,
        left: &mut u64,
        base: Order,
    ) -> Result<(), VmallocError> {
        let mut cap = Order::fitting(*left).unwrap_or(Order::ZERO).min(Order::LINUX_MAX);
        let mut large = cap;
        while large > base && *left > 0 {
            count(&self.counters.large_allocs, 1);
            let Ok(pfn) = frames.alloc(Request::new(large, Migratetype::Unmovable)) else {
                count(&self.counters.large_failures, 1);
                cap = Order::new(large.get() - 1).unwrap_or(Order::ZERO);
                large = cap;
                continue;
            };
            self.push(frames, runs, pfn, large.frames())?;
            *left -= large.frames();
            large = cap.min(Order::fitting(*left).unwrap_or(Order::ZERO));
        }
        if base == Order::ZERO && *left > 1 {
            let mut bulk = [Pfn::new(0); BULK];
            while *left > 0 {
                let want = (*left).min(BULK as u64) as usize;
                let got =
                    frames.alloc_bulk(SINGLE, &mut bulk[..want]).map_err(VmallocError::Alloc)?;
                for (i, pfn) in bulk[..got].iter().enumerate() {
                    if let Err(error) = self.push(frames, runs, *pfn, 1) {
                        for pfn in &bulk[i + 1..got] {
                            // Just allocated here: cannot fail.
                            let _ = frames.free(*pfn, Order::ZERO);
                        }
                        return Err(error);
                    }
                    *left -= 1;
                }
            }
        }
        while *left > 0 {
            count(&self.counters.large_allocs, u64::from(base > Order::ZERO));
            let pfn = frames
                .alloc(Request::new(base, Migratetype::Unmovable))
                .map_err(VmallocError::Alloc)?;
            self.push(frames, runs, pfn, base.frames())?;
            *left -= base.frames();
        }
        Ok(())
    }

    /// Maps an area's runs from its start on, each with one call; says how many pages have been
    /// mapped where that fails.
    fn map_runs(&self, start: Vpn, runs: &Runs, base: Order) -> Result<(), (VmallocError, u64)> {
        let access = Access::ReadWrite;
        let mut mapped = 0;
        let mut cursor = runs.cursor();
        loop {
            // The list is this caller's; only its nodes are under the lock. A few at a time, as
            // mapping may take long.
            let mut some = [(0, FrameRange::default()); POP];
            let n = self.with(|state| {
                let runs = core::iter::from_fn(|| state.runs.next(&mut cursor));
                some.iter_mut().zip(runs).map(|(place, run)| *place = run).count()
            });
            for (at, run) in &some[..n] {
                if let Err(error) = self.mmu.map(self.space, start.plus(*at), *run, access, base) {
                    return Err((VmallocError::Map(error), mapped));
                }
                count(&self.counters.maps, 1);
                mapped = at + run.len();
            }
            if n < POP {
                return Ok(());
            }
        }
    }
}
