//! Arenas that grow and shrink.

use crate::arguments::put_if_wanted;
use crate::config::FrameRange;
use crate::error::{Error, answer};
use crate::host::arena::{Arena, live};
use crate::status::Status;

/// Adds at least so many bytes, in whole blocks of 2 MiB, behind the arena's end: of the addresses
/// that `freehold_arena_builder_reserve` has set aside. The new frames, all of them free, are
/// written to `added`, unless that is null.
///
/// Fails with `FREEHOLD_STATUS_NO_ROOM` where not so much was reserved: `error->found` is how many
/// bytes could be added.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_grow(
    arena: *const Arena,
    bytes: u64,
    added: *mut FrameRange,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let range = live(arena)?.grow(bytes)?;
            put_if_wanted(added, range.into());
            Ok(())
        })
    }
}

/// Takes at least so many bytes, in whole blocks of 2 MiB, off the arena's end; their memory goes
/// back to the OS, their addresses stay reserved. The frames that are gone are written to
/// `removed`, unless that is null.
///
/// Fails with `FREEHOLD_STATUS_BUSY` where not all of them are free: `error->found` is how many
/// bytes could go; and with `FREEHOLD_STATUS_INVALID_ARGUMENT` where nothing would be left.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_shrink(
    arena: *const Arena,
    bytes: u64,
    removed: *mut FrameRange,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let range = live(arena)?.shrink(bytes)?;
            put_if_wanted(removed, range.into());
            Ok(())
        })
    }
}
