//! Pageblocks kept back for high-order requests that may not wait.
//!
//! A network driver that needs an order-3 buffer in an interrupt cannot compact memory first. So
//! when such a request succeeds, the pageblock it was served from becomes a HIGHATOMIC block, up to
//! some 1 % of the zone, and before the system would fail somebody for lack of memory the reserve
//! is given back block by block.

use core::sync::atomic::Ordering::Relaxed;

use freehold::Migratetype;

use crate::page::{PAGEBLOCK, PAGEBLOCK_ORDER};
use crate::switches::Switch;
use crate::zone::{Locked, Zone};

impl Zone {
    /// [`Locked::reserve_high_atomic`], without taking the lock where the zone is too small or the
    /// reserve is full.
    pub(crate) fn reserve_high_atomic(&self, frame: u32, order: u8) {
        // Relaxed: only spares the lock; looked at again under it.
        if self.high_atomic_blocks.load(Relaxed) < self.most_high_atomic_blocks() {
            self.lock().reserve_high_atomic(frame, order);
        }
    }

    /// Nothing in zones where 1 % is less than a pageblock, and at most 1 % rounded up to
    /// pageblocks; before, a pageblock more and in zones of any size. Source:
    /// `reserve_highatomic_pageblock` of Linux 6.12 and of 6.1.
    fn most_high_atomic_blocks(&self) -> u64 {
        let (share, block) = (self.managed / 100, u64::from(PAGEBLOCK));
        match self.on.has(Switch::HighAtomicRounded) {
            false => share.div_ceil(block) + 1,
            true if share < block => 0,
            true => share.div_ceil(block),
        }
    }
}

impl Locked<'_> {
    /// Makes the pageblock of `frame` part of the reserve, if the reserve may still grow.
    fn reserve_high_atomic(&mut self, frame: u32, order: u8) {
        let zone = self.zone;
        let blocks = zone.high_atomic_blocks.load(Relaxed);
        if blocks >= zone.most_high_atomic_blocks() || !zone.type_of(frame).is_mergeable() {
            return;
        }
        // A block that reaches beyond the zone keeps its type: its other frames belong to another
        // lock.
        let within = Self::block_frames(zone.block_of(frame));
        if within.start < zone.start || within.end > zone.end {
            return;
        }
        if order >= PAGEBLOCK_ORDER {
            self.set_types(frame, order, Migratetype::HighAtomic);
            zone.high_atomic_blocks.store(blocks + (1 << (order - PAGEBLOCK_ORDER)), Relaxed);
        } else {
            let block = self.zone.block_of(frame);
            self.move_block(block, Migratetype::HighAtomic);
            self.change_type(block, Migratetype::HighAtomic);
            zone.high_atomic_blocks.store(blocks + 1, Relaxed);
        }
        self.counters.high_atomic_reserves += 1;
    }

    /// Gives one reserved block that has free frames back, to `migratetype`; the last block only if
    /// `force`. Returns whether frames became available.
    pub(crate) fn unreserve_high_atomic(&mut self, migratetype: Migratetype, force: bool) -> bool {
        let reserved = self.zone.high_atomic_blocks.load(Relaxed);
        if reserved <= u64::from(!force) {
            return false;
        }
        for order in 0..self.areas.len() {
            self.counters.lists_looked_at += 1;
            self.work += 1;
            let Some(frame) = self.areas[order].lists[Migratetype::HighAtomic.index()].first()
            else {
                continue;
            };
            let blocks = 1 << (order as u8).saturating_sub(PAGEBLOCK_ORDER);
            if order as u8 > PAGEBLOCK_ORDER {
                self.retype(frame, migratetype);
                self.set_types(frame, order as u8, migratetype);
            } else {
                let block = self.zone.block_of(frame);
                self.move_block(block, migratetype);
                self.change_type(block, migratetype);
            }
            self.zone.high_atomic_blocks.store(reserved.saturating_sub(blocks), Relaxed);
            self.counters.high_atomic_unreserves += 1;
            return true;
        }
        false
    }
}
