//! vmalloc: virtually neighbouring pages over frames from anywhere.
//!
//! ```text
//!   virtual   ... | area: 100 pages             |guard| area ...   the interval tree
//!                   64 pages   | 32     | 4                        one Mmu call a run
//!   frames          order 6      order 5  order 2                  allocated large, freed as runs
//! ```
//!
//! **Allocation** takes the largest orders first (Linux 6.19's `vm_area_alloc_pages`): the cap
//! starts at the largest order that fits, at most 10; where an order is not to be had the cap is
//! lowered for good; every next chunk has the largest order that both the cap and what is left
//! allow. What remains comes in bulk, as single frames. Nothing has to be split: frames of freehold
//! carry no order. 100 pages are orders 6, 5 and 2.
//!
//! **Freeing** brings the area's runs into the order of their frames, joins those that touch,
//! whatever the order of the pages was, and frees each run with one call. Before that, one
//! [`Mmu::unmap`] and one [`Mmu::flush`] for each area. An area's addresses are not given out again
//! before its flush.
//!
//! **Huge mappings** ([`Layout::huge`]) use frames in pageblocks and entries of 2 MiB, where the
//! area has 2 MiB or more; otherwise, and where there are no whole pageblocks, ordinary ones.

mod alloc;
mod free;

use freehold::FrameRange;

use crate::area::{Counters, VmallocError, VmallocStats};
use crate::interval::{InsertError, IntervalNode, IntervalTree};
use crate::lock::Spin;
use crate::runs::{RunArena, RunNode, Runs};
use crate::{Mmu, SpaceId, Vpn, VpnRange};

/// Frames asked for at a time when single frames are allocated in bulk (as in Linux).
const BULK: usize = 100;
/// Runs taken out of the lock's care at a time.
const POP: usize = 16;

/// What is kept about a virtual area: in an [`IntervalNode`].
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its frames are being allocated and mapped, or unmapped: nobody else may use it.
    busy: bool,
    /// Pages, without the guard page.
    pub(crate) pages: u64,
    pub(crate) runs: Runs,
}

pub(crate) struct State<'m> {
    pub(crate) areas: IntervalTree<'m, Area>,
    pub(crate) runs: RunArena<'m>,
}

/// Virtual areas in a range of an address space. Any number of threads may call.
pub struct Vmalloc<'m, M> {
    pub(crate) mmu: M,
    pub(crate) space: SpaceId,
    range: VpnRange,
    state: Spin<State<'m>>,
    pub(crate) counters: Counters,
}

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// Hands out areas within `range` of `space`. Each area takes one of `areas`, and one of `runs`
    /// for every run of neighbouring frames in it: one or a few where memory is not fragmented, one
    /// a page at worst.
    #[must_use]
    pub fn new(
        mmu: M,
        space: SpaceId,
        range: VpnRange,
        areas: &'m mut [IntervalNode<Area>],
        runs: &'m mut [RunNode],
    ) -> Self {
        let (areas, runs) = (IntervalTree::new(areas), RunArena::new(runs));
        let state = Spin::new(State { areas, runs });
        Self { mmu, space, range, state, counters: Counters::default() }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State<'m>) -> R) -> R {
        self.state.with(|| self.mmu.relax(), f)
    }

    /// The machine that was given to [`Vmalloc::new`].
    #[must_use]
    pub fn mmu(&self) -> &M {
        &self.mmu
    }

    /// What has been done so far. Takes no lock.
    #[must_use]
    pub fn stats(&self) -> VmallocStats {
        self.counters.read()
    }

    /// Reserves virtual pages. Nobody gets at them before [`Self::publish`].
    fn reserve(&self, pages: u64, align: u64) -> Result<Vpn, VmallocError> {
        if pages == 0 {
            return Err(VmallocError::ZeroPages);
        }
        if !align.is_power_of_two() {
            return Err(VmallocError::BadAlign { align });
        }
        let size = pages.saturating_add(1);
        let area = Area { busy: true, pages, runs: Runs::EMPTY };
        self.with(|state| {
            let Some(start) =
                state.areas.find_gap(self.range.start.get(), self.range.end.get(), size, align)
            else {
                return Err(VmallocError::NoSpace { pages: size });
            };
            match state.areas.insert(start, start + size, area) {
                Ok(()) => Ok(Vpn::new(start)),
                Err(InsertError::NoNode) => Err(VmallocError::NoNodes),
                Err(InsertError::Overlap) => Err(VmallocError::NoSpace { pages: size }),
            }
        })
    }

    fn publish(&self, start: Vpn, runs: Runs) {
        self.with(|state| {
            if let Some(area) = state.areas.get_mut(start.get()) {
                (area.busy, area.runs) = (false, runs);
            }
        });
    }

    /// Calls `f` with each run of frames of an area that [`Vmalloc::vmalloc`] made, and the page it
    /// starts at. Holds the lock of all areas meanwhile: `f` must not call back.
    ///
    /// # Errors
    ///
    /// [`VmallocError::NotAnArea`].
    pub fn for_each_run(
        &self,
        start: Vpn,
        mut f: impl FnMut(Vpn, FrameRange),
    ) -> Result<(), VmallocError> {
        self.with(|state| {
            let area = state.areas.get(start.get()).filter(|area| area.start == start.get());
            let area =
                area.filter(|area| !area.value.busy).ok_or(VmallocError::NotAnArea { start })?;
            state.runs.iter(&area.value.runs).for_each(|(at, run)| f(start.plus(at), run));
            Ok(())
        })
    }

    /// The pages of the area that `vpn` lies in, without its guard page; `None` where there is
    /// none. Expected O(log areas).
    #[must_use]
    pub fn find_area(&self, vpn: Vpn) -> Option<VpnRange> {
        let area = self.with(|state| state.areas.get(vpn.get()))?;
        let start = Vpn::new(area.start);
        let range = VpnRange { start, end: start.plus(area.value.pages) };
        range.contains(vpn).then_some(range)
    }
}
