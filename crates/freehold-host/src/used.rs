//! How many frames are in use, known without looking at a block.
//!
//! ```text
//! slot 0   | taken - given |    64 bytes apart; written by the slot's thread alone, with plain stores
//! slot 1   | taken - given |
//! others   | taken - given |    threads that share a slot, runs of several blocks, the slow way
//! ```
//!
//! One of them alone may be below zero: a thread frees what another has allocated. The sum is exact
//! while nothing runs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;
use crate::mapping::Mapping;

/// Bytes from one slot's count to the next: a cache line, so that no thread's write waits for
/// another's.
const STRIDE: usize = 64;

/// See the module's documentation.
pub(crate) struct Used {
    counts: Mapping,
    slots: u16,
    others: AtomicU64,
}

impl Used {
    pub(crate) fn new(slots: u16) -> Result<Self, Error> {
        let counts = Mapping::zeroed(usize::from(slots) * STRIDE)?;
        Ok(Self { counts, slots, others: AtomicU64::new(0) })
    }

    /// The count of one slot, which its thread alone writes.
    pub(crate) fn of_slot(&self, slot: usize) -> &AtomicU64 {
        debug_assert!(slot < usize::from(self.slots));
        // SAFETY: the mapping has a line for each slot, zeroed, and is only ever used as atomics.
        unsafe { self.counts.base().byte_add(slot * STRIDE).cast::<AtomicU64>().as_ref() }
    }

    /// Frames have been allocated, by whoever has no count of its own at hand.
    pub(crate) fn taken(&self, frames: u64) {
        // Relaxed, here and below: a statistic.
        self.others.fetch_add(frames, Ordering::Relaxed);
    }

    /// Frames have been freed.
    pub(crate) fn given(&self, frames: u64) {
        self.others.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Frames in use; 0 where those freed are known and those allocated not yet. Takes time in
    /// proportion to the slots.
    pub(crate) fn frames(&self) -> u64 {
        let slots = (0..usize::from(self.slots)).map(|slot| self.of_slot(slot));
        let sum = slots
            .map(|count| count.load(Ordering::Relaxed))
            .fold(self.others.load(Ordering::Relaxed), u64::wrapping_add);
        (sum as i64).max(0) as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.counts.len() as u64
    }
}
