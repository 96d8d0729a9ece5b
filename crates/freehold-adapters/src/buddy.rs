//! The call shape of `buddy_system_allocator`'s frame allocators, so that its users change one
//! line.
//!
//! ```
//! // use buddy_system_allocator::LockedFrameAllocator;
//! use freehold_adapters::buddy::LockedFrameAllocator;
//!
//! static FRAMES: LockedFrameAllocator<33> = LockedFrameAllocator::new();
//!
//! FRAMES.lock().add_frame(0x100, 0x8000);
//! let start = FRAMES.lock().alloc(4).unwrap();
//! assert_eq!(start % 4, 0);
//! FRAMES.lock().dealloc(start, 4);
//! ```
//!
//! # What is the same
//!
//! All calls of version 0.13, their alignment (a run of `count` frames starts at a multiple of the
//! next power of two), `ORDER` as the limit of one allocation, and the need of a heap: the metadata
//! comes from there, 112 bytes for each 2 MiB, when memory is added and never later. Small requests
//! take what is left over at the ends of memory first, the smallest aligned piece that will do, so
//! that the larger pieces stay whole.
//!
//! # What is not
//!
//! - **`alloc(n)` takes `n` frames, and `dealloc(start, n)` frees `n`.** There both are rounded up
//!   to a power of two, so that after `alloc(4)`, `dealloc(start, 3)` frees the fourth frame too,
//!   which somebody still uses, and the next allocation hands it out a second time. Here it stays
//!   allocated until somebody frees it, and any part of an allocation may be freed on its own.
//!   `alloc_aligned` and `dealloc_aligned` round up as documented there.
//! - **A count of 0 is refused**, as a layout of size 0 is, and frees of it are; there it stands
//!   for 1.
//! - **A wrong free panics**, with the frame and the reason, where it is a silent corruption there
//!   (or a panic on the statistics' overflow). [`FrameAllocator::try_dealloc`] says why instead.
//! - **Memory added twice panics.** There it is handed out twice.
//! - Which of the free frames is handed out is another one. Between the ends of memory it is the
//!   lowest that is aligned, not one of the smallest free piece: free frames are bits here, not
//!   lists by size. So a free frame by itself may stay while a pair is cut.
//! - Memory added in pieces while nothing is allocated becomes one allocator. A piece added later
//!   is served on its own: no run of frames goes across its edge.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, Range};
use core::ptr::NonNull;

use freehold::{
    Config, FrameRange, FreeError, Freehold, Migratetype, Order, Pfn, Request, SingleCpu,
    Violation, Watermarks, ZoneConfig, ZoneStats,
};
use spin::Mutex;

use crate::run::alloc_run;

/// Frame numbers end here: what Freehold can name.
const END: u64 = 1 << 40;
/// Pieces further apart than this (256 GiB) do not share an allocator, whose tables cover the gap.
const FAR: u64 = 1 << 26;

/// A frame allocator; see the [module's documentation](self).
pub struct FrameAllocator<const ORDER: usize = 33> {
    regions: Vec<Region>,
    /// Added, but no allocator has been made for it yet: pieces mostly come one after the other.
    waiting: Vec<FrameRange>,
    allocated: u64,
}

/// Pieces of memory that share an allocator.
struct Region {
    /// Refers to `metadata`, and goes before it.
    engine: ManuallyDrop<Freehold<'static, SingleCpu>>,
    metadata: NonNull<[MaybeUninit<u8>]>,
    ranges: Vec<FrameRange>,
    span: FrameRange,
    /// The pieces at the ends of the ranges that are no whole blocks, smallest first.
    ends: Vec<End>,
}

/// A naturally aligned piece of memory smaller than a block.
struct End {
    range: FrameRange,
    free: u64,
}

// SAFETY: the allocator may be sent, and the metadata is its own.
unsafe impl Send for Region {}
// SAFETY: the allocator may be shared, and the metadata is reached through it only.
unsafe impl Sync for Region {}

impl Region {
    /// `ranges` is not empty, and its pieces do not overlap.
    fn new(ranges: Vec<FrameRange>) -> Self {
        // A single user behind a lock: nobody to hold memory back for.
        let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&ranges) };
        let span = zone.span;
        let zones = [zone];
        let config = Config::new(1, &zones);
        let size = Freehold::<SingleCpu>::metadata_size(&config)
            .expect("the pieces were checked when they were added");
        let metadata = Box::leak(vec![MaybeUninit::<u8>::uninit(); size].into_boxed_slice());
        let owner = NonNull::from(&mut *metadata);
        let engine =
            Freehold::new(&config, metadata, SingleCpu).expect("the size is what was asked for");
        let pieces = ranges.iter().flat_map(|range| range.chunks(Order::PAGEBLOCK));
        let pieces = pieces.filter(|&(_, order)| order < Order::PAGEBLOCK);
        let mut ends: Vec<End> = pieces
            .filter_map(|(start, order)| FrameRange::new(start, order.frames()))
            .map(|range| End { range, free: range.len() })
            .collect();
        ends.sort_by_key(|end| (end.range.len(), end.range.start));
        Self { engine: ManuallyDrop::new(engine), metadata: owner, ranges, span, ends }
    }

    /// `count` frames in a row, the first a multiple of `align`.
    fn alloc(&mut self, count: u64, align: u64) -> Option<Pfn> {
        let size = count.checked_next_power_of_two()?.max(align);
        let fits = |end: &&End| end.range.len() >= size && end.free >= count;
        let order = Order::fitting(size);
        let start = self.ends.iter().filter(fits).find_map(|end| {
            let request = Request::new(order?, Migratetype::Movable)
                .from(end.range.start)
                .below(end.range.end);
            let start = self.engine.here().alloc(request).ok()?;
            let rest = FrameRange {
                start: Pfn::new(start.get() + count),
                end: Pfn::new(start.get() + order?.frames()),
            };
            if !rest.is_empty() {
                // Allocated just now and known to nobody, so there is nothing to refuse.
                let freed = self.engine.here().free_range(rest);
                debug_assert_eq!(freed, Ok(()));
            }
            Some(start)
        });
        let start = match start {
            Some(start) => start,
            None => alloc_run(&self.engine, count, align, Migratetype::Movable, self.span).ok()?,
        };
        self.count(FrameRange::new(start, count)?, u64::wrapping_sub);
        Some(start)
    }

    /// Keeps the count of what is free at the ends.
    fn count(&mut self, range: FrameRange, change: impl Fn(u64, u64) -> u64) {
        for end in &mut self.ends {
            let (from, to) = (end.range.start.max(range.start), end.range.end.min(range.end));
            if from < to {
                end.free = change(end.free, to.get() - from.get());
            }
        }
    }

    fn contains(&self, pfn: Pfn) -> bool {
        self.ranges.iter().any(|range| range.contains(pfn))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: dropped here and never used again.
        unsafe { ManuallyDrop::drop(&mut self.engine) };
        // SAFETY: it was leaked from a box of just this slice, and the allocator that used it is
        // gone.
        drop(unsafe { Box::from_raw(self.metadata.as_ptr()) });
    }
}

impl<const ORDER: usize> FrameAllocator<ORDER> {
    /// An allocator without frames.
    #[must_use]
    pub const fn new() -> Self {
        Self { regions: Vec::new(), waiting: Vec::new(), allocated: 0 }
    }

    /// Adds the frames from `start` on up to `end`, that not included.
    ///
    /// # Panics
    ///
    /// Where `start` is behind `end`, where `end` is above 2^40 (as a physical address: 2^52), and
    /// where some of the frames are there already.
    pub fn add_frame(&mut self, start: usize, end: usize) {
        assert!(start <= end, "add_frame: {start:#x} is behind {end:#x}");
        assert!(end as u64 <= END, "add_frame: there are no frames above 2^40, and {end:#x} is");
        if start == end {
            return;
        }
        let range = FrameRange { start: Pfn::new(start as u64), end: Pfn::new(end as u64) };
        let known = self.regions.iter().flat_map(|region| &region.ranges).chain(&self.waiting);
        for other in known {
            let overlap = other.start < range.end && range.start < other.end;
            assert!(
                !overlap,
                "add_frame: {range} and {other}, which is there already, share frames"
            );
        }
        self.waiting.push(range);
    }

    /// Adds a range of frames, as [`Self::add_frame`].
    ///
    /// # Panics
    ///
    /// As [`Self::add_frame`] does.
    pub fn insert(&mut self, range: Range<usize>) {
        self.add_frame(range.start, range.end);
    }

    /// Makes allocators for what was added.
    #[cold]
    fn add_waiting(&mut self) {
        let mut ranges = core::mem::take(&mut self.waiting);
        if self.allocated == 0 {
            // Nothing is lost by beginning again, and pieces that are neighbours become one.
            for mut region in self.regions.drain(..) {
                ranges.append(&mut region.ranges);
            }
        }
        ranges.sort_by_key(|range| range.start);
        let mut group: Vec<FrameRange> = Vec::new();
        for range in ranges {
            match group.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                Some(last) if range.start.get() - last.end.get() > FAR => {
                    self.regions.push(Region::new(core::mem::replace(&mut group, vec![range])));
                }
                _ => group.push(range),
            }
        }
        if !group.is_empty() {
            self.regions.push(Region::new(group));
        }
    }

    fn alloc_exactly(&mut self, count: usize, align: usize) -> Option<usize> {
        if !self.waiting.is_empty() {
            self.add_waiting();
        }
        if ORDER == 0 || align.checked_ilog2()? as usize >= ORDER {
            return None;
        }
        let (count, align) = (count as u64, align as u64);
        let start = self.regions.iter_mut().find_map(|region| region.alloc(count, align))?;
        self.allocated += count;
        Some(start.get() as usize)
    }

    /// Allocates `count` frames in a row (none for 0), the first a multiple of the next power of
    /// two; returns the first.
    ///
    /// Constant time up to 2 MiB; above that a search over the free blocks.
    pub fn alloc(&mut self, count: usize) -> Option<usize> {
        if count == 0 {
            return None;
        }
        self.alloc_exactly(count, count.checked_next_power_of_two()?)
    }

    /// Allocates as many frames as the larger of the layout's alignment and its size rounded up to
    /// a power of two, aligned to that; none for a size of 0. Both are in frames.
    pub fn alloc_aligned(&mut self, layout: Layout) -> Option<usize> {
        if layout.size() == 0 {
            return None;
        }
        let size = aligned_size(layout);
        self.alloc_exactly(size, size)
    }

    /// Allocates the `count` frames from `start` on, a multiple of the next power of two, if they
    /// are all free.
    pub fn alloc_at(&mut self, start: usize, count: usize) -> Option<usize> {
        if !self.waiting.is_empty() {
            self.add_waiting();
        }
        let size = count.checked_next_power_of_two()?;
        let range = FrameRange::new(Pfn::new(start as u64), count as u64)?;
        if start % size != 0 || count == 0 || size.ilog2() as usize >= ORDER {
            return None;
        }
        let region = self.regions.iter_mut().find(|region| region.contains(range.start))?;
        region.engine.alloc_contig_range(range, |_| false).ok()?;
        region.count(range, u64::wrapping_sub);
        self.allocated += range.len();
        Some(start)
    }

    /// Frees `count` frames from `start` on: an allocation or any part of one.
    ///
    /// # Panics
    ///
    /// Where some of them are free already, were never handed out or are not there, and where they
    /// are none; nothing has changed then.
    pub fn dealloc(&mut self, start: usize, count: usize) {
        if let Err(error) = self.try_dealloc(start, count) {
            panic!("dealloc({start:#x}, {count}): {error}");
        }
    }

    /// As [`Self::dealloc`], but says why not.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub fn try_dealloc(&mut self, start: usize, count: usize) -> Result<(), FreeError> {
        let start = Pfn::new(start as u64);
        if count == 0 {
            return Err(FreeError::ZeroLength);
        }
        let range =
            FrameRange::new(start, count as u64).ok_or(FreeError::OutOfZone { pfn: start })?;
        let region = self.regions.iter_mut().find(|region| region.contains(start));
        let region = region.ok_or(FreeError::OutOfZone { pfn: start })?;
        region.engine.here().free_range(range)?;
        region.count(range, u64::wrapping_add);
        self.allocated -= range.len();
        Ok(())
    }

    /// Frees what [`Self::alloc_aligned`] gave for the same layout.
    ///
    /// # Panics
    ///
    /// As [`Self::dealloc`].
    pub fn dealloc_aligned(&mut self, start: usize, layout: Layout) {
        self.dealloc(start, if layout.size() == 0 { 0 } else { aligned_size(layout) });
    }

    /// Frames there are, and of these, frames handed out.
    #[must_use]
    pub fn frames(&self) -> (u64, u64) {
        let known = self.regions.iter().flat_map(|region| &region.ranges).chain(&self.waiting);
        (known.map(FrameRange::len).sum(), self.allocated)
    }

    /// Statistics of the allocators behind it, lowest pieces first. The allocators stay inside: who
    /// could free in one of them would free what this one counts as handed out.
    ///
    /// ```compile_fail,E0599
    /// # fn free(frames: &freehold_adapters::buddy::FrameAllocator<33>) {
    /// frames.engines();
    /// # }
    /// ```
    pub fn zone_stats(&self) -> impl Iterator<Item = ZoneStats> {
        self.regions.iter().flat_map(|region| region.engine.zone_stats(0))
    }

    /// Checks all that the allocators behind it know: for tests.
    ///
    /// # Errors
    ///
    /// As [`Freehold::validate`].
    pub fn validate(&self) -> Result<(), Violation> {
        self.regions.iter().try_for_each(|region| region.engine.validate())
    }
}

/// What an aligned allocation takes, in frames.
fn aligned_size(layout: Layout) -> usize {
    // A layout's size is at most `isize::MAX`, so the next power of two exists.
    layout.size().next_power_of_two().max(layout.align())
}

impl<const ORDER: usize> Default for FrameAllocator<ORDER> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ORDER: usize> fmt::Debug for FrameAllocator<ORDER> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (frames, allocated) = self.frames();
        f.debug_struct("FrameAllocator")
            .field("frames", &frames)
            .field("allocated", &allocated)
            .finish_non_exhaustive()
    }
}

/// A [`FrameAllocator`] behind a spin lock.
///
/// For programs that stay with one lock. Freehold itself needs none: [`Freehold`] takes `&self`.
#[derive(Debug, Default)]
pub struct LockedFrameAllocator<const ORDER: usize = 33>(Mutex<FrameAllocator<ORDER>>);

impl<const ORDER: usize> LockedFrameAllocator<ORDER> {
    /// An allocator without frames.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(FrameAllocator::new()))
    }
}

impl<const ORDER: usize> Deref for LockedFrameAllocator<ORDER> {
    type Target = Mutex<FrameAllocator<ORDER>>;

    fn deref(&self) -> &Mutex<FrameAllocator<ORDER>> {
        &self.0
    }
}
