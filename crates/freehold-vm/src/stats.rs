//! What folios, unmapping and reclaim have done: counters, exact while nothing runs.
//!
//! They are the machine's atomics even where loom checks the rest: nothing depends on them, and
//! each would double what there is to explore.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter of events.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: statistics.
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by name, and a struct of what they were at one moment.
macro_rules! counters {
    ($(#[$about:meta])* $read:ident, $counters:ident {
        $($(#[$doc:meta])* $name:ident),* $(,)?
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct $read {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        pub(crate) struct $counters {
            $(pub(crate) $name: $crate::stats::Counter,)*
        }

        impl $counters {
            pub(crate) fn read(&self) -> $read {
                $read { $($name: self.$name.get(),)* }
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// What a [`Vm`](crate::Vm) has done so far.
    VmStats, Counters {
        /// Folios allocated.
        folios,
        /// Folios freed, in whatever way.
        folios_freed,
        /// Folios that became lazyfree (`PGLAZYFREE`, but a folio counts once).
        lazyfree,
        /// Lazyfree folios that reclaim has freed.
        reclaimed_folios,
        /// Their frames (`PGLAZYFREED`).
        reclaimed_frames,
        /// Lazyfree folios that reclaim found written to, so that they are swap-backed again.
        redirtied,
        /// Lazyfree folios that reclaim left because somebody else was using them: pinned, locked,
        /// mapped elsewhere.
        kept_busy,
        /// Lazyfree folios that reclaim left because they had been used lately.
        kept_referenced,
        /// Ranges of the page allocator's that reclaimed folios were freed as.
        frees,
        /// Calls of [`Mmu::flush`](crate::Mmu::flush), of all sorts.
        flushes,
        /// Those of them for reclaimed folios, together.
        reclaim_flushes,
        /// Walks over a folio's reverse mappings that reclaim has made.
        rmap_walks,
        /// Batches of entries that reclaim has cleared and taken out of the reverse mapping; single
        /// entries where it goes page by page.
        batches_cleared,
        /// Batches of entries that reclaim has put back.
        batches_restored,
        /// Entries that reclaim has put back.
        entries_restored,
        /// Folios put on the deferred-split queue: part of them was unmapped while the rest was
        /// not.
        deferred_queued,
        /// Folios of the queue that were split.
        deferred_split,
        /// Folios split for any reason.
        split,
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &Counter, n: u64) {
    // Relaxed: statistics.
    counter.0.fetch_add(n, Ordering::Relaxed);
}
