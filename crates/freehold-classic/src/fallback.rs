//! What happens when a migratetype has nothing left: taking from another one, with as little mixing
//! as possible.
//!
//! A request first tries to **claim**: the largest free chunk of another type is the best sign of a
//! pageblock that is mostly empty, and if at least half of that block is free (or holds what is as
//! good as its own kind) the whole block changes its type. Only when nothing can be claimed does it
//! **steal** a single chunk, the smallest that will do, and leaves the block's type alone: now two
//! kinds share a block.
//!
//! Up to 6.14 both were one step that started at the largest order (switch `claim-steal` off): each
//! request that could not claim broke up the largest foreign chunk there was.

use core::sync::atomic::Ordering::Relaxed;

use freehold::{AllocFlags, Migratetype};

use crate::page::{Kind, MAX_ORDER, PAGEBLOCK, PAGEBLOCK_ORDER, State};
use crate::switches::Switch;
use crate::zone::Locked;

/// What a pageblock holds, counted in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
    /// On the zone's lists.
    pub(crate) free: u32,
    /// In use by movable requests.
    pub(crate) movable: u32,
}

/// Whether a request of `order` may look for a block to claim. Large requests would otherwise split
/// large foreign chunks again and again; unmovable and reclaimable ones do lasting harm wherever
/// they land, so they had better have a block of their own. Source: Linux 6.15,
/// `should_try_claim_block`.
pub(crate) fn may_claim(order: u8, requested: Migratetype) -> bool {
    order >= PAGEBLOCK_ORDER / 2 || requested != Migratetype::Movable
}

/// Whether a block with `contents` of type `block` is worth changing into `requested`: when free
/// and alike frames make up half of it. Source: Linux 6.15, `try_to_claim_block`.
pub(crate) fn worth_claiming(
    contents: Contents,
    requested: Migratetype,
    block: Migratetype,
) -> bool {
    let alike = if requested == Migratetype::Movable {
        contents.movable
    } else if block == Migratetype::Movable {
        // What is neither free nor movable in a movable block is of the requester's kind, more or
        // less.
        PAGEBLOCK - contents.free - contents.movable
    } else {
        0
    };
    contents.free + alike >= PAGEBLOCK / 2
}

/// The smallest order to fall back to: with `NO_FRAGMENT` that of a whole block.
fn least(order: u8, flags: AllocFlags) -> u8 {
    if flags.contains(AllocFlags::NO_FRAGMENT) { order.max(PAGEBLOCK_ORDER) } else { order }
}

impl Locked<'_> {
    /// The first chunk of `order` of a type that `requested` may fall back to.
    fn foreign(&mut self, order: u8, requested: Migratetype) -> Option<u32> {
        for &fallback in requested.fallbacks() {
            self.counters.lists_looked_at += 1;
            self.work += 1;
            if let Some(frame) = self.areas[order as usize].lists[fallback.index()].first() {
                return Some(frame);
            }
        }
        None
    }

    /// Looks for a block to claim, from the largest order down; with `NO_FRAGMENT` for whole blocks
    /// only.
    pub(crate) fn claim(
        &mut self,
        order: u8,
        requested: Migratetype,
        flags: AllocFlags,
    ) -> Option<u32> {
        for at in (least(order, flags)..=MAX_ORDER).rev() {
            if !may_claim(at, requested) {
                break;
            }
            let Some(frame) = self.foreign(at, requested) else { continue };
            if let Some(frame) = self.claim_block(frame, order, requested) {
                self.counters.fallbacks += 1;
                self.counters.claims += 1;
                return Some(frame);
            }
        }
        None
    }

    /// Makes the block around a foreign chunk the requester's own, if it is worth it, and takes a
    /// chunk from it.
    fn claim_block(&mut self, frame: u32, order: u8, requested: Migratetype) -> Option<u32> {
        let state = self.zone.frames.state(frame);
        if state.order() >= PAGEBLOCK_ORDER {
            let (from, _) = self.take(frame);
            self.set_types(frame, from, requested);
            self.expand(frame, order, from, requested);
            self.counters.taken_chunks += 1;
            return Some(frame);
        }
        self.boost_watermark();
        let block = self.zone.block_of(frame);
        let contents = self.contents(block)?;
        if !worth_claiming(contents, requested, state.migratetype()) {
            return None;
        }
        self.move_block(block, requested);
        self.change_type(block, requested);
        self.take_smallest(order, requested)
    }

    /// Takes the smallest sufficient foreign chunk; what is left of it keeps its type.
    pub(crate) fn steal(&mut self, order: u8, requested: Migratetype) -> Option<u32> {
        for at in order..=MAX_ORDER {
            let Some(frame) = self.foreign(at, requested) else { continue };
            self.take_and_expand(frame, order);
            self.counters.taken_chunks += 1;
            self.counters.fallbacks += 1;
            self.counters.steals += 1;
            return Some(frame);
        }
        None
    }

    /// The fallback of 6.14 and before: claim and steal in one, from the largest order down.
    /// Source: Linux 6.12, `__rmqueue_fallback`.
    pub(crate) fn fall_back_from_largest(
        &mut self,
        order: u8,
        requested: Migratetype,
        flags: AllocFlags,
    ) -> Option<u32> {
        let mut orders = (least(order, flags)..=MAX_ORDER).rev();
        let (at, mut frame) = orders.find_map(|at| Some((at, self.foreign(at, requested)?)))?;
        // A small movable request that may not have the block anyway: break up the smallest chunk
        // instead.
        if !may_claim(at, requested) && at > order {
            frame = (order..=MAX_ORDER).find_map(|at| self.foreign(at, requested))?;
        }
        let state = self.zone.frames.state(frame);
        self.counters.fallbacks += 1;
        if state.order() >= PAGEBLOCK_ORDER {
            return Some(self.take_single(frame, order, requested));
        }
        // Boosted by every fallback into part of a block, whether or not the request may then have
        // all of it.
        self.boost_watermark();
        if !may_claim(state.order(), requested) {
            return Some(self.take_single(frame, order, requested));
        }
        let block = self.zone.block_of(frame);
        let zone_type = self.zone.blocks.migratetype(block);
        let Some(contents) = self.contents(block) else {
            return Some(self.take_single(frame, order, requested));
        };
        // Before 6.10 the list a chunk is on and its block's type could differ; the block is what
        // is claimed.
        let claim = worth_claiming(contents, requested, zone_type);
        if !claim && self.zone.on.has(Switch::TypeHygiene) {
            return Some(self.take_single(frame, order, requested));
        }
        // Before 6.10 the free chunks changed lists even if the block did not change its type.
        self.move_block(block, requested);
        if claim {
            self.counters.claims += 1;
            self.change_type(block, requested);
        }
        self.take_smallest(order, requested)
    }

    /// Takes one foreign chunk. Whole blocks change their type; of smaller ones the remainder goes
    /// to the requester's lists before 6.10, to its own since.
    fn take_single(&mut self, frame: u32, order: u8, requested: Migratetype) -> u32 {
        let (from, mut rest) = self.take(frame);
        if from >= PAGEBLOCK_ORDER {
            self.set_types(frame, from, requested);
            self.counters.claims += 1;
            rest = requested;
        } else {
            self.counters.steals += 1;
            if !self.zone.on.has(Switch::TypeHygiene) {
                rest = requested;
            }
        }
        self.expand(frame, order, from, rest);
        self.counters.taken_chunks += 1;
        frame
    }

    /// Raises the watermarks for a while, so that reclaim makes room before more blocks are mixed.
    /// Source: Linux, `boost_watermark` with the default factor of 150 %; zones below 4 pageblocks
    /// are left alone.
    fn boost_watermark(&mut self) {
        let zone = self.zone;
        // Nor is there anything to raise where no high mark is set.
        if zone.managed < 4 * u64::from(PAGEBLOCK) || zone.marks.high == 0 {
            return;
        }
        let block = u64::from(PAGEBLOCK);
        let most = (zone.marks.high * 15_000 / 10_000).max(block);
        zone.boost.store((zone.boost.load(Relaxed) + block).min(most), Relaxed);
        self.counters.boosts += 1;
    }

    /// Counts what a pageblock holds; `None` where it is not wholly inside the zone.
    ///
    /// Looks at one record a chunk, at most 512, each a step of work.
    pub(crate) fn contents(&mut self, block: u32) -> Option<Contents> {
        let zone = self.zone;
        let frames = Self::block_frames(block);
        if frames.start < zone.start || frames.end > zone.end {
            return None;
        }
        let mut contents = Contents::default();
        let mut at = frames.start;
        while at < frames.end {
            let state = zone.frames.state(at);
            let size = (1u32 << state.order()).min(frames.end - at);
            match state.kind() {
                Kind::Buddy => contents.free += size,
                Kind::Allocated if state.migratetype() == Migratetype::Movable => {
                    contents.movable += size
                }
                _ => {}
            }
            self.work += 1;
            at += size;
        }
        Some(contents)
    }

    /// Moves every free chunk of a pageblock to the tails of the lists of `to`; returns how many
    /// frames.
    ///
    /// A chunk larger than a pageblock is not moved: the caller has dealt with those.
    pub(crate) fn move_block(&mut self, block: u32, to: Migratetype) -> u32 {
        let zone = self.zone;
        let frames = Self::block_frames(block);
        let mut moved = 0;
        let mut at = frames.start.max(zone.start);
        while at < frames.end.min(zone.end) {
            let state: State = zone.frames.state(at);
            let size = 1u32 << state.order();
            if state.kind() == Kind::Buddy && state.order() <= PAGEBLOCK_ORDER {
                if state.migratetype() != to {
                    self.retype(at, to);
                }
                moved += size;
            }
            self.work += 1;
            at += size;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_movable_requests_do_not_claim() {
        use Migratetype::{Movable, Reclaimable, Unmovable};
        assert!(!may_claim(3, Movable));
        assert!(may_claim(4, Movable));
        assert!(may_claim(0, Unmovable) && may_claim(0, Reclaimable));
    }

    #[test]
    fn half_a_block_free_or_alike_is_the_threshold() {
        use Migratetype::{Movable, Reclaimable, Unmovable};
        let contents = |free, movable| Contents { free, movable };
        // A movable request counts the movable frames in use as alike.
        assert!(worth_claiming(contents(100, 156), Movable, Unmovable));
        assert!(!worth_claiming(contents(100, 155), Movable, Unmovable));
        // An unmovable request into a movable block counts what is neither free nor movable.
        assert!(worth_claiming(contents(100, 256), Unmovable, Movable));
        assert!(!worth_claiming(contents(100, 257), Unmovable, Movable));
        // Between unmovable and reclaimable only free frames count.
        assert!(worth_claiming(contents(256, 0), Unmovable, Reclaimable));
        assert!(!worth_claiming(contents(255, 257), Unmovable, Reclaimable));
    }
}
