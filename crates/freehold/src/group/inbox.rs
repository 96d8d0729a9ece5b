//! Blocks that frees have announced, waiting for their holder: a lock-free stack of blocks.
//!
//! Pushing is one compare-exchange and may be done in any context. Taking takes everything at once,
//! so no node is ever removed from the middle and the ABA problem cannot arise. What a bounded look
//! leaves over stays on a private chain (`rest`) that only the holder's lock protects.
//!
//! A block is in at most one inbox: only who has changed its class to QUEUED pushes it, and the
//! class leaves QUEUED only when it is popped.

use crate::block::NONE;
use crate::block::layout::Index;
use crate::block::map::FrameMap;
use crate::primitive::{AtomicU32, Ordering, Plain};

/// See the module's documentation. Alone on its cache line: freers write it.
#[repr(C, align(64))]
pub(crate) struct Inbox {
    head: AtomicU32,
    /// Taken but not processed yet; under the holder's lock.
    rest: AtomicU32,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { head: AtomicU32::new(NONE), rest: AtomicU32::new(NONE) }
    }

    /// Pushes a block that the caller has marked as queued.
    pub(crate) fn push(&self, map: &FrameMap<'_>, index: Index) {
        let mut head = self.head.load(Ordering::Relaxed); // only a guess, which the exchange checks
        loop {
            map.links(index).inbox_next.set(head);
            // Release: who takes the stack must see the link (and, through the links, those of
            // earlier pushes, which the release sequence carries). Failure: relaxed, the loop looks
            // again.
            match self.head.compare_exchange_weak(
                head,
                index.get(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is anything, as far as a glance can tell.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.get() == NONE && self.rest.get() == NONE
    }

    /// The next block to look at; under the holder's lock.
    pub(crate) fn pop(&self, map: &FrameMap<'_>) -> Option<Index> {
        let mut rest = self.rest.get();
        if rest == NONE {
            if self.head.get() == NONE {
                return None;
            }
            // Acquire: pairs with `push`'s release, for the links.
            rest = self.head.swap(NONE, Ordering::Acquire);
        }
        let index = map.index(rest)?;
        self.rest.set(map.links(index).inbox_next.get());
        Some(index)
    }

    /// How many blocks wait here, up to `most`; while nobody pushes or pops.
    pub(crate) fn count(&self, map: &FrameMap<'_>, most: u64) -> u64 {
        let mut n = 0;
        for first in [self.rest.get(), self.head.get()] {
            let mut at = map.index(first);
            while let Some(index) = at.filter(|_| n <= most) {
                n += 1;
                at = map.index(map.links(index).inbox_next.get());
            }
        }
        n
    }
}
