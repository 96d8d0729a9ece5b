//! Neighbouring frames as memory, with their number kept beside them.

use core::ffi::c_void;
use core::ptr;

use freehold::FRAME_SIZE;
use freehold_host::Frames as HostFrames;

use crate::arguments::{frames, wanted};
use crate::error::{Error, Failure, answer, tell};
use crate::host::arena::{Arena, live};
use crate::status::Status;

/// Neighbouring frames of an arena. A plain value: the frames are the one copy's that is
/// in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Frames {
    /// The first byte; null where there are no frames.
    pub memory: *mut c_void,
    /// The first frame.
    pub pfn: u64,
    /// How many frames, of 4096 bytes each.
    pub count: u64,
    /// Their arena; null where there are no frames.
    pub arena: *const Arena,
}

const NONE: Frames = Frames { memory: ptr::null_mut(), pfn: 0, count: 0, arena: ptr::null() };

fn out(handle: *const Arena, frames: HostFrames<&freehold_host::Arena>) -> Frames {
    let arena = *frames.arena();
    let range = frames.into_raw();
    let memory =
        arena.pointer(range.start).map_or(ptr::null_mut(), |pointer| pointer.as_ptr().cast());
    Frames { memory, pfn: range.start.get(), count: range.len(), arena: handle }
}

/// So many neighbouring frames, any number, written to `out`. What is in them is whatever their
/// last user left. A power of two of frames is a chunk, aligned to its size. Any other number is
/// taken from wherever so many are free; where memory is scarce that is a search of the whole
/// arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_frames(
    arena: *const Arena,
    count: u64,
    out: *mut Frames,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { tell(out, "out", error, || Ok(self::out(arena, live(arena)?.frames(count)?))) }
}

/// So many neighbouring frames, all zero. Frames that come fresh from the OS are zero already
/// and are not touched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_zeroed(
    arena: *const Arena,
    count: u64,
    out: *mut Frames,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { tell(out, "out", error, || Ok(self::out(arena, live(arena)?.zeroed(count)?))) }
}

/// Gives frames back to their arena, on whichever thread, and sets `frames` to no frames. No
/// frames are fine and nothing is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_free_frames(
    arena: *const Arena,
    frames: *mut Frames,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let these = frames.as_mut().ok_or(Failure::Null("frames"))?;
            if these.count > 0 {
                let pfn = freehold::Pfn::new(these.pfn);
                let (this, arena) = (arena, live(arena)?);
                if these.arena != this {
                    return Err(freehold_host::Error::OutsideArena { pfn }.into());
                }
                // A single frame takes the allocator's fast path.
                if these.count == 1 {
                    arena.free(pfn, freehold::Order::ZERO)?;
                } else {
                    arena
                        .free_range(self::frames(these.pfn, these.pfn.wrapping_add(these.count)))?;
                }
                *these = NONE;
            }
            Ok(())
        })
    }
}

/// Cuts frames in two: `first` keeps the first `count`, `rest` gets the others. Nothing happens in
/// the arena: any part of an allocation may be freed on its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_frames_split(
    first: *mut Frames,
    count: u64,
    rest: *mut Frames,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            wanted(rest, "rest")?;
            wanted(first, "first")?;
            if ptr::eq(first, rest) {
                return Err(Failure::Argument {
                    what: "rest",
                    value: rest.addr() as u64,
                    allowed: "another than first",
                });
            }
            let all = *first;
            if count == 0 || count >= all.count {
                let allowed = "at least 1 and less than there are frames";
                return Err(Failure::Argument { what: "count", value: count, allowed });
            }
            let memory = all.memory.wrapping_byte_add((count * FRAME_SIZE) as usize);
            *first = Frames { count, ..all };
            rest.write(Frames { memory, pfn: all.pfn + count, count: all.count - count, ..all });
            Ok(())
        })
    }
}
