//! Waits for a lock: how many there were, and how long they took.
//!
//! Written only by whoever has found the lock held, so that a lock which nobody contends costs
//! nothing more.

use std::time::Instant;

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// The waits for one lock.
#[derive(Default)]
pub(crate) struct Waits {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Waits {
    /// Runs `wait`, which waits for the lock, and counts it.
    #[cold]
    pub(crate) fn during<T>(&self, wait: impl FnOnce() -> T) -> T {
        // Relaxed, both: counts that carry nothing. Counted first, so that it can be seen that
        // somebody waits.
        self.count.fetch_add(1, Relaxed);
        let begun = Instant::now();
        let held = wait();
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Relaxed);
        held
    }

    /// How many, and how many nanoseconds together.
    pub(crate) fn read(&self) -> (u64, u64) {
        // Relaxed: exact while nobody waits.
        (self.count.load(Relaxed), self.ns.load(Relaxed))
    }

    /// Forgets them. Nobody may be waiting.
    pub(crate) fn reset(&self) {
        // Relaxed: nobody is waiting.
        self.count.store(0, Relaxed);
        self.ns.store(0, Relaxed);
    }
}
