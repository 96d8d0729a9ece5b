//! The words that a zone's CPUs may lease where there are fewer of them than CPUs.
//!
//! All that CPUs lease is at most 1 % of a zone, rounded up to a word. Mostly that is some words
//! for each CPU, and nobody counts them. On a machine with less than 25 MiB for each CPU it is less
//! than one: a CPU takes one of what is left before it leases, and has it until its next tick with
//! nothing in hand. A CPU that finds none left takes its frames straight from the blocks' words.

use crate::primitive::{AtomicU64, Ordering, Relaxed};

/// See the module's documentation.
pub(crate) struct SharedWords {
    most: AtomicU64,
    taken: AtomicU64,
}

impl SharedWords {
    pub(crate) fn new() -> Self {
        Self { most: AtomicU64::new(0), taken: AtomicU64::new(0) }
    }

    /// How many there are; with fewer than are taken none is to be had for a while.
    pub(crate) fn set_most(&self, most: u64) {
        self.most.set(most);
    }

    /// Takes one, for a CPU that gives it back; `false` where none is left.
    pub(crate) fn take(&self) -> bool {
        let most = self.most.get();
        if self.taken.get() >= most {
            // Without a write: many may ask.
            return false;
        }
        // Relaxed, both: a number, which nothing else follows from.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken >= most {
            self.give_back();
        }
        taken < most
    }

    pub(crate) fn give_back(&self) {
        // Relaxed: as above.
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
