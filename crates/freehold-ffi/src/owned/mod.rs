//! CPUs that one party has for itself: the fastest way in.

pub mod chunk;

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use freehold::{CpuId, Owned};

use crate::allocator::Allocator;
use crate::arguments::{array_of_frames, array_of_frames_mut, frames, put, put_if_wanted, shared, wanted};
use crate::error::{Error, Failure, answer};
use crate::here::{LastReference, is_last};
use crate::platform::Host;
use crate::request::Request;
use crate::status::Status;

/// A CPU that the holder of this handle has for itself. Opaque.
///
/// It lives in the allocator's metadata, one place for each CPU: the engine sees to it that a CPU has one owner at most,
/// and that owner has the place. 64 bytes apart from the next, which another CPU writes to.
#[repr(align(64))]
pub struct OwnedCpu {
    owned: UnsafeCell<MaybeUninit<Owned<'static, 'static, Host>>>,
    /// `owned` is there.
    taken: AtomicBool,
    cpu: CpuId,
}

// SAFETY: `owned` is only touched by who owns the CPU: one party at a time, which the engine sees to, and which the
// functions here demand of their callers as the handle is used by one thread at a time.
unsafe impl Sync for OwnedCpu {}

impl OwnedCpu {
    pub(crate) const fn new(cpu: CpuId) -> Self {
        Self { owned: UnsafeCell::new(MaybeUninit::uninit()), taken: AtomicBool::new(false), cpu }
    }

    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    pub(crate) fn is_taken(&self) -> bool {
        // Acquire: pairs with the releases of `put_in` and `take_out`, whoever calls.
        self.taken.load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// `owned` is of this CPU.
    unsafe fn put_in(&self, owned: Owned<'static, 'static, Host>) {
        // SAFETY: who has the CPU has this place, and the caller has the CPU: it has just got `owned` from the engine.
        unsafe { (*self.owned.get()).write(owned) };
        // Release: who sees it taken sees what is in it.
        self.taken.store(true, Ordering::Release);
    }

    /// # Safety
    ///
    /// Only one thread uses the handle.
    unsafe fn take_out(&self) -> Result<Owned<'static, 'static, Host>, Failure> {
        // AcqRel: Acquire for what `put_in` wrote; Release so that the next owner's `put_in` comes behind our read (the
        // engine's own lock orders the two as well).
        if !self.taken.swap(false, Ordering::AcqRel) {
            return Err(Failure::NotOwned { cpu: self.cpu.get() });
        }
        // SAFETY: it was taken, so it is there, and now it is not any more. The CPU stays ours until it is dropped.
        Ok(unsafe { (*self.owned.get()).assume_init_read() })
    }
}

/// # Safety
///
/// `handle` is null or from `freehold_own`, of an allocator that is not destroyed, and used by one thread at a time.
#[inline(always)]
unsafe fn owned<'a>(handle: *const OwnedCpu) -> Result<&'a Owned<'static, 'static, Host>, Failure> {
    // SAFETY: the caller's promise.
    let this = unsafe { shared(handle, "cpu")? };
    // Relaxed: the owner itself has written it.
    if !this.taken.load(Ordering::Relaxed) {
        return Err(Failure::NotOwned { cpu: this.cpu.get() });
    }
    // SAFETY: it is there as long as it is taken, and only the owner, who is calling, changes that.
    Ok(unsafe { (*this.owned.get()).assume_init_ref() })
}

/// Takes a CPU for the caller, until `freehold_owned_release`: its calls need no atomic read-modify-write then, where
/// the platform has a heavy barrier.
///
/// Fails with `FREEHOLD_STATUS_CPU_OFFLINE` or `FREEHOLD_STATUS_CPU_OWNED`.
///
/// Thread safety: any thread, at any time but inside a callback.
///
/// # Safety
///
/// `allocator` is null or comes from `freehold_new` and is not destroyed; `handle` and `error` are null or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_own(
    allocator: *const Allocator,
    cpu: u16,
    handle: *mut *const OwnedCpu,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            wanted(handle, "handle")?;
            let this: &'static Allocator = shared(allocator, "allocator")?;
            let owned = this.engine.own(CpuId::new(cpu))?;
            // The engine has as many CPUs as there are places.
            let place = this.owned.get(usize::from(cpu)).ok_or(Failure::NoCpu { cpu })?;
            place.put_in(owned);
            put(handle, "handle", place)
        })
    }
}

/// Gives a CPU back, with all that it holds; the handle is dead then. Using it again is refused with
/// `FREEHOLD_STATUS_CPU_NOT_OWNED`, unless somebody else owns the CPU by then, whose handle it is.
///
/// Thread safety: the thread that uses the handle.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own`, is used by nobody else and its allocator is not destroyed; `error` is
/// null or can be written to.
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
///
/// # Safety
///
/// `cpu` is null (0 then) or comes from `freehold_own`, and its allocator is not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_cpu_number(cpu: *const OwnedCpu) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { cpu.as_ref() }.map_or(0, |this| this.cpu.get())
}

/// Allocates single frames on an owned CPU until `count` are there or memory is not; writes them to `pfns` and
/// how many there are to `allocated`. The request must be of order 0.
///
/// Fails only where not a single frame was allocated.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `request` is null or can be
/// read; `pfns` has room for `count` frames; `allocated` and `error` are null or can be written to.
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
        answer(error, || {
            wanted(allocated, "allocated")?;
            let request = shared(request, "request")?.engine()?;
            let out = array_of_frames_mut(pfns, count, "pfns")?;
            put(allocated, "allocated", owned(cpu)?.alloc_bulk(request, out)?)
        })
    }
}

/// Frees the frames from `start` to `end` (not included) on an owned CPU, whatever the allocations were. Never waits
/// for a lock.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `error`
/// is null or can be written to. Nobody uses the frames any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_free_range(
    cpu: *const OwnedCpu,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            owned(cpu)?.free_range(frames(start, end))?;
            Ok(())
        })
    }
}

/// Frees those frames from `start` to `end` (not included) on an owned CPU of which `last_reference` says that it was
/// the last one, in maximal runs; writes how many were kept to `kept`, unless that is null. Each frame is asked about
/// once, in rising order, without any lock held.
///
/// Where a run cannot be freed the call ends; the runs before it have been freed.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `kept`
/// and `error` are null or can be written to. `last_reference` is null or may be called with `user`. Nobody uses the
/// frames that are freed any more.
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
            let kept_frames = owned(cpu)?.free_range_with(frames(start, end), is_last(last_reference, user)?)?;
            put_if_wanted(kept, kept_frames);
            Ok(())
        })
    }
}

/// Frees single frames on an owned CPU, in any order. Never waits for a lock.
///
/// Where a frame cannot be freed the call ends: `error->done` frames before it have been freed, those behind it have
/// not.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `pfns`
/// points to `count` frame numbers; `error` is null or can be written to. Nobody uses the frames any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_free_bulk(
    cpu: *const OwnedCpu,
    pfns: *const u64,
    count: usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            owned(cpu)?.free_bulk(array_of_frames(pfns, count, "pfns")?)?;
            Ok(())
        })
    }
}

/// The periodic work of an owned CPU, about once a second: leases that were not used end, what frees have announced is
/// looked at, and a CPU or group that allocated nothing since the last tick gives back everything.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `error`
/// is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_tick(cpu: *const OwnedCpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            owned(cpu)?.tick()?;
            Ok(())
        })
    }
}

/// Ends an owned CPU's leases: for a CPU about to go idle. What it has freed is visible to others without this.
///
/// Thread safety: one thread at a time for each handle; different handles do not disturb each other.
///
/// # Safety
///
/// `cpu` is null or comes from `freehold_own` and its allocator is not destroyed; `error`
/// is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_owned_flush(cpu: *const OwnedCpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            owned(cpu)?.flush()?;
            Ok(())
        })
    }
}
