//! Where frames come from and go to: the four calls of a page allocator that this crate needs.

use freehold::{
    AllocError, FrameRange, FreeError, Freehold, Migratetype, On, Order, Owned, Pfn, Platform,
    Request,
};

/// A page allocator, or one CPU's way into it.
///
/// [`Freehold`] and its handles are such; so can be another engine, or a wrapper that counts. What was allocated in one
/// piece must be freeable in parts, without being split first: freehold keeps no orders of
/// allocated frames.
pub trait FrameAllocator {
    /// `2^order` neighbouring, naturally aligned frames.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError>;

    /// Single frames, until `out` is full or memory is not; returns how many.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; only where not a single frame was allocated.
    fn alloc_bulk(&self, migratetype: Migratetype, out: &mut [Pfn]) -> Result<usize, AllocError>;

    /// Frees `2^order` frames.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError>;

    /// Frees any range of frames in use, whatever the allocations were.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError>;
}

macro_rules! forward {
    ($type:ty) => {
        impl<P: Platform> FrameAllocator for $type {
            #[inline]
            fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
                self.alloc(Request::new(order, migratetype))
            }
            fn alloc_bulk(
                &self,
                migratetype: Migratetype,
                out: &mut [Pfn],
            ) -> Result<usize, AllocError> {
                self.alloc_bulk(Request::new(Order::ZERO, migratetype), out)
            }
            #[inline]
            fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
                self.free(pfn, order)
            }
            #[inline]
            fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
                self.free_range(range)
            }
        }
    };
}

forward!(Freehold<'_, P>);
forward!(On<'_, '_, P>);
forward!(Owned<'_, '_, P>);

impl<A: FrameAllocator> FrameAllocator for &A {
    fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        (**self).alloc(order, migratetype)
    }
    fn alloc_bulk(&self, migratetype: Migratetype, out: &mut [Pfn]) -> Result<usize, AllocError> {
        (**self).alloc_bulk(migratetype, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        (**self).free(pfn, order)
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        (**self).free_range(range)
    }
}

/// Frees all of a range that can be freed: where the allocator refuses the whole, which it does for
/// one bad frame, each half by itself. The first error.
pub(crate) fn free_what_can_be(
    frames: &impl FrameAllocator,
    range: FrameRange,
) -> Result<(), FreeError> {
    match frames.free_range(range) {
        Err(_) if range.len() > 1 => {
            let middle = Pfn::new(range.start.get() + range.len() / 2);
            let low = free_what_can_be(frames, FrameRange { end: middle, ..range });
            low.and(free_what_can_be(frames, FrameRange { start: middle, ..range }))
        }
        result => result,
    }
}

/// Frees an array of single frames, in whatever order they stand in it, as few ranges; returns how
/// many. Leaves the array sorted. O(n log n), O(n) where it is sorted already.
///
/// # Errors
///
/// See [`FreeError`], for the first range that cannot be freed; ranges below it have been freed. A
/// frame that stands in the array twice is a [`FreeError::DoubleFree`].
pub fn free_array(frames: &impl FrameAllocator, array: &mut [Pfn]) -> Result<u64, FreeError> {
    array.sort_unstable();
    let mut runs = 0;
    for run in array.chunk_by(|a, b| b.get() - a.get() == 1) {
        let Some(range) = FrameRange::new(run[0], run.len() as u64) else {
            return Err(FreeError::OutOfZone { pfn: run[0] });
        };
        frames.free_range(range)?;
        runs += 1;
    }
    Ok(runs)
}
