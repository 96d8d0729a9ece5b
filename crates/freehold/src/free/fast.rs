//! The fast way of a free: into the hand of a leased word, or straight into the word.
//!
//! | order | where |
//! |---|---|
//! | 0 to 5 | the hand, if this CPU leases the word; else the word |
//! | 6 to 8 | the words; the hand, if it is the [chunk](crate::alloc::chunk) leased last |
//! | 9 | the hand |
//!
//! Each returns "no" for anything out of the ordinary, and nothing has changed then: the slow way,
//! in [`slow`](super::slow), knows what to do.
//!
//! **A free into the hand**:
//!
//! | step | holds |
//! |---|---|
//! | a slot is the word's, and something in hand or its ready bit | the word's lease names this CPU |
//! | neither `mask` nor the word has the frames | they are in use, as far as this CPU can see |
//! | `mask` with them is stored | they are free, once |
//!
//! **A free into the word**: see [`slow`](super::slow).

use crate::alloc::watch::ANY;
use crate::block::layout::Place;
use crate::block::{Block, FRAMES, FRESH, HIGH_ATOMIC, IN_HAND, TAKEN, Tag, WHOLE, WORDS, bits};
use crate::calls::{Door, Handle, Owner};
use crate::cpu::door::at_once;
use crate::cpu::lease::{LEASED_BELOW, Lease, Leases};
use crate::cpu::{Cpu, Inside, way_inside};
use crate::free::slow::Freeing;
use crate::primitive::{Count, Relaxed, rarely};
use crate::{FreeError, Freehold, Order, Pfn, Platform};

/// What became of a free into the hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InHand {
    Yes,
    /// Not there, though this CPU has a slot for the word: the slow way knows.
    No,
    /// The word is none that this CPU has a slot for.
    Elsewhere,
}

/// The fast way of a free, for a thread that is inside a CPU's state.
pub(crate) struct FastFree<'a, 'm, P>(pub(crate) Cpu<'a, 'm, P>);

way_inside!(FastFree);

impl<'m, P: Platform, D: Door<'m>> Handle<'_, 'm, P, D> {
    /// Frees `2^order` frames: any aligned part of what was allocated. Never waits.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Ok(state) = self.door.state(self.fh, self.id) else {
            return Err(FreeError::CpuOffline { cpu: self.id });
        };
        let cpu = self.fh.cpu(state);
        let (frames, way) = (bits::of_chunk(pfn.get(), u32::from(order.get())), FastFree(cpu));
        // Each way in knows its way out: one branch less where the frames go into the hand.
        let in_hand = if self.door.biased() {
            if !cpu.door.try_enter_owner() {
                return free_outside(self.fh, pfn, order);
            }
            let in_hand = way.chunk_in_hand(pfn, order, frames);
            if in_hand == InHand::Yes {
                cpu.door.leave_owner();
                return Ok(());
            }
            in_hand
        } else {
            if !cpu.door.try_enter_unowned() {
                return free_outside(self.fh, pfn, order);
            }
            let in_hand = way.chunk_in_hand(pfn, order, frames);
            if in_hand == InHand::Yes {
                cpu.door.leave_intruder();
                return Ok(());
            }
            in_hand
        };
        let done = match order.get() {
            ..6 if in_hand == InHand::No => false,
            0 => way.chunk_to_word::<0>(pfn.get()),
            1 => way.chunk_to_word::<1>(pfn.get()),
            2 => way.chunk_to_word::<2>(pfn.get()),
            3 => way.chunk_to_word::<3>(pfn.get()),
            4 => way.chunk_to_word::<4>(pfn.get()),
            5 => way.chunk_to_word::<5>(pfn.get()),
            6 => way.words_to_block::<1>(pfn.get()),
            7 => way.words_to_block::<2>(pfn.get()),
            8 => way.words_to_block::<4>(pfn.get()),
            9 => way.block_to_hand(pfn.get()),
            _ => false,
        };
        if done {
            self.door.get_out(&cpu);
            return Ok(());
        }
        Inside::already(cpu, self.door.biased()).free_slow(pfn, order)
    }
}

impl<'a, 'm, P: Platform> Handle<'a, 'm, P, Owner<'a, 'm, P>> {
    /// Frees a chunk into a word that the CPU leases, and does nothing else: the counterpart of
    /// [`alloc_in_hand`](Self::alloc_in_hand). The frames are still the caller's where it says no.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_in_hand(&self, pfn: Pfn, order: Order) -> bool {
        let (cpu, pfn) = (self.fh.cpu(self.door.state), pfn.get());
        let frames = bits::of_chunk(pfn, u32::from(order.get()));
        if frames == 0 {
            return false;
        }
        let done = at_once!(cpu.door, self.door.biased, FastFree(cpu).free_in_hand(pfn, frames));
        done == Some(InHand::Yes)
    }
}

impl<P: Platform> Inside<'_, '_, P> {
    /// Any free that no short way will do. Leaves the CPU.
    #[cold]
    #[inline(never)]
    fn free_slow(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        // A CPU that has gone offline since it was looked at must not have anything in hand.
        let inside = Some(&self).filter(|inside| inside.cpu.online.get());
        Freeing::of(self.fh, inside).chunk(pfn, order)
    }
}

/// A result that compilers do not know: where they do, a caller that ends with such a call keeps a
/// frame for what it returns then, which each call pays for.
#[inline(always)]
fn opaque_true() -> bool {
    core::hint::black_box(true)
}

/// A free while somebody else is inside the CPU's state.
#[cold]
#[inline(never)]
fn free_outside<P: Platform>(
    fh: &Freehold<'_, P>,
    pfn: Pfn,
    order: Order,
) -> Result<(), FreeError> {
    Freeing::of(fh, None).chunk(pfn, order)
}

impl<'m, P: Platform> FastFree<'_, 'm, P> {
    /// Frees frames of a word that this CPU has leased, of which `pfn` is any; not where frames are
    /// poisoned first.
    #[inline(always)]
    pub(crate) fn free_in_hand(self, pfn: u64, frames: u64) -> InHand {
        let lease = self.leases.slot(Leases::slot_of(pfn / 64));
        if !lease.may_have(pfn) {
            return InHand::Elsewhere;
        }
        let mask = lease.mask.get();
        if cfg!(feature = "debug-poison")
            || mask == 0 && !self.may_keep(lease, frames)
            || !lease.take_back(mask, frames)
        {
            return InHand::No;
        }
        self.counters.local_frees.add(1);
        InHand::Yes
    }

    /// [`free_in_hand`](Self::free_in_hand) of a chunk, `frames` of its word: none of a larger one.
    #[inline(always)]
    fn chunk_in_hand(self, pfn: Pfn, order: Order, frames: u64) -> InHand {
        if frames == 0 {
            return InHand::No;
        }
        let in_hand = self.free_in_hand(pfn.get(), frames);
        if let (InHand::Yes, order @ 1..6) = (in_hand, order.get()) {
            self.leases.set_freed(order.into(), pfn.get());
        }
        in_hand
    }

    /// Whether frames of a leased word that has nothing in hand may come into the hand. A whole
    /// word at once is not needed there.
    #[inline(always)]
    fn may_keep(self, lease: &Lease<'_>, frames: u64) -> bool {
        // By the lease: a number of the slot that is at hand costs every other free a register.
        frames != !0 && self.leases.is_ready(Leases::slot_of(lease.first.get() / 64))
    }

    /// A place to keep a whole block of that tag, if it is one of the home zone, and no request is
    /// about to fail for want of it.
    #[inline(always)]
    pub(crate) fn room_for_block(self, tag: Tag) -> Option<&'m Place> {
        let home = tag.zone() == self.home_zone.get() as usize;
        if home && !self.fh.failing.any() {
            self.cpu.kept.iter().find(|kept| kept.is_none())
        } else {
            None
        }
    }

    /// A chunk of order 0 to 5 straight into its word, for which this CPU has no slot.
    #[inline(never)]
    pub(crate) fn chunk_to_word<const ORDER: u32>(self, pfn: u64) -> bool {
        self.to_word::<ORDER>(pfn)
    }

    /// [`chunk_to_word`](Self::chunk_to_word), inlined. What is rarely done comes last, so that
    /// nothing has to be kept for after it.
    #[inline(always)]
    pub(crate) fn to_word<const ORDER: u32>(self, pfn: u64) -> bool {
        let frames = bits::mask((pfn % 64) as u32, 1 << ORDER);
        let Some(block) = self.fh.map.locate(pfn) else { return false };
        let key = pfn / 64;
        let w = key as usize % WORDS;
        let head = block.head;
        let tag = head.tag.get();
        // A second free in a row into the word leases it.
        let second = ORDER < LEASED_BELOW && self.last_key.get() == key;
        if cfg!(feature = "debug-poison") {
            return false;
        }
        if second {
            return self.second_to_word(block, key, frames);
        }
        if !tag.is_ordinary_in(self.home_split.get()) || head.is_leased(w) {
            return self.run_elsewhere::<true>(block, key, (frames, 1 << ORDER));
        }
        // All of it before the word, so that little has to be kept for after it: a hint to what is
        // refused is as good as any.
        self.last_key.set(key);
        self.recent.push(ORDER, block, (pfn % FRAMES as u64) as u32);
        self.put_open::<ORDER>(block, tag, w, (frames, 1 << ORDER))
    }

    /// Frames come into a word of the home zone that nobody leases: a chunk of that order, or any
    /// run for an order from 1 to 2.
    #[inline(always)]
    fn put_open<const ORDER: u32>(
        self,
        block: Block<'m>,
        tag: Tag,
        w: usize,
        (frames, count): (u64, u64),
    ) -> bool {
        // Before they can be seen: see `watch`.
        let (line, own) = (block.line, &self.allowance[tag.migratetype()]);
        self.count_frees(1);
        own.add(count);
        let put = if ORDER == 0 { line.put_frame(w, frames) } else { line.put_run(w, frames) };
        let Ok(now) = put else {
            own.sub(count);
            self.count_frees(1u64.wrapping_neg());
            return false;
        };
        if block.is_news::<ORDER>(&self.fh.watch, now, frames) || self.is_to_tell(tag.migratetype())
        {
            return self.tell_of_free(block, now, tag.migratetype());
        }
        true
    }

    /// A second free in a row into a word, for which this CPU has no slot, if it may lease that.
    #[inline(never)]
    fn second_to_word(self, block: Block<'m>, key: u64, frames: u64) -> bool {
        let (w, tag) = (key as usize % WORDS, block.head.tag.get());
        // Offline since it was looked whether it is online: a CPU that nobody comes to keeps nothing.
        let leased =
            self.online.get() && tag.is_ordinary() && self.free_and_lease(block, w, tag, frames);
        if !leased {
            // Else the slow way would ask once more.
            self.ends_row();
        }
        self.count_frees(leased.into());
        leased
    }

    /// A free into a word of the home zone has brought what the board or a request is to be told
    /// of, or the CPU's count has grown large. Returns `true`.
    #[cold]
    #[inline(never)]
    fn tell_of_free(self, block: Block<'m>, now: u64, migratetype: usize) -> bool {
        self.by().raise_by(block, now);
        self.tell_after_free(migratetype);
        opaque_true()
    }

    /// Any frames of one word, so many, straight into it, for which this CPU has no slot: it stays
    /// one that nobody leases, so that runs can be cut of it.
    #[inline(always)]
    pub(crate) fn run_to_word(self, key: u64, (frames, count): (u64, u64)) -> bool {
        let Some(block) = self.fh.map.locate(key * 64) else { return false };
        let (head, w) = (block.head, key as usize % WORDS);
        let tag = head.tag.get();
        let elsewhere = !tag.is_ordinary_in(self.home_split.get());
        if elsewhere || head.is_leased(w) || cfg!(feature = "debug-poison") {
            return self.run_elsewhere::<false>(block, key, (frames, count));
        }
        // As a pair of frames: a run of any length may leave loose ones in its word.
        self.put_open::<1>(block, tag, w, (frames, count))
    }

    /// A chunk or run of one word of any zone, where that needs no closer look; the first of a row
    /// if `ROW`.
    #[cold]
    #[inline(never)]
    fn run_elsewhere<const ROW: bool>(
        self,
        block: Block<'m>,
        key: u64,
        (frames, count): (u64, u64),
    ) -> bool {
        let (by, w, tag) = (self.by(), key as usize % WORDS, block.head.tag.get());
        if !tag.is_ordinary() || block.head.is_leased(w) || cfg!(feature = "debug-poison") {
            return false;
        }
        // Before they can be seen: see `watch`.
        by.count_free(tag, count);
        let Ok(now) = block.line.put(w, frames) else {
            by.count_free(tag, count.wrapping_neg());
            return false;
        };
        by.raise_by(block, now);
        self.count_frees(1);
        self.tell_after_free(tag.migratetype());
        if ROW {
            self.last_key.set(key);
        }
        true
    }

    /// Frees a run over several words of one block of the home zone, if nobody leases any of them.
    #[inline(never)]
    pub(crate) fn run_to_open_words(self, first: u64, count: u64) -> bool {
        let Some(block) = self.fh.map.locate(first) else { return false };
        let (head, line) = (block.head, block.line);
        let tag = head.tag.get();
        let spans = || bits::spans((first % FRAMES as u64) as usize, count as usize);
        if !tag.is_ordinary_in(self.home_split.get())
            || spans().any(|(w, m)| head.lease(w) != 0 || line.word(w) & m != 0)
        {
            return false;
        }
        // Before they can be seen: see `watch`.
        let own = &self.allowance[tag.migratetype()];
        own.add(count);
        let (mut larger, mut loose) = (false, false);
        for (n, (w, m)) in spans().enumerate() {
            let now = if n == 0 {
                // Of several calls that free the same run, who frees the first word has all of it.
                let Ok(now) = line.put_run(w, m) else {
                    own.sub(count);
                    return false;
                };
                now
            } else {
                let (now, strays) = line.put_back(w, m);
                if strays != 0 {
                    // Somebody frees a part of it at this moment, wrongly: it is free once.
                    own.sub(u64::from(strays.count_ones()));
                    block.report_late(self.fh, w, strays);
                }
                now
            };
            larger |= head.completes(now);
            loose |= head.tells_loose(now);
        }
        head.set_no_gap(0);
        self.count_frees(1);
        if larger || self.fh.watch.is_for(ANY) {
            // Whatever has come, all words are looked at.
            self.by().raise_by(block, !0);
        }
        if loose {
            self.by().list_loose(block);
        }
        self.tell_after_free(tag.migratetype());
        true
    }

    /// Frees an aligned chunk of 1, 2 or 4 whole words; a third free in a row of the same one may
    /// lease it: see [`chunk`](crate::alloc::chunk).
    #[inline(never)]
    pub(crate) fn words_to_block<const LEN: usize>(self, pfn: u64) -> bool {
        match self.chunk.freed.get() == pfn {
            true => self.free_chunk_again::<LEN>(pfn),
            false => self.other_words_to_block::<LEN>(pfn),
        }
    }

    /// [`words_to_block`](Self::words_to_block) of another chunk than the last one. By itself: a
    /// pair of that one saves no register for this.
    #[inline(never)]
    pub(crate) fn other_words_to_block<const LEN: usize>(self, pfn: u64) -> bool {
        self.chunk.freed.set(pfn);
        let Some(block) = self.fh.map.locate(pfn) else { return false };
        let tag = block.head.tag.get();
        if pfn % (64 * LEN as u64) != 0 || cfg!(feature = "debug-poison") {
            return false;
        }
        if !tag.is_ordinary_in(self.home_split.get()) {
            return self.words_elsewhere::<LEN>(block, tag, pfn);
        }
        self.put_words::<LEN, true>(block, tag, pfn)
    }

    /// [`words_to_block`](Self::words_to_block) of a zone that is not this CPU's home.
    #[cold]
    #[inline(never)]
    fn words_elsewhere<const LEN: usize>(self, block: Block<'m>, tag: Tag, pfn: u64) -> bool {
        tag.is_ordinary() && self.put_words::<LEN, false>(block, tag, pfn)
    }

    /// What is rarely done comes last, as in [`to_word`](Self::to_word).
    #[inline(always)]
    fn put_words<const LEN: usize, const HOME: bool>(
        self,
        block: Block<'m>,
        tag: Tag,
        pfn: u64,
    ) -> bool {
        let (head, line) = (block.head, block.line);
        let first = (pfn / 64) as usize % WORDS / LEN * LEN;
        // Of several calls that free the same words, who frees the first one has them all.
        let others = || first + 1..first + LEN;
        let there = others().fold(0, |any, w| any | line.word(w));
        if there != 0 || (first..first + LEN).fold(0, |any, w| any | head.lease(w)) != 0 {
            return self.leased_chunk_to_hand::<LEN>(block, first);
        }
        // Before they can be seen: see `watch`. The hint as in `to_word`.
        let (own, count) = (&self.allowance[tag.migratetype()], 64 * LEN as u64);
        let allowed = own.get().wrapping_add(count);
        if HOME {
            own.set(allowed);
            self.recent.push(6 + LEN.ilog2(), block, (pfn % FRAMES as u64) as u32);
        } else {
            self.by().count_free(tag, count);
        }
        if line.put_whole(first).is_err() {
            match HOME {
                true => own.sub(count),
                false => self.by().count_free(tag, count.wrapping_neg()),
            }
            return false;
        }
        let mut missed = 0;
        for w in others() {
            if line.put_whole(w).is_err() {
                rarely();
                missed |= 1 << w;
            }
        }
        self.count_frees(1);
        let in_use = || self.runs_from.starts(block) && tag.migratetype() < HIGH_ATOMIC;
        let news = block.words_are_news::<LEN>(&self.fh.watch, first, in_use);
        if !HOME || missed != 0 || news {
            return self.tell_of_words::<LEN>(block, first, missed);
        }
        allowed <= self.most.get() || self.tell_of_allowance()
    }

    /// The CPU's count has grown large by a free. Returns `true`.
    #[cold]
    #[inline(never)]
    fn tell_of_allowance(self) -> bool {
        self.tell();
        opaque_true()
    }

    /// Whole words that were put have brought what the board or a request is to be told of; into
    /// those `missed` others have put frames. Returns `true`.
    #[cold]
    #[inline(never)]
    fn tell_of_words<const LEN: usize>(self, block: Block<'m>, first: usize, missed: u64) -> bool {
        let tag = block.head.tag.get();
        for w in bits::each(missed).map(|w| w as usize) {
            // Somebody frees a part of it just now, wrongly, and counts it: it is free once.
            let (_, strays) = block.line.put_back(w, !0);
            let twice = u64::from(strays.count_ones());
            self.by().count_free(tag, twice.wrapping_neg());
            block.report_late(self.fh, w, strays);
        }
        self.by().raise_by_words::<LEN>(block, first);
        self.tell_after_free(tag.migratetype());
        opaque_true()
    }

    /// A whole block in use is free, and in this CPU's hand if there is room.
    #[inline(always)]
    pub(crate) fn block_to_hand(self, pfn: u64) -> bool {
        let Some(block) = self.fh.map.locate(pfn) else { return false };
        let head = block.head;
        let tag = head.tag.get();
        let aligned = pfn % FRAMES as u64 == 0;
        // A CPU that is counted as having something in hand is online.
        let ordinary = tag.state() == TAKEN && !tag.has(FRESH) && self.keeps.get();
        if !ordinary || !aligned || cfg!(feature = "debug-poison") {
            return false;
        }
        let Some(kept) = self.room_for_block(tag) else { return false };
        // Lost only to somebody who frees it, or a part of it, at this moment.
        if !head.tag.exchange(tag, tag.with_state(WHOLE).with_flag(IN_HAND, true)) {
            return false;
        }
        kept.set(block, 0);
        self.count_frees(1);
        true
    }
}
