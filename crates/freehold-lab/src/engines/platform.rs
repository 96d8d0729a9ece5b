//! The platform of an engine: who plays the CPUs, and so what a heavy barrier is.

use std::hint::spin_loop;
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
    barrier: Option<fn()>,
    relax: fn(),
    barriers: AtomicU64,
}

impl Counting {
    /// CPUs are owned, and `barrier` is theirs, where there is one; `relax` is a turn of a wait.
    pub fn new(barrier: Option<fn()>, relax: fn()) -> Self {
        Self { barrier, relax, barriers: AtomicU64::new(0) }
    }

    /// One thread plays CPUs that are owned: it has seen whatever any of them did, so that a barrier
    /// has nothing to wait for.
    pub fn one_thread() -> Self {
        Self::new(Some(|| {}), spin_loop)
    }

    /// Calls name their CPU: nobody owns one, and there is no barrier.
    pub fn callers() -> Self {
        Self::new(None, spin_loop)
    }
}

impl Platform for Counting {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier.is_some()
    }

    fn heavy_barrier(&self) {
        // Relaxed: a count that carries nothing.
        self.barriers.fetch_add(1, Relaxed);
        self.barrier.iter().for_each(|barrier| barrier());
    }

    fn relax(&self) {
        (self.relax)();
    }
}

impl Barriers for Counting {
    fn barriers(&self) -> u64 {
        // Relaxed: exact while nobody waits.
        self.barriers.load(Relaxed)
    }
}
