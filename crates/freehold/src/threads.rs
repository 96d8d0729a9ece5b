//! The platform for threads: each thread that calls has a CPU slot of its own while it lives.

use std::boxed::Box;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::{Config, ConfigError, CpuId, Freehold, Platform};

/// Threads as CPUs: a thread gets the lowest free slot at its first call and gives it back when it
/// ends.
///
/// Where there are more threads than CPUs, some share one; each CPU's state is locked either way.
/// Waiting yields to other threads. There is no heavy barrier here (that takes a system call, which
/// a host crate brings), so every call takes an ordinary lock, which is the CPU's own and hardly
/// ever contended.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    cpus: u16,
}

impl Threads {
    /// For an allocator with that many CPUs; none counts as one.
    #[must_use]
    pub const fn new(cpus: u16) -> Self {
        Self { cpus: if cpus == 0 { 1 } else { cpus } }
    }
}

impl Platform for Threads {
    fn current_cpu(&self) -> CpuId {
        let slot = SLOT.try_with(|slot| slot.0).unwrap_or(0);
        CpuId::new((slot % usize::from(self.cpus)) as u16)
    }

    fn relax(&self) {
        std::thread::yield_now();
    }
}

/// A thread's number: the lowest that no living thread has.
struct Slot(usize);

/// Numbers given back, and the lowest never given.
static FREE: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

std::thread_local! {
    static SLOT: Slot = Slot::new();
}

impl Slot {
    fn new() -> Self {
        // A panic elsewhere leaves the set as good as it was.
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        Self(free.0.pop_first().unwrap_or_else(|| {
            free.1 += 1;
            free.1 - 1
        }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).0.insert(self.0);
    }
}

impl<P: Platform> Freehold<'static, P> {
    /// An allocator whose metadata comes from the heap and is never given back: for allocators that
    /// live as long as the program, and for tests.
    ///
    /// # Errors
    ///
    /// Those of a configuration that cannot be served.
    pub fn leaked(config: &Config<'_>, platform: P) -> Result<Self, ConfigError> {
        let size = config.metadata_size()?;
        // Not touched before it is used: metadata is set up section by section.
        Self::new(config, Box::leak(Box::new_uninit_slice(size)), platform)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn living_threads_have_slots_of_their_own() {
        let platform = Threads::new(1000);
        let mine = platform.current_cpu();
        let barrier = std::sync::Barrier::new(2);
        let (a, b) = std::thread::scope(|scope| {
            let slot = || {
                let cpu = platform.current_cpu();
                barrier.wait();
                cpu
            };
            let (a, b) = (scope.spawn(slot), scope.spawn(slot));
            (a.join().unwrap(), b.join().unwrap())
        });
        assert!(a != b && a != mine && b != mine);
        assert_eq!(platform.current_cpu(), mine);
        assert_eq!(Threads::new(0).current_cpu(), CpuId::new(0));
    }
}
