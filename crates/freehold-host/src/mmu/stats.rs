//! What a machine of real pages counts.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Counters {
    pub(super) release_calls: AtomicU64,
    pub(super) pages_released: AtomicU64,
    pub(super) release_refused: AtomicU64,
    pub(crate) write_faults: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) late_writes: AtomicU64,
}

/// What a [`HostMmu`](super::HostMmu) has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HostStats {
    /// System calls that gave memory back.
    pub release_calls: u64,
    /// Pages that they gave back.
    pub pages_released: u64,
    /// Runs of pages that the kernel would not take (locked memory): they stay the process's.
    pub release_refused: u64,
    /// Writes to protected pages that were let through.
    pub write_faults: u64,
    /// Those of them that had to wait for reclaim to decide.
    pub waits: u64,
    /// Writes that came when their page was gone, and went to memory that nothing is mapped at.
    pub late_writes: u64,
}

pub(crate) fn count(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics.
    counter.fetch_add(n, Ordering::Relaxed);
}
