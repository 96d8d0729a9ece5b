//! The short ways: what a call does where its CPU has, or may leave, what it needs without a look at
//! the board.
//!
//! | | alloc | free |
//! |---|---|---|
//! | order 0 | the current lease's hand; a frame freed lately | the hand, if the word is leased; else the word |
//! | 1 to 5 | the hand of a lease for runs; a run freed lately | the hand, if the word is leased; else the word |
//! | 6 to 8 | whole words freed lately; those of the block in use | the words |
//! | 9 | a block in hand | the hand |
//!
//! Each returns "no" for anything out of the ordinary, and nothing has changed then: the slow way
//! knows what to do.
//!
//! **A single frame, or a run, from the hand**, what holds at each step:
//!
//! | step | holds |
//! |---|---|
//! | entered | nobody else changes this CPU's leases |
//! | `mask != 0` | the word's lease names this CPU; the lowest frame of `mask` is free and in nobody else's sight |
//! | the word has none of them too | they were not freed twice unseen, so nobody else can come by them |
//! | `mask` without it is stored | it is the caller's |
//!
//! Reading the word costs one load of a line that freers write; it is what makes a frame that two
//! CPUs free at the same moment come out once.
//!
//! **A free into the hand**:
//!
//! | step | holds |
//! |---|---|
//! | a slot is the word's, and something in hand or its ready bit | the word's lease names this CPU |
//! | neither `mask` nor the word has the frames | they are in use, as far as this CPU can see |
//! | `mask` with them is stored | they are free, once |
//!
//! **A free into the word**: see [`free`](super::free).

use crate::block::Block;
use crate::block::layout::Place;
use crate::block::tag::{FRESH, IN_HAND, TAKEN, Tag, WHOLE};
use crate::block::{BLOCK_ORDER, FRAMES, WORDS, bits};
use crate::cpu::by::By;
use crate::cpu::lease::{Lease, Leases, Purpose};
use crate::cpu::state::CpuState;
use crate::primitive::{Count, Plain};
use crate::zone::Zone;
use crate::zone::mode;
use crate::{AllocFlags, Freehold, Order, Pfn, Platform};

/// What became of a free into the hand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InHand {
    Yes,
    /// Not there, though this CPU has a slot for the word: the slow way knows.
    No,
    /// The word is none that this CPU has a slot for.
    Elsewhere,
}

impl CpuState<'_> {
    /// A single frame of that type from the current lease. The hottest code there is: see the table
    /// above.
    #[inline(always)]
    pub(crate) fn frame_in_hand(&self, migratetype: usize) -> Option<Pfn> {
        let lease = self.leases.current(Purpose::Frames, migratetype);
        let mask = lease.mask();
        // Nothing in hand, or frames that were freed twice: the slow way knows.
        if mask == 0 || mask & lease.word() != 0 {
            return None;
        }
        lease.set_mask(mask & (mask - 1));
        Some(Pfn::new(lease.first() + u64::from(mask.trailing_zeros())))
    }

    /// A run of order 1 to 5 of that type from the current lease for runs.
    #[inline(always)]
    pub(crate) fn run_in_hand(&self, migratetype: usize, order: u32) -> Option<Pfn> {
        self.run_of(self.leases.current(Purpose::Runs, migratetype), order)
    }

    #[inline(always)]
    fn run_of(&self, lease: &Lease<'_>, order: u32) -> Option<Pfn> {
        let mask = lease.mask();
        let starts = bits::runs(mask & !lease.word(), order);
        let start = bits::best_start(starts, order, lease.breakable())?;
        let start = self.leases.predicted(start);
        lease.set_mask(mask & !bits::mask(start, 1 << order));
        Some(Pfn::new(lease.first() + u64::from(start)))
    }

    /// Counts an allocation. By who is inside.
    #[inline(always)]
    pub(crate) fn count_alloc(&self, migratetype: usize, order: Order) {
        self.counters.allocs[migratetype % 4][order.index()].add(1);
    }

    /// Either, by the order.
    #[inline(always)]
    pub(crate) fn chunk_in_hand(&self, order: Order, migratetype: usize) -> Option<Pfn> {
        match order.get() {
            0 => self.frame_in_hand(migratetype),
            order @ 1..6 => self.run_in_hand(migratetype, u32::from(order)),
            _ => None,
        }
    }

    /// Frees frames of a word that this CPU has leased. Not where frames are poisoned first: the
    /// whole way does that.
    #[inline(always)]
    pub(crate) fn free_in_hand(&self, key: u64, frames: u64) -> InHand {
        let lease = self.leases.slot(Leases::slot_of(key));
        if !lease.is_of(key) {
            return InHand::Elsewhere;
        }
        let mask = lease.mask();
        if cfg!(feature = "debug-poison")
            || mask == 0 && !self.may_keep(lease, frames)
            || !lease.take_back(mask, frames)
        {
            return InHand::No;
        }
        self.counters.local_frees.add(1);
        InHand::Yes
    }

    /// Whether frames of a leased word that has nothing in hand may come into the hand. A whole
    /// word at once is not needed there.
    #[inline(always)]
    fn may_keep(&self, lease: &Lease<'_>, frames: u64) -> bool {
        // By the lease: a number of the slot that is at hand costs every other free a register.
        frames != !0 && self.leases.is_ready(Leases::slot_of(lease.first() / 64))
    }

    /// A place to keep a whole block of that tag, if it is one of the home zone.
    #[inline(always)]
    pub(crate) fn room_for_block(&self, tag: Tag) -> Option<&Place> {
        let home = tag.zone() == self.home_zone.get() as usize;
        if home { self.kept.iter().find(|kept| kept.is_none()) } else { None }
    }
}

/// Blocks with no larger class than this one may lose a run to a hint that fits exactly: half of a
/// word or less of each is in one piece.
const HINT_CLASS: u8 = 6;

/// Whether a CPU has freed so much into words of that type that the zone is to be told: see
/// [`fold_frees`](CpuState::fold_frees).
#[inline(always)]
fn is_to_be_told(cpu: &CpuState<'_>, migratetype: usize) -> bool {
    cpu.free[migratetype].get() as i64 > FRAMES as i64
}

impl<'m> CpuState<'m> {
    /// Whether a request that may take CMA frames has any to look at in its home zone.
    #[inline(always)]
    pub(crate) fn cma_matters(&self, fh: &Freehold<'m, impl Platform>, flags: AllocFlags) -> bool {
        flags.contains(AllocFlags::CMA)
            && fh.zones[self.home_zone.get() as usize].cma_blocks.get() != 0
    }

    /// A frame that this CPU has freed lately, where no lease has any in hand.
    #[inline(never)]
    pub(crate) fn recent_frame_first(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        if self.leases.ready(Purpose::Frames, migratetype) != 0 {
            return None;
        }
        self.recent_frame(fh, migratetype)
    }

    /// The newest hint that holds: its frame is in its word still, and nobody leases that.
    #[inline(always)]
    pub(crate) fn recent_frame(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        let mode = fh.zones[self.home_zone.get() as usize].mode.get();
        if mode == mode::TIGHT {
            return None;
        }
        self.hinted::<0>(fh, migratetype, |block, w, frame| {
            let line = block.line;
            // Not out of a run of order 3 or more, unless nearly all memory is whole.
            let run = line.word(w) >> (frame.trailing_zeros() & !7) & 0xff;
            (run != 0xff || mode == mode::ROOMY) && line.take_frame(w, frame)
        })
    }

    /// A run of order 1 to 5 that this CPU has freed lately, and that is no half of a larger one:
    /// it fits exactly. What is nearly free may become whole: a run of it is better left alone,
    /// unless most of the zone is whole.
    #[inline(never)]
    pub(crate) fn recent_run<const ORDER: u32>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        let most = self.most_class(fh, ORDER);
        let found = self.hinted::<ORDER>(fh, migratetype, |block, w, run| {
            let line = block.line;
            let buddy = bits::mask(run.trailing_zeros() ^ (1 << ORDER), 1 << ORDER);
            let word = line.word(w);
            let fits = word & buddy != buddy && block.head.class() <= most;
            fits && line.take_bits_of(w, word, run)
        });
        if ORDER > 2 {
            self.fold_home(fh);
        }
        found
    }

    /// 1, 2 or 4 whole words by the newest hint, by the rule of [`hinted_run`](Self::hinted_run).
    /// `None` where that does not hold; the next one may.
    #[inline(never)]
    pub(crate) fn recent_words<const LEN: usize>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        let order = 6 + LEN.ilog2();
        let (block, offset) = self.recent.pop(&fh.map, order)?;
        let (head, line) = (block.head, block.line);
        let (first, most) = (offset as usize / 64, self.most_class(fh, order));
        let buddy = first ^ LEN;
        let lone = || (buddy..buddy + LEN).any(|w| line.word(w) != !0);
        let fits = most == u8::MAX || lone() && head.class() <= most;
        if !fits
            || !head.tag.get().is_plain_split_of(migratetype)
            || !block.claim_words_at::<LEN>(fh.by(self), first)
        {
            return None;
        }
        Some(Pfn::new(u64::from(head.number) << BLOCK_ORDER | u64::from(offset)))
    }

    /// The largest class of a block that may lose a run of that order to a hint: where it has a
    /// larger run it may become whole, and another block fits better. None near the zone's mark.
    #[inline(always)]
    fn most_class(&self, fh: &Freehold<'m, impl Platform>, order: u32) -> u8 {
        match fh.zones[self.home_zone.get() as usize].mode.get() {
            mode::ROOMY => u8::MAX,
            mode::TIGHT => 0,
            _ => HINT_CLASS.max(order as u8 + 1),
        }
    }

    #[inline(always)]
    fn hinted<const ORDER: u32>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
        take: impl Fn(Block<'m>, usize, u64) -> bool,
    ) -> Option<Pfn> {
        while let Some((block, offset)) = self.recent.pop(&fh.map, ORDER) {
            let w = offset as usize / 64;
            let head = block.head;
            let tag = head.tag.get();
            let home = self.home_split.get();
            let fits = tag.is_plain_split_of_in(migratetype, home) && !head.is_leased(w);
            let frames = bits::mask(offset % 64, 1 << ORDER);
            if fits && take(block, w, frames) {
                // By the rules of `still_open`. A tag that is the same is as good as it was before.
                let (busy, now) = (head.is_busy(), head.tag.get());
                if busy || now != tag || head.is_leased(w) {
                    return self.hinted_after_all::<ORDER>(fh, block, offset);
                }
                self.free[tag.migratetype()].sub(1 << ORDER);
                return Some(Pfn::new(u64::from(head.number) << BLOCK_ORDER | u64::from(offset)));
            }
        }
        None
    }

    /// Frames were taken by a hint, and may be to be put back: where the block has just changed the
    /// next request looks further.
    #[cold]
    #[inline(never)]
    fn hinted_after_all<const ORDER: u32>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        block: Block<'m>,
        offset: u32,
    ) -> Option<Pfn> {
        let (w, frames) = (offset as usize / 64, bits::mask(offset % 64, 1 << ORDER));
        if !block.still_open(fh.by(self), w, frames, 1 << ORDER) {
            return None;
        }
        Some(Pfn::new(block.base() + u64::from(offset)))
    }

    /// A chunk of order 0 to 5 straight into its word, for which this CPU has no slot.
    #[inline(never)]
    pub(crate) fn chunk_to_word<const ORDER: u32>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        pfn: u64,
    ) -> bool {
        self.to_word::<ORDER>(fh, pfn)
    }

    /// [`chunk_to_word`](Self::chunk_to_word), inlined. What is rarely done comes last, so that
    /// nothing has to be kept for after it.
    #[inline(always)]
    pub(crate) fn to_word<const ORDER: u32>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        pfn: u64,
    ) -> bool {
        let frames = bits::mask((pfn % 64) as u32, 1 << ORDER);
        let Some(block) = fh.map.locate(pfn) else { return false };
        let key = pfn / 64;
        let w = key as usize % WORDS;
        let head = block.head;
        let tag = head.tag.get();
        // A second free in a row into the word leases it.
        let second = self.last_key.get() == key;
        if second || cfg!(feature = "debug-poison") {
            return false;
        }
        if !tag.is_plain_split_in(self.home_split.get()) || head.is_leased(w) {
            return self.to_word_elsewhere(fh, tag, key, frames);
        }
        // All of it before the word, so that little has to be kept for after it: a hint to what is
        // refused is as good as any. Frames count before they can be seen: see `watch`.
        self.last_key.set(key);
        self.recent.push(ORDER, block, (pfn % FRAMES as u64) as u32);
        self.count_frees(1);
        self.free[tag.migratetype()].add(1 << ORDER);
        let line = block.line;
        let put = if ORDER == 0 { line.put_frame(w, frames) } else { line.put_run(w, frames) };
        let Ok(now) = put else {
            self.free[tag.migratetype()].sub(1 << ORDER);
            self.count_frees(1u64.wrapping_neg());
            return false;
        };
        if fh.is_news::<ORDER>(head, now, frames) || is_to_be_told(self, tag.migratetype()) {
            return self.tell_of_free(fh, block, now, tag.migratetype());
        }
        true
    }

    /// A free into a word of the home zone has brought what the board or a request is to be told of,
    /// or the CPU's count has grown large. Returns `true`.
    #[cold]
    #[inline(never)]
    fn tell_of_free(
        &self,
        fh: &Freehold<'m, impl Platform>,
        block: Block<'m>,
        now: u64,
        migratetype: usize,
    ) -> bool {
        block.raise_by(fh.by(self), now);
        self.fold_frees(fh, migratetype);
        true
    }

    /// [`to_word`](Self::to_word) of a zone that is not this CPU's home, if nothing else is the matter.
    #[cold]
    #[inline(never)]
    fn to_word_elsewhere(
        &self,
        fh: &Freehold<'m, impl Platform>,
        tag: Tag,
        key: u64,
        frames: u64,
    ) -> bool {
        let done = tag.zone() != self.home_zone.get() as usize && self.run_to_word(fh, key, frames);
        if done {
            self.last_key.set(key);
        }
        done
    }

    /// Any frames of one word straight into it, for which this CPU has no slot: it stays one that nobody
    /// leases, so that runs can be cut of it.
    #[inline]
    pub(crate) fn run_to_word(
        &self,
        fh: &Freehold<'m, impl Platform>,
        key: u64,
        frames: u64,
    ) -> bool {
        let Some(block) = fh.map.locate(key * 64) else { return false };
        let (head, w) = (block.head, key as usize % WORDS);
        let tag = head.tag.get();
        if !tag.is_plain_split() || head.is_leased(w) || cfg!(feature = "debug-poison") {
            return false;
        }
        let count = u64::from(frames.count_ones());
        if !block.put_open(fh.by(self), tag, w, (frames, count)) {
            return false;
        }
        self.count_frees(1);
        self.fold_frees(fh, tag.migratetype());
        true
    }

    /// [`recent_words`](Self::recent_words), hint after hint.
    pub(crate) fn any_recent_words<const LEN: usize>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        while self.recent.has_any(6 + LEN.ilog2()) {
            let found = self.recent_words::<LEN>(fh, migratetype);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// 1, 2 or 4 whole words of the block in use.
    pub(crate) fn words_in_use<const LEN: usize>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        let zone = &fh.zones[self.home_zone.get() as usize];
        let cursors = self.cursors(fh, usize::from(zone.id));
        let block = cursors.get(&fh.map, Purpose::Runs, migratetype)?;
        let tag = block.head.tag.get();
        let fits = zone.words_fit::<LEN>(migratetype, block.head.class());
        if !fits || !tag.is_plain_split_of_in(migratetype, self.home_split.get()) {
            return None;
        }
        let offset = block.claim_words::<LEN>(fh.by(self))?;
        Some(Pfn::new(block.base() + offset as u64))
    }

    /// Frees an aligned chunk of 1, 2 or 4 whole words; counts as so many frees.
    #[inline(never)]
    pub(crate) fn words_to_block<const LEN: usize>(
        &self,
        fh: &Freehold<'m, impl Platform>,
        pfn: u64,
        frees: u64,
    ) -> bool {
        let Some(block) = fh.map.locate(pfn) else { return false };
        let (head, line) = (block.head, block.line);
        let tag = head.tag.get();
        let first = (pfn / 64) as usize % WORDS;
        let aligned = pfn % (64 * LEN as u64) == 0;
        if !tag.is_plain_split() || !aligned || cfg!(feature = "debug-poison") {
            return false;
        }
        let by = fh.by(self);
        // Of several calls that free the same words, who frees the first one has them all.
        if (first + 1..first + LEN).any(|w| line.word(w) != 0)
            || (first..first + LEN).any(|w| head.lease(w) != 0)
        {
            return false;
        }
        // Before they can be seen: see `watch`. The hint as in `to_word`.
        let count = 64 * LEN as u64;
        if tag.is_plain_split_in(self.home_split.get()) {
            self.free[tag.migratetype()].add(count);
            let offset = (pfn % FRAMES as u64) as u32;
            self.recent.push(6 + LEN.ilog2(), block, offset);
        } else {
            block.count_free(by, tag, count);
        }
        if line.put_whole(first).is_err() {
            block.count_free(by, tag, count.wrapping_neg());
            return false;
        }
        for w in first + 1..first + LEN {
            if line.put_whole(w).is_err() {
                // Somebody frees a part of it at this moment, wrongly, and counts it: it is free once.
                let (_, strays) = line.put_back(w, !0);
                let twice = u64::from(strays.count_ones());
                block.count_free(by, tag, twice.wrapping_neg());
                block.report_late(fh, w, strays);
            }
        }
        self.count_frees(frees);
        block.raise_by_words(by, tag, first, LEN);
        self.fold_frees(fh, tag.migratetype());
        true
    }

    /// A whole block that this CPU keeps.
    #[inline(always)]
    pub(crate) fn kept_block(
        &self,
        fh: &Freehold<'m, impl Platform>,
        migratetype: usize,
    ) -> Option<Pfn> {
        let (kept, block) = self.kept.iter().find_map(|kept| Some((kept, kept.block(&fh.map)?)))?;
        kept.clear();
        Some(Pfn::new(block.take_block(fh, migratetype)))
    }

    /// A whole block in use is free, and in this CPU's hand if there is room.
    #[inline(always)]
    pub(crate) fn block_to_hand(&self, fh: &Freehold<'m, impl Platform>, pfn: u64) -> bool {
        let Some(block) = fh.map.locate(pfn) else { return false };
        let head = block.head;
        let tag = head.tag.get();
        let aligned = pfn % FRAMES as u64 == 0;
        // A CPU that is counted as having something in hand is online.
        let ordinary = tag.state() == TAKEN && !tag.has(FRESH) && self.holds.get();
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

impl<'m> Block<'m> {
    /// Puts frames, so many, into a word that nobody leases; `false` where some were there.
    #[inline(always)]
    fn put_open(
        self,
        by: By<'_, 'm, impl Platform>,
        tag: Tag,
        w: usize,
        (frames, count): (u64, u64),
    ) -> bool {
        // Before they can be seen: see `watch`.
        self.count_free(by, tag, count);
        let Ok(now) = self.line.put(w, frames) else {
            self.count_free(by, tag, count.wrapping_neg());
            return false;
        };
        self.raise_by(by, now);
        true
    }
}

impl Zone<'_> {
    /// Whether whole words may come from a block of that class: nearly all memory is whole, or no
    /// block has a smaller run that will do.
    #[inline(always)]
    fn words_fit<const LEN: usize>(&self, migratetype: usize, class: u8) -> bool {
        let wanted = 7 + LEN.ilog2() as u8;
        match self.mode.get() {
            mode::ROOMY => true,
            mode::TIGHT => false,
            _ if class <= wanted => true,
            _ => self.board.smallest(migratetype, wanted).is_some_and(|least| class <= least),
        }
    }
}
