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
//!   too. From here on no CPU takes more in hand than its call needs ([`watch`](super::watch)).
//!   What changed hands between the two looks is asked for a second time.
//!
//! A request fails only after all of this came to nothing on every zone that it may use.
//!
//! | who does not climb | instead |
//! |---|---|
//! | a request that not any frames will do for: limits, an order above 9, a further alignment where no larger chunk is to be had | one search by place, in [`placed`](super::placed) |
//! | many single frames at once | whole words of the block in use, in [`bulk`](super::bulk), and the ladder for the rest |
//! | a request that may not wait, while its CPU's state is in use | the steps from *mark* on, past every hand |
//!
//! | who and what | |
//! |---|---|
//! | [`Climb`] | a request on the ladder: who makes it, and what is asked for |
//! | [`Inside`], [`Cpu`](crate::cpu::Cpu) | a CPU's state for as long as somebody is inside; what is done with it there |
//! | [`FastAlloc`], [`FastFree`](crate::free::fast::FastFree) | the fast ways inside: what is at hand is taken, frames are freed into a hand or a word |
//! | [`By`] | who does something, a CPU or a thread that is in no CPU's state: by it frames go back, blocks are split, listed and whole again |
//! | [`Want`] | what a step looks for: a run of some order in a block of some type |
//! | [`Block`](crate::block::Block), [`Zone`] | 512 frames by their metadata; whole blocks, the board of the others |
//! | [`Supply`](crate::zone::supply::Supply) | of a zone: what is free, what may be taken of it, how short it is |
//! | [`Slot`](super::lease::Slot) | a word that a CPU leases, of which it has frames in hand |
//!
//! A request that may not wait asks nobody, but takes what other CPUs have in hand where their
//! doors have no owner and nobody is inside: one compare-exchange each. Of an owner it cannot know
//! whether it is inside without interrupting it: near a zone's mark hands are empty for that.

use core::ops::Range;

use crate::alloc::fast::FastAlloc;
use crate::alloc::pick::{RefillPhase, Want};
use crate::alloc::watch::key_of;
use crate::block::{BLOCK_ORDER, CMA, HIGH_ATOMIC, TYPES, WORDS};
use crate::cpu::recall::Recall;
use crate::cpu::{By, Inside};
use crate::free::slow::Freeing;
use crate::platform::{OnPanic, PlatformExt};
use crate::primitive::{Count, Relaxed};
use crate::zone::Zone;
use crate::{
    AllocError, AllocFlags, CpuId, FrameRange, Migratetype, Order, Pfn, Platform, Request,
};

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

/// One step of the ladder: where it looks, and how it takes a chunk of a zone.
struct Step<'c, 'm, P: Platform>(At, fn(&Climb<'c, 'm, P>, &'m Zone<'m>) -> Option<u64>);

/// The block in use: many frames are wanted of one, and no lone ones.
pub(crate) const IN_USE: usize = 4;
/// From here on a request counts as a slow one.
const BOARD: usize = 5;
/// From here on no hand is needed.
const MARK: usize = 8;
/// Blocks of another type, at the upper end first.
const OTHER_TYPE: usize = 9;
/// The last resort.
const RESERVE: usize = 12;
const TOP: usize = 13;

/// A request on the ladder: who makes it, and what is asked for.
pub(crate) struct Climb<'c, 'm, P: Platform> {
    pub(crate) by: By<'c, 'm, P>,
    /// Its CPU, whose node's zones come first.
    pub(crate) id: CpuId,
    /// That CPU, entered; `None` is a thread that may not wait for it, and takes nothing in hand.
    pub(crate) inside: Option<&'c Inside<'c, 'm, P>>,
    pub(crate) request: &'c Request,
}

impl<'c, 'm, P: Platform> Climb<'c, 'm, P> {
    /// See the module's documentation.
    const LADDER: [Step<'c, 'm, P>; TOP] = [
        Step(At::Home, Self::leases),
        Step(At::Home, Self::recent),
        Step(At::Home, Self::broken::<true>),
        Step(At::Zones, Self::kept),
        Step(At::Home, Self::block_in_use),
        Step(At::Home, Self::board),
        Step(At::Elsewhere, Self::board),
        Step(At::Home, Self::broken::<false>),
        Step(At::Zones, Self::mark),
        Step(At::Zones, Self::upper_end),
        Step(At::Zones, |climb, zone| climb.other_type(zone, Want::of(climb.request))),
        Step(At::Zones, |climb, zone| climb.mixed(zone, Want::of(climb.request))),
        Step(At::Zones, Self::reserve),
    ];

    /// On a CPU that was entered.
    #[inline(always)]
    pub(crate) fn new(inside: &'c Inside<'c, 'm, P>, request: &'c Request) -> Self {
        Self { by: inside.by(), id: inside.id(), inside: Some(inside), request }
    }

    /// Asks these steps, one after the other.
    fn climb(&self, steps: Range<usize>) -> Option<Pfn> {
        let (home, node) = (self.by.cpu().map(|cpu| cpu.home()), self.request.node);
        let found = Self::LADDER[steps].iter().find_map(|&Step(at, take)| match at {
            At::Home if node.is_some() => None,
            At::Home => take(self, home?),
            _ => {
                let all = at == At::Zones || node.is_some();
                let zones = self.by.fh.zonelists.of(self.id.index(), node);
                let others = |z: &usize| all || home.is_none_or(|home| usize::from(home.id) != *z);
                zones.filter(others).find_map(|z| take(self, &self.by.fh.zones[z]))
            }
        });
        found.map(Pfn::new)
    }

    /// Asks one step of the home zone, where the compiler is to see which.
    #[inline(always)]
    fn ask<const STEP: usize>(&self, inside: &Inside<'_, 'm, P>) -> Option<Pfn> {
        let take = const { Self::LADDER[STEP].1 };
        take(self, inside.home()).map(Pfn::new)
    }

    /// A chunk, from that step on: by the ladder, or by place where only some will do.
    pub(crate) fn find(&self, from: usize) -> Result<Pfn, AllocError> {
        let request = self.request;
        if !Migratetype::PCP.contains(&request.migratetype) {
            return Err(AllocError::BadMigratetype { migratetype: request.migratetype });
        }
        let Some(inside) = self.inside else { return self.find_past_hands() };
        inside.is_online()?;
        if request.is_by_place() {
            let aligned = request.align > request.order && !request.is_limited();
            return if aligned { self.find_aligned(inside) } else { self.find_placed(inside) };
        }
        if let Some(pfn) = self.climb(from..BOARD.max(from)) {
            return Ok(pfn);
        }
        inside.cpu.counters.slow.add(1);
        if from <= BOARD {
            self.ask_for_allowances(inside);
            inside.is_online()?;
        }
        let found = self.climb(from.max(BOARD)..OTHER_TYPE).or_else(|| {
            inside.give_back_all();
            self.climb(BOARD..RESERVE)
        });
        match found {
            Some(pfn) => Ok(pfn),
            // Nobody is interrupted, but all that can be had without waiting will do.
            None if request.flags.contains(AllocFlags::NO_LOCK) => {
                let found = self.climb(RESERVE..TOP);
                found
                    .or_else(|| self.at_open_doors(|| self.climb(BOARD..TOP)))
                    .ok_or(AllocError::WouldBlock)
            }
            None => self.look_for_the_last_time(inside, || self.climb(BOARD..TOP)),
        }
    }

    /// A thread that is in no CPU's state, and may not wait for one, climbs from *mark* on; for a
    /// whole block from *board*, which gives those without a lease.
    #[cold]
    fn find_past_hands(&self) -> Result<Pfn, AllocError> {
        // Of a block that it splits all but what it hands out is on the way.
        let _moving = self.by.fh.zones[0].moving(self.by, self.id.index());
        let find = || {
            if self.request.is_by_place() {
                return self.search_places();
            }
            let whole = self.request.order == Order::PAGEBLOCK;
            let blocks = if whole { self.climb(BOARD + 1..BOARD + 2) } else { None };
            blocks.or_else(|| self.climb(MARK..TOP))
        };
        find().or_else(|| self.at_open_doors(find)).ok_or(AllocError::WouldBlock)
    }

    /// What a look finds once other CPUs, at whose doors nobody is, have given back what they have.
    fn at_open_doors(&self, look: impl FnOnce() -> Option<Pfn>) -> Option<Pfn> {
        let any = Recall::by(self.by.fh, self.id).at_open_doors(self.request.order);
        if any { look() } else { None }
    }

    /// A larger chunk starts where the smaller one has to; the frames after it go back at once.
    fn find_aligned(&self, inside: &Inside<'_, 'm, P>) -> Result<Pfn, AllocError> {
        let request = self.request;
        let larger = Request { order: request.align, align: Order::ZERO, ..*request };
        let pfn = match Climb::new(inside, &larger).find(0) {
            Err(AllocError::NoMemory { .. } | AllocError::WouldBlock) => {
                return self.find_placed(inside);
            }
            result => result?,
        };
        let rest = FrameRange {
            start: Pfn::new(pfn.get() + request.order.frames()),
            end: Pfn::new(pfn.get() + larger.order.frames()),
        };
        // The CPU may have gone offline while others were asked: it keeps nothing then.
        let keeper = Some(inside).filter(|inside| inside.cpu.online.get());
        let freed = Freeing::of(self.by.fh, keeper).commit(rest);
        debug_assert!(freed.is_ok());
        Ok(pfn)
    }

    /// Whether the request leaves a zone its mark with frames of that type, as far as a glance
    /// tells.
    pub(crate) fn leaves_mark(&self, zone: &Zone<'m>, migratetype: usize) -> bool {
        let request = self.request;
        zone.leaves_mark(self.by, migratetype, request.order.frames(), request.flags)
    }

    /// Where only what other CPUs may take keeps the request back, they tell the zone of it: once
    /// for many requests. What they have in hand stays there. The CPU may be offline afterwards.
    #[inline(always)]
    fn ask_for_allowances(&self, inside: &Inside<'_, 'm, P>) {
        let home = inside.home();
        if home.is_tight() && !self.request.flags.contains(AllocFlags::NO_LOCK) {
            self.ask_for_allowances_of(inside, home);
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_for_allowances_of(&self, inside: &Inside<'_, 'm, P>, home: &Zone<'m>) {
        let (fh, request) = (self.by.fh, self.request);
        let leaves_mark = || {
            self.leaves_mark(home, request.migratetype as usize)
                || request.cma() && self.leaves_mark(home, CMA)
        };
        if leaves_mark() || !home.has_for(fh, request) {
            return;
        }
        inside.tell_all();
        if !leaves_mark() {
            inside.outside(|| Recall::by(fh, self.id).of_allowances());
        }
    }

    /// Takes for the types of block that the request may have in a zone, one after the other.
    #[inline(always)]
    fn of_types(&self, zone: &Zone<'m>, take: impl Fn(Want) -> Option<u64>) -> Option<u64> {
        if !self.request.cma() {
            return take(Want::of(self.request));
        }
        let types = zone.types_for(self.request).into_iter().flatten();
        types.map(|migratetype| Want { migratetype, ..Want::of(self.request) }).find_map(take)
    }

    #[inline(always)]
    fn leases(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let inside = self.inside?;
        self.of_types(zone, |want| match want.order {
            0 => inside.next_frame(want.migratetype),
            1..6 => inside.next_run(want.migratetype, want.order),
            BLOCK_ORDER if want.migratetype != CMA => {
                FastAlloc(**inside).kept_block(want.migratetype).map(Pfn::get)
            }
            _ => None,
        })
    }

    #[inline(always)]
    fn recent(&self, _: &'m Zone<'m>) -> Option<u64> {
        let (cpu, request) = (self.inside?, self.request);
        if cpu.cma_matters(request.flags) {
            return None;
        }
        let (kind, way) = (request.migratetype as usize, FastAlloc(**cpu));
        let found = match request.order.get() {
            0 => way.recent_frame(kind),
            6 => way.any_recent_words::<1>(kind),
            7 => way.any_recent_words::<2>(kind),
            8 => way.any_recent_words::<4>(kind),
            order => way.recent_run_of(kind, order),
        };
        found.map(Pfn::get)
    }

    /// Steps *broken*, which asks the board, and *unasked*.
    #[inline(always)]
    fn broken<const ASK: bool>(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let inside = self.inside?;
        self.of_types(zone, |want| {
            if want.order < 6 {
                inside.break_in_hand(want.migratetype, want.order, ASK)
            } else {
                None
            }
        })
    }

    /// The host says by the flag when memory is short.
    #[inline]
    fn kept(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let asks = self.request.flags.contains(AllocFlags::HIGH_ATOMIC);
        if asks { self.mark(zone) } else { None }
    }

    #[inline(always)]
    fn block_in_use(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let (cpu, request) = (self.inside?, self.request);
        let (kind, way) = (request.migratetype as usize, FastAlloc(**cpu));
        match request.order.get() {
            order if order < 6 || cpu.cma_matters(request.flags) => {
                self.of_types(zone, |want| cpu.take_of_block_in_use(zone, want))
            }
            6 => way.words_in_use::<1>(kind).map(Pfn::get),
            7 => way.words_in_use::<2>(kind).map(Pfn::get),
            8 => way.words_in_use::<4>(kind).map(Pfn::get),
            _ => None,
        }
    }

    fn board(&self, zone: &'m Zone<'m>) -> Option<u64> {
        self.of_types(zone, |want| {
            if want.order == BLOCK_ORDER && want.migratetype != CMA {
                let block = zone.take_whole(self.by, want)?;
                return Some(block.take_block(self.by.fh, want.migratetype));
            }
            self.next_blocks(zone, want, self.request.node.is_some())
        })
    }

    /// From the next blocks of a zone; `unasked` is its block in use, if there is one.
    fn next_blocks(&self, zone: &'m Zone<'m>, want: Want, unasked: bool) -> Option<u64> {
        let inside = self.inside?;
        if !zone.may_lease(self.by, want.migratetype, want.order, want.flags) {
            return None;
        }
        if unasked || !inside.is_home(zone.id.into()) {
            let found = inside.take_of_block_in_use(zone, want);
            if found.is_some() {
                return found;
            }
        }
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let block = inside.refill(zone, want)?;
            if let Some(pfn) = inside.take_of(block, want) {
                return Some(pfn);
            }
        }
        None
    }

    /// A chunk past the leases, of the types that the request may have, down to its own mark. Of
    /// order 9 the board has CMA blocks only; others are whole.
    fn mark(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let want = Want::of(self.request);
        let listed = |&migratetype: &usize| want.order < BLOCK_ORDER || migratetype == CMA;
        let take = |migratetype| (Want { migratetype, ..want }).pick(self.by, zone).run_to_mark();
        let types = zone.types_for(self.request).into_iter().flatten();
        self.by.keep_block_of(want, types.filter(listed).find_map(take)?)
    }

    fn upper_end(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let mut ends = zone.upper_ends(Want::of(self.request));
        ends.find_map(|want| self.other_type(zone, want).or_else(|| self.mixed(zone, want)))
    }

    fn other_type(&self, zone: &'m Zone<'m>, want: Want) -> Option<u64> {
        let by = self.by;
        // Whole blocks are of no type.
        if want.order == BLOCK_ORDER {
            return None;
        }
        let pfn = if let Some(inside) = self.inside {
            if !zone.may_lease(by, want.migratetype, want.order, want.flags) {
                return None;
            }
            let block = want.pick(by, zone).fallback()?;
            inside.came_by(zone, want, block, RefillPhase::Fallback);
            inside.take_of(block, want).or_else(|| self.next_blocks(zone, want, true))
        } else {
            let _granted = zone.reserve(by, want.migratetype, 1 << want.order, want.flags)?;
            want.pick(by, zone).fallback()?.claim(by, want.order)
        };
        by.keep_block_of(want, pfn?)
    }

    /// The smallest run that will do. Words are leased while the zone keeps its mark.
    fn mixed(&self, zone: &'m Zone<'m>, want: Want) -> Option<u64> {
        let by = self.by;
        if want.order == BLOCK_ORDER {
            return None;
        }
        let _granted = zone.reserve(by, want.migratetype, 1 << want.order, want.flags)?;
        let leasing =
            self.inside.filter(|_| zone.may_lease(by, want.migratetype, want.order, want.flags));
        let others = Migratetype::PCP[want.migratetype].fallbacks().iter();
        let wants = others.map(|&other| Want { migratetype: other as usize, ..want });
        // Others may be faster, but not for ever.
        for _ in 0..WORDS {
            let block =
                wants.clone().find_map(|want| want.pick(by, zone).block(false, u32::MAX))?;
            let taken = match leasing {
                Some(inside) => inside.take_of(block, want),
                None => block.claim(by, want.order),
            };
            if let Some(pfn) = taken {
                zone.counters.fallbacks.add_shared(1);
                zone.counters.mixed.add_shared(1);
                return by.keep_block_of(want, pfn);
            }
        }
        None
    }

    fn reserve(&self, zone: &'m Zone<'m>) -> Option<u64> {
        let want = Want::of(self.request);
        if zone.high_atomic_blocks.get() == 0 || !want.flags.may_use_reserve() {
            return None;
        }
        let reserve = Want { migratetype: HIGH_ATOMIC, ..want };
        self.by.keep_block_of(want, reserve.pick(self.by, zone).run()?)
    }
}

impl<'m, P: Platform> By<'_, 'm, P> {
    /// An allocation that may not wait, without the state of that CPU. No CPU counts it.
    #[cold]
    pub(crate) fn alloc(self, id: CpuId, request: &Request) -> Result<Pfn, AllocError> {
        let pfn = Climb { by: self, id, inside: None, request }.find(MARK)?;
        self.fh.platform.handed_out(pfn, request.order);
        Ok(pfn)
    }
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
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
        self.end_freed_chunk();
        let request = Request::new(order, migratetype).flags(flags);
        if flags.contains(AllocFlags::HIGH_ATOMIC) {
            return self.alloc_from(&request, 0);
        }
        // The first steps, as by `climb`.
        let near = Climb::new(&self, &request);
        let found = near
            .ask::<0>(&self)
            .or_else(|| near.ask::<1>(&self))
            .or_else(|| near.ask::<2>(&self))
            .or_else(|| near.ask::<IN_USE>(&self));
        if let Some(pfn) = found {
            self.count_alloc(migratetype as usize, order);
            let fh = self.fh;
            drop(self);
            fh.platform.handed_out(pfn, order);
            return Ok(pfn);
        }
        // Another one: it is in memory only from here on.
        let climb = Climb::new(&self, &request);
        climb.ask_for_allowances(&self);
        if !self.cpu.online.get() {
            return self.alloc_from(&request, BOARD);
        }
        match climb.ask::<BOARD>(&self) {
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
        let is_futile = |key| self.futile.get() != 0 && self.is_still_futile(key);
        if key_of(request).is_some_and(is_futile) {
            return Err(AllocError::NoMemory { order: request.order });
        }
        self.alloc_from(request, 0)
    }

    /// From that step on. Leaves the CPU.
    #[cold]
    #[inline(never)]
    fn alloc_from(self, request: &Request, from: usize) -> Result<Pfn, AllocError> {
        let result = Climb::new(&self, request).find(from);
        self.leave_with(request, result)
    }

    /// Leaves the CPU with what a request has come to, which is counted.
    fn leave_with(
        self,
        request: &Request,
        result: Result<Pfn, AllocError>,
    ) -> Result<Pfn, AllocError> {
        match result {
            Ok(_) => self.count_alloc(request.migratetype as usize, request.order),
            Err(_) => self.cpu.counters.failed.add(1),
        }
        if self.home().is_tight() && (0..TYPES).any(|migratetype| self.is_to_tell(migratetype)) {
            self.tell();
        }
        let fh = self.fh;
        let back =
            OnPanic(|| _ = result.map(|pfn| Freeing::of(fh, None).chunk(pfn, request.order)));
        self.leave_and_tell(request.flags);
        core::mem::forget(back);
        if let Ok(pfn) = result {
            fh.platform.handed_out(pfn, request.order);
        }
        result
    }

    /// Leaves the CPU, has hands emptied where its home zone has come near its mark, and tells the
    /// host about changed pressure. After a request that may not wait the next one does.
    pub(crate) fn leave_and_tell(self, flags: AllocFlags) {
        if !flags.contains(AllocFlags::NO_LOCK) {
            let (fh, home) = (self.fh, self.home());
            drop(self);
            if home.has_hands_to_empty() {
                Recall::of_all(fh).empty_hands(home);
            }
            fh.outside().tell_pressure();
        }
    }
}
