//! Frames as memory: their addresses, the pages that back them, giving those back to the OS.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr;
use std::os::fd::AsRawFd;

use freehold::Pfn;
use freehold_host::{OnFork, Released as HostReleased};

use crate::arguments::{Versioned, check_size, frames, put, put_sized};
use crate::config::FrameRange;
use crate::error::{Error, FREEHOLD_NO_PFN, Failure, answer};
use crate::host::arena::{Arena, live};
use crate::host::builder::Backing;
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
    /// The pass ended early because an allocation failed meanwhile.
    pub cut_short: bool,
    /// Frames given back out of blocks in use.
    pub frames: u64,
}

impl From<HostReleased> for Released {
    fn from(released: HostReleased) -> Self {
        let HostReleased { blocks, frames, bytes, calls, seen, cut_short, .. } = released;
        Self { blocks, bytes, calls, seen, cut_short, frames }
    }
}

impl Versioned for Released {
    const LEAST: usize = offset_of!(Self, frames);
}

/// Gives memory back and says what that did, to a caller that wants to know.
///
/// # Safety
///
/// `released` is null or can be written to, `size` bytes.
unsafe fn released_by(
    released: *mut Released,
    size: usize,
    give: impl FnOnce() -> Result<HostReleased, Failure>,
) -> Result<(), Failure> {
    if released.is_null() {
        return give().map(drop);
    }
    check_size::<Released>(size)?;
    let done = give()?;
    // SAFETY: the caller's promise.
    unsafe { put_sized(released, size, done.into()) };
    Ok(())
}

/// Where a frame is; null for frames of other arenas. Reading and writing there is for whoever has the
/// frame.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pointer(arena: *const Arena, pfn: u64) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }
        .and_then(|arena| arena.pointer(Pfn::new(pfn)))
        .map_or(ptr::null_mut(), |pointer| pointer.as_ptr().cast())
}

/// Which frame a byte is in; `FREEHOLD_NO_PFN` outside the arena.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pfn_of(arena: *const Arena, pointer: *const c_void) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }
        .and_then(|arena| arena.pfn_of(pointer.cast()))
        .map_or(FREEHOLD_NO_PFN, Pfn::get)
}

/// All frames there are.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_range(arena: *const Arena) -> FrameRange {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }.map_or(FrameRange::default(), |arena| arena.range().into())
}

/// The memfd behind the frames, for a second mapping, with frame `pfn` at `freehold_arena_offset`;
/// -1 for other kinds of memory. It stays the arena's: not to be closed, its size not to be
/// changed. Whoever reads or writes frames through it must have those frames.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_memfd(arena: *const Arena) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok().and_then(|arena| arena.memfd()) }.map_or(-1, |file| file.as_raw_fd())
}

/// Where a frame is in the memfd, in bytes; -1 for frames of other arenas.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_offset(arena: *const Arena, pfn: u64) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }
        .and_then(|arena| arena.offset(Pfn::new(pfn)))
        .map_or(-1, |offset| offset as i64)
}

/// What the frames are made of: a `freehold_backing`; -1 for a null arena.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_backing(arena: *const Arena) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }.map_or(-1, |arena| Backing::number_of(arena.backing()))
}

/// What a forked child finds at the frames' addresses: a `freehold_fork_rule`; -1 for a null arena.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_on_fork(arena: *const Arena) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }.map_or(-1, |arena| match arena.on_fork() {
        OnFork::Copy => 0,
        OnFork::Unmapped => 1,
        _ => -1,
    })
}

/// Has the kernel back the frames from `start` to `end` (not included) now, so that it says here if
/// it cannot, instead of by a signal at the first touch. What is in them does not change.
///
/// Fails with `FREEHOLD_STATUS_OS` where memory does not suffice; frames before the one that failed
/// may be backed.
///
/// Thread safety: any thread, at any time but from a signal handler.
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
///
/// Thread safety: any thread, at any time but from a signal handler.
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
        answer(error, || put(count, "count", live(arena)?.frames_in_memory(frames(start, end))?))
    }
}

/// What `freehold_arena_trim` is: gives free memory back to the OS, now: every wholly free block,
/// and of blocks in use the aligned runs of 8 free frames or more. What it did is written to
/// `released`, unless that is null.
///
/// Fails with `FREEHOLD_STATUS_OS` for the first run of blocks that the kernel refused; all others
/// were given back.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_trim_sized(
    arena: *const Arena,
    released: *mut Released,
    size: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || released_by(released, size, || Ok(live(arena)?.trim()?))) }
}

/// What `freehold_arena_pass` is: gives back the blocks that have been wholly free, and untouched,
/// since the last call, and free runs of those of which nothing was handed out since, up to the
/// budget; does the periodic work of the threads' CPUs. To be called once each decay time, unless
/// the background thread does. What it did is written to `released`, unless that is null.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_pass_sized(
    arena: *const Arena,
    released: *mut Released,
    size: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || released_by(released, size, || Ok(live(arena)?.pass()?))) }
}
