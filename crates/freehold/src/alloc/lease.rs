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
mod tests;
