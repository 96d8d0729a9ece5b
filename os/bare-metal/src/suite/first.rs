//! The first of several values: several CPUs may have one, one is kept.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// See the module's documentation.
pub(super) struct First<T> {
    state: AtomicU8,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: `value` is written by the one party that turned `state` from EMPTY to FILLING, and only
// read once it is FULL.
unsafe impl<T: Send + Sync> Sync for First<T> {}

impl<T: Copy> First<T> {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(None) }
    }

    /// Keeps the value if it is the first.
    pub(super) fn offer(&self, value: T) {
        // Relaxed: nothing is read of what others did.
        if self.state.compare_exchange(EMPTY, FILLING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // SAFETY: only this party got here, and nobody reads before FULL.
            unsafe { *self.value.get() = Some(value) };
            // Release: who sees FULL sees the value.
            self.state.store(FULL, Ordering::Release);
        }
    }

    /// Whether there is one, or about to be.
    pub(super) fn is_some(&self) -> bool {
        // Relaxed: a hint to stop.
        self.state.load(Ordering::Relaxed) != EMPTY
    }

    /// The value kept. After everybody is through.
    pub(super) fn get(&self) -> Option<T> {
        // Acquire: pairs with the Release of `offer`.
        if self.state.load(Ordering::Acquire) == FULL {
            // SAFETY: FULL, so it is not written any more.
            unsafe { *self.value.get() }
        } else {
            None
        }
    }
}
