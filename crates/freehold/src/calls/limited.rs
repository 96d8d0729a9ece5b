//! Requests that only part of the frame number space will do for: devices with short addresses, and
//! chunks that start at a multiple of more than their own size.
//!
//! The blocks within the limits are looked at one by one, and frames are taken straight from their
//! words.
//!
//! Zone by zone, in each the kinds of block from best to worst, in each the blocks from the lowest
//! on:
//!
//! | step | holds |
//! |---|---|
//! | the zone would keep its mark | its blocks are worth a look |
//! | a glance at tag and room | nothing: each may change at once |
//! | a split block: a run out of its words | all or none of it, as by a hint |
//! | a whole one of the bitmap: its bit is cleared | nobody else has it |
//! | of that one: all of it, or split, and a run taken | the board knows what is left |
//! | nothing: what CPUs have in hand comes back, and all once more | a request fails only where that brought nothing |
//! | nothing: HIGHATOMIC blocks within the limits become ordinary ones, and all once more | and there were none |

use crate::block::Block;
use crate::block::tag::{CMA, HIGH_ATOMIC, SPLIT, Tag};
use crate::block::{BLOCK_ORDER, FRAMES};
use crate::cpu::by::By;
use crate::cpu::inside::Inside;
use crate::zone::Zone;
use crate::{AllocError, AllocFlags, Freehold, Order, Pfn, Platform, Request};

/// Which blocks to try, best first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Split, of the request's type.
    Same,
    /// Split CMA blocks, for requests that they will do for.
    Cma,
    /// Wholly free.
    Whole,
    /// Split, of any other ordinary type.
    Other,
    /// HIGHATOMIC, for requests that may not wait or are a way out of memory shortage.
    Reserve,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Same, Self::Cma, Self::Whole, Self::Other, Self::Reserve];

    /// Whether such blocks will do for a request at all.
    fn is_for(self, request: &Request) -> bool {
        match self {
            Self::Same | Self::Whole | Self::Other => true,
            Self::Cma => request.cma(),
            Self::Reserve => request.flags.may_use_reserve(),
        }
    }

    /// Whether a block is one of those. Whole ones are in the bitmap.
    fn is(self, tag: Tag, request: &Request) -> bool {
        let (state, migratetype) = (tag.state(), tag.migratetype());
        match self {
            Self::Whole => false,
            _ if state != SPLIT => false,
            Self::Same => migratetype == request.migratetype as usize,
            Self::Other => migratetype < HIGH_ATOMIC && migratetype != request.migratetype as usize,
            Self::Cma => migratetype == CMA,
            Self::Reserve => migratetype == HIGH_ATOMIC,
        }
    }
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Serves a request within its limits, of any order and alignment.
    pub(crate) fn alloc_limited(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.look_everywhere(request, || self.fh.find_limited(self.by(), self.id.index(), request))
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Serves a request within its limits out of what is in nobody's hand.
    pub(crate) fn find_limited(
        &self,
        by: By<'_, 'm, P>,
        cpu: usize,
        request: &Request,
    ) -> Option<Pfn> {
        let (from, below) = (request.from.get(), request.below.get());
        let touches = |z: &usize| {
            let span = self.zones[*z].span;
            from < span.end.get() && span.start.get() < below
        };
        let mut zones = self.zonelist(cpu, request.node).filter(touches);
        if request.order > Order::PAGEBLOCK {
            return zones.find_map(|z| self.take_run_of_blocks(by, z, request, from, below));
        }
        zones.find_map(|z| {
            let mut kinds = Kind::ALL.into_iter().filter(|kind| kind.is_for(request));
            kinds.find_map(|kind| self.search(by, z, request, kind))
        })
    }

    /// Looks through the blocks of a zone within the limits, lowest first.
    fn search(&self, by: By<'_, 'm, P>, z: usize, request: &Request, kind: Kind) -> Option<Pfn> {
        let zone = &self.zones[z];
        let first = zone.span.start.get().max(request.from.get()) >> 9;
        let end = zone.span.end.get().min(request.below.get()).div_ceil(FRAMES as u64);
        let frames = request.order.frames();
        // The reserve is there to be used.
        if kind != Kind::Reserve && !zone.leaves_mark(by, frames, request.flags, kind == Kind::Cma)
        {
            return None;
        }
        if kind == Kind::Whole {
            return self.search_bitmap(by, zone, request, first, end);
        }
        let mut at = Self::next_start(first, request);
        while let Some(number) = self.map.next_set_up(at, end) {
            at = Self::next_start(number + 1, request);
            let Some(block) = self.map.locate_block(number) else { continue };
            let tag = block.head.tag.get();
            let there = tag.zone() == z && kind.is(tag, request) && block.is_usable();
            if !there || !self.has_room(block, request) {
                continue;
            }
            if let Some(pfn) = Self::claim_in_window(by, block, request) {
                return Some(Pfn::new(pfn));
            }
        }
        None
    }

    /// The first block from that number on in which a chunk may start, by the alignment alone: of
    /// those between none is looked at.
    fn next_start(number: u64, request: &Request) -> u64 {
        let align = request.align.max(request.order).frames();
        number.next_multiple_of((align / FRAMES as u64).max(1))
    }

    /// The frames of a block that lie within the limits, as offsets in it, and what a run has to
    /// start at a multiple of there.
    fn window(base: u64, request: &Request) -> (usize, usize, usize) {
        let offset = |pfn: Pfn| pfn.get().saturating_sub(base).min(FRAMES as u64) as usize;
        let align = request.align.max(request.order).frames().min(FRAMES as u64) as usize;
        (offset(request.from), offset(request.below), align)
    }

    /// Whether a run of the request's order fits limits and alignment in that block.
    fn has_room(&self, block: Block<'m>, request: &Request) -> bool {
        self.has_room_at(block.base(), request)
    }

    /// [`has_room`](Self::has_room) of the block that starts at `base`.
    fn has_room_at(&self, base: u64, request: &Request) -> bool {
        let (low, high, align) = Self::window(base, request);
        let starts = align < FRAMES || Pfn::new(base).is_aligned(request.align);
        starts && low.next_multiple_of(align) + request.order.frames() as usize <= high
    }

    /// Takes such a run out of a split block's words; its first frame.
    fn claim_in_window(by: By<'_, 'm, P>, block: Block<'m>, request: &Request) -> Option<u64> {
        let (low, high, align) = Self::window(block.base(), request);
        let offset = block.claim_within(by, u32::from(request.order.get()), align, low, high)?;
        Some(block.base() + offset as u64)
    }

    /// From a whole block in the zone's bitmap.
    fn search_bitmap(
        &self,
        by: By<'_, 'm, P>,
        zone: &'m Zone<'m>,
        request: &Request,
        first: u64,
        end: u64,
    ) -> Option<Pfn> {
        let may_wait = !request.flags.contains(AllocFlags::NO_LOCK);
        let in_use = u32::from(request.order.get()) == BLOCK_ORDER;
        let mut number = first;
        loop {
            let at = Self::next_start(number, request).saturating_sub(zone.first_block);
            let bit = zone.bitmap.next(at).0.filter(|bit| zone.first_block + bit < end)?;
            number = zone.first_block + bit + 1;
            let base = (zone.first_block + bit) << 9;
            let allowed = || !in_use || zone.allows(by, FRAMES as u64, request.flags, false, false);
            if !self.has_room_at(base, request) {
                continue;
            }
            if !zone.claim_wholes(1, allowed) {
                return None;
            }
            let Some(block) = zone.take_whole_at(by, bit, may_wait) else {
                zone.give_up_wholes(self, 1);
                continue;
            };
            zone.update_mode();
            if in_use {
                return Some(Pfn::new(block.take_block(self, request.migratetype as usize)));
            }
            block.split(by, request.migratetype as usize);
            if let Some(pfn) = Self::claim_in_window(by, block, request) {
                return Some(Pfn::new(pfn));
            }
            block.raise(by);
        }
    }
}
