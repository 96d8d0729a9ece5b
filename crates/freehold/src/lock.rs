//! An ordinary spin lock, for what no allocation and no free waits for: changes to which CPUs and
//! what memory there are.

use crate::primitive::{AtomicBool, Ordering, Relaxed};

/// See the module's documentation.
pub(crate) struct Lock(AtomicBool);

impl Lock {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes it, waiting.
    pub(crate) fn lock(&self, relax: impl Fn()) {
        // Acquire: pairs with `unlock`.
        while self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.0.get() {
                relax();
            }
        }
    }

    pub(crate) fn unlock(&self) {
        // Release: pairs with `lock`.
        self.0.store(false, Ordering::Release);
    }
}
