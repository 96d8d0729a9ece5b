//! Runs of any number of frames at any alignment, out of an allocator whose chunks are powers of
//! two.
//!
//! ```text
//! 5 frames    a chunk of order 3          |1 2 3 4 5|. . .|     the last three go home at once
//!             or, where there is none,    five in a row wherever they are
//! ```
//!
//! Exactly what was asked for is taken, so that a caller who gives back exactly what it asked for
//! gives back everything, and one who gives back less keeps the rest.

use freehold::{AllocError, FrameRange, Freehold, Migratetype, Order, Pfn, Platform, Request};

/// `count` frames in a row, the first a multiple of `align` (a power of two, in frames), within
/// `limits` where that matters to a search.
///
/// Constant time for up to a block that a CPU has; otherwise a search over the blocks of `limits`.
///
/// # Errors
///
/// [`AllocError::ZeroLength`]; [`AllocError::NoMemory`] where there is no such run.
pub(crate) fn alloc_run<P: Platform>(
    engine: &Freehold<'_, P>,
    count: u64,
    align: u64,
    migratetype: Migratetype,
    limits: FrameRange,
) -> Result<Pfn, AllocError> {
    if count == 0 {
        return Err(AllocError::ZeroLength);
    }
    let chunk = count.checked_next_power_of_two().and_then(exact_order);
    let Some(align_order) = exact_order(align.max(1)) else {
        return alloc_far_aligned(engine, count, align, limits);
    };
    if let Some(order) = chunk {
        let mut request = Request::new(order, migratetype);
        if align_order > order {
            request = request.align(align_order);
        }
        match engine.here().alloc(request) {
            Ok(start) => {
                let tail = FrameRange {
                    start: Pfn::new(start.get() + count),
                    end: Pfn::new(start.get() + order.frames()),
                };
                if !tail.is_empty() {
                    // Allocated just now and known to nobody, so there is nothing to refuse.
                    let freed = engine.here().free_range(tail);
                    debug_assert_eq!(freed, Ok(()));
                }
                return Ok(start);
            }
            // A run need not be a whole chunk, nor start at a multiple of one.
            Err(AllocError::NoMemory { .. }) if !count.is_power_of_two() || align_order < order => {
            }
            Err(error) => return Err(error),
        }
    }
    engine.alloc_contig_free(count, align_order, limits).map(|range| range.start)
}

/// Alignments beyond 1 GiB: each place that there is, in turn.
fn alloc_far_aligned<P: Platform>(
    engine: &Freehold<'_, P>,
    count: u64,
    align: u64,
    limits: FrameRange,
) -> Result<Pfn, AllocError> {
    let mut start = limits.start.get().checked_next_multiple_of(align);
    while let Some(range) = start.and_then(|start| FrameRange::new(Pfn::new(start), count)) {
        if range.end > limits.end {
            break;
        }
        if engine.alloc_contig_range(range, |_| false).is_ok() {
            return Ok(range.start);
        }
        start = range.start.get().checked_add(align);
    }
    Err(AllocError::NoMemory { order: Order::fitting(count).unwrap_or(Order::MAX) })
}

/// The order of which that many frames are exactly one chunk.
fn exact_order(frames: u64) -> Option<Order> {
    Order::fitting(frames).filter(|order| order.frames() == frames)
}
