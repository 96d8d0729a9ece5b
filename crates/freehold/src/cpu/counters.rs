//! What a CPU counts, on lines of its own: no lock and no cache line is shared for it.
//!
//! Each is written by a thread inside the CPU's state, as a plain load, add and store.

use crate::ORDERS;
use crate::primitive::AtomicU64;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct CpuCounters {
    /// Allocations by migratetype asked for, then by order; four: two bits of a type are an index.
    pub(crate) allocs: [[AtomicU64; ORDERS]; 4],
    pub(crate) local_frees: AtomicU64,
    pub(crate) remote_frees: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Allocations that needed more than what the CPU had in hand.
    pub(crate) slow: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) by_phase: [AtomicU64; 3],
    pub(crate) refilled_frames: AtomicU64,
    pub(crate) recalls: AtomicU64,
    /// Writes to what all CPUs share.
    pub(crate) shared_writes: AtomicU64,
}
