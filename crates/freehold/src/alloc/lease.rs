//! Words go to a CPU and come back.
//!
//! ```text
//! lease     the lease names this CPU (compare-exchange)      end     put what is in hand into the word
//!           take the word (swap)                                     the slot is free
//!           the tag is still what it was? else put it back            the lease names nobody
//! ```
//!
//! | where | what holds |
//! |---|---|
//! | between the compare-exchange and the swap | nobody else takes the word; puts go on |
//! | after the swap | the frames are in nobody's sight until the slot is open: a wrong free in between is told late |
//! | after the look at class and tag | the block is split, of the type it was chosen for, and cannot become whole: a thread that makes it whole had not looked at this lease, or was done |
//! | between put and the lease's end | a frame is in the hand and in the word: both say "free" to a wrong free |

use crate::Platform;
use crate::alloc::pick::Want;
use crate::block::words::EMPTY;
use crate::block::{Block, HIGH_ATOMIC, Tag, WORDS, bits};
use crate::cpu::lease::{Lease, Leases, Purpose, SLOTS};
use crate::cpu::{Cpu, Inside};
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::zone::board::LOOSE;

/// With less of a zone free than this part a CPU lets go of one word before it leases the next.
const SCARCE: u64 = 8;

impl<'m, P: Platform> Inside<'_, 'm, P> {
    /// A run of that order (0 to 5) out of a larger one in hand, the smallest that there is: if the
    /// board has no smaller one, or it is not to be asked.
    pub(crate) fn break_in_hand(&self, migratetype: usize, order: u32, ask: bool) -> Option<u64> {
        let purpose = if order == 0 { Purpose::Frames } else { Purpose::Runs };
        let leases = &self.cpu.leases;
        let slots = bits::each(u64::from(leases.ready(purpose, migratetype)));
        let run = |slot: u32| {
            let lease = leases.slot(slot as usize);
            lease.divide();
            let (run, size) = bits::smallest_run(lease.all() & !lease.word(), order)?;
            Some((size, slot as usize, run))
        };
        let (size, slot, run) = slots.filter_map(run).min()?;
        let zone = self.home();
        let smaller = || zone.board.smallest(migratetype, order as u8 + 1);
        let is_loose = Want::new(order, migratetype).is_for_loose() && size >= bits::KEPT_ORDER;
        let loose = || is_loose && zone.board.has_any(LOOSE);
        let has_better = || smaller().is_some_and(|class| u32::from(class) <= size) || loose();
        if ask && !zone.is_roomy() && has_better() {
            // Nor is it of use in hand, where it keeps its block from becoming whole.
            self.slot(slot).end();
            return None;
        }
        leases.slot(slot).break_up(run);
        let pfn = self.slot(slot).take(order)?;
        leases.set_current(purpose, migratetype, slot);
        Some(pfn)
    }

    /// A run out of a split block of that type: by leasing a word that has it, or past the leases.
    pub(crate) fn take_of(&self, block: Block<'m>, want: Want) -> Option<u64> {
        let pfn = self.lease_or_claim(block, want);
        self.give_up_unused_share();
        pfn
    }

    #[inline(always)]
    fn lease_or_claim(&self, block: Block<'m>, want: Want) -> Option<u64> {
        let head = block.head;
        let tag = head.tag.get();
        if !tag.is_open() {
            return None;
        }
        // Leases are for ordinary blocks of the home zone: a free into one need not look whether
        // the frame exists, and an allocation from one need not look where it is.
        let leasable =
            tag.is_ordinary() && self.is_home(tag.zone()) && tag.migratetype() != HIGH_ATOMIC;
        if want.order >= 6 || !leasable || !self.may_lease() {
            return block.claim(self.by(), want.order);
        }
        let kind = (want.purpose(), want.migratetype);
        // Others may take a word meanwhile, but each time that is one chance less.
        for _ in 0..WORDS {
            let w = self.best_word(block, want)?;
            // A lease for a single run would end another one, and bring nothing but that run. With a
            // run of half a word it pays: what is freed beside it comes into the hand.
            if let (1..5, Some(at)) = (want.order, bits::only_run(block.line.word(w), want.order)) {
                let offset = w * 64 + at as usize;
                if block.claim_at(self.by(), offset, 1 << want.order) {
                    self.ends_row();
                    return Some(block.base() + offset as u64);
                }
                continue;
            }
            let Some(slot) = self.lease(block, w, tag, kind, (0, Some(want.order))) else {
                continue;
            };
            let Some(pfn) = self.slot(slot).take(want.order) else { continue };
            // Where it had the word for something else the next request finds its own.
            if self.cpu.leases.slot(slot).serves(want.purpose(), want.migratetype) {
                self.cpu.leases.set_current(want.purpose(), want.migratetype, slot);
            }
            return Some(pfn);
        }
        None
    }

    /// The word of a block to lease: one that has the run, that nobody leases, and whose own
    /// largest run is the smallest, so that larger ones stay. Among equals, CPUs that share a block
    /// begin at different words.
    fn best_word(&self, block: Block<'m>, want: Want) -> Option<usize> {
        let (head, line) = (block.head, block.line);
        let (lanes, base) = (bits::LANES[want.order as usize], block.base());
        let (mut best, first) = (None, self.id().index());
        for step in 0..WORDS {
            let w = (step + first) % WORDS;
            let word = line.word(w);
            // No word is a worse choice than a full one, as most of a new block's are.
            if word == 0 || word == !0 && best.is_some() {
                continue;
            }
            if lanes.full(word) == 0 || head.is_leased(w) {
                continue;
            }
            if word == !0 {
                best = Some((6, w));
                continue;
            }
            // Nothing fits better than loose frames, whatever runs lie beside them.
            let loose = if want.is_for_loose() { bits::loose(word) } else { 0 };
            if loose != 0 && loose & self.fh.platform.frames_in_memory(base, w) != 0 {
                best = Some((0, w));
                break;
            }
            // Only whether it is smaller than the best so far matters.
            let largest = match best {
                Some((least, _)) if bits::has_run(word, least) => continue,
                _ => bits::largest_run(word).unwrap_or(0),
            };
            best = Some((largest, w));
            // Nothing fits better.
            if largest == want.order {
                break;
            }
        }
        best.map(|(_, w)| w)
    }

    /// From another lease of that type: of what lies in no larger run.
    #[inline(always)]
    pub(crate) fn next_frame(&self, migratetype: usize) -> Option<u64> {
        let leases = &self.cpu.leases;
        for slot in bits::each(u64::from(leases.ready(Purpose::Frames, migratetype))) {
            let slot = slot as usize;
            if leases.slot(slot).mask.get() != 0 {
                leases.slot(slot).divide();
            }
            if leases.slot(slot).mask.get() == 0 && !self.slot(slot).replenish() {
                continue;
            }
            if let Some(pfn) = self.slot(slot).take(0) {
                leases.set_current(Purpose::Frames, migratetype, slot);
                return Some(pfn);
            }
        }
        leases.set_current(Purpose::Frames, migratetype, SLOTS);
        None
    }

    /// From a lease for runs of that type: from what is in hand, before any word that has nothing
    /// in hand is looked at. Such a one takes what this CPU frees into it for as long as it is not
    /// let go.
    pub(crate) fn next_run(&self, migratetype: usize, order: u32) -> Option<u64> {
        let leases = &self.cpu.leases;
        let ready = || {
            bits::each(u64::from(leases.ready(Purpose::Runs, migratetype)))
                .map(|slot| slot as usize)
        };
        let take = |slot| {
            let pfn = self.slot(slot).take(order)?;
            leases.set_current(Purpose::Runs, migratetype, slot);
            Some(pfn)
        };
        let has_run = |slot: &usize| bits::has_run(leases.slot(*slot).mask.get(), order);
        ready().filter(has_run).find_map(take).or_else(|| {
            ready()
                .filter(|&slot| leases.slot(slot).mask.get() == 0 && self.slot(slot).replenish())
                .find_map(take)
        })
    }
}

impl<'a, 'm, P: Platform> Cpu<'a, 'm, P> {
    /// Leases word `w` of a block whose tag was `tag` for requests of type `migratetype`; returns
    /// the slot, where there is at least a frame in hand. `freed` are frames of that word that this
    /// CPU is freeing: they go into the hand. Where the board was asked for a run of `order` the
    /// smallest that will do may be used up.
    ///
    /// # Errors
    ///
    /// `None` where somebody else has the word, or it has nothing, or the block is not what it was;
    /// nothing is freed then.
    #[inline(always)]
    pub(crate) fn lease(
        &self,
        block: Block<'m>,
        w: usize,
        tag: Tag,
        (purpose, migratetype): (Purpose, usize),
        (freed, order): (u64, Option<u32>),
    ) -> Option<usize> {
        let (fh, leases) = (self.fh, &self.cpu.leases);
        let (head, line) = (block.head, block.line);
        let key = u64::from(head.number) * WORDS as u64 + w as u64;
        let (slot, me) = (Leases::slot_of(key), self.lease_name());
        if leases.slot(slot).is_of(key) {
            debug_assert_eq!(freed, 0);
            return self.slot(slot).revive(block, w).then_some(slot);
        }
        let lease = head.lease(w);
        if lease != 0 && lease & EMPTY == 0 {
            return None;
        }
        self.make_room(slot);
        self.holds();
        if !head.change_lease(w, lease, me) {
            return None;
        }
        let got = line.take_word(w);
        // The class before the tag: who makes a block whole writes them in the other order.
        let changed = head.is_busy() || head.tag.get() != tag;
        let nothing = got | freed == 0 || got & freed != 0;
        // What a row of frees brings, of which one frame is there, is kept together once somebody
        // takes of it, not frame by frame.
        let is_row = freed != 0 && got & got.wrapping_sub(1) == 0;
        let count = if is_row { u64::from(got != 0) } else { u64::from(got.count_ones()) };
        if changed || nothing || !self.pay_leased(tag, count) {
            // Becoming whole, whole, of another type or isolated by now; or nothing there; or what
            // is freed was free; or the zone would not keep its mark. The frames before the lease,
            // as in `Slot::end`: nobody takes any of them until all are back.
            block.put_back_uncounted(fh, w, got);
            head.set_lease(w, 0);
            let now = line.word_after_class(w);
            self.by().raise_by(block, now);
            return None;
        }
        let (all, place) = (got | freed, (block, w, line.cell(w)));
        let zone = &fh.zones[tag.zone()];
        // What may be broken up, after the board was asked for such a run, or was not.
        let run = || order.and_then(|order| bits::smallest_run(all, order));
        let roomy = zone.is_roomy();
        let breakable = if roomy { !0 } else { run().map_or(0, |(run, _)| run) };
        let divided = roomy || !is_row || purpose == Purpose::Words;
        leases.open(slot, key, place, (purpose, migratetype), all, (breakable, divided));
        Some(slot)
    }

    #[inline(always)]
    pub(crate) fn slot(&self, number: usize) -> Slot<'_, 'a, 'm, P> {
        Slot { cpu: self, number }
    }

    /// What a lease of this CPU says.
    #[inline(always)]
    pub(crate) fn lease_name(self) -> u16 {
        self.cpu.number + 1
    }

    /// Whether the CPU may lease a word at all.
    #[inline(always)]
    pub(crate) fn may_lease(self) -> bool {
        !self.home().is_lean()
            && !self.fh.failing.any()
            && (self.leases.limit.get() != 0 || self.share.has_or_gets(&self.home().words))
    }

    /// Gives up its part of the words that CPUs share, where no word is leased by it.
    #[inline(always)]
    pub(crate) fn give_up_unused_share(self) {
        if self.leases.held.get() == 0 {
            self.share.give_up(&self.home().words);
        }
    }

    /// Has `slot` free, and room for one more lease, for a CPU that [may](Self::may_lease) have it.
    fn make_room(&self, slot: usize) {
        let leases = &self.leases;
        let zone = self.home();
        // What lies in many hands is broken up while it would fit elsewhere.
        if !zone.is_roomy() && !zone.has_free_of(SCARCE) {
            self.end_leases(0);
        } else if leases.slot(slot).is_in_use() {
            self.slot(slot).end();
        }
        // The blocks of many words are not missed then.
        let half_free = zone.has_free_of(2);
        while leases.is_full(half_free) {
            // The next one behind it, going round.
            let held = leases.held.get();
            let behind = held & (!0 << slot);
            let victim = if behind != 0 { behind } else { held };
            self.slot(victim.trailing_zeros() as usize).end();
        }
    }

    /// Ends all leases but those in `keep`.
    pub(crate) fn end_leases(&self, keep: u32) {
        for slot in bits::each(u64::from(self.leases.held.get() & !keep)) {
            self.slot(slot as usize).end();
        }
    }

    /// So many frames have left their word for the hand, if the zone keeps its mark.
    #[inline(always)]
    fn pay_leased(self, tag: Tag, count: u64) -> bool {
        self.cpu.counters.refilled_frames.add(count);
        self.by().pay(tag, count)
    }
}

/// A slot of a CPU's leases, for a thread that is inside.
/// By reference: two words go in registers.
pub(crate) struct Slot<'i, 'a, 'm, P> {
    cpu: &'i Cpu<'a, 'm, P>,
    number: usize,
}

impl<P> Clone for Slot<'_, '_, '_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Slot<'_, '_, '_, P> {}

impl<'m, P: Platform> Slot<'_, '_, 'm, P> {
    #[inline(always)]
    fn lease(self) -> &'m Lease<'m> {
        self.cpu.cpu.leases.slot(self.number)
    }

    /// A word that this CPU has a slot for: what others freed into it comes into the hand as well.
    fn revive(self, block: Block<'m>, w: usize) -> bool {
        if !self.claim(block, w) {
            return false;
        }
        let (cpu, lease) = (self.cpu, self.lease());
        let got = block.line.take_word(w);
        let tag = block.head.tag.get();
        if !cpu.pay_leased(tag, got.count_ones().into()) {
            // The zone would not keep its mark.
            block.put_back_uncounted(cpu.fh, w, got);
            self.end();
            return false;
        }
        let strays = lease.all() & got;
        block.report_late(cpu.fh, w, strays);
        lease.add_all(got & !strays);
        cpu.leases.set_ready(self.number);
        lease.mask.get() != 0
    }

    /// Makes sure that the lease of a slot's word names this CPU; otherwise the slot is freed,
    /// which had nothing in hand.
    pub(crate) fn claim(self, block: Block<'m>, w: usize) -> bool {
        let (head, me) = (block.head, self.cpu.lease_name());
        let ours = head.lease(w) == me || head.change_lease(w, me | EMPTY, me);
        if !ours {
            // Taken over while it was empty, or the block has become whole meanwhile.
            debug_assert_eq!(self.lease().all(), 0);
            self.cpu.leases.close(self.number);
        }
        ours
    }

    /// Puts what is in hand of a slot back and frees it; where it is of a chunk the others of that,
    /// too.
    pub(crate) fn end(self) {
        if self.lease().is_of_chunk() { self.cpu.end_chunk() } else { self.end_alone() }
    }

    /// Puts what is in hand of this slot back and frees it.
    pub(crate) fn end_alone(self) {
        let (lease, me) = (self.lease(), self.cpu.lease_name());
        let Some((block, w)) = lease.place(&self.cpu.fh.map.blocks) else { return };
        let (head, line, mask) = (block.head, block.line, lease.all());
        if mask != 0 {
            self.cpu.by().put_in_word(block, w, mask);
        }
        self.cpu.leases.close(self.number);
        match head.lease(w) {
            now if now == me => head.set_lease(w, 0),
            // A thread that takes it over meanwhile has it.
            _ => {
                head.change_lease(w, me | EMPTY, 0);
            }
        }
        // Not only what was in hand: nothing of a leased word counts for the board.
        let now = line.word_after_class(w);
        if now == !0 {
            head.set_no_gap(0);
            self.cpu.by().raise_by_words::<1>(block, w);
        } else if now | mask != 0 {
            self.cpu.by().raise_by(block, now);
        }
    }

    /// A slot has nothing in hand: takes what others have freed into the word, or lets anybody take
    /// the word over. Whether there is something in hand now.
    pub(crate) fn replenish(self) -> bool {
        let lease = self.lease();
        let Some((block, w)) = lease.place(&self.cpu.fh.map.blocks) else { return false };
        let (head, line) = (block.head, block.line);
        if line.word(w) != 0 {
            return self.revive(block, w);
        }
        if lease.spare.get() != 0 {
            // Kept: for a thread that has asked.
            return false;
        }
        if self.cpu.leases.limit.get() == 0 && self.cpu.home().words.take_wish() {
            self.end();
            self.cpu.give_up_unused_share();
            self.cpu.share.let_others();
            return false;
        }
        self.cpu.leases.set_empty(self.number);
        let me = self.cpu.lease_name();
        if head.lease(w) == me {
            head.set_lease(w, me | EMPTY);
            // A free that came in between has not counted for the board.
            let now = line.word_after_class(w);
            if now != 0 {
                self.cpu.by().raise_by(block, now);
            }
        }
        false
    }

    /// Takes a run of that order (0 to 5) out of a slot's hand.
    #[inline(always)]
    pub(crate) fn take(self, order: u32) -> Option<u64> {
        let lease = self.lease();
        let mut mask = lease.mask.get();
        let strays = mask & lease.word();
        if strays != 0 {
            // Freed twice: they stay where they are, in the word.
            mask &= !strays;
            lease.mask.set(mask);
            self.report_strays(strays);
        }
        let breakable = if order == 0 { !0 } else { lease.breakable.get() };
        let start = bits::best_start(bits::runs(mask, order), order, breakable)?;
        lease.mask.set(mask & !bits::mask(start, 1 << order));
        Some(lease.first.get() + u64::from(start))
    }

    #[cold]
    fn report_strays(self, strays: u64) {
        if let Some((block, w)) = self.lease().place(&self.cpu.fh.map.blocks) {
            block.report_late(self.cpu.fh, w, strays);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::hotplug::Hotplug;
    use crate::tests::testing::*;

    /// Has CPU 0 lease a word, and let go of it if `flush`; then CPU 1 tries, and frees frame
    /// `freed` of it. Who leases the word afterwards, and what it has.
    fn after_another_has_tried(flush: bool, freed: u64) -> (u16, u64) {
        let fh = machine(2, 1 << 16);
        let first = fh.here();
        let pfn = first.alloc(movable(0)).unwrap();
        if flush {
            first.flush().unwrap();
        }
        let (block, w) = place(&fh, pfn);
        let (head, line) = (block.head, block.line);
        let inside = inside(&fh, 1);
        assert_eq!(
            inside.lease(block, w, head.tag.get(), (Purpose::Frames, 1), (freed, None)),
            None
        );
        assert_eq!(inside.cpu.leases.held.get(), 0);
        (head.lease(w), line.word(w))
    }

    /// The lease comes to nothing, since the block was of another type; at each of its steps a
    /// frame of the word is freed that is free already. It is counted once.
    #[test]
    fn a_frame_freed_twice_while_a_lease_comes_to_nothing_counts_once() {
        let (mut n, mut told, mut reached) = (0, 0, true);
        while reached {
            n += 1;
            let fh: &'static _ = Box::leak(Box::new(machine(1, 1024)));
            let cpu = fh.here();
            let pfn = cpu.alloc(movable(0)).unwrap();
            cpu.flush().unwrap();
            let (block, w) = place(fh, pfn);
            let inside = inside(fh, 0);
            let before = block.head.tag.get().with_type(Migratetype::Unmovable as usize);
            let wrong = move || {
                let _ = Freeing::of(fh, None).word(pfn.get() / 64, 1 << 5, 1);
            };
            let lease = || inside.lease(block, w, before, (Purpose::Frames, 1), (0, None));
            let (slot, ran) = interrupted(n, wrong, lease);
            assert_eq!(slot, None);
            drop(inside);
            reached = ran;
            told += fh.totals().late_double_frees;
            let (word, free) = (block.line.word(w), fh.zones[0].free(fh).all);
            assert_eq!((word, free), (!(1 << (pfn.get() % 64)), 1023), "step {n}");
            fh.validate().unwrap();
        }
        assert!(told > 0, "no free came while the frames were away");
    }

    /// The first frame freed went into its word, the second leased that: of what came into the hand
    /// then the board has not heard yet.
    #[test]
    fn a_lease_that_ends_tells_of_what_it_had() {
        let fh = unmarked(2, 2048);
        let (cpu, other) = (fh.here(), fh.on(CpuId::new(1)));
        exhaust(&fh, movable(0));
        cpu.free_range(frames_at(1024, 1024)).unwrap();
        (8..16).for_each(|n| cpu.free(Pfn::new(n), Order::ZERO).unwrap());
        assert_eq!(fh.cpus[0].leases.held.get().count_ones(), 1);
        cpu.flush().unwrap();
        fh.validate().unwrap();
        assert_eq!(other.alloc(movable(3)), Ok(Pfn::new(8)));
    }

    /// Frames in all hands after each CPU has allocated frames and runs of each type.
    fn in_hands(fh: &Machine) -> u64 {
        for (number, _) in fh.cpus.iter().enumerate() {
            let cpu = fh.on(CpuId::new(number as u16));
            for (order, migratetype) in [0, 1, 2].into_iter().flat_map(|order| {
                Migratetype::PCP.map(|migratetype| (of_order(order), migratetype))
            }) {
                let _ = cpu.alloc(Request::new(order, migratetype));
            }
        }
        fh.cpus
            .iter()
            .flat_map(|cpu| (0..SLOTS).map(|slot| cpu.leases.slot(slot).all()))
            .fold(0, |sum, hand| sum + u64::from(hand.count_ones()))
    }

    /// Whatever the number of CPUs; and none is without a word where there are enough.
    #[test]
    fn all_hands_together_have_a_hundredth_of_memory_at_most() {
        for (cpus, frames) in [(1, 4096), (64, 1 << 13), (40, 1 << 16), (64, 1 << 19), (3, 1 << 18)]
        {
            let fh = machine(cpus, frames);
            Hotplug::lock(&fh).compute_limits();
            let (words, hands) = (frames.div_ceil(6400), in_hands(&fh));
            assert!(hands <= words * 64, "{cpus} CPUs, {frames} frames: {hands} in hands");
            let holders = fh.cpus.iter().filter(|cpu| cpu.leases.held.get() != 0).count() as u64;
            assert_eq!(holders, words.min(cpus.into()), "{cpus} CPUs, {frames} frames");
            fh.validate().unwrap();
        }
    }

    /// What CPUs had in hand of more memory goes back with it.
    #[test]
    fn hands_shrink_with_memory() {
        let fh = machine(2, 1 << 18);
        Hotplug::lock(&fh).compute_limits();
        let left = 1 << 14;
        assert!(in_hands(&fh) > u64::div_ceil(left, 6400) * 64);
        fh.remove_memory(frames_at(left, (1 << 18) - left)).unwrap();
        let in_hand = |cpu| fh.on(CpuId::new(cpu)).holdings().unwrap().0;
        assert_eq!([in_hand(0), in_hand(1)], [0, 0]);
        fh.validate().unwrap();
    }

    /// There is one word for two CPUs: the second one has it once the first one idles.
    #[test]
    fn a_shared_word_goes_on_when_its_cpu_idles() {
        let fh = machine(2, 4096);
        Hotplug::lock(&fh).compute_limits();
        let alloc = |cpu: u16| {
            let request = movable(0);
            fh.on(CpuId::new(cpu)).alloc(request).unwrap();
            [0, 1].map(|cpu: usize| fh.cpus[cpu].leases.held.get().count_ones())
        };
        assert_eq!(alloc(0), [1, 0]);
        assert_eq!(alloc(1), [1, 0], "it took its frame past the leases");
        (0..2).for_each(|_| fh.here().tick().unwrap());
        assert_eq!(alloc(1), [0, 1]);
        assert_eq!(alloc(0), [0, 1]);
        fh.on(CpuId::new(1)).offline().unwrap();
        assert_eq!(alloc(0), [1, 0]);
    }

    /// There is one word for two CPUs, and who has it allocates on and on: it passes between them as
    /// it is used up, and never are two leased.
    #[test]
    fn a_shared_word_goes_round_as_it_is_used_up() {
        let fh = machine(2, 4096);
        Hotplug::lock(&fh).compute_limits();
        let alloc = |cpu: u16| {
            fh.on(CpuId::new(cpu)).alloc(movable(0)).unwrap();
            let held = [0, 1].map(|cpu: usize| fh.cpus[cpu].leases.held.get().count_ones());
            assert!(held[0] + held[1] <= 1, "{held:?}");
            held[1 - usize::from(cpu)] == 0
        };
        assert!((0..200).all(|_| alloc(0)), "nobody else wants it");
        let held: Vec<bool> = (0..600)
            .map(|_| {
                alloc(0);
                alloc(1)
            })
            .collect();
        let rounds = held.windows(2).filter(|two| two[0] != two[1]).count();
        assert!((6..=30).contains(&rounds), "it changed hands {rounds} times");
        fh.validate().unwrap();
    }

    /// A single run is claimed where the CPU may lease, too.
    #[test]
    fn a_share_by_which_nothing_is_leased_is_given_up() {
        let fh = machine(2, 4096);
        Hotplug::lock(&fh).compute_limits();
        let base = fh.here().alloc(movable(9)).unwrap().get();
        fh.here().free(Pfn::new(base + 8), Order::new(3).unwrap()).unwrap();
        fh.here().flush().unwrap();
        assert_eq!(fh.here().alloc(movable(3)), Ok(Pfn::new(base + 8)));
        assert_eq!(leased(&fh), 0);
        fh.on(CpuId::new(1)).alloc(movable(0)).unwrap();
        assert_eq!(fh.cpus[1].leases.held.get().count_ones(), 1);
    }

    /// Where less than half of memory is free a CPU of a small machine leases two words, and where
    /// less than an eighth is, one at a time.
    #[test]
    fn a_hand_lets_go_where_little_is_free() {
        for (of_8, words) in [(3, 3), (6, 2), (7, 1)] {
            let fh = machine(1, 1 << 16);
            Hotplug::lock(&fh).compute_limits();
            let cpu = fh.here();
            for _ in 0..=(of_8 << 13) / 512 {
                cpu.alloc(movable(9)).unwrap();
            }
            in_hands(&fh);
            assert_eq!(fh.cpus[0].leases.held.get().count_ones(), words, "{of_8} eighths in use");
        }
    }

    /// A CPU that leases nothing, and of whose first block so many frames from each of these on are
    /// free again.
    fn with_free_runs(firsts: &[u64], order: u8) -> Machine {
        let fh = machine(1, 1 << 14);
        let base = fh.here().alloc(movable(9)).unwrap().get();
        firsts.iter().for_each(|first| {
            fh.here().free(Pfn::new(base + first), Order::new(order).unwrap()).unwrap();
        });
        fh
    }

    fn leased(fh: &Machine) -> u32 {
        fh.cpus[0].leases.held.get().count_ones()
    }

    #[test]
    fn a_word_with_a_single_run_is_not_leased_for_it() {
        for (firsts, words) in [(&[8][..], 0), (&[8, 32], 1)] {
            let fh = with_free_runs(firsts, 3);
            fh.here().flush().unwrap();
            let pfn = fh.here().alloc(movable(3)).unwrap();
            assert_eq!((pfn.get() % 512, leased(&fh)), (8, words), "{firsts:?}");
            fh.validate().unwrap();
        }
    }

    /// A word leased for single frames would keep its runs from requests for runs.
    #[test]
    fn a_second_free_in_a_row_leases_its_word_up_to_runs_of_four() {
        for (order, words) in [(0, 1), (2, 1), (3, 0), (5, 0)] {
            assert_eq!(leased(&with_free_runs(&[0, 32], order)), words, "order {order}");
        }
        // Frames of one bulk call that lie side by side are a row.
        for (frames, words) in [(4, 1), (8, 0)] {
            let fh = with_free_runs(&[0], 0);
            let base = fh.zones[0].span.start.get() | 32;
            let frames: Vec<Pfn> = (base..base + frames).map(Pfn::new).collect();
            fh.here().free_bulk(&frames).unwrap();
            assert_eq!(leased(&fh), words, "{} frames", frames.len());
        }
    }

    /// Each pair takes the run by the hint of the free before it, and its word is not leased for
    /// single frames. With debug-poison each free goes the slow way.
    #[cfg(not(feature = "debug-poison"))]
    #[test]
    fn a_single_run_goes_and_comes_by_its_hint() {
        for order in 1..5 {
            let fh = with_free_runs(&[32], order);
            fh.here().flush().unwrap();
            for pair in 0..4 {
                let pfn = fh.here().alloc(movable(order)).unwrap();
                assert_eq!((pfn.get() % 512, leased(&fh)), (32, 0), "order {order}, pair {pair}");
                fh.here().free(pfn, Order::new(order).unwrap()).unwrap();
                assert!(fh.cpus[0].recent.has(u32::from(order)), "order {order}, pair {pair}");
            }
        }
    }

    /// Its word had nothing left in hand, and the next one has not either.
    #[test]
    fn a_run_freed_into_an_empty_hand_is_the_next_one_taken() {
        let fh = machine(1, 1 << 16);
        let cpu = fh.here();
        let runs: Vec<Pfn> = (0..16).map(|_| cpu.alloc(movable(3)).unwrap()).collect();
        cpu.free(runs[3], Order::new(3).unwrap()).unwrap();
        let slot = Leases::slot_of(runs[3].get() / 64);
        assert_eq!(fh.cpus[0].leases.take_freed(3), Some(slot));
        assert_eq!(cpu.alloc(movable(3)), Ok(runs[3]));
    }

    /// The first frame is in use, the second one is free.
    #[test]
    fn neither_a_leased_word_nor_a_free_of_what_is_free_is_leased() {
        assert_eq!(after_another_has_tried(false, 0), (1, 0));
        assert_eq!(after_another_has_tried(true, 0b10), (0, !0b1));
    }
}
