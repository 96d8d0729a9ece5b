//! Allocating and freeing on the CPU that the platform names.

use core::ffi::c_void;

use freehold::Pfn;

use crate::allocator::Allocator;
use crate::arguments::{
    array_of_frames, array_of_frames_mut, frames, order, put_if_wanted, shared,
};
use crate::error::{Error, answer, tell};
use crate::request::Request;
use crate::status::Status;

/// Whether the reference that is being dropped was a frame's last one. Must not throw or longjmp.
pub type LastReference = Option<unsafe extern "C" fn(user: *mut c_void, pfn: u64) -> bool>;

/// Allocates what the request says on the current CPU; writes the first frame to `pfn`.
///
/// Constant time from what the CPU has in hand; otherwise a bounded amount of work to get more.
/// Before it fails every CPU is asked, unless the request may not wait.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc(
    allocator: *const Allocator,
    request: *const Request,
    pfn: *mut u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        tell(pfn, "pfn", error, || {
            let request = shared(request, "request")?.engine()?;
            Ok(shared(allocator, "allocator")?.engine.here().alloc(request)?.get())
        })
    }
}

/// Allocates single frames on the current CPU until `count` are there or memory is not; writes them
/// to `pfns` and how many there are to `allocated`. The request must be of order 0.
///
/// Fails only where not a single frame was allocated.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_bulk(
    allocator: *const Allocator,
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
            Ok(shared(allocator, "allocator")?.engine.here().alloc_bulk(request, out)?)
        })
    }
}

/// Frees `2^order` frames on the current CPU: any aligned part of what was allocated, by whomever.
/// Never waits for a lock.
///
/// Frames that are free already are refused. Where both frees run at the same moment, one of them
/// by the CPU that leases the frame's word, neither may see the other: the frame is free once, and
/// the platform's `late_double_free` is told.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free(
    allocator: *const Allocator,
    pfn: u64,
    order: u8,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?
                .engine
                .here()
                .free(Pfn::new(pfn), self::order(order)?)?)
        })
    }
}

/// Frees the frames from `start` to `end` (not included) on the current CPU, whatever the
/// allocations were. Never waits for a lock.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_range(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?.engine.here().free_range(frames(start, end))?)
        })
    }
}

/// Frees those frames from `start` to `end` (not included) on the current CPU of which
/// `last_reference` says that it was the last one, in maximal runs; writes how many were kept to
/// `kept`, unless that is null. Each frame is asked about once, in rising order, without any lock
/// held.
///
/// Where a run cannot be freed the call ends; the runs before it have been freed.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_range_with(
    allocator: *const Allocator,
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
                .here()
                .free_range_with(frames(start, end), is_last(last_reference, user)?)?;
            put_if_wanted(kept, kept_frames);
            Ok(())
        })
    }
}

/// Frees single frames on the current CPU, in any order. Never waits for a lock.
///
/// Where a frame cannot be freed the call ends: `error->done` frames before it have been freed,
/// those behind it have not.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_bulk(
    allocator: *const Allocator,
    pfns: *const u64,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?
                .engine
                .here()
                .free_bulk(array_of_frames(pfns, count, "pfns")?)?)
        })
    }
}

/// The caller's function as the allocator takes it.
///
/// # Safety
///
/// The function may be called with that pointer as long as the result is used.
pub(crate) unsafe fn is_last(
    last_reference: LastReference,
    user: *mut c_void,
) -> Result<impl FnMut(Pfn) -> bool, crate::error::Failure> {
    let last_reference = last_reference.ok_or(crate::error::Failure::Null("last_reference"))?;
    // SAFETY: the caller's promise.
    Ok(move |pfn: Pfn| unsafe { last_reference(user, pfn.get()) })
}
