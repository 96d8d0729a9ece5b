//! The platform of a soak: threads, with everything counted that a call may wait for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{CpuId, Pfn, Platform, Pressure};

use super::watch::Post;
use freehold_lab::trials::threads::HostThreads;

thread_local! {
    static CPU: Cell<u16> = const { Cell::new(0) };
    /// Of the call that this thread is making, or has made last.
    static POST: Cell<Option<&'static Post>> = const { Cell::new(None) };
    static BARRIERS: Cell<u64> = const { Cell::new(0) };
}

pub(super) struct Host {
    threads: HostThreads,
    late: AtomicU64,
    pressures: AtomicU64,
}

impl Host {
    pub(super) fn new() -> Self {
        Self { threads: HostThreads::new(), late: AtomicU64::new(0), pressures: AtomicU64::new(0) }
    }

    /// Double frees that no call could see.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// How often a zone's pressure has changed.
    pub(super) fn pressures(&self) -> u64 {
        self.pressures.load(Ordering::Relaxed)
    }
}

/// The CPU that this thread's calls go to where they name none.
pub(super) fn run_on(cpu: CpuId) {
    CPU.set(cpu.get());
}

/// Where this thread's next call counts its waits, and others see what it waits for.
pub(super) fn show_waits(post: &'static Post) {
    POST.set(Some(post));
}

/// Turns of waits, and heavy barriers, that this thread's calls have taken.
pub(super) fn counts() -> (u64, u64) {
    // Relaxed: only its own thread writes it.
    (POST.get().map_or(0, |post| post.waits.load(Ordering::Relaxed)), BARRIERS.get())
}

impl Platform for Host {
    fn current_cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    fn has_heavy_barrier(&self) -> bool {
        self.threads.has_barrier()
    }

    fn heavy_barrier(&self) {
        BARRIERS.set(BARRIERS.get() + 1);
        let post = POST.get();
        // Relaxed, as below: only looked at by whoever wonders what this thread is doing.
        let show = |on| post.inspect(|post| post.in_barrier.store(on, Ordering::Relaxed));
        show(true);
        self.threads.heavy_barrier();
        show(false);
    }

    fn relax(&self) {
        if let Some(post) = POST.get() {
            // Relaxed: of others' threads only whether it changes is of interest.
            post.waits.fetch_add(1, Ordering::Relaxed);
        }
        // More threads than cores: whoever is waited for needs this one.
        std::thread::yield_now();
    }

    fn pressure(&self, _: Pressure) {
        self.pressures.fetch_add(1, Ordering::Relaxed);
    }

    fn late_double_free(&self, _: Pfn) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }
}
