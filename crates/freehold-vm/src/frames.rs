//! Freeing what the allocator may refuse.
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
