//! How much of an arena's memory the allocator knows of: see `arena/resize.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::FrameRange;

/// Frames that the allocator is told of at a time: 1 TiB, 64 KiB of bits.
pub(crate) const STEP: u64 = 1 << 28;

/// How far the allocator has been told of an arena's memory.
pub(crate) struct Extent {
    /// One change at a time. Taken inside a pass's lock, where both are.
    changing: Mutex<()>,
    /// The first frame of the last memory node: the one that grows.
    pub(crate) last_part: u64,
    /// The first frame that the allocator has not been told of.
    told: AtomicU64,
    /// Frames that are added are to be backed at once.
    pub(crate) populate: bool,
}

impl Extent {
    /// The allocator knows of that part of the last node.
    pub(crate) fn new(last: FrameRange, populate: bool) -> Self {
        let told = AtomicU64::new(last.end.get());
        Self { changing: Mutex::new(()), last_part: last.start.get(), told, populate }
    }

    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn told(&self) -> u64 {
        // Acquire: who sees that it was told finds the memory in the allocator.
        self.told.load(Ordering::Acquire)
    }

    /// The allocator has been told of the memory up to that frame.
    pub(crate) fn set_told(&self, end: u64) {
        // Release: see `told`.
        self.told.store(end, Ordering::Release);
    }
}
