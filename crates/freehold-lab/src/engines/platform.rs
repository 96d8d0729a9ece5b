//! The platform of an engine: who plays the CPUs, and so what a heavy barrier is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::{Platform, SingleCpu};

/// A platform that may count heavy barriers.
pub trait Barriers: Platform + Send + 'static {
    /// Heavy barriers so far, where they are counted.
    fn barriers(&self) -> u64 {
        0
    }
}

impl Barriers for SingleCpu {}

/// A platform that counts them. One type for whoever plays the CPUs: each further one would have
/// the whole allocator compiled once more.
pub struct Counting {
    owned: bool,
    barriers: AtomicU64,
}

impl Counting {
    /// One thread plays all CPUs: `owned` ones, of which it has seen whatever any did, so that a
    /// barrier has nothing to wait for; or calls name their CPU, and there is no barrier.
    pub fn new(owned: bool) -> Self {
        Self { owned, barriers: AtomicU64::new(0) }
    }
}

impl Platform for Counting {
    fn has_heavy_barrier(&self) -> bool {
        self.owned
    }

    fn heavy_barrier(&self) {
        // Relaxed: a count that carries nothing.
        self.barriers.fetch_add(1, Relaxed);
    }
}

impl Barriers for Counting {
    fn barriers(&self) -> u64 {
        // Relaxed: exact while nobody waits.
        self.barriers.load(Relaxed)
    }
}
