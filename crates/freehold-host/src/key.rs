//! Where in a thread's `FAST` an arena has its place: see `thread.rs`.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::host::OwnedCpu;
use crate::stamp::Stamp;

/// Places in `FAST`.
pub(crate) const WAYS: usize = 8;
/// How many arenas have each of the places.
static ARENAS: [AtomicU32; WAYS] = [const { AtomicU32::new(0) }; WAYS];

/// One of the places.
pub(crate) struct Fast {
    pub(crate) id: Cell<u64>,
    /// Dangling where nobody's.
    pub(crate) place: Cell<NonNull<Place>>,
}

/// A CPU that a thread has for itself.
pub(crate) struct Place {
    pub(crate) cpu: OwnedCpu,
    /// Frames that the slot's threads have taken, less those that they gave. Lives as long as the
    /// arena's [`Core`](crate::core::Core), which outlives this.
    pub(crate) used: NonNull<AtomicU64>,
}

/// By what a thread finds its CPU of an arena. Good while the arena's [`Core`](crate::core::Core)
/// lives.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// The arena's number, which a forked child sees as another one.
    stamp: NonNull<AtomicU64>,
    /// Where in `FAST`, in bytes: the start of one of its places.
    offset: usize,
}

// SAFETY: what it points to is atomic, and lives in memory of the process that no thread owns.
unsafe impl Send for Key {}
// SAFETY: what it points to is atomic, and lives in memory of the process that no thread owns.
unsafe impl Sync for Key {}

/// The number of an arena that no thread's cache holds.
static NO_ARENA: AtomicU64 = AtomicU64::new(u64::MAX - 1);

impl Key {
    /// One by which no thread finds its CPU.
    pub(crate) fn of_none() -> Self {
        Self { stamp: NonNull::from(&NO_ARENA), offset: 0 }
    }

    /// A new arena's, at the place that the fewest have. To be [left](Self::leave).
    pub(crate) fn of(stamp: &Stamp) -> Self {
        // Relaxed, both: two arenas made at the same moment may get one place. That costs time and
        // nothing else, and a lock could stay locked in a forked child.
        let way = (0..WAYS).min_by_key(|&way| ARENAS[way].load(Ordering::Relaxed)).unwrap_or(0);
        ARENAS[way].fetch_add(1, Ordering::Relaxed);
        Self { stamp: NonNull::from(stamp.word()), offset: way * size_of::<Fast>() }
    }

    /// The arena's number, as this process sees it.
    ///
    /// # Safety
    ///
    /// The arena's core lives.
    #[inline(always)]
    pub(crate) unsafe fn id(self) -> u64 {
        // SAFETY: the stamp lives as long as the core. Relaxed: it never changes in this process.
        unsafe { self.stamp.as_ref() }.load(Ordering::Relaxed)
    }

    /// Its place, in bytes from the first: the start of one of them.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset
    }

    pub(crate) fn way(self) -> usize {
        self.offset / size_of::<Fast>()
    }

    /// Others may have the place. Once for each arena.
    pub(crate) fn leave(self) {
        // Relaxed: two arenas made at the same moment may get one place. That costs time and
        // nothing else, and a lock could stay locked in a forked child.
        ARENAS[self.way()].fetch_sub(1, Ordering::Relaxed);
    }
}
