//! A spin lock around a value: the only unsafe code of the crate.
//!
//! What lies behind it (a tree of areas, a batch of flushes, a free list) is touched for a few
//! hundred nanoseconds at a time. The value is only reachable inside [`Spin::with`], so that a
//! guard cannot be kept by mistake, and so that loom's cell, which watches for races, has the same
//! shape as the real one.

#![expect(
    unsafe_code,
    reason = "a lock is what turns shared access into exclusive access; see Spin::with"
)]

use crate::primitive::{AtomicBool, Ordering};

#[cfg(not(loom))]
mod cell {
    /// The real cell, with the shape of loom's.
    pub(super) struct Cell<T>(core::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }
        #[inline(always)]
        pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
#[cfg(loom)]
mod cell {
    pub(super) use loom::cell::UnsafeCell as Cell;
}

/// A value that one party at a time may use.
pub(crate) struct Spin<T> {
    locked: AtomicBool,
    value: cell::Cell<T>,
}

// SAFETY: `value` is only reached in `with`, by whoever turned `locked` from false to true, and by
// one at a time; so sharing the lock between threads does no more than sending the value from one
// to the next, which `T: Send` allows.
unsafe impl<T: Send> Sync for Spin<T> {}

impl<T> Spin<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: cell::Cell::new(value) }
    }

    /// Runs `f` with the value, after waiting for everybody else. `relax` is called in every turn
    /// of the wait. Not reentrant: `f` must not come back here. Where `f` panics the lock stays
    /// taken, since nobody knows then what the value is worth.
    #[inline]
    pub(crate) fn with<R>(&self, relax: impl Fn(), f: impl FnOnce(&mut T) -> R) -> R {
        acquire(&self.locked, relax);
        let result = self.value.with_mut(|value| {
            // SAFETY: `acquire` has turned `locked` from false to true, and nobody does so again
            // before it is false, so this is the only reference to the value. The pointer comes
            // from a cell that lives as long as `self`.
            f(unsafe { &mut *value })
        });
        release(&self.locked);
        result
    }
}

/// Takes a lock that is a flag, waiting.
#[inline]
pub(crate) fn acquire(locked: &AtomicBool, relax: impl Fn()) {
    while !try_acquire(locked) {
        relax();
    }
}

/// Takes a lock that is a flag if nobody has it.
#[inline]
pub(crate) fn try_acquire(locked: &AtomicBool) -> bool {
    // Acquire: what the last holder did comes before what this one does. Relaxed where it fails:
    // nothing was learnt.
    locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Gives back a lock that is a flag.
#[inline]
pub(crate) fn release(locked: &AtomicBool) {
    // Release: what this holder did comes before what the next one does.
    locked.store(false, Ordering::Release);
}
