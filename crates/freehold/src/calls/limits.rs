//! Requests that only part of the frame number space will do for: devices with short addresses.
//!
//! Zones that lie wholly within the limits are served as always. For the others the blocks within the limits are looked
//! at one by one, without locks; a block that looks promising is tried where it is, whoever holds it.

use crate::block::{Block, CLASS_DIRTY, CLASS_WHOLE, FLAG_ISOLATED, FRAMES, WORDS};
use crate::handle::CpuGuard;
use crate::holder::Holder;
use crate::owner::HINT_NONE;
use crate::primitive::Plain;
use crate::refill::Stage;
use crate::zone::HIGH_ATOMIC;
use crate::{AllocError, Freehold, Order, Pfn, Platform, Request};

/// Which blocks to try, best first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Partly free, of the request's type.
    Same,
    /// Wholly free.
    Whole,
    /// Of any other ordinary type.
    Other,
}

impl<'m, P: Platform> Freehold<'m, P> {
    pub(crate) fn alloc_limited(&self, guard: &CpuGuard<'_, 'm, P>, request: &Request) -> Result<Pfn, AllocError> {
        let (from, below) = (request.from.get(), request.below.get());
        let zones = self.zonelist(guard.id.index(), request.node);
        let inside = |z: usize| {
            let span = self.zones[z].span;
            from <= span.start.get() && span.end.get() <= below
        };
        let touches = |z: usize| {
            let span = self.zones[z].span;
            from < span.end.get() && span.start.get() < below
        };
        for fetched in [false, true] {
            for z in zones.clone().filter(|&z| touches(z)) {
                if request.order > Order::PAGEBLOCK {
                    if let Some(pfn) = self.take_run_of_blocks(z, request, from, below) {
                        return Ok(pfn);
                    }
                    continue;
                }
                if inside(z) {
                    for stage in [Stage::Normal, Stage::Reserve] {
                        if let Some(pfn) = self.alloc_in_zone(guard, z, request, stage) {
                            return Ok(pfn);
                        }
                    }
                }
                for kind in [Kind::Same, Kind::Whole, Kind::Other] {
                    let taken = guard.outside(|| self.search(z, request, kind));
                    if let Some(pfn) = taken {
                        return Ok(pfn);
                    }
                }
            }
            if !fetched {
                // What others freed may be what is missing; for large orders, whole blocks in CPUs' hands.
                self.flush_combining(guard);
                guard.outside(|| {
                    if request.order > Order::PAGEBLOCK {
                        self.fetch_wholes();
                    }
                    for z in 0..self.zones.len() {
                        self.settle(z);
                    }
                });
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }

    /// Looks through the blocks of a zone within the limits, lowest first.
    fn search(&self, z: usize, request: &Request, kind: Kind) -> Option<Pfn> {
        let span = self.zones[z].span;
        let first = span.start.get().max(request.from.get()) >> 9;
        let end = span.end.get().min(request.below.get()).div_ceil(FRAMES as u64);
        for number in first..end {
            let Some(index) = self.map.locate_block(number) else { continue };
            let block = &self.map.blocks[index as usize];
            // What its holder keeps aside shows when its state is entered.
            let worth_a_look = || block.hint.get() != HINT_NONE || self.fits(block, request, kind);
            if block.zone() as usize == z && worth_a_look() {
                if let Some(pfn) = self.take_there(z, index, request, kind) {
                    return Some(pfn);
                }
            }
        }
        None
    }

    /// Whether a block is of that kind and has a run for the request; by a glance, or for sure under its holder's lock.
    fn fits(&self, block: &Block, request: &Request, kind: Kind) -> bool {
        let migratetype = block.migratetype();
        if migratetype >= HIGH_ATOMIC || block.has_flag(FLAG_ISOLATED) || block.holder() == Holder::NOBODY {
            return false;
        }
        let right = match kind {
            Kind::Same => migratetype == request.migratetype as u8 && !block.is_whole(),
            Kind::Whole => block.is_whole(),
            Kind::Other => true,
        };
        right && find_within(block, request).is_some()
    }

    /// Takes a run of that block from whoever holds it. The caller is inside no CPU's state.
    fn take_there(&self, z: usize, index: u32, request: &Request, kind: Kind) -> Option<Pfn> {
        let block = &self.map.blocks[index as usize];
        let order = u32::from(request.order.get());
        if let Some(cpu) = block.holder().as_cpu() {
            return self.with_cpu(cpu, |_| {
                let listed = block.holder() == Holder::cpu(cpu) && block.class() != crate::block::CLASS_DETACHED;
                if !listed || !self.fits(block, request, kind) {
                    return None;
                }
                let offset = find_within(block, request)?;
                let pcp = self.pcp(cpu.index(), z);
                if kind == Kind::Whole && block.class() <= CLASS_DIRTY {
                    pcp.retype(self.map.blocks, index, request.migratetype as u8);
                }
                let pfn = self.take_from(pcp, index, offset, order);
                if block.class() <= CLASS_DIRTY {
                    pcp.shelf.unlink(self.map.blocks, index);
                    pcp.shelf.link(self.map.blocks, index, block.exact_class());
                }
                Some(pfn)
            });
        }
        let zone = &self.zones[z];
        let lock = self.lock_zone(zone);
        let whole = block.class() == CLASS_WHOLE;
        let bit = u64::from(block.number.get()) - zone.first_block;
        if block.holder() != Holder::ZONE || (whole && !zone.wholes.contains(bit)) || !self.fits(block, request, kind) {
            return None;
        }
        let offset = find_within(block, request)?;
        if !lock.allows(1 << order, zone.min_mark(request.flags), request.flags, false) {
            return None;
        }
        lock.unplace(index);
        if whole {
            lock.retype(index, request.migratetype as u8);
        }
        self.take_of_detached(&lock, index, offset, 1 << order);
        Some(Pfn::new(block.base() + offset as u64))
    }
}

/// An aligned free run of the request's order, within its limits.
fn find_within(block: &Block, request: &Request) -> Option<usize> {
    let order = u32::from(request.order.get());
    let base = block.base();
    let low = request.from.get().saturating_sub(base).min(FRAMES as u64) as usize;
    let high = request.below.get().saturating_sub(base).min(FRAMES as u64) as usize;
    if low == 0 && high == FRAMES {
        return block.find_run(order);
    }
    let len = 1usize << order;
    let is_free = |start: usize| crate::bits::spans(start, len).all(|(w, m)| block.free_word(w) & m == m);
    debug_assert!(high <= WORDS * 64);
    (low.next_multiple_of(len)..high).step_by(len).find(|&start| start + len <= high && is_free(start))
}
