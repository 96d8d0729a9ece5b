//! Freeing what the allocator may refuse, and arrays of frames.
//!
//! Where frames come from and go to is anything that is [`Frames`]: a `Freehold`, a CPU of it,
//! another engine, a wrapper that counts. It must free in parts what was allocated in one piece.

use freehold::{FrameRange, Frames, FreeError, Pfn};

/// Frees all of a range that can be freed: where the allocator refuses the whole, which it does for
/// one bad frame, each half by itself. The first error.
pub(crate) fn free_what_can_be(frames: &impl Frames, range: FrameRange) -> Result<(), FreeError> {
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
pub fn free_array(frames: &impl Frames, array: &mut [Pfn]) -> Result<u64, FreeError> {
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
