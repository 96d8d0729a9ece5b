//! The handle of a CPU, behind which is the engine's own, of its owner or of anybody.
//!
//! A handle lives in the allocator's metadata: two for each CPU, of its owner and of anybody, and
//! one for the current CPU. The engine sees to it that a CPU has one owner at most.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use freehold::{CpuId, Freehold, On, Owned};

use crate::arguments::shared;
use crate::failure::Failure;
use crate::platform::Host;

/// A CPU, as its owner, or anybody, calls the allocator on it. Opaque.
///
/// Made by `freehold_own`, `freehold_on` and `freehold_here`; ends with its allocator. An owned
/// one belongs to one thread at a time; the others are for any thread, at any time but inside a
/// callback.
// 64 bytes apart from the next, which another CPU writes to.
#[repr(align(64))]
pub struct Cpu {
    owned: UnsafeCell<MaybeUninit<Owned<'static, 'static, Host>>>,
    /// `owned` is there: the handle is its owner's.
    taken: AtomicBool,
    way: Way,
    engine: *const Freehold<'static, Host>,
}

/// What a handle is for.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// A CPU's owner.
    Owner(CpuId),
    /// Anybody, on that CPU.
    Anybody(CpuId),
    /// Anybody, on the CPU that the platform names.
    Current,
}

// SAFETY: `owned` is only touched by the owner of the CPU: one party at a time, which the engine
// sees to, and which the functions here demand of their callers as such a handle is used by one
// thread at a time. The allocator is for any thread.
unsafe impl Sync for Cpu {}

impl Cpu {
    pub(crate) const fn new(engine: *const Freehold<'static, Host>, way: Way) -> Self {
        let owned = UnsafeCell::new(MaybeUninit::uninit());
        Self { owned, taken: AtomicBool::new(false), way, engine }
    }

    fn engine(&self) -> &'static Freehold<'static, Host> {
        // SAFETY: a handle lives as long as its engine, which was written before any caller got
        // either of them.
        unsafe { &*self.engine }
    }

    pub(crate) fn number(&self) -> CpuId {
        match self.way {
            Way::Owner(cpu) | Way::Anybody(cpu) => cpu,
            Way::Current => self.engine().here().cpu(),
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        // Acquire: pairs with the releases of `put_in` and `take_out`.
        self.taken.load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// `owned` is of this CPU.
    pub(crate) unsafe fn put_in(&self, owned: Owned<'static, 'static, Host>) {
        // SAFETY: the place is the CPU's owner's, and the caller owns the CPU: it has just got
        // `owned` from the engine.
        unsafe { (*self.owned.get()).write(owned) };
        // Release: a thread that sees it taken sees what is in it.
        self.taken.store(true, Ordering::Release);
    }

    /// # Safety
    ///
    /// Only one thread uses the handle.
    pub(crate) unsafe fn take_out(&self) -> Result<Owned<'static, 'static, Host>, Failure> {
        // AcqRel: Acquire for what `put_in` wrote; Release so that the next owner's `put_in` comes
        // behind our read (the engine's own lock orders the two as well).
        if !self.taken.swap(false, Ordering::AcqRel) {
            return Err(Failure::NotOwned { cpu: self.number().get() });
        }
        // SAFETY: it was taken, so it is there, and now it is not any more. The CPU stays ours
        // until it is dropped.
        Ok(unsafe { (*self.owned.get()).assume_init_read() })
    }
}

/// The owner's handle, unless that is null, has been released or is anybody's.
///
/// # Safety
///
/// `cpu` is null, or a handle of an allocator that is not destroyed, used as [`Cpu`] says.
#[inline(always)]
pub(crate) unsafe fn owned<'a>(cpu: *const Cpu) -> Option<&'a Owned<'static, 'static, Host>> {
    // SAFETY: the caller's promise.
    let this = unsafe { cpu.as_ref() }?;
    // Relaxed: the owner itself has written it.
    if !this.taken.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: it is there as long as it is taken, and only the owner, who is calling, changes that.
    Some(unsafe { (*this.owned.get()).assume_init_ref() })
}

/// The engine's handle behind any of ours.
pub(crate) enum Handle<'a> {
    Owned(&'a Owned<'static, 'static, Host>),
    On(On<'static, 'static, Host>),
}

pub(crate) unsafe fn handle<'a>(cpu: *const Cpu) -> Result<Handle<'a>, Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        let this: &'static Cpu = shared(cpu, "cpu")?;
        match (owned(cpu), this.way) {
            (Some(owned), _) => Ok(Handle::Owned(owned)),
            (None, Way::Owner(cpu)) => Err(Failure::NotOwned { cpu: cpu.get() }),
            (None, Way::Anybody(cpu)) => Ok(Handle::On(this.engine().on(cpu))),
            (None, Way::Current) => Ok(Handle::On(this.engine().here())),
        }
    }
}

/// A call of the engine's on the CPU of a handle, by whichever way that is.
macro_rules! call {
    ($cpu:expr, $handle:ident => $call:expr) => {
        match $crate::handle::handle($cpu)? {
            $crate::handle::Handle::Owned($handle) => $call,
            $crate::handle::Handle::On($handle) => $call,
        }
    };
}
pub(crate) use call;
