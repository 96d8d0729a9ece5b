//! Memory that stays because a device knows its pages.

use core::mem;

use freehold_host::Pin;

use crate::arguments::frames;
use crate::error::{Error, answer};
use crate::host::arena::{Arena, live};
use crate::status::Status;

/// Keeps frames' memory where it is, in use or free, until `freehold_arena_unpin`: nothing is
/// given back of the blocks that they are in. For memory that is registered for I/O
/// (IORING_REGISTER_BUFFERS, RDMA, AF_XDP, VFIO): pin it first, then register it.
///
/// Thread safety: waits for a pass that gives memory back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pin(
    arena: *const Arena,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let _ = live(arena)?.pin(frames(start, end))?.into_raw();
            Ok(())
        })
    }
}

/// Ends one `freehold_arena_pin` of the same frames: unregister them first.
///
/// Requires: these frames were pinned by one call and not unpinned since.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_unpin(
    arena: *const Arena,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            mem::drop(Pin::from_raw(live(arena)?, frames(start, end)));
            Ok(())
        })
    }
}
