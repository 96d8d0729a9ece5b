//! The allocator's [`Platform`]: how threads of a Linux process wait, and reach into each other's
//! state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use freehold::{Freehold, Owned, Pfn, Platform};

use crate::notes::Notes;
use crate::sys;

/// How often a barrier is tried before it counts as forbidden.
const RETRIES: u32 = 1000;

/// The allocator of an arena.
pub(crate) type Engine = Freehold<'static, Host>;
/// A CPU of it that one thread has for itself.
pub(crate) type OwnedCpu = Owned<'static, 'static, Host>;

/// Threads of this process as CPUs.
pub(crate) struct Host {
    barrier: bool,
    late_double_frees: AtomicU64,
    #[cfg(test)]
    pub(crate) barriers: AtomicU64,
    /// What the OS backs; there once the arena is put together.
    notes: OnceLock<Arc<Notes>>,
}

impl Host {
    /// Registers this process for expedited barriers, unless told not to; where the kernel has none
    /// (before Linux 4.14, or forbidden by a sandbox) owners use the ordinary lock.
    pub(crate) fn new(barrier: bool) -> Self {
        let barrier = barrier && sys::register_barrier();
        Self {
            barrier,
            late_double_frees: AtomicU64::new(0),
            #[cfg(test)]
            barriers: AtomicU64::new(0),
            notes: OnceLock::new(),
        }
    }

    /// Where it is noted what the OS backs.
    pub(crate) fn set_notes(&self, notes: &Arc<Notes>) {
        // It is put together once.
        let _ = self.notes.set(Arc::clone(notes));
    }

    /// Double frees that the second call could not see.
    pub(crate) fn late_double_frees(&self) -> u64 {
        // Relaxed: a statistic.
        self.late_double_frees.load(Ordering::Relaxed)
    }
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn heavy_barrier(&self) {
        // Relaxed: a statistic.
        #[cfg(test)]
        self.barriers.fetch_add(1, Ordering::Relaxed);
        // The kernel may lack the memory for a moment.
        if (0..RETRIES).any(|_| {
            sys::barrier() || {
                std::thread::yield_now();
                false
            }
        }) {
            return;
        }
        // It worked when it was registered, so somebody has forbidden it since (a seccomp filter
        // installed late). To go on would let two threads into one CPU's state: there is no value
        // to return that says so, and unwinding would leave a lock held.
        eprintln!(
            "freehold-host: membarrier(2) has been forbidden after an arena was made that relies \
             on it; forbid it before, or build the arena with Lock::Ordinary"
        );
        std::process::abort();
    }

    fn relax(&self) {
        // The holder of a lock may be waiting for this very core.
        std::thread::yield_now();
    }

    fn in_memory(&self, first: Pfn) -> u64 {
        self.notes.get().map_or(!0, |notes| notes.in_memory(first))
    }

    fn late_double_free(&self, _: Pfn) {
        // Relaxed: a statistic.
        self.late_double_frees.fetch_add(1, Ordering::Relaxed);
    }
}
