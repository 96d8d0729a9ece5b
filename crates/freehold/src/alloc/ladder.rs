//! The ladder: where frames come from, nearest first. Here a newcomer sees how an allocation goes.
//!
//! The fast way of a call, in [`fast`](super::fast), takes what the current lease has in hand, or
//! what this CPU has freed last. All else is the slow way, and the slow way is this ladder. A
//! request climbs it step by step; a step returns frames or nothing, and calls no other step.
//!
//! | step | frames come from | not where |
//! |---|---|---|
//! | leases | another word that this CPU leases; a whole block that it keeps | |
//! | recent | a chunk that this CPU has freed, in its word still | |
//! | broken | a larger run in hand | the board has a smaller one: that lease ends |
//! | kept | a HIGHATOMIC block, for a request that asks for one; or what *mark* has | the request does not ask |
//! | in use | the block that this CPU took its last words of | the board may know a better one |
//! | board | the home zone's next block: the smallest run that will do; else a whole block is split | the zone would not keep its mark |
//! | board elsewhere | the next block of another zone | the same |
//! | unasked | a larger run in hand, whatever the board has | |
//! | mark | one chunk past the leases, down to the request's own mark | |
//! | upper end | as the next two, where the zone's upper end has it: regions of 1 GiB stay movable | the request is movable |
//! | other type | a block of another type that is half free: it becomes one of this type | the request says so |
//! | mixed | frames inside a block of another type, which keeps it | |
//! | reserve | HIGHATOMIC blocks | the request may wait |
//!
//! Up to *board* the home zone of the CPU is asked, and by *kept* every zone. From there on each
//! step asks every zone that the request may use, before the next step does: a further zone is
//! better than a last resort.
//!
//! Two things happen on the way, and after each the request stands at *board* once more:
//!
//! * Behind *mark* this CPU gives back what it has in hand for other requests: it keeps blocks from
//!   being whole, and frames of another type keep theirs for long.
//! * Behind *mixed* every CPU that has such a run is asked for what it has
//!   ([`recall`](crate::cpu::recall)), which interrupts it. Then the top of the ladder is asked,
//!   too. From here on no CPU takes more in hand than its call needs ([`failing`](super::failing)).
//!   What changed hands between the two looks is asked for a second time.
//!
//! A request fails only after all of this came to nothing on every zone that it may use.
//!
//! | who does not climb | instead |
//! |---|---|
//! | a request that not any frames will do for: limits, an order above 9, a further alignment where no larger chunk is to be had | one search by place, in [`placed`](super::placed) |
//! | many single frames at once | whole words of the block in use, in [`bulk`](super::bulk), and the ladder for the rest |
//! | a request that may not wait, while its CPU's state is in use | the steps from *mark* on, past every hand, in [`outside`](super::outside) |
//!
//! A request that may not wait asks nobody, but takes what other CPUs have in hand where their
//! doors have no owner and nobody is inside: one compare-exchange each. Of an owner it cannot know
//! whether it is inside without interrupting it: near a zone's mark hands are empty for that.

use core::ops::Range;

use crate::alloc::failing::Failing;
use crate::alloc::pick::{RefillPhase, Want};
use crate::block::tag::CMA;
use crate::block::{BLOCK_ORDER, WORDS};
use crate::cpu::inside::Inside;
use crate::cpu::recall::Recall;
use crate::free::word::Freeing;
use crate::platform::OnPanic;
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed, SharedCount};
use crate::zone::Zone;
use crate::zone::moving::Movers;
use crate::{AllocError, AllocFlags, FrameRange, Migratetype, Order, Pfn, Platform, Request};

/// How often a request asks all CPUs for what they have in hand before it fails: what was on its
/// way from one to another the first time is somewhere the second time.
const RECALLS: usize = 2;

/// Where a step looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// What the CPU has, and its home zone; nothing where the request names a node.
    Home,
    /// The other zones that the request may use; all where it names a node.
    Elsewhere,
    /// Each zone that the request may use.
    Zones,
}

/// How a step takes a chunk of a zone.
type Take<'a, 'm, P> = fn(&Inside<'a, 'm, P>, usize, &Request) -> Option<u64>;

/// One step of the ladder.
struct Step<'a, 'm, P: Platform>(At, Take<'a, 'm, P>);

/// The block in use: many frames are wanted of one, and no lone ones.
pub(crate) const IN_USE: usize = 4;
/// From here on a request counts as a slow one.
const BOARD: usize = 5;
/// Blocks of another type, at the upper end first.
const OTHER_TYPE: usize = 9;
/// The last resort.
const RESERVE: usize = 12;
const TOP: usize = 13;

impl<'a, 'm, P: Platform> Inside<'a, 'm, P> {
    /// See the module's documentation.
    const LADDER: [Step<'a, 'm, P>; TOP] = [
        Step(At::Home, Self::try_leases),
        Step(At::Home, Self::try_recent),
        Step(At::Home, Self::try_broken::<true>),
        Step(At::Zones, Self::try_kept),
        Step(At::Home, Self::try_block_in_use),
        Step(At::Home, Self::try_board),
        Step(At::Elsewhere, Self::try_board),
        Step(At::Home, Self::try_broken::<false>),
        Step(At::Zones, Self::try_mark),
        Step(At::Zones, |cpu, z, request| cpu.try_upper_end(z, Want::of(request))),
        Step(At::Zones, |cpu, z, request| cpu.try_other_type(z, Want::of(request))),
        Step(At::Zones, |cpu, z, request| cpu.try_mixed(z, Want::of(request))),
        Step(At::Zones, Self::try_reserve),
    ];

    /// Asks these steps, one after the other.
    fn climb(&self, request: &Request, steps: Range<usize>) -> Option<Pfn> {
        let (home, node) = (self.cpu.home_zone.get() as usize, request.node);
        let found = Self::LADDER[steps].iter().find_map(|&Step(at, take)| match at {
            At::Home if node.is_some() => None,
            At::Home => take(self, home, request),
            _ => {
                let all = at == At::Zones || node.is_some();
                let zones = self.fh.zonelists.of(self.id.index(), node);
                zones.filter(|&z| all || z != home).find_map(|z| take(self, z, request))
            }
        });
        found.map(Pfn::new)
    }

    /// Asks one step of the home zone, where the compiler is to see which.
    #[inline(always)]
    fn ask<const STEP: usize>(&self, request: &Request) -> Option<Pfn> {
        let take = const { Self::LADDER[STEP].1 };
        take(self, self.cpu.home_zone.get() as usize, request).map(Pfn::new)
    }

    /// The slow way of an ordinary request (no limits, node or alignment). Consumes `self`: the
    /// door is open again on return. The request is put together here, so that callers need not
    /// keep it in memory.
    #[inline(never)]
    pub(crate) fn alloc_slow(
        self,
        order: Order,
        migratetype: Migratetype,
        flags: AllocFlags,
    ) -> Result<Pfn, AllocError> {
        let request = Request::new(order, migratetype).flags(flags);
        if flags.contains(AllocFlags::HIGH_ATOMIC) {
            return self.alloc_from(&request, 0);
        }
        // The first steps, as by `climb`.
        let near = self
            .ask::<0>(&request)
            .or_else(|| self.ask::<1>(&request))
            .or_else(|| self.ask::<2>(&request))
            .or_else(|| self.ask::<IN_USE>(&request));
        if let Some(pfn) = near {
            self.cpu.count_alloc(migratetype as usize, order);
            let fh = self.fh;
            drop(self);
            fh.platform.handed_out(pfn, order);
            return Ok(pfn);
        }
        self.ask_for_allowances(&request);
        if !self.cpu.online.get() {
            return self.alloc_from(&request, BOARD);
        }
        match self.ask::<BOARD>(&request) {
            Some(pfn) => {
                self.cpu.counters.slow.add(1);
                self.leave_with(&request, Ok(pfn))
            }
            None => self.alloc_from(&request, BOARD + 1),
        }
    }

    /// The slow way of any request. Leaves the CPU.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_any(self, request: &Request) -> Result<Pfn, AllocError> {
        if self.fails_again(request) {
            return Err(AllocError::NoMemory { order: request.order });
        }
        self.alloc_from(request, 0)
    }

    /// From that step on. Leaves the CPU.
    #[cold]
    #[inline(never)]
    fn alloc_from(self, request: &Request, from: usize) -> Result<Pfn, AllocError> {
        let result = self.find(request, from);
        self.leave_with(request, result)
    }

    /// Leaves the CPU with what a request has come to, which is counted.
    fn leave_with(
        self,
        request: &Request,
        result: Result<Pfn, AllocError>,
    ) -> Result<Pfn, AllocError> {
        match result {
            Ok(_) => self.cpu.count_alloc(request.migratetype as usize, request.order),
            Err(_) => self.cpu.counters.failed.add(1),
        }
        if self.cpu.home(self.fh).is_tight() {
            self.cpu.tell_if_many(self.fh);
        }
        let fh = self.fh;
        let back =
            OnPanic(|| _ = result.map(|pfn| Freeing::of(fh, None).chunk(pfn, request.order)));
        self.leave_and_tell(request);
        core::mem::forget(back);
        if let Ok(pfn) = result {
            fh.platform.handed_out(pfn, request.order);
        }
        result
    }

    /// Leaves the CPU after a request. One that may not wait does no more: the next one does.
    pub(crate) fn leave_and_tell(self, request: &Request) {
        if !request.flags.contains(AllocFlags::NO_LOCK) {
            self.leave_and_wait();
        }
    }

    /// Leaves the CPU, has hands emptied where its home zone has come near its mark, and tells the
    /// host about changed pressure.
    #[inline(always)]
    pub(crate) fn leave_and_wait(self) {
        let (fh, home) = (self.fh, self.cpu.home(self.fh));
        drop(self);
        Recall::of_all(fh).of_hands(home);
        fh.outside().tell_pressure();
    }

    /// A chunk for a request at that step: by the ladder, or by place where only some will do.
    pub(crate) fn find(&self, request: &Request, from: usize) -> Result<Pfn, AllocError> {
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        if !self.cpu.online.get() {
            return Err(AllocError::CpuOffline { cpu: self.id });
        }
        if request.is_limited() {
            return self.alloc_placed(request);
        }
        if request.align > request.order {
            return self.find_aligned(request);
        }
        if request.order > Order::PAGEBLOCK {
            return self.alloc_placed(request);
        }
        if let Some(pfn) = self.climb(request, from..BOARD.max(from)) {
            return Ok(pfn);
        }
        self.cpu.counters.slow.add(1);
        if from <= BOARD {
            self.ask_for_allowances(request);
            if !self.cpu.online.get() {
                return Err(AllocError::CpuOffline { cpu: self.id });
            }
        }
        let found = self.climb(request, from.max(BOARD)..OTHER_TYPE).or_else(|| {
            self.give_back_all();
            self.climb(request, BOARD..RESERVE)
        });
        match found {
            Some(pfn) => Ok(pfn),
            // Nobody is interrupted, but all that can be had without waiting will do.
            None if request.flags.contains(AllocFlags::NO_LOCK) => {
                let reserved = self.climb(request, RESERVE..TOP);
                let at_open_doors = || {
                    let any = self.fh.outside().take_back_at_open_doors(self.id, request.order);
                    if any { self.climb(request, BOARD..TOP) } else { None }
                };
                reserved.or_else(at_open_doors).ok_or(AllocError::WouldBlock)
            }
            None => self.find_after_recall(request),
        }
    }

    /// A larger chunk starts where the smaller one has to; the frames after it go back at once.
    fn find_aligned(&self, request: &Request) -> Result<Pfn, AllocError> {
        let larger = Request { order: request.align, align: Order::ZERO, ..*request };
        let pfn = match self.find(&larger, 0) {
            Err(AllocError::NoMemory { .. } | AllocError::WouldBlock) => {
                return self.alloc_placed(request);
            }
            result => result?,
        };
        let rest = FrameRange {
            start: Pfn::new(pfn.get() + request.order.frames()),
            end: Pfn::new(pfn.get() + larger.order.frames()),
        };
        // The CPU may have gone offline while others were asked: it keeps nothing then.
        let inside = Some(self).filter(|_| self.cpu.online.get());
        let freed = Freeing::of(self.fh, inside).commit(rest);
        debug_assert!(freed.is_ok());
        Ok(pfn)
    }

    /// Every CPU is asked for what it has in hand, and the ladder is climbed to its top.
    #[cold]
    fn find_after_recall(&self, request: &Request) -> Result<Pfn, AllocError> {
        let (mut generation, mut for_mark) = (0, false);
        let _failing = Failing::new(self.fh);
        for _ in 0..RECALLS {
            // What is in hand for other purposes, here and elsewhere.
            self.give_back_all();
            for_mark = self.lacks_a_mark(request);
            generation = self.begin_watch(request, for_mark);
            let wanted = Some(request.order).filter(|_| !for_mark);
            let asked = self.outside(|| Recall::by(self.fh, self.id).for_order(wanted));
            self.cpu.counters.recalls.add(u64::from(asked != 0));
            if !self.cpu.online.get() {
                // It went offline meanwhile: it may not lease anything.
                return Err(AllocError::CpuOffline { cpu: self.id });
            }
            let look = || self.climb(request, BOARD..TOP);
            if let Some(pfn) = Movers(self.fh).look_beside(look) {
                return Ok(pfn);
            }
            // What has come out of a hand since has ended the generation.
            let all_seen = asked == 0
                && !Recall::by(self.fh, self.id).would_ask(wanted)
                && self.fh.watch.goes_on(generation);
            if all_seen {
                break;
            }
        }
        self.remember(request, for_mark, generation);
        Err(AllocError::NoMemory { order: request.order })
    }

    /// Whether a zone has too few free frames for a request to leave it its mark. What CPUs have in
    /// hand does not count there, and may be all that is missing, whatever runs it has. CMA frames
    /// do not count either: they may be in pieces that are too small.
    fn lacks_a_mark(&self, request: &Request) -> bool {
        let mut zones = self.fh.zonelists.of(self.id.index(), request.node);
        zones.any(|z| !self.leaves_mark(&self.fh.zones[z], request, request.migratetype as usize))
    }

    /// Whether a request leaves a zone its mark with frames of that type, as far as a glance tells.
    fn leaves_mark(&self, zone: &Zone<'m>, request: &Request, migratetype: usize) -> bool {
        zone.leaves_mark(self.by(), migratetype, request.order.frames(), request.flags)
    }

    /// Where only what other CPUs may take keeps a request back, they tell the zone of it: once for
    /// many requests. What they have in hand stays there. The CPU may be offline afterwards.
    #[inline(always)]
    fn ask_for_allowances(&self, request: &Request) {
        let home = self.cpu.home(self.fh);
        if home.is_tight() && !request.flags.contains(AllocFlags::NO_LOCK) {
            self.ask_for_allowances_of(home, request);
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for_allowances_of(&self, home: &Zone<'m>, request: &Request) {
        let leaves_mark = || {
            self.leaves_mark(home, request, request.migratetype as usize)
                || request.cma() && self.leaves_mark(home, request, CMA)
        };
        if leaves_mark() || !home.has_for(self.fh, request) {
            return;
        }
        self.cpu.tell_all(self.fh);
        if !leaves_mark() {
            self.outside(|| Recall::by(self.fh, self.id).of_allowances());
        }
    }

    /// Takes for the types of block that a request may have in a zone, one after the other.
    #[inline(always)]
    fn of_types<T>(
        &self,
        z: usize,
        request: &Request,
        take: impl Fn(Want) -> Option<T>,
    ) -> Option<T> {
        let want = Want::of(request);
        if !request.cma() {
            return take(want);
        }
        let types = self.fh.zones[z].types_for(request).into_iter().flatten();
        types.map(|migratetype| Want { migratetype, ..want }).find_map(take)
    }

    /// Step *leases*.
    #[inline(always)]
    fn try_leases(&self, z: usize, request: &Request) -> Option<u64> {
        self.of_types(z, request, |want| match want.order {
            0 => self.next_frame(want.migratetype),
            1..6 => self.next_run(want.migratetype, want.order),
            BLOCK_ORDER if want.migratetype != CMA => {
                self.cpu.kept_block(self.fh, want.migratetype).map(Pfn::get)
            }
            _ => None,
        })
    }

    /// Step *recent*.
    #[inline(always)]
    fn try_recent(&self, _: usize, request: &Request) -> Option<u64> {
        let (cpu, fh, kind) = (self.cpu, self.fh, request.migratetype as usize);
        if cpu.cma_matters(fh, request.flags) {
            return None;
        }
        let found = match request.order.get() {
            0 => cpu.recent_frame(fh, kind),
            1 => cpu.recent_run::<1>(fh, kind),
            2 => cpu.recent_run::<2>(fh, kind),
            3 => cpu.recent_run::<3>(fh, kind),
            4 => cpu.recent_run::<4>(fh, kind),
            5 => cpu.recent_run::<5>(fh, kind),
            6 => cpu.any_recent_words::<1>(fh, kind),
            7 => cpu.any_recent_words::<2>(fh, kind),
            8 => cpu.any_recent_words::<4>(fh, kind),
            _ => None,
        };
        found.map(Pfn::get)
    }

    /// Steps *broken*, which asks the board, and *unasked*.
    #[inline(always)]
    fn try_broken<const ASK: bool>(&self, z: usize, request: &Request) -> Option<u64> {
        self.of_types(z, request, |want| {
            if want.order < 6 {
                self.break_in_hand(want.migratetype, want.order, ASK)
            } else {
                None
            }
        })
    }

    /// Step *kept*: the host says by the flag when memory is short.
    #[inline]
    fn try_kept(&self, z: usize, request: &Request) -> Option<u64> {
        let asks = request.flags.contains(AllocFlags::HIGH_ATOMIC);
        if asks { self.try_mark(z, request) } else { None }
    }

    /// Step *in use*.
    #[inline(always)]
    fn try_block_in_use(&self, z: usize, request: &Request) -> Option<u64> {
        let (cpu, fh, kind) = (self.cpu, self.fh, request.migratetype as usize);
        match request.order.get() {
            order if order < 6 || cpu.cma_matters(fh, request.flags) => {
                self.of_types(z, request, |want| self.take_of_block_in_use(z, want))
            }
            6 => cpu.words_in_use::<1>(fh, kind).map(Pfn::get),
            7 => cpu.words_in_use::<2>(fh, kind).map(Pfn::get),
            8 => cpu.words_in_use::<4>(fh, kind).map(Pfn::get),
            _ => None,
        }
    }

    /// Step *board*.
    fn try_board(&self, z: usize, request: &Request) -> Option<u64> {
        self.of_types(z, request, |want| {
            if want.order == BLOCK_ORDER && want.migratetype != CMA {
                let block = self.fh.zones[z].take_whole(self.by(), want)?;
                return Some(block.take_block(self.fh, want.migratetype));
            }
            self.split_block(z, want, request.node.is_some())
        })
    }

    /// From the next blocks of a zone; `unasked` is its block in use, if there is one.
    fn split_block(&self, z: usize, want: Want, unasked: bool) -> Option<u64> {
        if !self.fh.zones[z].may_lease(self.by(), want.migratetype, want.order, want.flags) {
            return None;
        }
        if unasked || !self.is_home(z) {
            let found = self.take_of_block_in_use(z, want);
            if found.is_some() {
                return found;
            }
        }
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let block = self.refill(z, want)?;
            if let Some(pfn) = self.take_of(block, want) {
                return Some(pfn);
            }
        }
        None
    }

    /// Step *mark*.
    fn try_mark(&self, z: usize, request: &Request) -> Option<u64> {
        let (by, zone) = (self.by(), &self.fh.zones[z]);
        by.keep_block_of(Want::of(request), by.try_mark(zone, request)?)
    }

    /// Step *upper end*.
    fn try_upper_end(&self, z: usize, want: Want) -> Option<u64> {
        let mut ends = self.fh.zones[z].upper_ends(want);
        ends.find_map(|want| self.try_other_type(z, want).or_else(|| self.try_mixed(z, want)))
    }

    /// Step *other type*.
    fn try_other_type(&self, z: usize, want: Want) -> Option<u64> {
        let zone = &self.fh.zones[z];
        if !zone.may_lease(self.by(), want.migratetype, want.order, want.flags) {
            return None;
        }
        let block = want.claim_fallback(self.by(), zone)?;
        self.came_by(z, want, block, RefillPhase::Fallback);
        let pfn = self.take_of(block, want).or_else(|| self.split_block(z, want, true))?;
        self.by().keep_block_of(want, pfn)
    }

    /// Step *mixed*: the smallest run that will do. Words are leased while the zone keeps its mark.
    fn try_mixed(&self, z: usize, want: Want) -> Option<u64> {
        let (by, zone) = (self.by(), &self.fh.zones[z]);
        if want.order == BLOCK_ORDER {
            return None;
        }
        let _granted = zone.reserve(by, want.migratetype, 1 << want.order, want.flags)?;
        let leasing = zone.may_lease(by, want.migratetype, want.order, want.flags);
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let block = want.mix(by, zone)?;
            let taken = if leasing {
                self.take_of(block, want)
            } else {
                block.claim(by, want.order).map(|offset| block.base() + offset as u64)
            };
            if let Some(pfn) = taken {
                zone.counters.fallbacks.add_shared(1);
                zone.counters.mixed.add_shared(1);
                return by.keep_block_of(want, pfn);
            }
        }
        None
    }

    /// Step *reserve*.
    fn try_reserve(&self, z: usize, request: &Request) -> Option<u64> {
        let (by, want) = (self.by(), Want::of(request));
        by.keep_block_of(want, want.take_high_atomic(by, &self.fh.zones[z])?)
    }
}
