//! An ordinary spin lock. Who may not wait only tries it.

use crate::primitive::{AtomicBool, Ordering, Plain};

/// See the module's documentation.
pub(crate) struct Lock(AtomicBool);

impl Lock {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes it if it is free.
    pub(crate) fn try_lock(&self) -> bool {
        // Acquire: pairs with `unlock`.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it, waiting.
    pub(crate) fn lock(&self, relax: impl Fn()) {
        while !self.try_lock() {
            while self.0.get() {
                relax();
            }
        }
    }

    pub(crate) fn unlock(&self) {
        // Release: pairs with `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}
