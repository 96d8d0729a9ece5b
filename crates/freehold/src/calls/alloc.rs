//! Allocating: from the hand in a few instructions, otherwise step by step further away.
//!
//! ```text
//! 1 current lease        4 next word of the block in use       7 blocks of another type, mixing
//! 2 other leases         5 next block: board, whole ones       8 what other CPUs have in hand comes back
//! 3 hints                6 single chunks, at the min mark      9 the same once more, and reserves
//! ```
//!
//! A run comes from a hint before another lease: of a lease it is not known whether a run of it fits.
//!
//! A request fails only after all of these came to nothing on every zone it may use.
//!
//! Steps 1 to 3 of single frames, and what other orders have in their place, are in
//! [`short`](super::short).

use crate::block::tag::CMA;
use crate::block::{BLOCK_ORDER, WORDS, bits};
use crate::cpu::by::By;
use crate::cpu::inside::Inside;
use crate::cpu::lease::{Purpose, SLOTS};
use crate::cpu::state::CpuState;
use crate::platform::OnPanic;
use crate::primitive::{Count, Plain, SharedCount};
use crate::transfer::refill::Want;
use crate::zone::Zone;
use crate::{
    AllocError, AllocFlags, FrameRange, Freehold, Migratetype, Order, Pfn, Platform, Request,
};

/// How often a request asks all CPUs for what they have in hand before it fails: what was on its
/// way from one to another the first time is somewhere the second time.
const RECALLS: usize = 2;

/// A place to look for frames where the CPU's state is not to be had: of a zone, for a request.
type UnseenStage<'m, F> = fn(&F, &'m Zone<'m>, &Request) -> Option<u64>;

/// How far a request has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// What the CPU has, and the next blocks, as long as the zone keeps its mark with a word less.
    Normal,
    /// One chunk at a time, down to the min mark.
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
        let found = self.next_frame(migratetype);
        if found.is_none() {
            if let Some(pfn) = self.cpu.hinted_frame(self.fh, migratetype) {
                return Some(pfn);
            }
        }
        let found = found
            .or_else(|| self.break_in_hand(migratetype, 0, true).map(Pfn::new))
            .or_else(|| self.take_of_block_in_use_at_home(Want::plain(0, migratetype)))?;
        self.cpu.counters.allocs[migratetype % 4][0].add(1);
        Some(found)
    }

    /// A run of order 1 to 5 from another lease for runs, or the next word of the block in use, where
    /// none was freed lately.
    #[inline]
    fn run_nearby(&self, migratetype: usize, order: u32) -> Option<Pfn> {
        let found = self
            .next_run(migratetype, order)
            .or_else(|| self.break_in_hand(migratetype, order, true).map(Pfn::new))
            .or_else(|| self.take_of_block_in_use_at_home(Want::plain(order, migratetype)))?;
        self.cpu.counters.allocs[migratetype % 4][order as usize].add(1);
        Some(found)
    }

    /// A request that any frames of ordinary blocks of its type will do for, after the current
    /// lease has had none. Leaves the CPU. The request is put together here, so that
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
            _ if self.cpu.cma_matters(self.fh, flags) => None,
            0 => self.frame_nearby(kind),
            order @ 1..6 => self.run_nearby(kind, order),
            6 => self.cpu.words_nearby::<1>(self.fh, kind),
            7 => self.cpu.words_nearby::<2>(self.fh, kind),
            8 => self.cpu.words_nearby::<4>(self.fh, kind),
            // The short way has looked at all there is nearby.
            _ => None,
        };
        if let Some(pfn) = found {
            let fh = self.fh;
            drop(self);
            fh.handed_out(pfn, order);
            return Ok(pfn);
        }
        let request = Request::new(order, migratetype).flags(flags);
        match self.next_block_at_home(&request) {
            Some(pfn) => self.leave_with(&request, Ok(pfn)),
            None => self.alloc_slow(&request),
        }
    }

    /// A chunk of order 0 to 5 from the next block of the home zone, where the block in use was looked
    /// at already: what nearly all requests get that come to the board. `None` for all others.
    #[inline]
    fn next_block_at_home(&self, request: &Request) -> Option<Pfn> {
        let (z, order) = (self.cpu.home_zone.get() as usize, u32::from(request.order.get()));
        let looked = order < 6
            && !self.fh.zones[z].is_tight()
            && self.cpu.online.get()
            && !self.cpu.cma_matters(self.fh, request.flags);
        if !looked {
            return None;
        }
        let migratetype = request.migratetype as usize;
        let pfn = self.next_block(z, Want { order, migratetype, flags: request.flags })?;
        self.cpu.counters.slow.add(1);
        Some(Pfn::new(pfn))
    }

    /// The long way of any request; leaves the CPU.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(self, request: &Request) -> Result<Pfn, AllocError> {
        if self.fails_again(request) {
            return Err(AllocError::NoMemory { order: request.order });
        }
        let result = self.alloc_checked(request);
        self.leave_with(request, result)
    }

    /// Leaves the CPU with what a request has come to, which is counted.
    fn leave_with(
        self,
        request: &Request,
        result: Result<Pfn, AllocError>,
    ) -> Result<Pfn, AllocError> {
        match result {
            Ok(_) => {
                self.cpu.counters.allocs[request.migratetype as usize][request.order.index()].add(1)
            }
            Err(_) => self.cpu.counters.failed.add(1),
        }
        let fh = self.fh;
        let back = OnPanic(|| _ = result.map(|pfn| fh.freeing(None).chunk(pfn, request.order)));
        self.leave_and_tell(request, result.is_err());
        core::mem::forget(back);
        if let Ok(pfn) = result {
            fh.handed_out(pfn, request.order);
        }
        result
    }

    /// Leaves the CPU after a request, and tells the host about changed pressure. Whoever may not
    /// wait may not run what the host does about it: the next one tells.
    pub(crate) fn leave_and_tell(self, request: &Request, failed: bool) {
        let (fh, tell) = (self.fh, !request.flags.contains(AllocFlags::NO_LOCK));
        if tell {
            fh.update_levels(if failed { self.by() } else { fh.outside() });
        }
        drop(self);
        if tell {
            fh.tell_levels();
        }
    }

    pub(crate) fn alloc_checked(&self, request: &Request) -> Result<Pfn, AllocError> {
        self.cpu.begin_look();
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        if !self.cpu.online.get() {
            return Err(AllocError::CpuOffline { cpu: self.id });
        }
        if request.is_limited() {
            return self.alloc_limited(request);
        }
        if request.align > request.order {
            // A larger chunk starts where the smaller one has to; the frames after it go back at
            // once.
            let larger = Request { order: request.align, align: Order::ZERO, ..*request };
            let pfn = match self.alloc_checked(&larger) {
                Err(AllocError::NoMemory { .. } | AllocError::WouldBlock) => {
                    return self.alloc_limited(request);
                }
                result => result?,
            };
            let rest = FrameRange {
                start: Pfn::new(pfn.get() + request.order.frames()),
                end: Pfn::new(pfn.get() + larger.order.frames()),
            };
            // The CPU may have gone offline while others were asked: it keeps nothing then.
            let freed = self.fh.freeing(Some(self).filter(|_| self.cpu.online.get())).commit(rest);
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
        // last resort. What this CPU has in hand for other requests keeps blocks from being whole: it
        // goes back before frames of another type are taken, which keep theirs for long. Those come
        // before others are asked for what they have, which would interrupt all CPUs for each frame.
        let all = [Stage::Normal, Stage::Reserve, Stage::Fallback, Stage::Mix, Stage::LastResort];
        let found = self
            .take_kept(request)
            .or_else(|| self.try_stages(request, &all[..1]))
            .or_else(|| self.break_unasked(request))
            .or_else(|| self.try_stages(request, &all[1..2]))
            .or_else(|| {
                self.give_back_all();
                self.try_stages(request, &all[..4])
            });
        if let Some(pfn) = found {
            return Ok(pfn);
        }
        if request.flags.contains(AllocFlags::NO_LOCK) {
            // Nobody else is asked, but all that can be had without waiting will do.
            return self.try_stages(request, &all[4..]).ok_or(AllocError::WouldBlock);
        }
        let (mut generation, mut for_mark) = (0, false);
        for _ in 0..RECALLS {
            // What is in hand for other purposes, here and elsewhere.
            self.give_back_all();
            for_mark = self.is_short_of_a_mark(request);
            generation = self.begin_watch(request, for_mark);
            let wanted = Some(request.order).filter(|_| !for_mark);
            let asked = self.outside(|| self.fh.recall(Some(self.id), wanted));
            self.cpu.counters.recalls.add(u64::from(asked != 0));
            if !self.cpu.online.get() {
                // It went offline meanwhile: it may not lease anything.
                return Err(AllocError::CpuOffline { cpu: self.id });
            }
            let look = || {
                self.cpu.begin_look();
                self.try_stages(request, &all)
            };
            if let Some(pfn) = self.fh.look_beside_movers(look) {
                return Ok(pfn);
            }
            if asked == 0 && !self.fh.would_ask(self.id, wanted) {
                break;
            }
        }
        self.remember(request, for_mark, generation);
        Err(AllocError::NoMemory { order: request.order })
    }

    /// Of the blocks that are kept for such a request, or of one that is kept from now on, where the host
    /// says when memory is short: it says so by the flag.
    fn take_kept(&self, request: &Request) -> Option<Pfn> {
        if !request.flags.contains(AllocFlags::HIGH_ATOMIC) {
            return None;
        }
        let by_host = |&z: &usize| self.fh.zones[z].reserve_by_host.get();
        let mut zones = self.fh.zonelist(self.id.index(), request.node).filter(by_host);
        zones.find_map(|z| self.alloc_in_zone(z, request, Stage::Reserve))
    }

    /// What a look past the leases finds: at first; after what CPUs have in hand has come back, which
    /// goes no further than it has to; and after HIGHATOMIC blocks have become ordinary ones.
    pub(crate) fn look_everywhere(
        &self,
        request: &Request,
        look: impl Fn() -> Option<Pfn>,
    ) -> Result<Pfn, AllocError> {
        let look = || {
            self.cpu.begin_look();
            look()
        };
        if let Some(pfn) = look() {
            return Ok(pfn);
        }
        let may_wait = !request.flags.contains(AllocFlags::NO_LOCK);
        self.give_back_all();
        let found = if may_wait { self.look_after_recall(look) } else { look() };
        let give_up = || self.fh.give_up_reserves(self.by(), self.id.index(), request);
        found.or_else(|| give_up().then(look).flatten()).ok_or(match may_wait {
            true => AllocError::NoMemory { order: request.order },
            false => AllocError::WouldBlock,
        })
    }

    /// What a look past the leases finds after others were asked for what they have in hand: once, but
    /// frames may go into a hand while nobody is asked, see [`would_ask`](Freehold::would_ask).
    fn look_after_recall(&self, look: impl Fn() -> Option<Pfn>) -> Option<Pfn> {
        for _ in 0..RECALLS {
            let ask = self.fh.would_ask(self.id, None);
            if ask {
                self.outside(|| self.fh.recall(Some(self.id), None));
                // Whoever came in here meanwhile may have left something.
                self.give_back_all();
            }
            let found = self.fh.look_beside_movers(&look);
            if found.is_some() || ask || !self.fh.would_ask(self.id, None) {
                return found;
            }
        }
        None
    }

    /// Whether a zone has too few free frames for a request to leave it its mark. What CPUs have in
    /// hand does not count there, and may be all that is missing, whatever runs it has.
    fn is_short_of_a_mark(&self, request: &Request) -> bool {
        let (fh, frames) = (self.fh, request.order.frames());
        let mut zones = fh.zonelist(self.id.index(), request.node).map(|z| &fh.zones[z]);
        zones.any(|zone| !zone.leaves_mark(self.by(), frames, request.flags, request.cma()))
    }

    /// A run in hand is broken up where the board had nothing.
    fn break_unasked(&self, request: &Request) -> Option<Pfn> {
        let order = u32::from(request.order.get());
        if order >= 6 || request.node.is_some() {
            return None;
        }
        let mut types =
            self.types(self.cpu.home_zone.get() as usize, request).into_iter().flatten();
        types.find_map(|migratetype| self.break_in_hand(migratetype, order, false)).map(Pfn::new)
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
            return self.cpu.kept_block(self.fh, request.migratetype as usize);
        }
        types.into_iter().flatten().find_map(|migratetype| match order {
            0 => self.next_frame(migratetype),
            1..6 => self.next_run(migratetype, order),
            _ => None,
        })
    }

    /// [`types_in`] of a zone.
    fn types(&self, z: usize, request: &Request) -> [Option<usize>; 2] {
        types_in(&self.fh.zones[z], request)
    }

    /// From another lease of that type: of what lies in no larger run.
    #[inline]
    fn next_frame(&self, migratetype: usize) -> Option<Pfn> {
        let leases = &self.cpu.leases;
        for slot in bits::each(u64::from(leases.ready(Purpose::Frames, migratetype))) {
            let slot = slot as usize;
            if leases.slot(slot).mask() == 0 && !self.replenish(slot) {
                continue;
            }
            if let Some(pfn) = self.take(slot, 0) {
                leases.set_current(Purpose::Frames, migratetype, slot);
                return Some(Pfn::new(pfn));
            }
        }
        leases.set_current(Purpose::Frames, migratetype, SLOTS);
        None
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
        let has_run = |slot: &usize| bits::has_run(leases.slot(*slot).mask(), order);
        ready().filter(has_run).find_map(take).or_else(|| {
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
        let (fh, zone, by) = (self.fh, &self.fh.zones[z], self.by());
        let types = || self.types(z, request).into_iter().flatten();
        let pfn = match stage {
            Stage::Normal if order == BLOCK_ORDER => self.whole_block(z, request),
            Stage::Normal => types().find_map(|migratetype| self.split_block(z, want(migratetype))),
            Stage::LastResort => want(own).take_high_atomic(by, zone),
            Stage::Reserve => fh.reserved(by, zone, request),
            _ if order == BLOCK_ORDER => None,
            Stage::Fallback => {
                if !zone.may_lease(by, order, request.flags, false) {
                    return None;
                }
                let block = self.claim_fallback(z, want(own))?;
                self.take_of(block, want(own)).or_else(|| self.split_block(z, want(own)))
            }
            Stage::Mix => self.mix(z, want(own)),
        }?;
        if stage != Stage::Normal {
            fh.keep_block_of(by, request, pfn);
        }
        Some(Pfn::new(pfn))
    }

    /// From the block in use, then from the next ones.
    fn split_block(&self, z: usize, want: Want) -> Option<u64> {
        let zone = &self.fh.zones[z];
        let cma = want.migratetype == CMA;
        if !zone.may_lease(self.by(), want.order, want.flags, cma) {
            return None;
        }
        self.take_of_block_in_use(z, want).or_else(|| self.next_block(z, want))
    }

    /// From the next blocks of a zone.
    fn next_block(&self, z: usize, want: Want) -> Option<u64> {
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let block = self.refill(z, want)?;
            if let Some(pfn) = self.take_of(block, want) {
                return Some(pfn);
            }
        }
        None
    }

    /// A whole block of a zone, or a CMA block's words.
    fn whole_block(&self, z: usize, request: &Request) -> Option<u64> {
        let (zone, own) = (&self.fh.zones[z], request.migratetype as usize);
        self.types(z, request).into_iter().flatten().find_map(|migratetype| match migratetype {
            CMA => {
                let want = Want { order: BLOCK_ORDER, migratetype: CMA, flags: request.flags };
                self.split_block(z, want)
            }
            _ => {
                let block = zone.take_whole(self.by(), request.flags, true)?;
                Some(block.take_block(self.fh, own))
            }
        })
    }

    /// Frames inside a block of another type, which keeps its type: the smallest sufficient run. A
    /// word at a time is leased of it, as long as the zone keeps its mark.
    fn mix(&self, z: usize, want: Want) -> Option<u64> {
        let zone = &self.fh.zones[z];
        if !zone.leaves_mark(self.by(), 1 << want.order, want.flags, false) {
            return None;
        }
        let leasing = zone.may_lease(self.by(), want.order, want.flags, false);
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let (block, _) = want.mix(self.by(), zone)?;
            let taken = if leasing {
                self.take_of(block, want)
            } else {
                block.claim(self.by(), want.order).map(|offset| block.base() + offset as u64)
            };
            if taken.is_some() {
                zone.counters.fallbacks.add_shared(1);
                zone.counters.mixed.add_shared(1);
                return taken;
            }
        }
        None
    }
}

impl<'m, P: Platform> Freehold<'m, P> {
    /// An allocation that may not wait, while the CPU's state is not to be had: past the leases. No
    /// CPU counts it.
    #[cold]
    pub(crate) fn alloc_unseen(
        &self,
        cpu: crate::CpuId,
        request: &Request,
    ) -> Result<Pfn, AllocError> {
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        let zones = || self.zonelist(cpu.index(), request.node).map(|z| &self.zones[z]);
        // Of a block that it splits all but what it hands out is on the way.
        let _moving = self.zones[0].moving(self.outside(), cpu.index());
        let stages: [UnseenStage<'m, Self>; 4] = [
            |fh, zone, request| fh.reserved(fh.outside(), zone, request),
            Self::fallback_unseen,
            Self::mixed_unseen,
            |fh, zone, request| want_of(request).take_high_atomic(fh.outside(), zone),
        ];
        let found = if request.is_limited() || request.align > request.order {
            self.find_limited(self.outside(), cpu.index(), request)
        } else if request.order > Order::PAGEBLOCK {
            let mut all = self.zonelist(cpu.index(), request.node);
            all.find_map(|z| self.take_run_of_blocks(self.outside(), z, request, 0, u64::MAX))
        } else if u32::from(request.order.get()) == BLOCK_ORDER {
            let kind = request.migratetype as usize;
            let take = |zone: &'m Zone<'m>| zone.take_whole(self.outside(), request.flags, true);
            let whole = zones().find_map(take).map(|block| block.take_block(self, kind));
            let cma = || zones().find_map(|zone| self.reserved(self.outside(), zone, request));
            let reserve =
                |zone: &'m Zone<'m>| want_of(request).take_high_atomic(self.outside(), zone);
            whole.or_else(cma).or_else(|| zones().find_map(reserve)).map(Pfn::new)
        } else {
            let found =
                stages.iter().find_map(|stage| zones().find_map(|z| stage(self, z, request)));
            found.inspect(|&pfn| self.keep_block_of(self.outside(), request, pfn)).map(Pfn::new)
        };
        let pfn = found.ok_or(AllocError::WouldBlock)?;
        self.handed_out(pfn, request.order);
        Ok(pfn)
    }

    /// A chunk past the leases, of the types that the request may have, down to its own mark. Of order
    /// 9 the board has CMA blocks only; others are whole.
    fn reserved(&self, by: By<'_, 'm, P>, zone: &'m Zone<'m>, request: &Request) -> Option<u64> {
        let want = want_of(request);
        let listed = |&migratetype: &usize| want.order < BLOCK_ORDER || migratetype == CMA;
        let take = |migratetype| (Want { migratetype, ..want }).take_reserved(by, zone);
        types_in(zone, request).into_iter().flatten().filter(listed).find_map(take)
    }

    fn fallback_unseen(&self, zone: &'m Zone<'m>, request: &Request) -> Option<u64> {
        let want = want_of(request);
        if !zone.leaves_mark(self.outside(), 1 << want.order, want.flags, false) {
            return None;
        }
        let block = want.claim_fallback(self.outside(), zone)?;
        block.claim(self.outside(), want.order).map(|offset| block.base() + offset as u64)
    }

    fn mixed_unseen(&self, zone: &'m Zone<'m>, request: &Request) -> Option<u64> {
        let want = want_of(request);
        if !zone.leaves_mark(self.outside(), 1 << want.order, want.flags, false) {
            return None;
        }
        let (block, _) = want.mix(self.outside(), zone)?;
        block.claim(self.outside(), want.order).map(|offset| block.base() + offset as u64)
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

impl<'m> CpuState<'m> {
    /// Whether a request that may take CMA frames has any to look at in its home zone.
    #[inline(always)]
    pub(crate) fn cma_matters(&self, fh: &Freehold<'m, impl Platform>, flags: AllocFlags) -> bool {
        flags.contains(AllocFlags::CMA)
            && fh.zones[self.home_zone.get() as usize].cma_blocks.get() != 0
    }
}

/// The types of block to look at: the request's own, and CMA before it (over half of the zone's free
/// frames are CMA) or after it, where there is CMA and it will do.
fn types_in(zone: &Zone<'_>, request: &Request) -> [Option<usize>; 2] {
    let own = request.migratetype as usize;
    if !request.cma() || zone.cma_blocks.get() == 0 {
        [Some(own), None]
    } else if zone.cma_comes_first() {
        [Some(CMA), Some(own)]
    } else {
        [Some(own), Some(CMA)]
    }
}

/// What a request looks for in blocks of its own type.
fn want_of(request: &Request) -> Want {
    Want {
        order: u32::from(request.order.get()),
        migratetype: request.migratetype as usize,
        flags: request.flags,
    }
}
