//! A request that came to nothing is not tried again before something has come that could help.
//!
//! ```text
//! who fails                                      who puts frames where requests look
//!   watches for that class and above               the word; the count; the board's bit; the zone's bit
//!   looks everywhere, asks all CPUs                is the class watched for?  the next generation begins
//!   the board has nothing? remembers the generation
//! ```
//!
//! Each side writes one place and then reads the other's, sequentially consistently: either the
//! failing request finds the frames, or the generation that it remembers is over.
//!
//! Its next request fails at once while all of these hold: the request asks for no less than the
//! one before, that generation has not ended, and no CPU has anything in hand that would be asked
//! for. What comes into a hand tells nobody, so a CPU says so before its hand gets anything
//! ([`Cpu::holds`]); where all hands are empty, which is one number, nobody's is looked at.
//!
//! A run of a smaller class ends no generation. Where a zone has frames and a watermark keeps them
//! back, every frame counts: [`ANY`] is watched for then, and each free looks.
//!
//! A raise ends the generation twice, before and after the class is written. Between the two no
//! other CPU can see the run, so a waiting request must retry.
//!
//! **Requests about to fail are counted**: meanwhile no CPU takes more in hand than a call needs.
//!
//! ```text
//! CPU 0   fails ── Failing::new ── recall ── look ─────────────── found
//! CPU 1                                   free, alloc: one frame, no lease
//! ```
//!
//! Without it CPU 1 leases a word with the last free frames between the recall and the look, and
//! CPU 0 fails beside frames that lie side by side. That was seen 113 times in a row. Nor does a CPU
//! keep to itself what it frees: its [allowance](crate::zone::allowance) is 0. A thread that is
//! stopped while it is counted holds up nobody: the others go on, frame by frame.

use crate::alloc::ladder::Climb;
use crate::block::BLOCK_ORDER;
use crate::block::layout::Place;
use crate::cpu::recall::Recall;
use crate::cpu::{Cpu, Inside};
use crate::primitive::{AtomicU64, Count, Ordering, Relaxed, full_fence};
use crate::zone::Zone;
use crate::zone::moving::Movers;
use crate::zone::supply::Apart;
use crate::{AllocError, AllocFlags, Freehold, Migratetype, Order, Pfn, Platform, Request};

/// The class that every frame has.
pub(crate) const ANY: u8 = 0;
/// Nothing is watched for.
const NOTHING: u64 = 0xff;

/// The generation, and in its lowest byte the smallest class that somebody watches for in it.
pub(crate) struct Watch(AtomicU64);

impl Watch {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1 << 8 | NOTHING))
    }

    /// From now on what comes of that class and above ends the generation, which is returned.
    fn begin(&self, class: u8) -> u64 {
        loop {
            let seen = self.0.load(Ordering::SeqCst);
            let now = seen & !NOTHING | (seen & NOTHING).min(u64::from(class));
            // SeqCst: the board, hands and counts are read next; see the module's documentation.
            if self.0.compare_exchange(seen, now, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                // Many of those reads are glances, which no exchange holds back everywhere.
                full_fence();
                return now >> 8;
            }
        }
    }

    /// Whether that generation goes on.
    #[inline(always)]
    pub(crate) fn goes_on(&self, generation: u64) -> bool {
        self.0.load(Ordering::SeqCst) >> 8 == generation
    }

    /// Whether something of that class that has come ends the generation.
    #[inline(always)]
    pub(crate) fn is_for(&self, class: u8) -> bool {
        // SeqCst: as in `came`.
        class >= self.0.load(Ordering::SeqCst) as u8
    }

    /// Something of that class has come.
    #[inline(always)]
    pub(crate) fn came(&self, class: u8) {
        // SeqCst: what has come was written before; see the module's documentation.
        let seen = self.0.load(Ordering::SeqCst);
        if class >= seen as u8 {
            self.end(class, seen);
        }
    }

    #[cold]
    #[inline(never)]
    fn end(&self, class: u8, mut seen: u64) {
        while class >= seen as u8 {
            match self.0.compare_exchange(
                seen,
                (seen | NOTHING) + (1 << 8),
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// What a request asked for that came to nothing, as one number: the type and the flags, and the
/// order in the lowest byte. None of a request with limits of its own, or that may not wait.
pub(crate) fn key_of(request: &Request) -> Option<u64> {
    let ordinary = !request.is_by_place()
        && request.node.is_none()
        && Migratetype::PCP.contains(&request.migratetype)
        && !request.flags.contains(AllocFlags::NO_LOCK);
    ordinary.then(|| key(request.order, request.migratetype, request.flags))
}

#[inline(always)]
pub(crate) fn key(order: Order, migratetype: Migratetype, flags: AllocFlags) -> u64 {
    u64::from(flags.bits()) << 16 | (migratetype as u64) << 8 | u64::from(order.get())
}

impl<'m, P: Platform> Cpu<'_, 'm, P> {
    /// Whether a request of that [`key`] would come to nothing, too, as one has on this CPU: it has
    /// failed once more then. By who is inside.
    #[inline(never)]
    pub(crate) fn is_still_futile(self, key: u64) -> bool {
        let failed = self.futile_request.get();
        // The order is in the lowest byte: of that type and those flags, and no smaller one.
        let covered = key.wrapping_sub(failed) <= BLOCK_ORDER.into() && self.online.get();
        // SeqCst: a CPU that has given back what it had has told of that before, so the generation
        // is looked at afterwards.
        if !covered || self.fh.holding.0.load(Ordering::SeqCst) != 0 && self.somebody_has() {
            return false;
        }
        let futile = self.fh.watch.goes_on(self.futile.get());
        if futile {
            self.counters.failed.add(1);
        }
        futile
    }

    /// Whether any CPU, this one too, has something in hand for what came to nothing here, or may
    /// be on its way with it. By a glance.
    #[cold]
    #[inline(never)]
    fn somebody_has(self) -> bool {
        let order = Order::new((self.futile_request.get() & 0xff) as u8);
        let wanted = order.filter(|_| !self.futile_for_mark.get());
        Recall::has_for(self, wanted) || Recall::by(self.fh, self.id()).would_ask(wanted)
    }

    /// A CPU is about to have something in hand, or a block in use. By who is inside.
    #[inline]
    pub(crate) fn holds(self) {
        if !self.holds.get() {
            self.holds.set(true);
            // SeqCst: before it takes anything.
            self.fh.holding.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether a CPU has nothing in hand, and no block that it takes its next words from.
    pub(crate) fn is_empty(self) -> bool {
        let mut places = (0..self.fh.zones.len()).flat_map(|z| self.cursors(z).places());
        self.leases.held.get() == 0
            && self.kept.iter().all(|kept| kept.is_none())
            && places.all(Place::is_none)
    }

    /// A CPU has nothing in hand any more, and says so.
    pub(crate) fn holds_nothing(self) {
        self.keeps.set(false);
        if self.holds.get() {
            self.holds.set(false);
            // SeqCst: what it had is told of by now.
            self.fh.holding.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The last look of a request that may come to nothing.
pub(crate) struct Watched {
    generation: u64,
    /// Frames are short of a watermark.
    for_mark: bool,
    order: Order,
}

impl Watched {
    /// Of which order CPUs are asked for a run; `None`: for all that they have.
    pub(crate) fn asks_for(&self) -> Option<Order> {
        Some(self.order).filter(|_| !self.for_mark)
    }

    /// Whether nothing has come since that could help.
    pub(crate) fn goes_on<P>(&self, fh: &Freehold<'_, P>) -> bool {
        fh.watch.goes_on(self.generation)
    }
}

impl<'m, P: Platform> Climb<'_, 'm, P> {
    /// A request is about to look everywhere for the last time; `None` of one that has a place, for
    /// which nobody watches.
    pub(crate) fn begin_watch(&self, inside: &Inside<'_, 'm, P>) -> Option<Watched> {
        let (fh, request) = (self.by.fh, self.request);
        if request.is_by_place() {
            return None;
        }
        // What CPUs have in hand does not count for a mark, and may be all that is missing,
        // whatever runs it has. CMA frames do not count either: they may be in pieces that are too
        // small.
        let mut zones = fh.zonelists.of(self.id.index(), request.node).map(|z| &fh.zones[z]);
        let for_mark = zones.any(|zone| !self.leaves_mark(zone, request.migratetype as usize));
        inside.cpu.futile.set(0);
        let generation = fh.watch.begin(if for_mark { ANY } else { request.order.get() + 1 });
        Some(Watched { generation, for_mark, order: request.order })
    }

    /// A request has come to nothing. Remembered only where each zone shows that it has nothing for
    /// it: others may have been faster each time that this one had found some.
    pub(crate) fn remember(&self, inside: &Inside<'_, 'm, P>, watched: &Watched) {
        let (fh, cpu, request) = (self.by.fh, inside.cpu, self.request);
        if inside.is_empty() {
            inside.holds_nothing();
        }
        if Movers(fh).moves().at_it != 0 {
            // It has not been seen, and need not come to where it is told of.
            return;
        }
        let mut zones = fh.zonelists.of(self.id.index(), None).map(|z| &fh.zones[z]);
        let hopeless = |zone: &Zone<'m>| {
            let reserve = request.flags.may_use_reserve();
            zone.is_empty_from(self.by, request.order.get() + 1, reserve, request.cma())
                || watched.for_mark
                    && !(reserve && zone.high_atomic_blocks.get() != 0)
                    && !zone.has_for(fh, request)
        };
        let Some(key) = key_of(request).filter(|_| zones.all(hopeless)) else { return };
        cpu.futile_request.set(key);
        cpu.futile_for_mark.set(watched.for_mark);
        cpu.futile.set(watched.generation);
    }
}

/// How often a request asks all CPUs for what they have in hand before it fails: what was on its
/// way from one to another the first time is somewhere the second time.
const RECALLS: usize = 2;

impl<'m, P: Platform> Climb<'_, 'm, P> {
    /// What a look finds after every CPU was asked for what it has in hand. Frames may go into a
    /// hand between the two, so both are done again, unless nobody was asked and
    /// [nobody would be](Recall::would_ask).
    #[cold]
    pub(crate) fn look_for_the_last_time(
        &self,
        inside: &Inside<'_, 'm, P>,
        look: impl Fn() -> Option<Pfn>,
    ) -> Result<Pfn, AllocError> {
        let (fh, mut watched) = (self.by.fh, None);
        let _failing = Failing::new(fh);
        for _ in 0..RECALLS {
            // What is in hand for other purposes, here and elsewhere.
            inside.give_back_all();
            watched = self.begin_watch(inside);
            let asks_for = watched.as_ref().and_then(|watched| watched.asks_for());
            let asked = inside.outside(|| Recall::by(fh, self.id).for_order(asks_for));
            inside.cpu.counters.recalls.add(u64::from(asked != 0));
            // It may have gone offline meanwhile: it may not lease anything.
            inside.is_online()?;
            // Another call may have come in here meanwhile and left something.
            inside.give_back_all();
            let found = Movers(fh).look_beside(&look);
            if let Some(pfn) = found {
                return Ok(pfn);
            }
            // What has come out of a hand since has ended the generation.
            let all_seen = asked == 0
                && !Recall::by(fh, self.id).would_ask(asks_for)
                && watched.as_ref().is_none_or(|watched| watched.goes_on(fh));
            if all_seen {
                break;
            }
        }
        if let Some(watched) = watched {
            self.remember(inside, &watched);
        }
        Err(AllocError::NoMemory { order: self.request.order })
    }
}

/// Requests that are about to fail.
pub(crate) struct Failures(pub(crate) Apart);

/// Counts a request as failing for as long as it lives.
pub(crate) struct Failing<'a, 'm, P>(&'a Freehold<'m, P>);

impl<'a, 'm, P> Failing<'a, 'm, P> {
    /// Before others are asked for what they have in hand.
    pub(crate) fn new(fh: &'a Freehold<'m, P>) -> Self {
        // SeqCst: a CPU that is asked later has seen it when it takes its next word, or its lease
        // is among those that the recall ends.
        fh.failing.0.0.fetch_add(1, Ordering::SeqCst);
        for cpu in fh.cpus.iter().filter(|cpu| cpu.most.get() != 0) {
            // SeqCst: as in `Cpu::set_most`.
            cpu.most.store(0, Ordering::SeqCst);
        }
        Self(fh)
    }
}

impl<P> Drop for Failing<'_, '_, P> {
    fn drop(&mut self) {
        // SeqCst: as it came.
        self.0.failing.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Failures {
    /// Whether a request is about to fail, so that nobody may take more than it needs.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        // SeqCst: see `Failing::new`. On x86-64 it is a plain load.
        self.0.0.load(Ordering::SeqCst) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;

    /// How often CPU 0 has looked everywhere for a request.
    fn searches(fh: &Machine) -> u64 {
        fh.cpus[0].counters.slow.get()
    }

    /// Four blocks, none of whose frames CPU 0 can have, and which it has.
    fn exhausted(min: u64) -> (Machine, Vec<Pfn>) {
        let fh = machine(2, 2048);
        fh.set_watermarks(0, min, min, min).unwrap();
        let cpu = fh.here();
        let frames: Vec<Pfn> = core::iter::from_fn(|| cpu.alloc(movable(0)).ok()).collect();
        assert_eq!(frames.len() as u64, 2048 - min);
        // Once more, should the first failure have left something to be told to the board.
        cpu.alloc(movable(0)).unwrap_err();
        (fh, frames)
    }

    /// CPU 0 fails without a search at that order.
    fn fails_at_once(fh: &Machine, order: u8) {
        let before = searches(fh);
        fh.here().alloc(movable(order)).unwrap_err();
        assert_eq!(searches(fh), before, "order {order}");
    }

    fn is_found(fh: &Machine, order: u8) {
        let pfn = fh.here().alloc(movable(order)).unwrap();
        fh.here().free(pfn, of_order(order)).unwrap();
        fh.validate().unwrap();
    }

    #[test]
    fn a_request_that_came_to_nothing_is_not_repeated() {
        for min in [0, 100] {
            let (fh, _) = exhausted(min);
            // A larger one would not come to more.
            [0, 1, 5, 8, 0].into_iter().for_each(|order| fails_at_once(&fh, order));
            assert_eq!(fh.totals().cpus.failed, 2 + 5);
        }
    }

    /// There are as many counts as CPUs: the first request of a CPU that fails at a mark sums them
    /// up before others are asked, afterwards, and for the host; the next one does not.
    #[test]
    fn the_first_request_that_fails_sums_up_three_times_at_most() {
        for order in [0, 1, 3, 9] {
            let (fh, _) = exhausted(100);
            let sums = || fh.zones[0].counters.sums.get();
            let before = sums();
            fh.on(CpuId::new(1)).alloc(movable(order)).unwrap_err();
            assert!((1..=3).contains(&(sums() - before)), "order {order}");
            let before = sums();
            fh.on(CpuId::new(1)).alloc(movable(order)).unwrap_err();
            assert_eq!(sums(), before, "order {order}");
        }
    }

    /// What comes where the board sees it, and where it does not: in another CPU's hand.
    #[test]
    fn what_comes_is_found() {
        for min in [0, 100] {
            for frees in 1..=3 {
                let (fh, frames) = exhausted(min);
                let other = fh.on(CpuId::new(1));
                // The second one in a row leases the word, where there is no mark.
                frames[..frees].iter().for_each(|&pfn| other.free(pfn, Order::ZERO).unwrap());
                is_found(&fh, 0);
            }
            let (fh, frames) = exhausted(min);
            let word = frames_at(frames[0].get() & !63, 64);
            fh.on(CpuId::new(1)).free_range(word).unwrap();
            [6, 5, 0].into_iter().for_each(|order| is_found(&fh, order));
            let (fh, frames) = exhausted(min);
            fh.here().free(frames[0], Order::ZERO).unwrap();
            is_found(&fh, 0);
            // Into the block that has what the mark keeps back: its class says as much already.
            let (fh, frames) = exhausted(min);
            fh.on(CpuId::new(1)).free(frames[frames.len() - 1], Order::ZERO).unwrap();
            is_found(&fh, 0);
        }
    }

    #[test]
    fn a_lower_mark_is_noticed() {
        let (fh, _) = exhausted(100);
        fails_at_once(&fh, 0);
        fh.set_watermarks(0, 50, 50, 50).unwrap();
        is_found(&fh, 0);
    }

    /// Frames that are no run of the order that was asked for are no reason to look again; the one
    /// that completes it is, and also where it comes into a hand.
    #[test]
    fn only_what_could_help_is_a_reason() {
        for cpu in [0, 1] {
            let (fh, frames) = exhausted(0);
            let run = frames[0].get() & !7;
            let other = fh.on(CpuId::new(cpu));
            fh.here().alloc(movable(3)).unwrap_err();
            for pfn in run..run + 7 {
                other.free(Pfn::new(pfn), Order::ZERO).unwrap();
                fh.here().alloc(movable(3)).unwrap_err();
                fails_at_once(&fh, 3);
            }
            other.free(Pfn::new(run + 7), Order::ZERO).unwrap();
            is_found(&fh, 3);
        }
    }

    /// A whole block that another CPU keeps, and one that it takes its words from.
    #[test]
    fn blocks_that_another_cpu_has_are_found() {
        let fh = machine(2, 2048);
        fh.set_watermarks(0, 0, 0, 0).unwrap();
        let (cpu, other) = (fh.here(), fh.on(CpuId::new(1)));
        let blocks: Vec<Pfn> = core::iter::from_fn(|| cpu.alloc(movable(9)).ok()).collect();
        fails_at_once(&fh, 9);
        other.free(blocks[0], Order::PAGEBLOCK).unwrap();
        let block = cpu.alloc(movable(9)).unwrap();
        cpu.alloc(movable(9)).unwrap_err();
        fails_at_once(&fh, 9);
        other.free(block, Order::PAGEBLOCK).unwrap();
        // It is split, and whole but for the CPU that takes words of it.
        let frame = other.alloc(movable(0)).unwrap();
        cpu.alloc(movable(9)).unwrap_err();
        other.free(frame, Order::ZERO).unwrap();
        cpu.alloc(movable(9)).unwrap();
    }
}
