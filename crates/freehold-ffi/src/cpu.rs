//! Handles of CPUs: what allocations and frees are made by.
//!
//! ```text
//! freehold_own(allocator, cpu, ...)  that CPU, for the caller alone: the fastest
//! freehold_on(allocator, cpu)        that CPU, from anywhere, by anybody
//! freehold_here(allocator)           the CPU that the platform names, asked at each call
//! ```

use core::ptr;

use freehold::CpuId;

use crate::allocator::Allocator;
use crate::arguments::shared;
use crate::error::{Error, answer, ask, tell};
use crate::handle::Cpu;
use crate::status::Status;

/// Takes a CPU for the caller, until `freehold_release`: its calls need no atomic read-modify-write
/// then, where the platform has a heavy barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_own(
    allocator: *const Allocator,
    cpu: u16,
    handle: *mut *const Cpu,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        tell(handle, "handle", error, || {
            let this: &'static Allocator = shared(allocator, "allocator")?;
            let owned = this.engine.own(CpuId::new(cpu))?;
            let place = &this.owned_cpus()[usize::from(cpu)];
            place.put_in(owned);
            Ok(place)
        })
    }
}

/// Gives an owned CPU back, with all that it holds, by the thread that uses the handle; the handle
/// is dead then. Using it again is refused with `FREEHOLD_STATUS_CPU_NOT_OWNED`, unless somebody
/// else owns the CPU by then, whose handle it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_release(cpu: *const Cpu, error: *mut Error) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            drop(shared(cpu, "cpu")?.take_out()?);
            Ok(())
        })
    }
}

/// That CPU, from anywhere; null where there is no such CPU. Whether it is online is checked by
/// each call. Nothing to give back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_on(allocator: *const Allocator, cpu: u16) -> *const Cpu {
    // SAFETY: the caller's promise.
    unsafe { allocator.as_ref() }
        .and_then(|this| this.any_cpu(cpu))
        .map_or(ptr::null(), ptr::from_ref)
}

/// The current CPU: each call asks the platform's `current_cpu` which one that is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_here(allocator: *const Allocator) -> *const Cpu {
    // SAFETY: the caller's promise.
    unsafe { allocator.as_ref() }.map_or(ptr::null(), |this| ptr::from_ref(this.current_cpu()))
}

/// A CPU comes online; nothing where it is already. Calls of this kind, for CPUs and for
/// memory, wait for each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_cpu_online(
    allocator: *const Allocator,
    cpu: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.on(CpuId::new(cpu)).online()) }
}

/// A CPU that nobody owns goes offline: everything it holds goes to the zones. Frees of what it
/// allocated may go on meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_cpu_offline(
    allocator: *const Allocator,
    cpu: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { ask(allocator, error, |engine| engine.on(CpuId::new(cpu)).offline()) }
}
