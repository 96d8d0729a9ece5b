//! CPUs that one party has for itself: the fastest way in.

pub mod chunk;

use core::ffi::c_void;

use freehold::CpuId;

use crate::allocator::Allocator;
use crate::arguments::{array_of_frames, array_of_frames_mut, frames, put_if_wanted, shared};
use crate::error::{Error, Failure, answer, tell};
use crate::handle::{OwnedCpu, owned};
use crate::here::{LastReference, is_last};
use crate::request::Request;
use crate::status::Status;

/// Takes a CPU for the caller, until `freehold_owned_release`: its calls need no atomic
/// read-modify-write then, where the platform has a heavy barrier.
///
/// Fails with `FREEHOLD_STATUS_CPU_OFFLINE` or `FREEHOLD_STATUS_CPU_OWNED`.
///
/// Thread safety: any thread, at any time but inside a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_own(
    allocator: *const Allocator,
    cpu: u16,
    handle: *mut *const OwnedCpu,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(handle, "handle", error, || {
            let this: &'static Allocator = shared(allocator, "allocator")?;
            let owned = this.engine.own(CpuId::new(cpu))?;
            // The engine has as many CPUs as there are places.
            let place = this.owned.get(usize::from(cpu)).ok_or(Failure::NoCpu { cpu })?;
            place.put_in(owned);
            Ok(place)
        })
    }
}

/// Gives a CPU back, with all that it holds; the handle is dead then. Using it again is refused
/// with `FREEHOLD_STATUS_CPU_NOT_OWNED`, unless somebody else owns the CPU by then, whose handle it
/// is.
///
/// Thread safety: the thread that uses the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_release(cpu: *const OwnedCpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            drop(shared(cpu, "cpu")?.take_out()?);
            Ok(())
        })
    }
}

/// Which CPU a handle is for.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_cpu_number(cpu: *const OwnedCpu) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { cpu.as_ref() }.map_or(0, |this| this.cpu().get())
}

/// Allocates single frames on an owned CPU until `count` are there or memory is not; writes them to
/// `pfns` and how many there are to `allocated`. The request must be of order 0.
///
/// Fails only where not a single frame was allocated.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_alloc_bulk(
    cpu: *const OwnedCpu,
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
            Ok(owned(cpu)?.alloc_bulk(request, out)?)
        })
    }
}

/// Frees the frames from `start` to `end` (not included) on an owned CPU, whatever the allocations
/// were. Never waits for a lock.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_free_range(
    cpu: *const OwnedCpu,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(owned(cpu)?.free_range(frames(start, end))?)) }
}

/// Frees those frames from `start` to `end` (not included) on an owned CPU of which
/// `last_reference` says that it was the last one, in maximal runs; writes how many were kept to
/// `kept`, unless that is null. Each frame is asked about once, in rising order, without any lock
/// held.
///
/// Where a run cannot be freed the call ends; the runs before it have been freed.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_free_range_with(
    cpu: *const OwnedCpu,
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
            let kept_frames =
                owned(cpu)?.free_range_with(frames(start, end), is_last(last_reference, user)?)?;
            put_if_wanted(kept, kept_frames);
            Ok(())
        })
    }
}

/// Frees single frames on an owned CPU, in any order. Never waits for a lock.
///
/// Where a frame cannot be freed the call ends: `error->done` frames before it have been freed,
/// those behind it have not.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_free_bulk(
    cpu: *const OwnedCpu,
    pfns: *const u64,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(owned(cpu)?.free_bulk(array_of_frames(pfns, count, "pfns")?)?)) }
}

/// The periodic work of an owned CPU, about once a second: leases that were not used end, and
/// a CPU that allocated nothing since the last tick gives back everything.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_tick(cpu: *const OwnedCpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(owned(cpu)?.tick()?)) }
}

/// Ends an owned CPU's leases: for a CPU about to go idle. What it has freed is visible to others
/// without this.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_flush(cpu: *const OwnedCpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(owned(cpu)?.flush()?)) }
}
