//! Threads as CPUs, with everything counted that a call may wait for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{Config, ConfigError, CpuId, Freehold, Pfn, Platform};
use rustix::thread::{MembarrierCommand, membarrier};

thread_local! {
    static WAITS: Cell<u64> = const { Cell::new(0) };
    static BARRIERS: Cell<u64> = const { Cell::new(0) };
}

pub(crate) struct Threads {
    barrier: bool,
    late: AtomicU64,
}

/// The allocator of every case. It lives as long as the program, as do threads stuck in it.
pub(crate) type Core = Freehold<'static, Threads>;

/// A machine; `barrier` where owners of CPUs are to rely on membarrier(2), if the system has it.
///
/// # Errors
///
/// There is no such machine.
pub(crate) fn core(config: &Config<'_>, barrier: bool) -> Result<&'static Core, ConfigError> {
    let barrier = barrier && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
    let platform = Threads { barrier, late: AtomicU64::new(0) };
    Ok(Box::leak(Box::new(Freehold::leaked(config, platform)?)))
}

impl Threads {
    /// Double frees that no call could see.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }
}

/// Turns of waits, and heavy barriers, that calls of this thread have taken.
pub(crate) fn counts() -> (u64, u64) {
    (WAITS.get(), BARRIERS.get())
}

impl Platform for Threads {
    /// Of the calls that name no CPU.
    fn current_cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn heavy_barrier(&self) {
        BARRIERS.set(BARRIERS.get() + 1);
        // It can fail only where it has not been registered.
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        debug_assert!(done.is_ok());
    }

    fn relax(&self) {
        WAITS.set(WAITS.get() + 1);
        // More threads than cores: the thread that is waited for needs this one.
        std::thread::yield_now();
    }

    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}
