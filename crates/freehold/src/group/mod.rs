//! Groups: the CPUs that share a cache hold pageblocks together.
//!
//! ```text
//! Group  lock
//!        Stock   lists of partly free blocks, by type, fullness and largest free run
//!                a few wholly free blocks
//!                inbox: blocks that frees have announced, pushed without the lock
//! ```
//!
//! A block's frames are in its words, which every CPU may change at any time; what a stock says
//! about them was true when the block was listed. The words decide. The lock is taken to choose the
//! next block to lease words of, once for some hundred frames where memory is plenty, for ten where
//! it is short; never by a free.
//!
//! The zone has a stock too, of the partly free blocks that no group holds, under its own lock.

pub(crate) mod inbox;
pub(crate) mod lists;
pub(crate) mod lock;

use crate::block::tag::TYPES;
use crate::primitive::{AtomicU32, AtomicU64, Plain};
use inbox::Inbox;
use lists::Lists;
use lock::Lock;

/// The blocks of one holder, a group or the zone. Under the holder's lock, but for the inbox.
pub(crate) struct Stock {
    pub(crate) lists: Lists,
    pub(crate) inbox: Inbox,
    /// Free frames of listed blocks when they were listed, by migratetype.
    free: [AtomicU64; TYPES],
}

impl Stock {
    pub(crate) fn new() -> Self {
        Self {
            lists: Lists::new(),
            inbox: Inbox::new(),
            free: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Free frames of that type in listed blocks when they were listed: what was freed since then
    /// is not added, what was taken past the lists not subtracted.
    pub(crate) fn free_of(&self, migratetype: usize) -> u64 {
        self.free[migratetype].get()
    }

    /// The same for all types.
    pub(crate) fn free(&self) -> u64 {
        self.free.iter().fold(0, |sum, free| sum.wrapping_add(free.get()))
    }

    /// A glance: whether a partly free block of that type is listed, or any block was announced.
    pub(crate) fn may_have(&self, migratetype: usize) -> bool {
        self.free_of(migratetype) != 0 || !self.inbox.is_empty()
    }

    /// Counts frames of a block that is being listed, or unlisted with a number that wraps.
    pub(crate) fn note(&self, migratetype: usize, frames: u64) {
        self.free[migratetype].set(self.free[migratetype].get().wrapping_add(frames));
    }
}

/// See the module's documentation. 128 bytes apart, since adjacent lines are fetched in pairs.
#[repr(C, align(128))]
pub(crate) struct Group {
    pub(crate) lock: Lock,
    /// Ticks of its CPUs in a row that found nothing allocated.
    pub(crate) idle_ticks: AtomicU32,
    /// Times the lock was taken.
    pub(crate) acquisitions: AtomicU64,
    pub(crate) stock: Stock,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self {
            lock: Lock::new(),
            idle_ticks: AtomicU32::new(0),
            acquisitions: AtomicU64::new(0),
            stock: Stock::new(),
        }
    }
}
