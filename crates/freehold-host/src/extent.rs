//! How much of an arena's memory the allocator knows of: see `arena/resize.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::FrameRange;

/// Frames that the allocator comes to know of at a time: 1 TiB, 64 KiB of bits.
pub(crate) const STEP: u64 = 1 << 28;

/// How far the allocator knows of an arena's memory.
pub(crate) struct Extent {
    /// One change at a time. Taken inside a pass's lock, where both are.
    changing: Mutex<()>,
    /// The first frame of the last memory node: the one that grows.
    pub(crate) last_part: u64,
    /// The first frame that the allocator does not know of.
    known_end: AtomicU64,
    /// Frames that are added are to be backed at once.
    pub(crate) populate: bool,
}

impl Extent {
    /// The allocator knows of that part of the last node.
    pub(crate) fn new(last: FrameRange, populate: bool) -> Self {
        let known_end = AtomicU64::new(last.end.get());
        Self { changing: Mutex::new(()), last_part: last.start.get(), known_end, populate }
    }

    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known_end(&self) -> u64 {
        // Acquire: who sees that it is known finds the memory in the allocator.
        self.known_end.load(Ordering::Acquire)
    }

    /// The allocator knows of the memory up to that frame.
    pub(crate) fn set_known_end(&self, end: u64) {
        // Release: see `known_end`.
        self.known_end.store(end, Ordering::Release);
    }
}
