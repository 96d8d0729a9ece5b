//! What an arena tells about itself.

use crate::error::{Error, tell};
use crate::host::arena::{Arena, live};
use crate::stats::copied;
use crate::status::Status;

/// A snapshot of an arena: each number is exact, but they may be of slightly different moments
/// while others work.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArenaStats {
    /// Frames there are.
    pub frames: u64,
    /// Blocks of 2 MiB there are.
    pub blocks: u64,
    /// Blocks of which frames were handed out since they last came from the OS: at most these
    /// are backed by memory.
    pub blocks_resident: u64,
    /// Blocks given back to the OS so far, each time counted.
    pub blocks_released: u64,
    /// Bytes given back to the OS so far.
    pub bytes_released: u64,
    /// Runs of blocks that the kernel refused to take back (locked memory).
    pub release_refused: u64,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Double frees that only showed after the second call had returned: a defect of the
    /// program.
    pub late_double_frees: u64,
    /// Frames in use. Exact while nothing runs.
    pub frames_used: u64,
    /// Frames that are free, wherever they are held.
    pub frames_free: u64,
    /// Frames given back out of blocks in use so far, each time counted.
    pub frames_released: u64,
}

copied!(ArenaStats, freehold_host::Stats: frames, blocks, blocks_resident, blocks_released,
    bytes_released, release_refused, metadata_bytes, late_double_frees, frames_used, frames_free,
    frames_released);

/// Counters, and what is resident. What threads keep is freed first, by a barrier on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_read_stats(
    arena: *const Arena,
    stats: *mut ArenaStats,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { tell(stats, "stats", error, || Ok(live(arena)?.stats().into())) }
}
