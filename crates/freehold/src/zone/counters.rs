//! What a zone counts, written by who has its lock, as a plain load, add and store.

use crate::primitive::{AtomicU64, Count, Plain};

/// Buckets of the histogram of work per hold: bucket b counts holds of `2^(b-1)` to `2^b - 1`
/// steps, bucket 0 those of none.
pub const WORK_BUCKETS: usize = 20;

/// See the module's documentation.
pub(crate) struct ZoneCounters {
    pub(crate) acquisitions: AtomicU64,
    pub(crate) work: AtomicU64,
    pub(crate) work_max: AtomicU64,
    pub(crate) work_histogram: [AtomicU64; WORK_BUCKETS],
    pub(crate) fallbacks: AtomicU64,
    pub(crate) mixed: AtomicU64,
    pub(crate) splits: AtomicU64,
}

impl ZoneCounters {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            acquisitions: zero(),
            work: zero(),
            work_max: zero(),
            work_histogram: core::array::from_fn(|_| zero()),
            fallbacks: zero(),
            mixed: zero(),
            splits: zero(),
        }
    }

    /// One hold of the lock has ended.
    pub(crate) fn hold(&self, steps: u64) {
        self.acquisitions.add(1);
        self.work.add(steps);
        if steps > self.work_max.get() {
            self.work_max.set(steps);
        }
        let bucket = (64 - steps.leading_zeros() as usize).min(WORK_BUCKETS - 1);
        self.work_histogram[bucket].add(1);
    }
}
