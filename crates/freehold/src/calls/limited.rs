//! Requests that only part of the frame number space will do for: devices with short addresses, and
//! chunks that start at a multiple of more than their own size.
//!
//! The blocks within the limits are looked at one by one, without locks, and frames are taken
//! straight from their words, whoever holds the block. What is the zone's own is taken under its
//! lock, since its watermarks count it.
//!
//! Zone by zone, in each the kinds of block from best to worst, in each the blocks from the lowest
//! on:
//!
//! | step | holds |
//! |---|---|
//! | what was announced to the zone is listed, and it would keep its mark | its own blocks are worth a look |
//! | a glance at tag and room, without a lock | nothing: each may change at once |
//! | a group's split block: a run out of its words | all or none of it, as by a hint; the group sees it at its next look |
//! | the zone's: the lock, then tag and mark once more, then a run | what is left is counted and listed before the unlock |
//! | a whole one, the zone's from the bitmap, a group's off its list, under that lock | nobody else finds it |
//! | of that one: all of it, or split, a run taken, the rest listed | its holder knows what is left before the unlock |
//! | nothing: what CPUs have in hand comes back, and all once more | a request fails only where that brought nothing |

use crate::block::layout::Index;
use crate::block::tag::{CMA, HIGH_ATOMIC, IN_HAND, SPLIT, Tag, WHOLE, ZONE_GROUP};
use crate::block::{BLOCK_ORDER, FRAMES};
use crate::cpu::inside::Inside;
use crate::group::lists::NO_LIST;
use crate::primitive::Plain;
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
            Self::Reserve => request
                .flags
                .intersects(AllocFlags::NON_BLOCK | AllocFlags::OOM | AllocFlags::HIGH_ATOMIC),
        }
    }

    /// Whether a block is such a one. The zone's whole ones are in its bitmap.
    fn is(self, tag: Tag, request: &Request) -> bool {
        let (state, migratetype) = (tag.state(), tag.migratetype());
        match self {
            Self::Whole => state == WHOLE && tag.group() != ZONE_GROUP,
            _ if state != SPLIT => false,
            Self::Same => migratetype == request.migratetype as usize,
            Self::Other => migratetype < HIGH_ATOMIC && migratetype != request.migratetype as usize,
            Self::Cma => migratetype == CMA,
            Self::Reserve => migratetype == HIGH_ATOMIC,
        }
    }
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// Serves a request within its limits, of any order and alignment. `fetched`: all CPUs have
    /// just been asked.
    pub(crate) fn alloc_limited(
        &self,
        request: &Request,
        mut fetched: bool,
    ) -> Result<Pfn, AllocError> {
        let (from, below) = (request.from.get(), request.below.get());
        let fh = self.fh;
        let touches = |z: &usize| {
            let span = fh.zones[*z].span;
            from < span.end.get() && span.start.get() < below
        };
        let many = request.order > Order::PAGEBLOCK;
        loop {
            let found =
                fh.zonelist(self.id.index(), request.node).filter(touches).find_map(
                    |z| match many {
                        true => fh.take_run_of_blocks(z, request, from, below),
                        false => Kind::ALL
                            .into_iter()
                            .filter(|kind| kind.is_for(request))
                            .find_map(|k| fh.search(z, request, k)),
                    },
                );
            if let Some(pfn) = found {
                return Ok(pfn);
            }
            if fetched {
                break;
            }
            // What CPUs have in hand may be what is missing. It goes no further than it has to.
            if request.flags.contains(AllocFlags::NO_LOCK) {
                self.give_back_all();
            } else {
                self.outside(|| match many {
                    true => fh.fetch_wholes(),
                    false => fh.recall_and_collect(),
                });
            }
            fetched = true;
        }
        Err(match request.flags.contains(AllocFlags::NO_LOCK) {
            true => AllocError::WouldBlock,
            false => AllocError::NoMemory { order: request.order },
        })
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Looks through the blocks of a zone within the limits, lowest first.
    fn search(&self, z: usize, request: &Request, kind: Kind) -> Option<Pfn> {
        let zone = &self.zones[z];
        let first = zone.span.start.get().max(request.from.get()) >> 9;
        let end = zone.span.end.get().min(request.below.get()).div_ceil(FRAMES as u64);
        // Whether the zone keeps its mark; its own blocks are not looked at otherwise. The reserve
        // is there to be used.
        let own = kind == Kind::Reserve
            || self.hold_collected(zone, ZONE_GROUP, request.flags).is_some_and(|_| {
                zone.leaves_mark(request.order.frames(), request.flags, kind == Kind::Cma)
            });
        if kind == Kind::Whole && own {
            if let Some(pfn) = self.search_bitmap(zone, request, first, end) {
                return Some(pfn);
            }
        }
        let mut at = first;
        while let Some(number) = self.map.next_set_up(at, end) {
            at = number + 1;
            let Some(index) = self.map.locate_block(number) else { continue };
            let tag = self.map.head(index).tag.get();
            let there = tag.zone() == z && kind.is(tag, request) && self.is_usable(index);
            if !there || !self.has_room(index, request) {
                continue;
            }
            let taken = match tag.group() {
                _ if kind == Kind::Whole => self.take_from_whole(zone, index, request),
                ZONE_GROUP if own => self.take_from_zones_own(zone, index, request, kind),
                ZONE_GROUP => None,
                _ => self.claim_in_window(index, request),
            };
            if let Some(pfn) = taken {
                return Some(Pfn::new(pfn));
            }
        }
        None
    }

    /// The frames of a block that lie within the limits, as offsets in it, and what a run has to
    /// start at a multiple of there.
    fn window(&self, index: Index, request: &Request) -> (usize, usize, usize) {
        let base = self.map.base(index);
        let offset = |pfn: Pfn| pfn.get().saturating_sub(base).min(FRAMES as u64) as usize;
        let align = request.align.max(request.order).frames().min(FRAMES as u64) as usize;
        (offset(request.from), offset(request.below), align)
    }

    /// Whether a run of the request's order fits limits and alignment in that block.
    fn has_room(&self, index: Index, request: &Request) -> bool {
        let (low, high, align) = self.window(index, request);
        let starts = align < FRAMES || Pfn::new(self.map.base(index)).is_aligned(request.align);
        starts && low.next_multiple_of(align) + request.order.frames() as usize <= high
    }

    /// Takes such a run out of a split block's words; its first frame.
    fn claim_in_window(&self, index: Index, request: &Request) -> Option<u64> {
        let (low, high, align) = self.window(index, request);
        let offset = self.claim_within(index, u32::from(request.order.get()), align, low, high)?;
        Some(self.map.base(index) + offset as u64)
    }

    /// The same where the zone has the block: what is left of it is counted anew.
    fn take_from_zones_own(
        &self,
        zone: &'m Zone<'m>,
        index: Index,
        request: &Request,
        kind: Kind,
    ) -> Option<u64> {
        // A glance first: most have no such run.
        let (low, high, align) = self.window(index, request);
        self.run_within(index, u32::from(request.order.get()), align, low, high)?;
        let held = self.hold_for(zone, ZONE_GROUP, request.flags)?;
        let tag = self.map.head(index).tag.get();
        let there = kind.is(tag, request)
            && tag.group() == ZONE_GROUP
            && tag.zone() == usize::from(zone.id);
        let allowed = kind == Kind::Reserve
            || zone.leaves_mark(request.order.frames(), request.flags, tag.migratetype() == CMA);
        if !there || !allowed || !self.is_usable(index) {
            return None;
        }
        let pfn = self.claim_in_window(index, request);
        held.file(index);
        pfn
    }

    /// From a whole block in the zone's bitmap, which becomes a split one of the zone.
    fn search_bitmap(
        &self,
        zone: &'m Zone<'m>,
        request: &Request,
        first: u64,
        end: u64,
    ) -> Option<Pfn> {
        let held = self.hold_for(zone, ZONE_GROUP, request.flags)?;
        if !zone.leaves_mark(request.order.frames(), request.flags, false) {
            return None;
        }
        let mut at = first.saturating_sub(zone.first_block);
        loop {
            let bit = zone.bitmap.next(at).0.filter(|bit| zone.first_block + bit < end)?;
            at = bit + 1;
            let index = held.set_up(bit)?;
            if !self.has_room(index, request) {
                continue;
            }
            held.unlist(index);
            if u32::from(request.order.get()) == BLOCK_ORDER {
                return Some(Pfn::new(self.take_block(
                    index,
                    request.migratetype as usize,
                    ZONE_GROUP,
                )));
            }
            held.split(index, request.migratetype as usize);
            let pfn = self.claim_in_window(index, request);
            held.file(index);
            if let Some(pfn) = pfn {
                return Some(Pfn::new(pfn));
            }
        }
    }

    /// From a whole block that a group has.
    fn take_from_whole(&self, zone: &'m Zone<'m>, index: Index, request: &Request) -> Option<u64> {
        let group = self.map.head(index).tag.get().group();
        if group == IN_HAND {
            return None;
        }
        let held = self.hold_for(zone, group, request.flags)?;
        let tag = self.map.head(index).tag.get();
        let listed = self.map.links(index).list.get() != NO_LIST;
        // The zone's own come from its bitmap alone: on the list of those it may be on its way out
        // as part of a run.
        let of_a_group = tag.group() == held.group && held.group != ZONE_GROUP;
        if tag.state() != WHOLE || !of_a_group || !listed || tag.zone() != usize::from(zone.id) {
            return None;
        }
        held.unlist(index);
        if u32::from(request.order.get()) == BLOCK_ORDER {
            return Some(self.take_block(index, request.migratetype as usize, held.group));
        }
        held.split(index, request.migratetype as usize);
        let pfn = self.claim_in_window(index, request);
        held.file(index);
        pfn
    }
}
