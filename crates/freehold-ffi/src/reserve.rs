//! Pageblocks that are kept for requests with `FREEHOLD_ALLOC_HIGH_ATOMIC`, as many as 1 % of a
//! zone. The program gives that flag where memory is short, and says when one is given up.

use crate::allocator::Allocator;
use crate::arguments::{self, put, shared};
use crate::error::{Error, answer};
use crate::stats::no_zone;
use crate::status::Status;

/// What a zone keeps for requests that may not wait.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Reserve {
    /// HIGHATOMIC pageblocks.
    pub blocks: u64,
    /// Their free frames.
    pub free: u64,
}

/// A HIGHATOMIC pageblock of a zone that has free frames becomes an ordinary one of that
/// `freehold_migratetype`. False where there is none, no such zone or type. Takes no lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_give_up_reserve(
    allocator: *const Allocator,
    zone: usize,
    migratetype: u8,
) -> bool {
    // SAFETY: the caller's promise.
    let this = unsafe { allocator.as_ref() };
    this.zip(arguments::migratetype(migratetype).ok())
        .is_some_and(|(this, migratetype)| this.engine.give_up_reserve(zone, migratetype))
}

/// Writes to `reserve` what a zone keeps: for a watermark that its free frames do not count for.
/// Takes no lock. Exact while nothing runs; looks at a line of each CPU where anything is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_read_reserve(
    allocator: *const Allocator,
    zone: usize,
    reserve: *mut Reserve,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let found = shared(allocator, "allocator")?.engine.reserve(zone);
            let found = found.ok_or_else(|| no_zone(zone))?;
            put(reserve, "reserve", Reserve { blocks: found.blocks, free: found.free })
        })
    }
}
