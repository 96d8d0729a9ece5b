//! Pageblocks that are kept for requests that may not wait: the HIGHATOMIC reserve.
//!
//! ```text
//!                     a HIGH_ATOMIC request of order 1 to 8 had to be served of it
//!   ordinary block  ---------------------------------------------------------------->  HIGHATOMIC block
//!                   <----------------------------------------------------------------
//!                     the host says so: [`give_up_reserve`](Freehold::give_up_reserve)
//! ```
//!
//! Without it a chunk that an interrupt needs is taken apart by single frames, which are served at
//! once and need no chunk. It is at most 1 % of a zone, rounded up to a block, and there is none in
//! a zone of which 1 % is less than that (Linux 7.3).
//!
//! The host says when memory is short: it gives `HIGH_ATOMIC` to requests only then. Such a request
//! looks into HIGHATOMIC blocks after its CPU's hand and before all else. Of an ordinary block it
//! takes only by keeping that. No HIGHATOMIC block becomes ordinary unless the host says so, no
//! matter who fails. What CPUs lease of a block that is kept stays theirs until they let it go.

use crate::alloc::pick::Want;
use crate::block::{BLOCK_ORDER, FRAMES, HIGH_ATOMIC};
use crate::cpu::By;
use crate::primitive::{Count, Ordering, Relaxed};
use crate::{AllocFlags, Freehold, Migratetype, Platform};

/// What a zone keeps for requests that may not wait; see [`Freehold::reserve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserve {
    /// HIGHATOMIC pageblocks.
    pub blocks: u64,
    /// Their free frames.
    pub free: u64,
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// One HIGHATOMIC block of a zone that has free frames becomes an ordinary one of that type;
    /// false where there is none, no such zone, or no such ordinary type. Takes no lock.
    pub fn give_up_reserve(&self, zone: usize, migratetype: Migratetype) -> bool {
        let Some(zone) = self.zones.get(zone).filter(|_| Migratetype::PCP.contains(&migratetype))
        else {
            return false;
        };
        let by = self.outside();
        let find = || Want::new(0, HIGH_ATOMIC).pick(by, zone).block(false, u32::MAX);
        let found = if zone.high_atomic_blocks.get() == 0 { None } else { find() };
        found.is_some_and(|block| {
            let tag = block.tag.get();
            let given_up =
                tag.migratetype() == HIGH_ATOMIC && by.retype(block, tag, migratetype as usize);
            if given_up {
                // Relaxed: a count.
                zone.high_atomic_blocks.fetch_sub(1, Ordering::Relaxed);
                by.raise(block);
            }
            given_up
        })
    }

    /// A zone's HIGHATOMIC blocks and their free frames, for a watermark that those do not count
    /// for; `None` where there is no such zone. Takes no lock. Exact while nothing runs; a line of
    /// each CPU is looked at where there are such blocks, none otherwise.
    #[must_use]
    pub fn reserve(&self, zone: usize) -> Option<Reserve> {
        let zone = self.zones.get(zone)?;
        let blocks = zone.high_atomic_blocks.get();
        let free = if blocks == 0 { 0 } else { zone.free(self).high_atomic };
        Some(Reserve { blocks, free })
    }
}

impl<'m, P: Platform> By<'_, 'm, P> {
    /// Keeps the rest of a block for HIGHATOMIC requests after one of them has got a chunk of it
    /// that was not in hand; the chunk.
    #[inline]
    pub(crate) fn keep_block_of(self, want: Want, pfn: u64) -> Option<u64> {
        if want.flags.contains(AllocFlags::HIGH_ATOMIC) && (1..BLOCK_ORDER).contains(&want.order) {
            self.keep_block(pfn);
        }
        Some(pfn)
    }

    #[cold]
    fn keep_block(self, pfn: u64) {
        let Some(block) = self.fh.map.locate(pfn) else { return };
        let tag = block.tag.get();
        let zone = tag.zone_of(self.fh.zones);
        let cap = zone.managed.get() / 100;
        let kept = zone.high_atomic_blocks.get();
        if tag.migratetype() >= HIGH_ATOMIC
            || cap < FRAMES as u64
            || kept >= cap.div_ceil(FRAMES as u64)
        {
            return;
        }
        // Counted before it is one: a call that gives it up takes it off.
        zone.high_atomic_blocks.add_shared(1);
        if !self.retype(block, tag, HIGH_ATOMIC) {
            // Relaxed: a count.
            zone.high_atomic_blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
