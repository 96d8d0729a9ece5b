//! What an arena tells about itself.

use core::ffi::{CStr, c_char};
use core::mem::offset_of;

use freehold_host::ControlGroup;

use crate::arguments::{Versioned, put, put_sized, wanted, wanted_sized};
use crate::error::{Error, Failure, answer};
use crate::host::arena::{Arena, live};
use crate::stats::{Totals, ZoneStats, no_zone};
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
    /// Blocks of which frames were handed out since they last came from the OS: at most these are
    /// backed by memory.
    pub blocks_resident: u64,
    /// Blocks given back to the OS so far, each time counted.
    pub blocks_released: u64,
    /// Bytes given back to the OS so far.
    pub bytes_released: u64,
    /// System calls that took.
    pub release_calls: u64,
    /// Runs of blocks that the kernel refused to take back (locked memory).
    pub release_refused: u64,
    /// Passes made, by trim, pass or the background thread.
    pub passes: u64,
    /// Exclusive slots for threads.
    pub slots: u64,
    /// Of these, taken by living threads.
    pub slots_taken: u64,
    /// Threads that share slots.
    pub threads_sharing: u64,
    /// Bytes of metadata.
    pub metadata_bytes: u64,
    /// Always 0 here: C frees frames by raw calls, which say when they are refused.
    pub refused_drops: u64,
    /// Double frees that only showed after the second call had returned: a defect of the program.
    pub late_double_frees: u64,
    /// Frames there may be, as far as addresses are reserved.
    pub frames_reserved: u64,
    /// Threads use the biased lock.
    pub biased: bool,
    /// Frames in use. Exact while nothing runs.
    pub frames_used: u64,
    /// Frames that are free, wherever they are held.
    pub frames_free: u64,
    /// Frames given back out of blocks in use so far, each time counted.
    pub frames_released: u64,
    /// The most blocks that the OS may back; 0 where there is no limit.
    pub blocks_resident_limit: u64,
}

impl From<freehold_host::Stats> for ArenaStats {
    fn from(stats: freehold_host::Stats) -> Self {
        Self {
            frames: stats.frames,
            blocks: stats.blocks,
            blocks_resident: stats.blocks_resident,
            blocks_released: stats.blocks_released,
            bytes_released: stats.bytes_released,
            release_calls: stats.release_calls,
            release_refused: stats.release_refused,
            passes: stats.passes,
            slots: stats.slots,
            slots_taken: stats.slots_taken,
            threads_sharing: stats.threads_sharing,
            metadata_bytes: stats.metadata_bytes,
            refused_drops: stats.refused_drops,
            late_double_frees: stats.late_double_frees,
            frames_reserved: stats.frames_reserved,
            biased: stats.biased,
            frames_used: stats.frames_used,
            frames_free: stats.frames_free,
            frames_released: stats.frames_released,
            blocks_resident_limit: stats.blocks_resident_limit,
        }
    }
}

impl Versioned for ArenaStats {
    const LEAST: usize = offset_of!(Self, frames_reserved);
}

/// What `freehold_arena_read_stats` is: counters, and what is resident. Takes no time to speak of.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_read_stats_sized(
    arena: *const Arena,
    stats: *mut ArenaStats,
    size: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            wanted_sized(stats, size, "stats")?;
            put_sized(stats, size, live(arena)?.stats().into());
            Ok(())
        })
    }
}

/// Writes a text and a zero into as much room as there is, as snprintf does.
///
/// # Safety
///
/// `buffer` is null or can be written to, `size` bytes; `length` is null or can be written to.
unsafe fn put_text(text: &str, buffer: *mut c_char, size: usize, length: *mut usize) {
    if !buffer.is_null() && size > 0 {
        let fits = text.len().min(size - 1);
        // SAFETY: the caller's promise: room for that and the zero.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), fits);
            buffer.add(fits).write(0);
        }
    }
    if !length.is_null() {
        // SAFETY: the caller's promise.
        unsafe { length.write(text.len()) };
    }
}

/// The statistics as one JSON object, with a terminating zero, cut off where there is not enough
/// room; `length`, unless it is null, gets how long it is without the zero.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_json(
    arena: *const Arena,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            put_text(&live(arena)?.stats().json(), buffer, size, length);
            Ok(())
        })
    }
}

/// The statistics in Prometheus' text format, with `name` as the label `arena`; the rest is as for
/// `freehold_arena_json`.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_prometheus(
    arena: *const Arena,
    name: *const c_char,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            if name.is_null() {
                return Err(Failure::Null("name"));
            }
            let name = CStr::from_ptr(name).to_string_lossy();
            put_text(&live(arena)?.stats().prometheus(&name), buffer, size, length);
            Ok(())
        })
    }
}

/// How many bytes this process's control group may use, by its own limit and those of the groups
/// above it, and how many the group with the least of these uses. Where nothing limits it, or the
/// kernel does not say, `limit` gets `UINT64_MAX` and `used` 0. A share of it is what to give to
/// `freehold_arena_builder_resident_limit`.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_control_group(
    limit: *mut u64,
    used: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            wanted(limit, "limit")?;
            wanted(used, "used")?;
            let group = ControlGroup::read();
            put(limit, "limit", group.map_or(u64::MAX, |group| group.limit))?;
            put(used, "used", group.map_or(0, |group| group.used))
        })
    }
}

/// How many frames are free, wherever they are held. Looks at every block; exact while nothing
/// runs.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_free_frame_count(arena: *const Arena) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { live(arena).ok() }.map_or(0, |arena| arena.free_frames())
}

/// What `freehold_arena_read_zone_stats` is: the allocator's view of one zone; there is one for
/// each memory node.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_read_zone_stats_sized(
    arena: *const Arena,
    zone: usize,
    stats: *mut ZoneStats,
    size: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            wanted_sized(stats, size, "stats")?;
            let found = live(arena)?.zone_stats(zone);
            put_sized(stats, size, found.ok_or_else(|| no_zone(zone))?.into());
            Ok(())
        })
    }
}

/// What `freehold_arena_read_totals` is: the allocator's counters, over all threads.
///
/// Thread safety: any thread, at any time but from a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_read_totals_sized(
    arena: *const Arena,
    totals: *mut Totals,
    size: usize,
    cpu_size: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Totals::wanted(totals, size, cpu_size)?;
            Totals::from(live(arena)?.totals()).put(totals, size, cpu_size);
            Ok(())
        })
    }
}
