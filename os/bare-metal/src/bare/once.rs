//! A value that is made once, while the machine still has one CPU, and then shared for good; and a
//! spin lock.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module's documentation.
pub(crate) struct Once<T> {
    ready: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by the first CPU before `ready`, and only read afterwards, by all:
// so it must be Sync; nothing is ever moved out.
unsafe impl<T: Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Nothing yet.
    pub(crate) const fn new() -> Self {
        Self { ready: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Puts the value in, for good.
    ///
    /// # Panics
    ///
    /// The second time.
    ///
    /// # Safety
    ///
    /// Not by two CPUs at once.
    pub(crate) unsafe fn set(&self, value: T) -> &T {
        // Relaxed: the caller is alone.
        assert!(!self.ready.load(Ordering::Relaxed), "made twice");
        // SAFETY: not ready, so nobody reads it; the caller is alone, so nobody else writes it.
        unsafe { (*self.value.get()).write(value) };
        // Release: who sees it ready sees the value.
        self.ready.store(true, Ordering::Release);
        self.get()
    }

    /// The value, once it is there.
    pub(crate) fn try_get(&self) -> Option<&T> {
        // Acquire: pairs with the Release of `set`.
        if self.ready.load(Ordering::Acquire) {
            // SAFETY: ready, so it was written and is not written again.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// The value.
    ///
    /// # Panics
    ///
    /// Where it is not there yet.
    pub(crate) fn get(&self) -> &T {
        self.try_get().unwrap_or_else(|| panic!("used before it was made"))
    }
}

/// A value that one CPU at a time may use. Not for interrupt handlers.
pub(crate) struct Lock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one CPU at a time, in `with`.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Unlocked.
    pub(crate) const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` with the value, after waiting for everybody else. `f` must not come back here.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // Acquire: after what the last holder did. Relaxed on failure: nothing was learnt.
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            crate::calls::poll();
            core::hint::spin_loop();
        }
        // SAFETY: this CPU has turned `locked` from false to true and nobody else does before it is
        // false again.
        let result = f(unsafe { &mut *self.value.get() });
        // Release: before what the next holder does.
        self.locked.store(false, Ordering::Release);
        result
    }
}
