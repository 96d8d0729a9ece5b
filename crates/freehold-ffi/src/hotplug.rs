//! CPUs and memory that come and go while everything runs.

use freehold::CpuId;

use crate::allocator::Allocator;
use crate::arguments::{frames, shared};
use crate::error::{Error, answer};
use crate::status::Status;

/// A CPU comes online; nothing where it is already. Hotplug calls, here and below, wait for each
/// other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_cpu_online(
    allocator: *const Allocator,
    cpu: u16,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || Ok(shared(allocator, "allocator")?.engine.on(CpuId::new(cpu)).online()?))
    }
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
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?.engine.on(CpuId::new(cpu)).offline()?)
        })
    }
}

/// Adds the frames from `start` to `end` (not included) to the zone whose span covers them, all of
/// them free. Watermarks that follow the Linux formulae are computed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_add_memory(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?.engine.add_memory(frames(start, end))?)
        })
    }
}

/// `freehold_add_memory` of whole pageblocks, all of them in use: they become free as somebody
/// frees them, in chunks of any order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_add_memory_in_use(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            Ok(shared(allocator, "allocator")?.engine.add_memory_in_use(frames(start, end))?)
        })
    }
}
