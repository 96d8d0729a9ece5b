//! Frames as memory: their addresses, the pages that back them, giving those back to the OS.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::AsRawFd;

use freehold::Pfn;

use crate::arguments::{frames, order, put_if_wanted};
use crate::config::FrameRange;
use crate::error::{Error, FREEHOLD_NO_PFN, Failure, answer, tell};
use crate::host::arena::{Arena, live};
use crate::stats::copied;
use crate::status::Status;

/// What giving memory back to the OS did.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Released {
    /// Blocks of 2 MiB given back.
    pub blocks: u64,
    /// Bytes given back.
    pub bytes: u64,
    /// System calls that took.
    pub calls: u64,
    /// Blocks found free for the first time: they go in the next pass, unless they are used.
    pub seen: u64,
    /// The pass ended early because an allocation failed meanwhile, or did not begin: another one
    /// runs, and this thread is in a mover, which waits for none.
    pub cut_short: bool,
    /// Frames given back out of blocks in use.
    pub frames: u64,
}

copied!(Released, freehold_host::Released: blocks, bytes, calls, seen, cut_short, frames);

/// What emptying blocks came to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Evacuated {
    /// Blocks that are wholly free now.
    pub blocks: u64,
    /// Frames moved.
    pub frames: u64,
    /// Blocks of which something could not move.
    pub refused: u64,
    /// An allocation failed meanwhile and waited for the call, which ended early; or the call came
    /// from a mover.
    pub cut_short: bool,
}

copied!(Evacuated, freehold_host::Evacuated: blocks, frames, refused, cut_short);

/// Copies the chunk at `from` to `to`, has whoever uses it use `to` from then on, and returns true.
/// False says that it did not: the chunk is nobody's that it knows, or busy. It may call any arena,
/// but not free the chunk at `from`, nor wait for another thread that allocates in this one. Its
/// calls wait for no pass nor move of any arena: an allocation that would is refused, what would
/// give back or move is cut short. Must not throw or longjmp.
pub type Mover =
    Option<unsafe extern "C" fn(user: *mut c_void, from: *mut c_void, to: *mut c_void) -> bool>;

/// Where a frame is; null for frames of other arenas. Only the frame's owner reads and
/// writes there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pointer(arena: *const Arena, pfn: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }
        .and_then(|arena| arena.pointer(Pfn::new(pfn)))
        .map_or(ptr::null_mut(), |pointer| pointer.as_ptr().cast())
}

/// Which frame a byte is in; `FREEHOLD_NO_PFN` outside the arena.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pfn_of(arena: *const Arena, pointer: *const c_void) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }
        .and_then(|arena| arena.pfn_of(pointer.cast()))
        .map_or(FREEHOLD_NO_PFN, Pfn::get)
}

/// All frames there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_range(arena: *const Arena) -> FrameRange {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }.map_or(FrameRange::default(), |arena| arena.range().into())
}

/// The memfd behind the frames, for a second mapping, with frame `pfn` at (`pfn` -
/// `freehold_arena_range(arena).start`) * 4096; -1 for other kinds of memory, and once the program
/// has closed it. Its size is not to be changed. Frames used through it must be the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_memfd(arena: *const Arena) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok().and_then(|arena| arena.memfd()) }.map_or(-1, |file| file.as_raw_fd())
}

/// Has the kernel back the frames from `start` to `end` (not included) now, so that it says here if
/// it cannot, instead of by a signal at the first touch. On failure those before may be backed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_populate(
    arena: *const Arena,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(live(arena)?.populate(frames(start, end))?)) }
}

/// How many of the frames from `start` to `end` (not included) the kernel has in memory at this
/// moment, written to `count`. Takes time proportional to the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_frames_in_memory(
    arena: *const Arena,
    start: u64,
    end: u64,
    count: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(count, "count", error, || Ok(live(arena)?.frames_in_memory(frames(start, end))?))
    }
}

/// Gives free memory back to the OS, now: every wholly free block, and of blocks in use the aligned
/// runs of `least_run` free frames (4) or more. What it did is written to `released`, unless that is
/// null. Of what the kernel refuses it tells the first; all else was given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_trim(
    arena: *const Arena,
    released: *mut Released,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let done = live(arena)?.trim()?;
            put_if_wanted(released, done.into());
            Ok(())
        })
    }
}

/// Empties blocks, those with least in use first, of a program that holds chunks of `order` and can
/// move each of them; moves at most `budget` frames, each chunk by a call of `mover`. Other threads
/// work on meanwhile. What is free then goes back by the next `freehold_arena_trim`. What it did is
/// written to `done`, unless that is null. Of an arena in guard mode nothing moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_evacuate(
    arena: *const Arena,
    order: u8,
    budget: u64,
    mover: Mover,
    user: *mut c_void,
    done: *mut Evacuated,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer and for what `mover` does.
    unsafe {
        answer(error, || {
            let (arena, order) = (live(arena)?, self::order(order)?);
            let call = mover.ok_or(Failure::Null("mover"))?;
            let at = |pfn| arena.pointer(pfn).map_or(ptr::null_mut(), |at| at.as_ptr().cast());
            let moved = arena.evacuate(order, budget, |from, to| call(user, at(from), at(to)))?;
            put_if_wanted(done, moved.into());
            Ok(())
        })
    }
}

/// Gives back the blocks that have been wholly free, and untouched, since the last call, and
/// free runs of those of which nothing was handed out since; does the periodic work of the
/// threads' CPUs. To be called each 10 s or so, from a thread of the program's. What it did is
/// written to `released`, unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pass(
    arena: *const Arena,
    released: *mut Released,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let done = live(arena)?.pass()?;
            put_if_wanted(released, done.into());
            Ok(())
        })
    }
}
