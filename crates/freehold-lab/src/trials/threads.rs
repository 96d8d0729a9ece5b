//! Threads as CPUs, whose heavy barrier is the system's.

use crate::engines::Barriers;
use freehold::Platform;
use rustix::thread::{MembarrierCommand, membarrier};

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
        heavy_barrier();
    }
}

/// The system's barrier, once [`HostThreads::new`] has asked for it.
pub fn heavy_barrier() {
    // It can fail only where it has not been registered.
    let done = membarrier(MembarrierCommand::PrivateExpedited);
    debug_assert!(done.is_ok());
}

impl Barriers for HostThreads {}

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

impl Barriers for InitialThread {}
