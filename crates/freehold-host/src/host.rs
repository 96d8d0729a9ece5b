//! The allocator's [`Platform`]: how threads of a Linux process wait, and reach into each other's
//! state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use freehold::{Freehold, Owned, Pfn, Platform};
use rustix::thread::MembarrierCommand;

use crate::notes::Notes;

/// How often a barrier is tried before it counts as forbidden.
const RETRIES: u32 = 1000;

/// The allocator of an arena.
pub(crate) type Engine = Freehold<'static, Host>;
/// A CPU of it that one thread has for itself.
pub(crate) type OwnedCpu = Owned<'static, 'static, Host>;

/// Threads of this process as CPUs.
pub(crate) struct Host {
    barrier: bool,
    /// The kernel has refused a barrier after it was registered.
    forbidden: AtomicBool,
    late_double_frees: AtomicU64,
    /// What the OS backs; there once the arena is put together.
    notes: OnceLock<Arc<Notes>>,
}

impl Host {
    /// Registers this process for expedited barriers, unless told not to; where the kernel has none
    /// (before Linux 4.14, or forbidden by a sandbox) owners use the ordinary lock.
    pub(crate) fn new(barrier: bool) -> Self {
        let barrier = barrier
            && rustix::thread::membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Self {
            barrier,
            forbidden: AtomicBool::new(false),
            late_double_frees: AtomicU64::new(0),
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

/// A barrier on every core without `membarrier(2)`: the calling thread runs on each of them in
/// turn. Whoever ran there was switched out for it, which is a barrier; whoever moves to a core
/// that was visited already was switched out as well. May take a time slice of each core that is
/// busy, a few milliseconds, in place of microseconds: a program that forbids `membarrier(2)` does
/// so before it makes its arenas, which then use [`Lock::Ordinary`](crate::Lock::Ordinary).
///
/// Threads that may run where this process may not (a control group of threads with CPUs of its
/// own) are not reached.
#[cold]
fn visit_every_cpu() {
    // SeqCst: the barrier of the calling thread's own, on both sides.
    fence(Ordering::SeqCst);
    // SAFETY: all zeros is a set of no CPU; the calls read or write sets of that size.
    let visited = unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let known = libc::sched_getaffinity(0, size, &raw mut before) == 0;
        let mut visited = 0;
        for cpu in (0..libc::CPU_SETSIZE as usize).filter(|_| known) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            // It fails for CPUs that there are not, or that this process may not use.
            visited += usize::from(libc::sched_setaffinity(0, size, &raw const one) == 0);
        }
        libc::sched_setaffinity(0, size, &raw const before);
        visited
    };
    fence(Ordering::SeqCst);
    if visited == 0 {
        // To go on would let two threads into one CPU's state: there is no value to return that
        // says so, and unwinding would leave a lock held.
        eprintln!(
            "freehold-host: membarrier(2) and sched_setaffinity(2) have been forbidden after an \
             arena was made that relies on the former; forbid them before, or build it with \
             Lock::Ordinary"
        );
        std::process::abort();
    }
}

impl Platform for Host {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn heavy_barrier(&self) {
        // Relaxed: a hint. Who does not see it finds out by itself.
        if self.forbidden.load(Ordering::Relaxed) {
            return visit_every_cpu();
        }
        // The kernel may lack the memory for a moment.
        let done = || rustix::thread::membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        if (0..RETRIES).any(|_| {
            done() || {
                std::thread::yield_now();
                false
            }
        }) {
            return;
        }
        // It worked when it was registered, so somebody has forbidden it since (a seccomp filter
        // installed late).
        self.forbidden.store(true, Ordering::Relaxed);
        visit_every_cpu();
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
