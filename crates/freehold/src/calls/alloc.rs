//! Allocating: from the hand in a few instructions, otherwise step by step further away.
//!
//! ```text
//! 1 current lease        4 next word of the block in use    7 the zone's own frames, at its min mark
//! 2 other leases         5 next block: group, zone          8 what other CPUs have in hand comes back
//! 3 hints                6 other groups                     9 blocks of another type, mixing, reserves
//! ```
//!
//! A request fails only after all of these came to nothing on every zone it may use.
//!
//! Steps 1 to 3 of single frames, and what other orders have in their place, are in
//! [`short`](super::short).

use crate::block::tag::{CMA, SPLIT, Tag, ZONE_GROUP};
use crate::block::{BLOCK_ORDER, FRAMES, WORDS, bits};
use crate::cpu::inside::Inside;
use crate::cpu::lease::{Purpose, SLOTS};
use crate::cpu::state::CpuState;
use crate::primitive::{Count, Plain, SharedCount};
use crate::transfer::refill::Want;
use crate::zone::Zone;
use crate::{
    AllocError, AllocFlags, FrameRange, Freehold, Migratetype, Order, Pfn, Platform, Request,
};

/// How often a request asks all CPUs for what they have in hand before it fails: what was on its
/// way from one to another the first time is somewhere the second time.
const RECALLS: usize = 2;

/// How far a request has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// What the CPU has, and blocks that its group comes by.
    Normal,
    /// The zone's own frames, down to its min mark.
    Reserve,
    /// Blocks of another type, if enough of them is free.
    Fallback,
    /// Frames inside blocks of another type.
    Mix,
    /// HIGHATOMIC blocks.
    LastResort,
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// A single frame where the current lease has nothing: another lease, a hint, the next word of
    /// the block in use.
    #[inline]
    fn frame_nearby(&self, migratetype: usize) -> Option<Pfn> {
        let found =
            self.next_frame(migratetype).or_else(|| self.fh.hinted_frame(self.cpu, migratetype));
        let found =
            found.or_else(|| self.take_of_block_in_use_at_home(Want::plain(0, migratetype)))?;
        self.cpu.counters.allocs[migratetype % 4][0].add(1);
        Some(found)
    }

    /// A run of order 1 to 5 from another lease for runs, a hint, or the next word of the block in
    /// use.
    #[inline]
    fn run_nearby(&self, migratetype: usize, order: u32) -> Option<Pfn> {
        let found = self
            .next_run(migratetype, order)
            .or_else(|| self.fh.hinted_run(self.cpu, migratetype, order))
            .or_else(|| self.take_of_block_in_use_at_home(Want::plain(order, migratetype)))?;
        self.cpu.counters.allocs[migratetype % 4][order as usize].add(1);
        Some(found)
    }

    /// A request that any frames of ordinary blocks of its type will do for, after the current
    /// lease has been tried in vain. Leaves the CPU. The request is put together here, so that
    /// callers need not keep it in memory.
    #[inline(never)]
    pub(crate) fn alloc_plain(
        self,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Result<Pfn, AllocError> {
        let kind = migratetype as usize;
        let found = match u32::from(order.get()) {
            _ if self.fh.cma_matters(self.cpu, flags) => None,
            0 => self.frame_nearby(kind),
            order @ 1..6 => self.run_nearby(kind, order),
            // The short way has looked at all there is nearby.
            _ => None,
        };
        match found {
            Some(pfn) => {
                let fh = self.fh;
                drop(self);
                fh.handed_out(pfn, order);
                Ok(pfn)
            }
            None => self.alloc_slow(&Request::new(order, migratetype).flags(flags)),
        }
    }

    /// The long way of any request; leaves the CPU.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(self, request: &Request) -> Result<Pfn, AllocError> {
        let result = self.alloc_checked(request);
        match result {
            Ok(_) => {
                self.cpu.counters.allocs[request.migratetype as usize][request.order.index()].add(1)
            }
            Err(_) => self.cpu.counters.failed.add(1),
        }
        let fh = self.fh;
        drop(self);
        fh.tell_pressure_after(request);
        if let Ok(pfn) = result {
            fh.handed_out(pfn, request.order);
        }
        result
    }

    pub(crate) fn alloc_checked(&self, request: &Request) -> Result<Pfn, AllocError> {
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        if !self.cpu.online.get() {
            return Err(AllocError::CpuOffline { cpu: self.id });
        }
        if request.is_limited() {
            return self.alloc_limited(request, false);
        }
        if request.align > request.order {
            // A larger chunk starts where the smaller one has to; the frames after it go back at
            // once.
            let larger = Request { order: request.align, align: Order::ZERO, ..*request };
            let pfn = match self.alloc_checked(&larger) {
                Err(AllocError::NoMemory { .. } | AllocError::WouldBlock) => {
                    return self.alloc_limited(request, true);
                }
                result => result?,
            };
            let rest = FrameRange {
                start: Pfn::new(pfn.get() + request.order.frames()),
                end: Pfn::new(pfn.get() + larger.order.frames()),
            };
            // The CPU may have gone offline while others were asked: it keeps nothing then.
            let freed = self.fh.commit_range(Some(self).filter(|_| self.cpu.online.get()), rest);
            debug_assert!(freed.is_ok());
            return Ok(pfn);
        }
        if request.order > Order::PAGEBLOCK {
            return self.alloc_run_of_blocks(request);
        }
        self.alloc_stages(request)
    }

    /// All stages of an allocation of up to one block.
    fn alloc_stages(&self, request: &Request) -> Result<Pfn, AllocError> {
        if let Some(pfn) = self.take_in_hand(request) {
            return Ok(pfn);
        }
        self.cpu.counters.slow.add(1);
        // Stage by stage, over all zones before the next stage: a further zone is better than a
        // last resort.
        if let Some(pfn) = self.try_stages(request, &[Stage::Normal, Stage::Reserve]) {
            return Ok(pfn);
        }
        let all = [Stage::Normal, Stage::Reserve, Stage::Fallback, Stage::Mix, Stage::LastResort];
        if request.flags.contains(AllocFlags::NO_LOCK) {
            // Nobody else is asked, but all that can be had without waiting will do.
            self.give_back_all();
            return self.try_stages(request, &all).ok_or(AllocError::WouldBlock);
        }
        for _ in 0..RECALLS {
            // What is in hand for other purposes, here and elsewhere.
            self.give_back_all();
            let asked = self.outside(|| {
                let asked = self.fh.recall(Some(self.id));
                self.fh.collect_everywhere();
                asked
            });
            self.cpu.counters.recalls.add(u64::from(asked != 0));
            if !self.cpu.online.get() {
                // It went offline meanwhile: it may not lease anything.
                return Err(AllocError::CpuOffline { cpu: self.id });
            }
            if let Some(pfn) = self.try_stages(request, &all) {
                return Ok(pfn);
            }
            if asked == 0 {
                break;
            }
        }
        Err(AllocError::NoMemory { order: request.order })
    }

    fn try_stages(&self, request: &Request, stages: &[Stage]) -> Option<Pfn> {
        stages.iter().find_map(|&stage| {
            self.fh
                .zonelist(self.id.index(), request.node)
                .find_map(|z| self.alloc_in_zone(z, request, stage))
        })
    }

    /// What this CPU has in hand already, of whichever zone; not where a node was asked for.
    pub(crate) fn take_in_hand(&self, request: &Request) -> Option<Pfn> {
        if request.node.is_some() {
            return None;
        }
        let (order, types) = (
            u32::from(request.order.get()),
            self.types(self.cpu.home_zone.get() as usize, request),
        );
        if order == BLOCK_ORDER {
            return self.fh.kept_block(self.cpu, request.migratetype as usize);
        }
        types.into_iter().flatten().find_map(|migratetype| match order {
            0 => {
                self.next_frame(migratetype).or_else(|| self.fh.hinted_frame(self.cpu, migratetype))
            }
            1..6 => self
                .next_run(migratetype, order)
                .or_else(|| self.fh.hinted_run(self.cpu, migratetype, order)),
            _ => None,
        })
    }

    /// The types of block to look at: the request's own, and CMA before it (over half of the zone's
    /// free frames are CMA) or after it, where there is CMA and it will do.
    fn types(&self, z: usize, request: &Request) -> [Option<usize>; 2] {
        let (own, zone) = (request.migratetype as usize, &self.fh.zones[z]);
        if !request.cma() || zone.cma_blocks.get() == 0 {
            [Some(own), None]
        } else if zone.cma_comes_first() {
            [Some(CMA), Some(own)]
        } else {
            [Some(own), Some(CMA)]
        }
    }

    /// From another lease of that type.
    #[inline]
    fn next_frame(&self, migratetype: usize) -> Option<Pfn> {
        let leases = &self.cpu.leases;
        loop {
            let ready = leases.ready(Purpose::Frames, migratetype);
            if ready == 0 {
                leases.set_current(Purpose::Frames, migratetype, SLOTS);
                return None;
            }
            let slot = ready.trailing_zeros() as usize;
            if leases.slot(slot).mask() == 0 && !self.replenish(slot) {
                leases.set_empty(slot);
                continue;
            }
            leases.set_current(Purpose::Frames, migratetype, slot);
            if let Some(pfn) = self.take(slot, 0) {
                return Some(Pfn::new(pfn));
            }
        }
    }

    /// From a lease for runs of that type: from what is in hand, before any word that has nothing
    /// in hand is looked at. Such a one takes what this CPU frees into it for as long as it is not
    /// let go.
    fn next_run(&self, migratetype: usize, order: u32) -> Option<Pfn> {
        let leases = &self.cpu.leases;
        let ready = || {
            bits::each(u64::from(leases.ready(Purpose::Runs, migratetype)))
                .map(|slot| slot as usize)
        };
        let take = |slot| self.take_run(migratetype, slot, order);
        ready().filter(|&slot| leases.slot(slot).mask() != 0).find_map(take).or_else(|| {
            ready()
                .filter(|&slot| leases.slot(slot).mask() == 0 && self.replenish(slot))
                .find_map(take)
        })
    }

    #[inline(always)]
    fn take_run(&self, migratetype: usize, slot: usize, order: u32) -> Option<Pfn> {
        let pfn = self.take(slot, order)?;
        self.cpu.leases.set_current(Purpose::Runs, migratetype, slot);
        Some(Pfn::new(pfn))
    }

    /// One stage on one zone.
    fn alloc_in_zone(&self, z: usize, request: &Request, stage: Stage) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        let own = request.migratetype as usize;
        let want = |migratetype| Want { order, migratetype, flags: request.flags };
        let pfn = match stage {
            Stage::Normal if order == BLOCK_ORDER => self.whole_block(z, request),
            Stage::Normal => {
                let types = self.types(z, request);
                types
                    .into_iter()
                    .flatten()
                    .find_map(|migratetype| self.split_block(z, want(migratetype)))
            }
            Stage::Reserve => {
                self.types(z, request).into_iter().flatten().find_map(|migratetype| {
                    let held =
                        self.fh.hold_collected(&self.fh.zones[z], ZONE_GROUP, request.flags)?;
                    let pfn = held.take_in_zone(want(migratetype))?;
                    held.reserve_high_atomic(want(migratetype), pfn);
                    Some(pfn)
                })
            }
            Stage::Fallback => {
                let index = self.claim_fallback(z, want(own))?;
                self.take_of(index, want(own)).or_else(|| self.split_block(z, want(own)))
            }
            Stage::Mix => self.mix(z, want(own)),
            Stage::LastResort if order == BLOCK_ORDER => {
                // What is whole is only the zone's reserve: partly free blocks will do for that.
                let zone = &self.fh.zones[z];
                self.reserve_partly_free(zone, request.flags)
                    .then(|| self.kept_whole_block(zone, request))
                    .flatten()
            }
            Stage::LastResort => {
                let held = self.fh.hold_for(&self.fh.zones[z], ZONE_GROUP, request.flags)?;
                held.take_high_atomic(want(own))
            }
        };
        pfn.map(Pfn::new)
    }

    /// From the block in use, then from the next ones.
    fn split_block(&self, z: usize, want: Want) -> Option<u64> {
        let zone = &self.fh.zones[z];
        let holder = Tag::new(SPLIT, 0, zone.id, zone.group_of(self.id.index())).holder();
        if let Some(pfn) = self.take_of_block_in_use(z, holder, want) {
            return Some(pfn);
        }
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let index = self.refill(z, want)?;
            if let Some(pfn) = self.take_of(index, want) {
                return Some(pfn);
            }
        }
        None
    }

    /// A whole block of a zone, or a CMA block's words.
    fn whole_block(&self, z: usize, request: &Request) -> Option<u64> {
        let zone = &self.fh.zones[z];
        let types = self.types(z, request);
        let cma = |first: bool| {
            let wanted = if first { types[0] == Some(CMA) } else { types[1] == Some(CMA) };
            let want = Want { order: BLOCK_ORDER, migratetype: CMA, flags: request.flags };
            wanted.then(|| self.split_block(z, want)).flatten()
        };
        cma(true).or_else(|| self.kept_whole_block(zone, request)).or_else(|| cma(false))
    }

    /// A whole block that is one already: from the group, from the zone, from other groups.
    fn kept_whole_block(&self, zone: &'m Zone<'m>, request: &Request) -> Option<u64> {
        let (own_group, migratetype) =
            (zone.group_of(self.id.index()), request.migratetype as usize);
        for from in [own_group, ZONE_GROUP].into_iter().chain(zone.other_groups(own_group)) {
            let other = from != own_group && from != ZONE_GROUP;
            if other && zone.stock(from).lists.wholes() == 0 && zone.stock(from).inbox.is_empty() {
                continue;
            }
            let Some(held) = self.fh.hold_collected(zone, from, request.flags) else { continue };
            let index = match from {
                ZONE_GROUP if zone.allows(FRAMES as u64, request.flags, false) => {
                    held.take_whole(migratetype)
                }
                ZONE_GROUP => None,
                _ => held.take_kept_whole(),
            };
            if let Some(index) = index {
                return Some(self.fh.take_block(index, migratetype, own_group));
            }
        }
        None
    }

    /// Frames inside a block of another type, which keeps its type: the smallest sufficient run of
    /// any holder.
    fn mix(&self, z: usize, want: Want) -> Option<u64> {
        let zone = &self.fh.zones[z];
        if want.order >= BLOCK_ORDER {
            return None;
        }
        let own_group = zone.group_of(self.id.index());
        for &fallback in Migratetype::PCP[want.migratetype].fallbacks() {
            for from in zone.holders(own_group) {
                let Some(held) = self.fh.hold_collected(zone, from, want.flags) else { continue };
                if from == ZONE_GROUP && !zone.leaves_mark(1 << want.order, want.flags, false) {
                    continue;
                }
                if let Some(pfn) = held.take_listed(fallback as usize, want.order) {
                    zone.counters.fallbacks.add_shared(1);
                    zone.counters.mixed.add_shared(1);
                    return Some(pfn);
                }
            }
        }
        None
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// An allocation that may not wait, while the CPU's state is not to be had: from blocks whose
    /// holder's lock is free. No CPU counts it.
    #[cold]
    pub(crate) fn alloc_unseen(
        &self,
        cpu: crate::CpuId,
        request: &Request,
    ) -> Result<Pfn, AllocError> {
        let (order, kind) = (u32::from(request.order.get()), request.migratetype as usize);
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        if order >= BLOCK_ORDER || request.is_limited() || request.align > request.order {
            return Err(AllocError::WouldBlock);
        }
        let from = |z: usize, group: u16| {
            let zone = &self.zones[z];
            let held = self.try_hold(zone, group)?;
            if group == ZONE_GROUP && !zone.allows(1 << order, request.flags, false) {
                return None;
            }
            held.take_listed(kind, order)
        };
        let found = self.zonelist(cpu.index(), request.node).find_map(|z| {
            from(z, self.zones[z].group_of(cpu.index())).or_else(|| from(z, ZONE_GROUP))
        });
        let pfn = Pfn::new(found.ok_or(AllocError::WouldBlock)?);
        self.handed_out(pfn, request.order);
        Ok(pfn)
    }

    /// Whether a request that may take CMA frames has any to look at in its home zone.
    #[inline(always)]
    pub(crate) fn cma_matters(&self, cpu: &CpuState<'_>, flags: AllocFlags) -> bool {
        flags.contains(AllocFlags::CMA)
            && self.zones[cpu.home_zone.get() as usize].cma_blocks.get() != 0
    }

    /// Tells the host's poison check about frames on their way out.
    #[inline(always)]
    pub(crate) fn handed_out(&self, pfn: Pfn, order: Order) {
        #[cfg(feature = "debug-poison")]
        if let Some(frames) = FrameRange::new(pfn, order.frames()) {
            self.platform.check_poison(frames);
        }
        #[cfg(not(feature = "debug-poison"))]
        let _ = (pfn, order);
    }
}
