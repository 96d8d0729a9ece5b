//! The zone's buddy system: splitting a chunk that is too large, joining a freed chunk with its
//! other half.
//!
//! ```text
//!   order 3  [               0..8               ]  take 1 of 8: the halves not needed go to the
//!   order 2  [    0..4     ] [    4..8  free    ]  lists, the upper half first
//!   order 1  [0..2] [2..4 free]
//!   order 0  [0][1 free]                           free 0 again: buddy 1 is free, join to 0..2;
//!                                                  buddy 2..4 is free, join to 0..4; ... until a
//!                                                  buddy is in use
//! ```
//!
//! A chunk's buddy differs from it in one bit of the frame number, so finding it costs nothing;
//! knowing that it is free costs one look at its record. Each step is counted, since this is the
//! work that the proposals try to move out from under the zone lock.

use freehold::{AllocFlags, Migratetype};

use crate::page::{Kind, MAX_ORDER, ORDERS, PAGEBLOCK_ORDER};
use crate::switches::Switch;
use crate::zone::Locked;

/// How far a search for memory had to go; remembered over one refill, since under the lock nothing
/// comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Mode {
    /// The requested type's own lists.
    #[default]
    Normal,
    /// CMA pageblocks.
    Cma,
    /// Whole blocks of another type, which then change their type.
    Claim,
    /// Single chunks out of blocks of another type.
    Steal,
}

impl Locked<'_> {
    /// Frees a chunk of any order, pageblock by pageblock where it is larger than one, each with
    /// its own type.
    pub(crate) fn free_split(&mut self, frame: u32, order: u8, tail: bool) {
        let part = order.min(PAGEBLOCK_ORDER);
        for frame in (frame..frame + (1 << order)).step_by(1 << part) {
            let migratetype = self.zone.type_of(frame);
            self.free_one(frame, part, migratetype, tail);
        }
    }

    /// Frees one chunk, joining it with its buddies as far as they are free. Source: Linux 7.2,
    /// `__free_one_page`.
    ///
    /// At most 10 joins.
    pub(crate) fn free_one(
        &mut self,
        mut frame: u32,
        mut order: u8,
        migratetype: Migratetype,
        tail: bool,
    ) {
        let zone = self.zone;
        zone.account(1 << order, migratetype);
        if order == PAGEBLOCK_ORDER {
            self.disown(frame);
        }
        // The record may still say Freeing, Pcp or Queued; if the chunk ends up inside a larger one
        // it is a tail.
        zone.frames.set(frame, crate::page::State::TAIL);
        let mut buddy = frame ^ (1 << order);
        while order < MAX_ORDER {
            buddy = frame ^ (1 << order);
            let state = zone.frames.state(buddy);
            if state.kind() != Kind::Buddy || state.order() != order {
                break;
            }
            if order >= PAGEBLOCK_ORDER {
                let buddy_type = zone.type_of(buddy);
                if buddy_type != migratetype
                    && !(migratetype.is_mergeable() && buddy_type.is_mergeable())
                {
                    break;
                }
                self.remove(buddy);
                if buddy_type != migratetype && zone.on.has(Switch::TypeHygiene) {
                    self.set_types(buddy, order, migratetype);
                }
            } else {
                self.remove(buddy);
            }
            frame &= buddy;
            order += 1;
            self.counters.merges += 1;
            self.work += 1;
            if order == PAGEBLOCK_ORDER {
                self.disown(frame);
            }
        }
        let tail = tail || self.will_grow(frame, buddy, order);
        self.add(frame, order, migratetype, tail);
    }

    /// Whether the chunk's parent is likely to be joined soon, because the parent's own buddy is
    /// free: the chunk is then better taken last. Source: Linux, `buddy_merge_likely`.
    fn will_grow(&self, frame: u32, buddy: u32, order: u8) -> bool {
        if order >= MAX_ORDER - 1 {
            return false;
        }
        let parent = frame & buddy;
        let state = self.zone.frames.state(parent ^ (1 << (order + 1)));
        state.kind() == Kind::Buddy && state.order() == order + 1
    }

    /// Sets the type of the pageblocks that a chunk of at least one pageblock covers.
    pub(crate) fn set_types(&mut self, frame: u32, order: u8, migratetype: Migratetype) {
        let first = self.zone.block_of(frame);
        for block in first..first + (1 << (order - PAGEBLOCK_ORDER)) {
            self.zone.blocks.set_migratetype(block, migratetype);
            self.work += 1;
        }
    }

    /// Splits a chunk of order `from` that has been taken off its list until its first part has
    /// order `to`; the other parts go to the heads of the lists of `migratetype`, the largest
    /// first.
    pub(crate) fn expand(&mut self, frame: u32, to: u8, from: u8, migratetype: Migratetype) {
        for order in (to..from).rev() {
            self.counters.splits += 1;
            self.work += 1;
            self.add(frame + (1 << order), order, migratetype, false);
            self.zone.account(1 << order, migratetype);
        }
    }

    /// Takes the first chunk of the list of `order` and `migratetype`, keeps its first part of
    /// order `to`.
    pub(crate) fn take_and_expand(&mut self, frame: u32, to: u8) -> u32 {
        let (order, migratetype) = self.take(frame);
        self.expand(frame, to, order, migratetype);
        frame
    }

    /// The smallest sufficient chunk of the type's own lists. Looks at 11 lists at most.
    pub(crate) fn take_smallest(&mut self, order: u8, migratetype: Migratetype) -> Option<u32> {
        for at in order as usize..ORDERS {
            self.counters.lists_looked_at += 1;
            self.work += 1;
            if let Some(frame) = self.areas[at].lists[migratetype.index()].first() {
                self.take_and_expand(frame, order);
                self.counters.taken_chunks += 1;
                return Some(frame);
            }
        }
        None
    }

    /// Whether movable requests should take CMA frames now: when more than half of what is free is
    /// CMA, so that the rest is kept for those who cannot use CMA.
    pub(crate) fn prefer_cma(&self, may_cma: bool) -> bool {
        let free = self.zone.free_frames();
        may_cma && free.cma > free.free / 2 && self.zone.on.has(Switch::CmaHalf)
    }

    /// Counts what share of movable requests CMA serves.
    pub(crate) fn count_movable(&mut self, frame: u32, order: u8, requested: Migratetype) {
        if !self.zone.has_cma || requested != Migratetype::Movable {
            return;
        }
        self.counters.movable_frames += 1 << order;
        if self.zone.type_of(frame) == Migratetype::Cma {
            self.counters.cma_frames += 1 << order;
        }
    }

    /// Takes a chunk for a request, falling back stage by stage. Source: Linux 7.2, `__rmqueue`.
    pub(crate) fn rmqueue(
        &mut self,
        order: u8,
        migratetype: Migratetype,
        flags: AllocFlags,
        mode: &mut Mode,
    ) -> Option<u32> {
        let may_cma = migratetype == Migratetype::Movable;
        if self.prefer_cma(may_cma) {
            if let Some(frame) = self.take_smallest(order, Migratetype::Cma) {
                return Some(frame);
            }
        }
        if !self.zone.on.has(Switch::RememberMode) {
            *mode = Mode::Normal;
        }
        if *mode <= Mode::Normal {
            if let Some(frame) = self.take_smallest(order, migratetype) {
                return Some(frame);
            }
        }
        if *mode <= Mode::Cma && may_cma {
            if let Some(frame) = self.take_smallest(order, Migratetype::Cma) {
                *mode = Mode::Cma;
                return Some(frame);
            }
        }
        if !self.zone.on.has(Switch::ClaimSteal) {
            return self.fall_back_from_largest(order, migratetype, flags);
        }
        if *mode <= Mode::Claim {
            if let Some(frame) = self.claim(order, migratetype, flags) {
                // What was claimed now lies on the type's own lists.
                *mode = Mode::Normal;
                return Some(frame);
            }
        }
        if flags.contains(AllocFlags::NO_FRAGMENT) {
            return None;
        }
        let frame = self.steal(order, migratetype)?;
        *mode = Mode::Steal;
        Some(frame)
    }
}
