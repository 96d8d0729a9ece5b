//! What a zone counts: statistics, each an atomic addition by whoever did it.

use crate::primitive::AtomicU64;

/// See the module's documentation.
pub(crate) struct ZoneCounters {
    pub(crate) fallbacks: AtomicU64,
    pub(crate) mixed: AtomicU64,
    /// Writes to what all CPUs share that no CPU counts.
    pub(crate) shared_writes: AtomicU64,
}

impl ZoneCounters {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { fallbacks: zero(), mixed: zero(), shared_writes: zero() }
    }
}

/// What whoever is in no CPU's state counts and marks, on several lines, so that not all such calls
/// write one.
#[repr(C, align(128))]
pub(crate) struct Outside {
    /// Frames that came into words, or went out of them where the number wraps, by migratetype.
    pub(crate) free: [AtomicU64; 8],
    pub(crate) frees: AtomicU64,
    /// Calls that have frames on the way; see [`moving`](crate::transfer::moving).
    pub(crate) moving: AtomicU64,
}

/// Lines of them that a zone has.
pub(crate) const OUTSIDE: usize = if cfg!(any(loom, shuttle)) { 1 } else { 8 };

impl Outside {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { free: core::array::from_fn(|_| zero()), frees: zero(), moving: zero() }
    }
}
