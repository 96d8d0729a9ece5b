//! vmalloc: virtually neighbouring pages over frames from anywhere.
//!
//! ```text
//!   virtual   ... | area: 100 pages             |guard| area ...      the interval tree
//!                   64 pages   | 32     | 4                           one Mmu call a run
//!   frames          order 6      order 5  order 2                     allocated large, freed as runs
//! ```
//!
//! **Allocation** takes the largest orders first (Linux 6.19's `vm_area_alloc_pages`): the cap starts at the largest
//! order that fits, at most 10; where an order is not to be had the cap is lowered for good; every next chunk has the
//! largest order that both the cap and what is left allow. What remains comes in bulk, as single frames. Nothing has to
//! be split: frames of freehold carry no order. 100 pages are orders 6, 5 and 2.
//!
//! **Freeing** brings the area's runs into the order of their frames, joins those that touch, whatever the order of the
//! pages was, and frees each run with one call ([`Vmalloc::set_contig_free`]`(false)` frees page by page, as Linux did
//! until 7.1; with [`Vmalloc::set_large_orders`]`(false)` areas are made of single frames, as until 6.18). Before that, one [`Mmu::unmap`] and one [`Mmu::flush`] for each area or, with
//! [`Vmalloc::vfree_many`], one flush for many. An area's addresses are not given out again before its flush.
//!
//! **Lazy purging** ([`Vmalloc::set_lazy_max`]) makes one flush serve many [`Vmalloc::vfree`]s: see `purge.rs`.
//!
//! **Huge mappings** ([`Layout::huge`]) use frames in pageblocks and entries of 2 MiB, where the area has 2 MiB or more;
//! otherwise, and where there are no whole pageblocks, ordinary ones.

use freehold::{FrameRange, FreeError, Migratetype, Order, Pfn};

use crate::area::{Layout, VmallocError, VmallocStats};
use crate::interval::{InsertError, IntervalNode, IntervalTree};
use crate::lock::Spin;
use crate::primitive::{AtomicBool, AtomicU64, Plain};
use crate::runs::{NoNode, RunArena, RunNode, Runs};
use crate::stats::{Counter, count};
use crate::{Access, Flush, FlushBatch, FlushKind, FrameAllocator, Mmu, SpaceId, Vpn, VpnRange};

/// Frames asked for at a time when single frames are allocated in bulk (as in Linux).
const BULK: usize = 100;
/// Runs taken out of the lock's care at a time.
const POP: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reserved while its frames are allocated and mapped, or unmapped: nobody else may use it.
    Busy,
    /// The frames are the area's.
    Owned,
    /// The frames are its caller's.
    Borrowed,
    /// Freed and unmapped, but not flushed: nobody may have its addresses or its frames yet.
    Lazy,
}

/// What is kept about a virtual area: in an [`IntervalNode`].
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub(crate) kind: Kind,
    /// Pages, without the guard page.
    pub(crate) pages: u64,
    pub(crate) runs: Runs,
    /// Of a lazy area: the next one.
    pub(crate) next_lazy: Option<Vpn>,
}

pub(crate) struct State<'m> {
    pub(crate) areas: IntervalTree<'m, Area>,
    pub(crate) runs: RunArena<'m>,
    /// The area that was freed last and is not purged yet.
    pub(crate) lazy: Option<Vpn>,
    /// Pages of all such areas.
    pub(crate) lazy_pages: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    areas: Counter,
    pub(crate) areas_freed: Counter,
    frames: Counter,
    frames_freed: Counter,
    large_allocs: Counter,
    large_failures: Counter,
    frees: Counter,
    maps: Counter,
    unmaps: Counter,
    pub(crate) flushes: Counter,
    pub(crate) purges: Counter,
}

/// Virtual areas in a range of an address space. Any number of threads may call. See the
/// [module's story](crate#vmalloc).
pub struct Vmalloc<'m, M> {
    pub(crate) mmu: M,
    pub(crate) space: SpaceId,
    range: VpnRange,
    state: Spin<State<'m>>,
    contig_free: AtomicBool,
    large_orders: AtomicBool,
    pub(crate) lazy_max: AtomicU64,
    /// Held by whoever purges.
    pub(crate) purging: AtomicBool,
    pub(crate) counters: Counters,
}

/// Purges for want of something in one call: while others go on freeing lazily what is missing may be taken again.
const PURGES: usize = 3;

impl<'m, M: Mmu> Vmalloc<'m, M> {
    /// Hands out areas within `range` of `space`. Each area takes one of `areas`, and one of `runs` for every run of
    /// neighbouring frames in it: one or a few where memory is not fragmented, one a page at worst.
    #[must_use]
    pub fn new(
        mmu: M,
        space: SpaceId,
        range: VpnRange,
        areas: &'m mut [IntervalNode<Area>],
        runs: &'m mut [RunNode],
    ) -> Self {
        let (areas, runs) = (IntervalTree::new(areas), RunArena::new(runs));
        let state = State { areas, runs, lazy: None, lazy_pages: 0 };
        Self {
            mmu,
            space,
            range,
            state: Spin::new(state),
            contig_free: AtomicBool::new(true),
            large_orders: AtomicBool::new(true),
            lazy_max: AtomicU64::new(0),
            purging: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State<'m>) -> R) -> R {
        self.state.with(|| self.mmu.relax(), f)
    }

    /// Whether frames are freed as runs, which they are at first, or one by one: the baseline.
    pub fn set_contig_free(&self, on: bool) {
        self.contig_free.set(on);
    }

    /// Whether areas are allocated as the largest chunks that fit, as they are at first, or frame by frame (but for the
    /// pageblocks of huge mappings): the baseline, Linux until 6.18.
    pub fn set_large_orders(&self, on: bool) {
        self.large_orders.set(on);
    }

    /// The machine that was given to [`Vmalloc::new`].
    #[must_use]
    pub fn mmu(&self) -> &M {
        &self.mmu
    }

    /// What has been done so far. Takes no lock.
    #[must_use]
    pub fn stats(&self) -> VmallocStats {
        let c = &self.counters;
        VmallocStats {
            areas: c.areas.get(),
            areas_freed: c.areas_freed.get(),
            frames: c.frames.get(),
            frames_freed: c.frames_freed.get(),
            large_allocs: c.large_allocs.get(),
            large_failures: c.large_failures.get(),
            frees: c.frees.get(),
            maps: c.maps.get(),
            unmaps: c.unmaps.get(),
            flushes: c.flushes.get(),
            purges: c.purges.get(),
        }
    }

    /// Reserves virtual pages. Nobody gets at them before [`Self::publish`].
    fn reserve(&self, pages: u64, align: u64, guard: bool) -> Result<Vpn, VmallocError> {
        if pages == 0 {
            return Err(VmallocError::ZeroPages);
        }
        if !align.is_power_of_two() {
            return Err(VmallocError::BadAlign { align });
        }
        let size = pages.saturating_add(u64::from(guard));
        let area = Area { kind: Kind::Busy, pages, runs: Runs::EMPTY, next_lazy: None };
        self.with(|state| {
            let Some(start) = state.areas.find_gap(self.range.start.get(), self.range.end.get(), size, align) else {
                return Err(VmallocError::NoSpace { pages: size });
            };
            match state.areas.insert(start, start + size, area) {
                Ok(()) => Ok(Vpn::new(start)),
                Err(InsertError::NoNode) => Err(VmallocError::NoNodes),
                Err(InsertError::Overlap) => Err(VmallocError::NoSpace { pages: size }),
            }
        })
    }

    fn publish(&self, start: Vpn, kind: Kind, runs: Runs) {
        self.with(|state| {
            if let Some(area) = state.areas.get_mut(start.get()) {
                (area.kind, area.runs) = (kind, runs);
            }
        });
    }

    fn unreserve(&self, start: Vpn) {
        self.with(|state| state.areas.remove(start.get()));
    }

    /// An area of fresh frames, mapped.
    ///
    /// Expected O(log areas + runs), besides the frames themselves. The contents of the frames are the host's affair:
    /// [`Vmalloc::for_each_run`] tells what to fill.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then.
    pub fn vmalloc(&self, frames: &impl FrameAllocator, layout: Layout) -> Result<Vpn, VmallocError> {
        let mut result = self.vmalloc_once(frames, layout);
        for _ in 0..PURGES {
            let wants =
                matches!(result, Err(VmallocError::NoSpace { .. } | VmallocError::NoNodes | VmallocError::Alloc(_)));
            // What waits for a purge may be just what is missing.
            if !wants || !self.purge_for_want(frames) {
                break;
            }
            result = self.vmalloc_once(frames, layout);
        }
        result
    }

    fn vmalloc_once(&self, frames: &impl FrameAllocator, layout: Layout) -> Result<Vpn, VmallocError> {
        let huge = Order::PAGEBLOCK.frames();
        if layout.huge && layout.pages >= huge {
            if let Some(pages) = layout.pages.checked_next_multiple_of(huge) {
                let aligned = Layout { pages, align: layout.align.max(huge), ..layout };
                let lacks = |made: &Result<Vpn, VmallocError>| {
                    matches!(made, Err(VmallocError::Alloc(_) | VmallocError::NoSpace { .. }))
                };
                let mut made = self.vmalloc_with(frames, aligned, Order::PAGEBLOCK);
                if lacks(&made) && self.purge_for_want(frames) {
                    made = self.vmalloc_with(frames, aligned, Order::PAGEBLOCK);
                }
                // No whole pageblocks, or no room for the alignment: ordinary entries will do.
                if !lacks(&made) {
                    return made;
                }
            }
        }
        self.vmalloc_with(frames, layout, Order::ZERO)
    }

    fn vmalloc_with(&self, frames: &impl FrameAllocator, layout: Layout, base: Order) -> Result<Vpn, VmallocError> {
        let start = self.reserve(layout.pages, layout.align, layout.guard)?;
        let mut runs = Runs::EMPTY;
        let mut left = layout.pages;
        let filled = self.fill(frames, &mut runs, &mut left, base);
        count(&self.counters.frames, layout.pages - left);
        let made = filled.map_err(|error| (error, 0)).and_then(|()| self.map_runs(start, &runs, layout.access, base));
        if let Err((error, mapped)) = made {
            if mapped > 0 && self.unmap_and_flush(VpnRange { start, end: start.plus(mapped) }).is_err() {
                self.leave(start, layout.pages, runs);
                return Err(error);
            }
            // What was allocated is this call's own, so that freeing it cannot fail.
            let _ = self.free_runs(frames, runs, Some(start));
            return Err(error);
        }
        self.publish(start, Kind::Owned, runs);
        count(&self.counters.areas, 1);
        Ok(start)
    }

    fn push(&self, frames: &impl FrameAllocator, runs: &mut Runs, pfn: Pfn, len: u64) -> Result<(), VmallocError> {
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
        frames: &impl FrameAllocator,
        runs: &mut Runs,
        left: &mut u64,
        base: Order,
    ) -> Result<(), VmallocError> {
        let most = if self.large_orders.get() { Order::LINUX_MAX } else { base };
        let mut cap = Order::fitting(*left).unwrap_or(Order::ZERO).min(most);
        let mut large = cap;
        while large > base && *left > 0 {
            count(&self.counters.large_allocs, 1);
            let Ok(pfn) = frames.alloc(large, Migratetype::Unmovable) else {
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
                let got = frames.alloc_bulk(Migratetype::Unmovable, &mut bulk[..want]).map_err(VmallocError::Alloc)?;
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
            let pfn = frames.alloc(base, Migratetype::Unmovable).map_err(VmallocError::Alloc)?;
            self.push(frames, runs, pfn, base.frames())?;
            *left -= base.frames();
        }
        Ok(())
    }

    /// Maps an area's runs from its start on, each with one call; says how many pages have been mapped where that fails.
    fn map_runs(&self, start: Vpn, runs: &Runs, access: Access, base: Order) -> Result<(), (VmallocError, u64)> {
        let mut mapped = 0;
        let mut cursor = runs.cursor();
        loop {
            // The list is this caller's; only its nodes are under the lock. A few at a time, as mapping may take long.
            let mut some = [(0, FrameRange::default()); POP];
            let n = self.with(|state| {
                let mut n = 0;
                while n < POP {
                    let Some(run) = state.runs.next(&mut cursor) else { break };
                    some[n] = run;
                    n += 1;
                }
                n
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

    pub(crate) fn unmap(&self, range: VpnRange) {
        self.mmu.unmap(self.space, range);
        count(&self.counters.unmaps, 1);
    }

    fn unmap_and_flush(&self, range: VpnRange) -> Result<(), VmallocError> {
        self.unmap(range);
        self.flush_one(range)
    }

    pub(crate) fn flush_one(&self, range: VpnRange) -> Result<(), VmallocError> {
        count(&self.counters.flushes, 1);
        self.mmu
            .try_flush(&[Flush { space: self.space, range, kind: FlushKind::Unmapped }])
            .map_err(VmallocError::Unmap)
    }

    /// Frees frames that no CPU can reach any more, and gives back the addresses of the area that starts at `area`.
    pub(crate) fn free_runs(
        &self,
        frames: &impl FrameAllocator,
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
                // By branches, not by `Result::and`: to copy the result after every frame took four times as long as the
                // free itself.
                if contig && run.len() > 1 {
                    count(&self.counters.frees, 1);
                    if let Err(error) = frames.free_range(*run) {
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
    fn claim(&self, start: Vpn, kind: Kind) -> Result<(VpnRange, Runs), VmallocError> {
        self.with(|state| {
            let found = state.areas.get(start.get()).filter(|area| area.start == start.get());
            let Some(area) = state.areas.get_mut(start.get()).filter(|_| found.is_some()) else {
                return Err(VmallocError::NotAnArea { start });
            };
            if area.kind != kind {
                let busy = matches!(area.kind, Kind::Busy | Kind::Lazy);
                return Err(if busy { VmallocError::NotAnArea { start } } else { VmallocError::WrongKind { start } });
            }
            area.kind = Kind::Busy;
            let runs = core::mem::replace(&mut area.runs, Runs::EMPTY);
            Ok((VpnRange { start, end: start.plus(area.pages) }, runs))
        })
    }

    /// Unmaps an area, flushes, and frees its frames; with [lazy purging](Vmalloc::set_lazy_max), unmaps it and leaves
    /// the rest to a later purge.
    ///
    /// Expected O(log areas + runs), besides the frees themselves; O(runs log runs) where the frames are not in rising
    /// order.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then, but for [`VmallocError::Free`].
    pub fn vfree(&self, frames: &impl FrameAllocator, start: Vpn) -> Result<(), VmallocError> {
        let (range, runs) = self.claim(start, Kind::Owned)?;
        if self.lazy_max.get() > 0 {
            return self.free_later(frames, range, runs);
        }
        if let Err(error) = self.unmap_and_flush(range) {
            self.publish(start, Kind::Owned, runs);
            return Err(error);
        }
        count(&self.counters.areas_freed, 1);
        self.free_runs(frames, runs, Some(start)).map_err(VmallocError::Free)
    }

    /// [`Vmalloc::vfree`] of several areas with one flush for every [`BATCH`](crate::BATCH) of them: for what gathers
    /// frees and makes them later, as after an RCU grace period.
    ///
    /// # Errors
    ///
    /// The first, as of [`Vmalloc::vfree`]; all other areas have been freed nevertheless.
    pub fn vfree_many(&self, frames: &impl FrameAllocator, starts: &[Vpn]) -> Result<(), VmallocError> {
        let mut result = Ok(());
        for starts in starts.chunks(crate::BATCH) {
            let mut batch = FlushBatch::new();
            let mut claimed = [(VpnRange::default(), Runs::EMPTY); crate::BATCH];
            let mut n = 0;
            for start in starts {
                match self.claim(*start, Kind::Owned) {
                    Ok((range, runs)) => {
                        self.unmap(range);
                        // As many ranges as areas fit.
                        let _ = batch.add(Flush { space: self.space, range, kind: FlushKind::Unmapped });
                        claimed[n] = (range, runs);
                        n += 1;
                    }
                    Err(error) => result = result.and(Err(error)),
                }
            }
            count(&self.counters.flushes, u64::from(!batch.is_empty()));
            let flushed = batch.try_flush(&self.mmu).is_ok();
            for (range, runs) in &claimed[..n] {
                if !flushed {
                    // Not all of them. One by one, so that it shows which.
                    if let Err(error) = self.flush_one(*range) {
                        self.publish(range.start, Kind::Owned, *runs);
                        result = result.and(Err(error));
                        continue;
                    }
                }
                count(&self.counters.areas_freed, 1);
                result = result.and(self.free_runs(frames, *runs, Some(range.start)).map_err(VmallocError::Free));
            }
        }
        result
    }

    /// Unmaps some of an area's pages and frees their frames. Pages that are unmapped already are passed over. The
    /// addresses stay the area's.
    ///
    /// # Errors
    ///
    /// See [`VmallocError`]; nothing has changed then, but for [`VmallocError::Free`].
    pub fn unmap_part(&self, frames: &impl FrameAllocator, start: Vpn, range: VpnRange) -> Result<(), VmallocError> {
        let (area, mut runs) = self.claim(start, Kind::Owned)?;
        let inside = !range.is_empty() && area.start <= range.start && range.end <= area.end;
        let (from, to) = (range.start.get().wrapping_sub(start.get()), range.end.get().wrapping_sub(start.get()));
        let mut out = if inside {
            let punch = |runs: &mut Runs| self.with(|state| state.runs.punch(runs, from, to));
            let mut out = punch(&mut runs);
            if out.is_err() && self.purge_for_want(frames) {
                out = punch(&mut runs);
            }
            out.map_err(|NoNode| VmallocError::NoNodes)
        } else {
            Err(VmallocError::OutOfArea { range })
        };
        if let Ok(taken) = out {
            if let Err(error) = self.unmap_and_flush(range) {
                self.with(|state| state.runs.refill(&mut runs, from, taken));
                out = Err(error);
            }
        }
        self.publish(start, Kind::Owned, runs);
        self.free_runs(frames, out?, None).map_err(VmallocError::Free)
    }

    /// An area that shows the caller's frames, in the order given, each run of neighbours mapped with one call.
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
            let frames = FrameRange { start: run[0], end: Pfn::new(run[0].get() + run.len() as u64) };
            if let Err(error) = self.mmu.map(self.space, start.plus(at), frames, access, Order::ZERO) {
                if at > 0 && self.unmap_and_flush(VpnRange { start, end: start.plus(at) }).is_err() {
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

    /// Calls `f` with each run of frames of an area that [`Vmalloc::vmalloc`] made, and the page it starts at. Holds
    /// the lock of all areas meanwhile: `f` must not call back.
    ///
    /// # Errors
    ///
    /// [`VmallocError::NotAnArea`].
    pub fn for_each_run(&self, start: Vpn, mut f: impl FnMut(Vpn, FrameRange)) -> Result<(), VmallocError> {
        self.with(|state| {
            let area = state.areas.get(start.get()).filter(|area| area.start == start.get());
            let area = area.filter(|area| area.value.kind == Kind::Owned).ok_or(VmallocError::NotAnArea { start })?;
            state.runs.iter(&area.value.runs).for_each(|(at, run)| f(start.plus(at), run));
            Ok(())
        })
    }

    /// The pages of the area that `vpn` lies in, without its guard page; `None` where there is none. Expected
    /// O(log areas).
    #[must_use]
    pub fn find_area(&self, vpn: Vpn) -> Option<VpnRange> {
        let area = self.with(|state| state.areas.get(vpn.get()))?;
        let start = Vpn::new(area.start);
        let range = VpnRange { start, end: start.plus(area.value.pages) };
        (area.value.kind != Kind::Lazy && range.contains(vpn)).then_some(range)
    }
}
