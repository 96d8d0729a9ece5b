//! The calls of the allocator on a CPU that the caller names: for hosts that know better than a callback, for tests
//! and replays.

use core::ffi::c_void;

use freehold::{CpuId, Pfn};

use crate::allocator::Allocator;
use crate::arguments::{
    array_of_frames, array_of_frames_mut, frames, order, put_if_wanted, shared,
};
use crate::error::{Error, answer, tell};
use crate::here::{LastReference, is_last};
use crate::request::Request;
use crate::status::Status;

/// Allocates what the request says on a CPU; writes the first frame to `pfn`.
///
/// The work is that of `freehold_alloc`.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_alloc(
    allocator: *const Allocator,
    cpu: u16,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(pfn, "pfn", error, || {
            let request = shared(request, "request")?.engine()?;
            Ok(shared(allocator, "allocator")?.engine.on(CpuId::new(cpu)).alloc(request)?.get())
        })
    }
}

/// Allocates single frames on a CPU until `count` are there or memory is not; writes them to `pfns`
/// and how many there are to `allocated`. The request must be of order 0.
///
/// Fails only where not a single frame was allocated.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_alloc_bulk(
    allocator: *const Allocator,
    cpu: u16,
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
            Ok(shared(allocator, "allocator")?
                .engine
                .on(CpuId::new(cpu))
                .alloc_bulk(request, out)?)
        })
    }
}

/// Frees `2^order` frames on a CPU: any aligned part of what was allocated, by whomever. Never
/// waits for a lock.
///
/// Frames that are free already are refused. Where both frees run at the same moment, one of them
/// by the CPU that leases the frame's word, neither may see the other: the frame is free once, and
/// the platform's `late_double_free` is told.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_free(
    allocator: *const Allocator,
    cpu: u16,
    pfn: u64,
    order: u8,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?
                .engine
                .on(CpuId::new(cpu))
                .free(Pfn::new(pfn), self::order(order)?)?)
        })
    }
}

/// Frees the frames from `start` to `end` (not included) on a CPU, whatever the allocations were.
/// Never waits for a lock.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_free_range(
    allocator: *const Allocator,
    cpu: u16,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?
                .engine
                .on(CpuId::new(cpu))
                .free_range(frames(start, end))?)
        })
    }
}

/// Frees those frames from `start` to `end` (not included) on a CPU of which `last_reference` says
/// that it was the last one, in maximal runs; writes how many were kept to `kept`, unless that is
/// null. Each frame is asked about once, in rising order, without any lock held.
///
/// Where a run cannot be freed the call ends; the runs before it have been freed.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_free_range_with(
    allocator: *const Allocator,
    cpu: u16,
    start: u64,
    end: u64,
    last_reference: LastReference,
    user: *mut c_void,
    kept: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let kept_frames = shared(allocator, "allocator")?
                .engine
                .on(CpuId::new(cpu))
                .free_range_with(frames(start, end), is_last(last_reference, user)?)?;
            put_if_wanted(kept, kept_frames);
            Ok(())
        })
    }
}

/// Frees single frames on a CPU, in any order. Never waits for a lock.
///
/// Where a frame cannot be freed the call ends: `error->done` frames before it have been freed,
/// those behind it have not.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_free_bulk(
    allocator: *const Allocator,
    cpu: u16,
    pfns: *const u64,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?
                .engine
                .on(CpuId::new(cpu))
                .free_bulk(array_of_frames(pfns, count, "pfns")?)?)
        })
    }
}

/// The periodic work of a CPU, about once a second: leases that were not used end, and a CPU that
/// allocated nothing since the last tick gives back everything.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_tick(
    allocator: *const Allocator,
    cpu: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || Ok(shared(allocator, "allocator")?.engine.on(CpuId::new(cpu)).tick()?))
    }
}

/// Ends a CPU's leases: for a CPU about to go idle. What it has freed is visible to others without
/// this.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on_flush(
    allocator: *const Allocator,
    cpu: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || Ok(shared(allocator, "allocator")?.engine.on(CpuId::new(cpu)).flush()?))
    }
}
