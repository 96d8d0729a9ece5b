//! Pageblocks kept back for high-order requests that may not wait.
//!
//! A network driver that needs an order-3 buffer in an interrupt cannot compact memory first. So when such a request
//! succeeds, the pageblock it was served from becomes a HIGHATOMIC block, up to 1 % of the zone, and before the system
//! would fail somebody for lack of memory the reserve is given back block by block.

use freehold::Migratetype;

use crate::page::{PAGEBLOCK, PAGEBLOCK_ORDER};
use crate::zone::Locked;

impl Locked<'_> {
    /// Makes the pageblock of `frame` part of the reserve, if the reserve may still grow. Source: Linux 6.12 and later,
    /// `reserve_highatomic_pageblock`: nothing in zones where 1 % is less than a pageblock, and at most 1 % rounded up
    /// to pageblocks.
    pub(crate) fn reserve_high_atomic(&mut self, frame: u32, order: u8) {
        let (managed, block_frames) = (self.zone.managed, u64::from(PAGEBLOCK));
        if managed / 100 < block_frames {
            return;
        }
        let most = (managed / 100).next_multiple_of(block_frames);
        if self.high_atomic_blocks * block_frames >= most || !self.zone.type_of(frame).is_mergeable() {
            return;
        }
        if order >= PAGEBLOCK_ORDER {
            self.set_types(frame, order, Migratetype::HighAtomic);
            self.high_atomic_blocks += 1 << (order - PAGEBLOCK_ORDER);
        } else {
            let block = self.zone.block_of(frame);
            self.move_block(block, Migratetype::HighAtomic);
            self.zone.blocks.set_migratetype(block, Migratetype::HighAtomic);
            self.high_atomic_blocks += 1;
        }
        self.counters.high_atomic_reserves += 1;
    }

    /// Gives one reserved block that has free frames back, to `migratetype`; the last block only if `force`. Returns
    /// whether frames became available.
    pub(crate) fn unreserve_high_atomic(&mut self, migratetype: Migratetype, force: bool) -> bool {
        if self.high_atomic_blocks <= u64::from(!force) {
            return false;
        }
        for order in 0..self.areas.len() {
            self.counters.lists_looked_at += 1;
            self.work += 1;
            let Some(frame) = self.areas[order].lists[Migratetype::HighAtomic.index()].first() else { continue };
            let blocks = if order as u8 > PAGEBLOCK_ORDER { 1 << (order as u8 - PAGEBLOCK_ORDER) } else { 1 };
            if order as u8 > PAGEBLOCK_ORDER {
                self.retype(frame, migratetype);
                self.set_types(frame, order as u8, migratetype);
            } else {
                let block = self.zone.block_of(frame);
                self.move_block(block, migratetype);
                self.zone.blocks.set_migratetype(block, migratetype);
            }
            self.high_atomic_blocks = self.high_atomic_blocks.saturating_sub(blocks);
            self.counters.high_atomic_unreserves += 1;
            return true;
        }
        false
    }
}
