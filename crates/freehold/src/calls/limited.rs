//! Requests that only part of the frame number space will do for: devices with short addresses.
//!
//! Zones that lie wholly within the limits are served as always. For the others the blocks within the limits are looked
//! at one by one, without locks, and frames are taken straight from their words, whoever holds the block.

use crate::block::layout::Index;
use crate::block::tag::{HIGH_ATOMIC, SPLIT, WHOLE, ZONE_GROUP};
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
    /// Wholly free.
    Whole,
    /// Split, of any other ordinary type.
    Other,
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    pub(crate) fn alloc_limited(&self, request: &Request) -> Result<Pfn, AllocError> {
        if request.flags.contains(AllocFlags::NO_LOCK) {
            return Err(AllocError::WouldBlock);
        }
        let (from, below) = (request.from.get(), request.below.get());
        let fh = self.fh;
        let touches = |z: &usize| {
            let span = fh.zones[*z].span;
            from < span.end.get() && span.start.get() < below
        };
        for fetched in [false, true] {
            for z in fh.zonelist(self.id.index(), request.node).filter(touches) {
                let found = if request.order > Order::PAGEBLOCK {
                    fh.take_run_of_blocks(z, request, from, below)
                } else {
                    [Kind::Same, Kind::Whole, Kind::Other].into_iter().find_map(|kind| fh.search(z, request, kind))
                };
                if let Some(pfn) = found {
                    return Ok(pfn);
                }
            }
            if !fetched {
                // What CPUs have in hand may be what is missing. It goes no further than it has to.
                self.outside(|| match request.order > Order::PAGEBLOCK {
                    true => fh.fetch_wholes(),
                    false => fh.recall_and_collect(),
                });
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// Looks through the blocks of a zone within the limits, lowest first.
    fn search(&self, z: usize, request: &Request, kind: Kind) -> Option<Pfn> {
        let zone = &self.zones[z];
        let first = zone.span.start.get().max(request.from.get()) >> 9;
        let end = zone.span.end.get().min(request.below.get()).div_ceil(FRAMES as u64);
        if kind == Kind::Whole {
            if let Some(pfn) = self.search_bitmap(zone, request, first, end) {
                return Some(pfn);
            }
        }
        (first..end).find_map(|number| {
            let index = self.map.locate_block(number)?;
            let tag = self.map.head(index).tag.get();
            let ours = tag.zone() == z && tag.migratetype() < HIGH_ATOMIC && self.is_usable(index);
            let same = tag.migratetype() == request.migratetype as usize;
            let taken = match kind {
                _ if !ours => None,
                Kind::Whole if tag.state() == WHOLE && tag.group() != ZONE_GROUP => {
                    self.take_from_whole(zone, index, request)
                }
                Kind::Same if tag.state() == SPLIT && same => self.take_from_split(zone, index, request),
                Kind::Other if tag.state() == SPLIT && !same => self.take_from_split(zone, index, request),
                _ => None,
            };
            taken.map(Pfn::new)
        })
    }

    /// The frames of a block that lie within the limits, as offsets in it.
    fn window(&self, index: Index, request: &Request) -> (usize, usize) {
        let base = self.map.base(index);
        let offset = |pfn: Pfn| pfn.get().saturating_sub(base).min(FRAMES as u64) as usize;
        (offset(request.from), offset(request.below))
    }

    /// Whether an aligned run of the request's order fits the limits in that block.
    fn has_room(&self, index: Index, request: &Request) -> bool {
        let (low, high) = self.window(index, request);
        let len = request.order.frames() as usize;
        low.next_multiple_of(len) + len <= high
    }

    fn take_from_split(&self, zone: &Zone<'m>, index: Index, request: &Request) -> Option<u64> {
        let in_zone = self.map.head(index).tag.get().group() == ZONE_GROUP;
        if in_zone && !zone.allows(request.order.frames(), request.flags, false) {
            return None;
        }
        let (low, high) = self.window(index, request);
        let offset = self.claim_within(index, u32::from(request.order.get()), low, high)?;
        Some(self.map.base(index) + offset as u64)
    }

    /// From a whole block in the zone's bitmap, which becomes a split one of the zone.
    fn search_bitmap(&self, zone: &'m Zone<'m>, request: &Request, first: u64, end: u64) -> Option<Pfn> {
        let held = self.hold(zone, ZONE_GROUP);
        if !zone.allows(request.order.frames(), request.flags, false) {
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
                return Some(Pfn::new(self.take_block(index, request.migratetype as usize, ZONE_GROUP)));
            }
            held.split(index, request.migratetype as usize);
            let (low, high) = self.window(index, request);
            let offset = self.claim_within(index, u32::from(request.order.get()), low, high);
            held.file(index);
            if let Some(offset) = offset {
                return Some(Pfn::new(self.map.base(index) + offset as u64));
            }
        }
    }

    /// From a whole block that a group has.
    fn take_from_whole(&self, zone: &'m Zone<'m>, index: Index, request: &Request) -> Option<u64> {
        if !self.has_room(index, request) {
            return None;
        }
        let held = self.hold_of(index)?;
        let tag = self.map.head(index).tag.get();
        let listed = self.map.links(index).list.get() != NO_LIST;
        // The zone's own come from its bitmap alone: on the list of those it may be on its way out as part of a run.
        let of_a_group = tag.group() == held.group && held.group != ZONE_GROUP;
        if tag.state() != WHOLE || !of_a_group || !listed || !core::ptr::eq(held.zone, zone) {
            return None;
        }
        held.unlist(index);
        if u32::from(request.order.get()) == BLOCK_ORDER {
            return Some(self.take_block(index, request.migratetype as usize, held.group));
        }
        held.split(index, request.migratetype as usize);
        let (low, high) = self.window(index, request);
        let offset = self.claim_within(index, u32::from(request.order.get()), low, high);
        held.file(index);
        Some(self.map.base(index) + offset? as u64)
    }
}
