//! The words that a zone's CPUs may lease where there are fewer of them than CPUs.
//!
//! All that CPUs lease is at most 1 % of a zone, rounded up to a word. Mostly that is some words
//! for each CPU, and nobody counts them. On a machine with less than 25 MiB for each CPU it is less
//! than one: a CPU takes one of what is left before it leases. A CPU that finds none left takes its
//! frames straight from the blocks' words, and says that it wants one. Who has one gives it up at
//! its next tick with nothing in hand, or where its word is used up and somebody wants one. Then it
//! takes some frames as the others did before it asks again.

use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering, Relaxed};

/// So often a CPU that has given up its share for others does without before it asks for one again.
const LETS_OTHERS: u32 = 8;

/// See the module's documentation. On lines of its own: what it counts changes often.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct SharedWords {
    most: AtomicU64,
    taken: AtomicU64,
    /// Somebody has found none left since one was given up for that.
    wanted: AtomicBool,
}

impl SharedWords {
    /// How many there are; with fewer than are taken none is to be had for a while.
    pub(crate) fn set_most(&self, most: u64) {
        self.most.set(most);
    }

    /// Takes one, for a CPU that gives it back; `false` where none is left.
    pub(crate) fn take(&self) -> bool {
        let most = self.most.get();
        if self.taken.get() >= most {
            // Without a write, mostly: many may ask.
            if !self.wanted.get() {
                self.wanted.set(true);
            }
            return false;
        }
        // Relaxed, both: a number, which nothing else follows from.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken >= most {
            self.give_back();
        }
        taken < most
    }

    /// Whether somebody wants one: told once, to the CPU that gives one up. A preference: if it is
    /// lost somebody asks again.
    pub(crate) fn take_wish(&self) -> bool {
        let wanted = self.wanted.get();
        if wanted {
            self.wanted.set(false);
        }
        wanted
    }

    fn give_back(&self) {
        // Relaxed: as above.
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a CPU has one of them. Under its door.
#[derive(Default)]
pub(crate) struct Share {
    has: AtomicBool,
    /// So often it does without one before it asks again: others want one.
    lets_others: AtomicU32,
}

impl Share {
    /// Whether the CPU has one, or gets one now.
    #[cold]
    pub(crate) fn has_or_gets(&self, words: &SharedWords) -> bool {
        if !self.has.get() && self.lets_others.get() != 0 {
            self.lets_others.set(self.lets_others.get() - 1);
            return false;
        }
        self.has.set(self.has.get() || words.take());
        self.has.get()
    }

    /// Gives it up.
    #[inline(always)]
    pub(crate) fn give_up(&self, words: &SharedWords) {
        if self.has.get() {
            self.has.set(false);
            words.give_back();
        }
    }

    /// Has given it up for others.
    pub(crate) fn let_others(&self) {
        self.lets_others.set(LETS_OTHERS);
    }
}
