//! Threads as CPUs, and for a replay on threads how often they wait in Freehold.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use freehold::Platform;
use rustix::thread::{MembarrierCommand, membarrier};

/// Turns of a wait before the processor is left to others: whoever is waited for may need it.
const SPINS: u32 = 64;

std::thread_local! {
    /// Of the call that this thread is in: turns waited, when the first was and when the last.
    static WAIT: Cell<Option<(u32, Instant, Instant)>> = const { Cell::new(None) };
}

/// Threads of this process as CPUs. Where the system has `membarrier(2)`, the owner of a CPU enters
/// its state with plain stores and loads; elsewhere with an ordinary lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostThreads {
    barrier: bool,
}

impl HostThreads {
    /// Asks the system for the barrier.
    pub fn new() -> Self {
        let command = MembarrierCommand::RegisterPrivateExpedited;
        Self { barrier: membarrier(command).is_ok() }
    }

    /// Whether the system has the barrier.
    pub fn has_barrier(self) -> bool {
        self.barrier
    }
}

impl Platform for HostThreads {
    fn has_heavy_barrier(&self) -> bool {
        self.barrier
    }

    fn heavy_barrier(&self) {
        // It can fail only where it has not been registered.
        let done = membarrier(MembarrierCommand::PrivateExpedited);
        debug_assert!(done.is_ok());
    }
}

/// Who plays the CPUs of an engine, and so what a heavy barrier is.
#[derive(Default)]
enum Players {
    /// One thread plays CPUs that are owned: it has seen whatever any of them did, so that a barrier
    /// has nothing to wait for.
    #[default]
    OneThread,
    /// Nobody owns a CPU, and there is no barrier.
    Callers,
    /// Each thread owns its CPU, and the barrier is the system's.
    Threads(HostThreads),
}

/// The platform of an engine, which counts barriers and waits. One type for all players: each
/// further one would have the whole allocator compiled once more.
#[derive(Default)]
pub struct Counting {
    players: Players,
    barriers: AtomicU64,
    waits: AtomicU64,
    wait_ns: AtomicU64,
}

impl Counting {
    /// Calls name their CPU.
    pub(super) fn callers() -> Self {
        Self { players: Players::Callers, ..Self::default() }
    }

    /// Each CPU is a thread of this process.
    pub(super) fn threads() -> Self {
        Self { players: Players::Threads(HostThreads::new()), ..Self::default() }
    }
}

impl Platform for Counting {
    fn has_heavy_barrier(&self) -> bool {
        match self.players {
            Players::OneThread => true,
            Players::Callers => false,
            Players::Threads(threads) => threads.has_barrier(),
        }
    }

    fn heavy_barrier(&self) {
        // Relaxed: a count that carries nothing.
        self.barriers.fetch_add(1, Relaxed);
        if let Players::Threads(threads) = self.players {
            threads.heavy_barrier();
        }
    }

    fn relax(&self) {
        let (turns, begun) =
            WAIT.get().map_or_else(|| (0, Instant::now()), |(turns, begun, _)| (turns, begun));
        if turns < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
        WAIT.set(Some((turns.saturating_add(1), begun, Instant::now())));
    }
}

/// A platform that knows of waits, or has none.
pub trait Waits: Platform + Send + 'static {
    /// A call has ended: what it waited, if it did, is one wait.
    fn call_ended(&self) {}

    /// Waits, and nanoseconds of them.
    fn waited(&self) -> [u64; 2] {
        [0, 0]
    }

    /// Heavy barriers, where they are counted.
    fn barriers(&self) -> u64 {
        0
    }
}

impl Waits for Counting {
    fn call_ended(&self) {
        if let Some((_, begun, last)) = WAIT.take() {
            let ns = u64::try_from(last.duration_since(begun).as_nanos()).unwrap_or(u64::MAX);
            // Relaxed, both: counts that carry nothing.
            self.waits.fetch_add(1, Relaxed);
            self.wait_ns.fetch_add(ns, Relaxed);
        }
    }

    fn waited(&self) -> [u64; 2] {
        // Relaxed: exact while nobody waits.
        [self.waits.load(Relaxed), self.wait_ns.load(Relaxed)]
    }

    fn barriers(&self) -> u64 {
        // Relaxed: as above.
        self.barriers.load(Relaxed)
    }
}

impl Waits for freehold::SingleCpu {}
impl Waits for HostThreads {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_one_call_are_one_wait() {
        let platform = Counting::threads();
        platform.call_ended();
        assert_eq!(platform.waited()[0], 0);
        for _ in 0..2 {
            (0..100).for_each(|_| platform.relax());
            platform.call_ended();
            platform.call_ended();
        }
        assert_eq!(platform.waited()[0], 2);
    }
}

/// A process with a single thread: whatever another CPU's owner did, this thread did, so there is
/// nothing to wait for. For counting instructions under tools that do not know `membarrier(2)`; the
/// owner's path is the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct InitialThread;

impl Platform for InitialThread {
    fn has_heavy_barrier(&self) -> bool {
        true
    }
}

impl Waits for InitialThread {}
