//! Many frames by one call, ranges, and the periodic work of a CPU. One chunk is in `chunk.rs`.

use crate::arguments::{array_of_frames, array_of_frames_mut, frames, shared};
use crate::error::{Error, answer, tell};
use crate::handle::{Cpu, call};
use crate::request::Request;
use crate::status::Status;

/// Allocates single frames until `count` are there or memory is not; writes them to `pfns` and how
/// many there are to `allocated`. Fails only where there is not one. The request is of order 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_bulk(
    cpu: *const Cpu,
    request: *const Request,
    pfns: *mut u64,
    count: usize,
    allocated: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(allocated, "allocated", error, || {
            let request = shared(request, "request")?.engine()?;
            let out = array_of_frames_mut(pfns, count, "pfns")?;
            Ok(call!(cpu, handle => handle.alloc_bulk(request, out))?)
        })
    }
}

/// Frees the frames from `start` to `end` (not included), whatever the allocations were. Never
/// waits for a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_range(
    cpu: *const Cpu,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(call!(cpu, handle => handle.free_range(frames(start, end)))?)) }
}

/// Frees single frames, in any order. Never waits for a lock. Where a frame cannot be freed the
/// call ends: `error->done` frames before it have been freed, those behind it have not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_bulk(
    cpu: *const Cpu,
    pfns: *const u64,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let pfns = array_of_frames(pfns, count, "pfns")?;
            Ok(call!(cpu, handle => handle.free_bulk(pfns))?)
        })
    }
}

/// The periodic work of a CPU, about once a second: leases that were not used end, and a CPU
/// that allocated nothing since the last tick gives back everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_tick(cpu: *const Cpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(call!(cpu, handle => handle.tick())?)) }
}

/// Ends a CPU's leases: for a CPU about to go idle. What it has freed is visible to others
/// without this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_flush(cpu: *const Cpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(call!(cpu, handle => handle.flush())?)) }
}
