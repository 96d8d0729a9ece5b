//! Where an owned CPU lives while somebody owns it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use freehold::{CpuId, Owned};

use crate::arguments::shared;
use crate::error::Failure;
use crate::platform::Host;

/// A CPU that the holder of this handle has for itself. Opaque.
///
/// It lives in the allocator's metadata, one place for each CPU: the engine sees to it that a CPU
/// has one owner at most, and that owner has the place. 64 bytes apart from the next, which another
/// CPU writes to.
#[repr(align(64))]
pub struct OwnedCpu {
    owned: UnsafeCell<MaybeUninit<Owned<'static, 'static, Host>>>,
    /// `owned` is there.
    taken: AtomicBool,
    cpu: CpuId,
}

// SAFETY: `owned` is only touched by whoever owns the CPU: one party at a time, which the engine
// sees to, and which the functions here demand of their callers as the handle is used by one thread at a
// time.
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
    pub(crate) unsafe fn put_in(&self, owned: Owned<'static, 'static, Host>) {
        // SAFETY: who has the CPU has this place, and the caller has the CPU: it has just got
        // `owned` from the engine.
        unsafe { (*self.owned.get()).write(owned) };
        // Release: who sees it taken sees what is in it.
        self.taken.store(true, Ordering::Release);
    }

    /// # Safety
    ///
    /// Only one thread uses the handle.
    pub(crate) unsafe fn take_out(&self) -> Result<Owned<'static, 'static, Host>, Failure> {
        // AcqRel: Acquire for what `put_in` wrote; Release so that the next owner's `put_in` comes
        // behind our read (the engine's own lock orders the two as well).
        if !self.taken.swap(false, Ordering::AcqRel) {
            return Err(Failure::NotOwned { cpu: self.cpu.get() });
        }
        // SAFETY: it was taken, so it is there, and now it is not any more. The CPU stays ours
        // until it is dropped.
        Ok(unsafe { (*self.owned.get()).assume_init_read() })
    }
}

/// # Safety
///
/// `handle` is null or from `freehold_own`, of an allocator that is not destroyed, and used by one
/// thread at a time.
#[inline(always)]
pub(crate) unsafe fn owned<'a>(
    handle: *const OwnedCpu,
) -> Result<&'a Owned<'static, 'static, Host>, Failure> {
    // SAFETY: the caller's promise.
    let this = unsafe { shared(handle, "cpu")? };
    // Relaxed: the owner itself has written it.
    if !this.taken.load(Ordering::Relaxed) {
        return Err(Failure::NotOwned { cpu: this.cpu.get() });
    }
    // SAFETY: it is there as long as it is taken, and only the owner, who is calling, changes that.
    Ok(unsafe { (*this.owned.get()).assume_init_ref() })
}
