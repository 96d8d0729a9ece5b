//! Blocks in which somebody else has freed frames, waiting for their holder: a lock-free stack of blocks.
//!
//! Pushing is one compare-exchange and may be done in any context. Taking takes everything at once, so no node is ever
//! removed from the middle and the ABA problem cannot arise. What a bounded collection leaves over stays on a private
//! chain (`rest`) that only the holder's lock protects.
//!
//! A block is in at most one inbox: only who claimed its `queued` flag pushes it.

use crate::block::{Block, NONE};
use crate::primitive::{AtomicU32, Ordering, Plain};

/// The head of an inbox nobody may push to any more: its CPU is offline.
pub(crate) const CLOSED: u32 = u32::MAX - 1;

/// See the module's documentation. Alone on its cache line: freers write it.
#[repr(C, align(64))]
pub(crate) struct Inbox {
    head: AtomicU32,
    /// Taken but not processed yet; under the holder's lock.
    rest: AtomicU32,
}

impl Inbox {
    pub(crate) fn new(open: bool) -> Self {
        Self { head: AtomicU32::new(if open { NONE } else { CLOSED }), rest: AtomicU32::new(NONE) }
    }

    /// Pushes a block whose `queued` flag the caller has claimed; `false` where the inbox is closed.
    pub(crate) fn push(&self, blocks: &[Block], index: u32) -> bool {
        let mut head = self.head.load(Ordering::Relaxed); // only a guess, which the exchange checks
        loop {
            if head == CLOSED {
                // The failed exchange below may have been relaxed; the caller reads the holder again and must see
                // what was stored before closing.
                // Acquire: pairs with `close`'s release.
                let _ = self.head.load(Ordering::Acquire);
                return false;
            }
            blocks[index as usize].watch_link();
            blocks[index as usize].inbox_next.set(head);
            // Release: who takes the stack must see the link (and, through the links, those of earlier pushes, which
            // the release sequence carries). Failure: relaxed, the loop looks again.
            match self.head.compare_exchange_weak(head, index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is anything to collect, as far as a glance can tell.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.get();
        (head == NONE || head == CLOSED) && self.rest.get() == NONE
    }

    /// The next block to process; under the holder's lock.
    pub(crate) fn pop(&self, blocks: &[Block]) -> Option<u32> {
        let mut rest = self.rest.get();
        if rest == NONE {
            let head = self.head.get();
            if head == NONE || head == CLOSED {
                return None;
            }
            // Acquire: pairs with `push`'s release, for the links. Only the holder, whose lock the caller has, closes
            // or takes, so the head cannot have become CLOSED since the glance.
            rest = self.head.swap(NONE, Ordering::Acquire);
        }
        let index = rest;
        blocks[index as usize].watch_link();
        self.rest.set(blocks[index as usize].inbox_next.get());
        Some(index)
    }

    /// How many blocks wait here, up to `most`; while nobody pushes or pops.
    pub(crate) fn count(&self, blocks: &[Block], most: u64) -> u64 {
        let mut n = 0;
        for first in [self.rest.get(), self.head.get()] {
            let mut index = first;
            while index != NONE && index != CLOSED && n <= most {
                n += 1;
                index = blocks[index as usize].inbox_next.get();
            }
        }
        n
    }

    /// Lets nobody push any more. What was pushed before is on the private chain, to be [`pop`](Self::pop)ped.
    /// Under the holder's lock, after every block has got another holder and the private chain is empty.
    pub(crate) fn close(&self) {
        // Acquire: as in `pop`, for the links. Release: a pusher that finds CLOSED must see the new holders.
        let head = self.head.swap(CLOSED, Ordering::AcqRel);
        if head != NONE && head != CLOSED {
            debug_assert_eq!(self.rest.get(), NONE);
            self.rest.set(head);
        }
    }

    /// Opens it again: its CPU is online. Under the holder's lock.
    pub(crate) fn open(&self) {
        // Relaxed: whoever pushes next got the block, and with it everything else, from this CPU's later operations. A
        // failure means it was open already.
        let _ = self.head.compare_exchange(CLOSED, NONE, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn blocks_come_back_once_and_a_closed_inbox_refuses() {
        let blocks: Vec<Block> = (0..4).map(|_| Block::new()).collect();
        let inbox = Inbox::new(true);
        assert!(inbox.is_empty());
        assert!(inbox.push(&blocks, 0) && inbox.push(&blocks, 1));
        assert_eq!(inbox.pop(&blocks), Some(1));
        assert!(inbox.push(&blocks, 2));
        assert_eq!(inbox.pop(&blocks), Some(0));
        inbox.close();
        assert!(!inbox.push(&blocks, 3));
        assert_eq!(inbox.pop(&blocks), Some(2));
        assert_eq!(inbox.pop(&blocks), None);
        inbox.open();
        assert!(inbox.push(&blocks, 3));
        assert_eq!(inbox.pop(&blocks), Some(3));
    }
}
