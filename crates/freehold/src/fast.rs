//! What a CPU's owner does without looking anything up: the few instructions that most calls are.
//!
//! ```text
//! alloc   the frame kept aside  ->  the lowest bit of the active word  ->  the next word of the active block  -> alloc.rs
//! free    the frame kept aside  ->  the word freed into last           ->  look the block up: its own, or   -> free.rs
//!                                                                          a word of the combining buffer
//! ```
//!
//! Each step enters the CPU's state (a store and a load, see [`biased`](crate::biased)), and the first that fits leaves it
//! again with everything done. Whatever is out of the ordinary is left as it was for the calls that look at everything.
//!
//! What the first two steps go by is known to the owner's handle only ([`Known`]) and is true while the CPU's own state
//! says so: `cached` for the active words, `hot_key` for the word freed into last, a PFN for what is kept aside. Whoever
//! else enters takes that back first ([`CpuState::settle`](crate::percpu::CpuState::settle)).

use core::cell::Cell;
use core::num::NonZeroU64;

use crate::bits::mask;
use crate::block::{Block, CLASS_ACTIVE, CLASS_DIRTY, CLASS_FULL, CLASS_WHOLE, FRAMES, WORDS};
use crate::handle::Owned;
use crate::holder::Holder;
use crate::owner::{HINT_BLOCK, HINT_NONE, NOT_HELD, may_hold};
use crate::percpu::{COMBINE, Combine, CpuState, NO_KEY};
use crate::primitive::{AtomicBool, AtomicU64, Count, Plain, rarely};
use crate::{FrameRange, Order, Pfn, Platform};

/// What the fast path of a free came to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fast {
    /// Freed.
    Done,
    /// Freed, and the CPU now holds more than its high mark.
    OverHigh,
    /// Something is out of the ordinary; nothing has changed.
    No,
}

/// Where things are that the owner comes back to again and again.
pub(crate) struct Known<'m> {
    /// For each migratetype the active word and the PFN of its first frame.
    active: [(Cell<&'m AtomicU64>, Cell<u64>); 3],
    /// The word freed into last, and whether its block waits in an inbox.
    hot: Cell<&'m AtomicU64>,
    hot_queued: Cell<&'m AtomicBool>,
    /// The entry of the combining buffer freed into last, and the word of its block that it will be published in.
    remote: Cell<(&'m Combine, &'m AtomicU64)>,
    /// Whether the block kept aside waits in an inbox.
    block_queued: Cell<&'m AtomicBool>,
}

impl<'m> Known<'m> {
    /// Nothing yet: places that are never looked at before they are replaced.
    pub(crate) fn nothing(state: &'m CpuState) -> Self {
        let (entry, flag) = (&state.combine[0], &state.online);
        let word = &entry.mask;
        Self {
            active: core::array::from_fn(|_| (Cell::new(word), Cell::new(0))),
            hot: Cell::new(word),
            hot_queued: Cell::new(flag),
            remote: Cell::new((entry, word)),
            block_queued: Cell::new(flag),
        }
    }
}

impl<'m, P: Platform> Owned<'_, 'm, P> {
    /// One frame: `None` where anything at all is out of the ordinary.
    #[inline(always)]
    pub(crate) fn alloc_frame(&self, migratetype: usize) -> Option<Pfn> {
        let CpuState { lock, owner, .. } = self.state;
        if !lock.try_enter_owner() {
            return None;
        }
        let pfn = if let Some(pfn) = owner.take_frame(migratetype) {
            Pfn::new(pfn)
        } else {
            if owner.cached.get() >> migratetype & 1 == 0 {
                return self.alloc_next_word(migratetype);
            }
            let (word, base) = &self.known.active[migratetype];
            let word = word.get();
            let bits = word.get();
            let Some(free) = NonZeroU64::new(bits) else { return self.alloc_next_word(migratetype) };
            word.set(bits & (bits - 1));
            owner.allocs[migratetype].add(1);
            Pfn::new(base.get() + u64::from(free.trailing_zeros()))
        };
        lock.leave_owner();
        self.fh.handed_out(pfn, Order::ZERO);
        Some(pfn)
    }

    /// The same, by the owner, who is inside, where the active word is not known or has nothing left. Leaves.
    #[cold]
    #[inline(never)]
    fn alloc_next_word(&self, migratetype: usize) -> Option<Pfn> {
        let pfn = self.take_next_word(migratetype);
        self.state.lock.leave_owner();
        if let Some(pfn) = pfn {
            self.fh.handed_out(pfn, Order::ZERO);
        }
        pfn
    }

    fn take_next_word(&self, migratetype: usize) -> Option<Pfn> {
        let w = self.know_active(migratetype).or_else(|| self.know_another(migratetype))?;
        let (word, base) = &self.known.active[migratetype];
        let free = word.get().get();
        word.get().set(free & free.wrapping_sub(1));
        self.state.owner.allocs[migratetype].add(1);
        debug_assert!(w < WORDS && free != 0);
        Some(Pfn::new(base.get() + u64::from(free.trailing_zeros())))
    }

    /// Makes the lowest word with a free frame of the active block the active one, and known; `None` where there is none.
    #[inline(never)]
    fn know_active(&self, migratetype: usize) -> Option<usize> {
        let (owner, active) = (&self.state.owner, &self.pcp.active[migratetype]);
        // An index of NONE is out of bounds: one check for both.
        let block = self.fh.map.blocks.get(active.block.get() as usize)?;
        let from = active.word.get() as usize % WORDS;
        let w = (from..WORDS).find(|&w| block.free_word(w) != 0)?;
        if w != from {
            active.set_word(block, w);
            // Frees into a lower word must come by the way that lowers the active word again.
            owner.hot_key.set(NO_KEY);
        }
        let (word, base) = &self.known.active[migratetype];
        word.set(block.free_cell(w));
        base.set(active.base.get());
        owner.cached.set(owner.cached.get() | 1 << migratetype);
        Some(w)
    }

    /// Makes another block in hand the active one, as the long way would: a partly free one, or, where nothing waits in
    /// the inbox, a wholly free one.
    #[cold]
    #[inline(never)]
    fn know_another(&self, migratetype: usize) -> Option<usize> {
        let (owner, pcp, blocks) = (&self.state.owner, self.pcp, self.fh.map.blocks);
        let index = match pcp.find_partial(blocks, migratetype, 0) {
            Some((index, _)) => index,
            None if self.state.inbox.is_empty() => {
                let index = pcp.find_whole(blocks)?;
                if blocks[index as usize].migratetype() as usize != migratetype {
                    pcp.retype(blocks, index, migratetype as u8);
                }
                index
            }
            None => return None,
        };
        pcp.activate(blocks, index);
        // Another active block may have been put on its list.
        owner.cached.set(0);
        owner.hot_key.set(NO_KEY);
        self.know_active(migratetype)
    }

    /// Single frames, as many as fit of what is in hand; returns how many. Whole words at a time.
    #[inline]
    pub(crate) fn alloc_frames(&self, migratetype: usize, out: &mut [Pfn]) -> usize {
        let CpuState { lock, owner, .. } = self.state;
        if !lock.try_enter_owner() {
            return 0;
        }
        let (word, base) = &self.known.active[migratetype];
        let mut done = 0;
        while done < out.len() {
            let unknown = owner.cached.get() >> migratetype & 1 == 0 || word.get().get() == 0;
            if unknown && self.know_active(migratetype).or_else(|| self.know_another(migratetype)).is_none() {
                break;
            }
            let (left, taken) = take_frames(word.get().get(), base.get(), &mut out[done..]);
            word.get().set(left);
            done += taken;
        }
        owner.allocs[migratetype].add(done as u64);
        lock.leave_owner();
        out[..done].iter().for_each(|&pfn| self.fh.handed_out(pfn, Order::ZERO));
        done
    }

    /// Single frames in any order, while there is nothing out of the ordinary about them; returns how many it freed.
    #[inline]
    pub(crate) fn free_frames(&self, frames: &[Pfn]) -> usize {
        let lock = &self.state.lock;
        if !lock.try_enter_owner() {
            return 0;
        }
        let mut done = 0;
        while let Some(first) = frames.get(done) {
            let run = ascending(&frames[done..], 64 - (first.get() % 64) as usize);
            if !self.free_run(*first, run as u32) {
                break;
            }
            done += run;
        }
        lock.leave_owner();
        done
    }

    /// A range within one word, where there is nothing out of the ordinary about it. Counts as one free.
    #[inline]
    pub(crate) fn free_part_of_word(&self, range: FrameRange) -> bool {
        let len = range.len();
        if len == 0 || range.start.get() % 64 + len > 64 || !self.state.lock.try_enter_owner() {
            return false;
        }
        let freed = self.free_run(range.start, len as u32);
        if freed {
            self.state.owner.counts_as_one_free(self.pcp, len);
        }
        self.state.lock.leave_owner();
        freed
    }

    /// Frames of one word of a block of this CPU's own, by the owner, who is inside; `false` where anything is out of the
    /// ordinary.
    #[inline(always)]
    fn free_run(&self, first: Pfn, run: u32) -> bool {
        let (owner, pcp, blocks) = (&self.state.owner, self.pcp, self.fh.map.blocks);
        let (w, mask) = ((first.get() >> 6) as usize % WORDS, mask((first.get() % 64) as u32, run));
        let Some(index) = self.fh.map.locate(first.get()) else { return false };
        let Some(block) = blocks.get(index as usize) else { return false };
        let tag = block.tag();
        let odd = tag.lower() != self.mine || block.is_queued() || block.hint.get() != HINT_NONE;
        if odd || block.free_word(w) & mask != 0 || !owner.try_count_frees(u64::from(run)) {
            return false;
        }
        self.fh.poisoned(first, u64::from(run));
        let now = block.give(w, mask);
        if tag.class() == CLASS_ACTIVE {
            owner.lower_active(pcp, block, w);
        } else if tag.class() != CLASS_DIRTY || now == !0 {
            pcp.touched(blocks, index, now == !0);
        }
        true
    }

    /// A wholly free block in hand of that very type.
    #[inline(always)]
    pub(crate) fn alloc_block(&self, migratetype: usize) -> Option<Pfn> {
        let CpuState { lock, owner, .. } = self.state;
        if !lock.try_enter_owner() {
            return None;
        }
        if owner.block_held.get() != migratetype as u8 {
            return self.alloc_other_block(migratetype);
        }
        owner.block_held.set(NOT_HELD);
        owner.block_allocs[migratetype].add(1);
        let pfn = Pfn::new(owner.block.get());
        lock.leave_owner();
        self.fh.handed_out(pfn, Order::PAGEBLOCK);
        Some(pfn)
    }

    /// The same, by the owner, who is inside, where it is not the one kept aside. Leaves.
    #[inline(never)]
    fn alloc_other_block(&self, migratetype: usize) -> Option<Pfn> {
        let pfn = self.take_block(migratetype);
        if pfn.is_some() {
            self.state.owner.block_allocs[migratetype].add(1);
            self.state.owner.move_budget(FRAMES as u64, 0);
        }
        self.state.lock.leave_owner();
        if let Some(pfn) = pfn {
            self.fh.handed_out(pfn, Order::PAGEBLOCK);
        }
        pfn
    }

    fn take_block(&self, migratetype: usize) -> Option<Pfn> {
        let (pcp, blocks) = (self.pcp, self.fh.map.blocks);
        let current = blocks.get(pcp.active[migratetype].block.get() as usize);
        let block = match current {
            // The active block, if nothing is taken from it: no list has to change.
            Some(block) if block.is_whole() => block,
            _ => {
                let index = pcp.shelf.first(migratetype, CLASS_WHOLE)?;
                let block = blocks.get(index as usize)?;
                if !block.is_whole() {
                    return None;
                }
                if current.is_none_or(|current| !current.has_free()) {
                    // Nothing is lost by making it the active one, and its free is cheaper then.
                    pcp.activate(blocks, index);
                    self.state.owner.cached.set(0);
                } else {
                    pcp.shelf.unlink(blocks, index);
                    pcp.shelf.link(blocks, index, CLASS_FULL);
                }
                block
            }
        };
        block.fill(0);
        // A word of it may be the one freed into last; what is handed out now must be noted when it is freed.
        self.state.owner.hot_key.set(NO_KEY);
        Some(Pfn::new(block.base()))
    }

    /// One frame.
    #[inline(always)]
    pub(crate) fn free_frame(&self, pfn: Pfn) -> Fast {
        let CpuState { lock, owner, .. } = self.state;
        if !lock.try_enter_owner() {
            return Fast::No;
        }
        if owner.frame.get() == pfn.get() {
            if !owner.give_frame() {
                return self.refused();
            }
            self.fh.poisoned(pfn, 1);
            lock.leave_owner();
            return Fast::Done;
        }
        if owner.hot_key.get() != pfn.get() >> 6 {
            return if owner.remote_key.get() == pfn.get() >> 6 {
                self.free_combined(pfn)
            } else {
                self.free_not_hot(pfn)
            };
        }
        let cell = self.known.hot.get();
        let (word, mask) = (cell.get(), 1u64 << (pfn.get() % 64));
        if word & mask != 0 || (self.known.hot_queued.get().get() && self.is_remote(pfn)) {
            return self.refused();
        }
        self.fh.poisoned(pfn, 1);
        cell.set(word | mask);
        if word | mask == owner.hot_full.get() {
            self.hot_word_filled();
        }
        let over = owner.count_free();
        lock.leave_owner();
        if over { Fast::OverHigh } else { Fast::Done }
    }

    #[inline(always)]
    fn counted(&self) -> Fast {
        let over = self.state.owner.count_free();
        self.state.lock.leave_owner();
        if over { Fast::OverHigh } else { Fast::Done }
    }

    #[inline(always)]
    fn refused(&self) -> Fast {
        rarely();
        self.state.lock.leave_owner();
        Fast::No
    }

    /// Somebody else has freed that frame of the block freed into last.
    #[cold]
    #[inline(never)]
    fn is_remote(&self, pfn: Pfn) -> bool {
        let block = &self.fh.map.blocks[self.state.owner.hot_block.get() as usize];
        block.remote_word((pfn.get() >> 6) as usize % WORDS) >> (pfn.get() % 64) & 1 == 1
    }

    /// A word of a block that is not the active one has become all free.
    #[cold]
    #[inline(never)]
    fn hot_word_filled(&self) {
        let (blocks, index) = (self.fh.map.blocks, self.state.owner.hot_block.get());
        if blocks[index as usize].class() <= CLASS_DIRTY {
            self.pcp.touched(blocks, index, true);
        }
    }

    /// One frame of the word that the owner freed into last of those that others hold, by the owner, who is inside.
    /// Leaves.
    #[inline(always)]
    fn free_combined(&self, pfn: Pfn) -> Fast {
        let (entry, remote) = self.known.remote.get();
        let (mask, before) = (1u64 << (pfn.get() % 64), entry.mask.get());
        let taken = before | entry.known.get();
        // What the entry knows was looked at when it was opened; of what others do meanwhile only `remote` is read again,
        // so that a holder's line that is written all the time is left alone.
        if (taken | remote.get()) & mask != 0 {
            return self.refused();
        }
        self.fh.poisoned(pfn, 1);
        entry.mask.set(before | mask);
        entry.frees.add(1);
        if taken | mask == !0 {
            return self.combined_word_filled(pfn);
        }
        self.state.lock.leave_owner();
        Fast::Done
    }

    /// Every frame of the word is free: publishes what was freed. By the owner, who is inside. Leaves.
    #[cold]
    #[inline(never)]
    fn combined_word_filled(&self, pfn: Pfn) -> Fast {
        self.fh.flush_entry(self.state, (pfn.get() >> 6) as usize % COMBINE);
        self.state.lock.leave_owner();
        Fast::Done
    }

    /// One frame, by the owner, who is inside: into a word that it did not free into last. Leaves.
    #[inline(never)]
    fn free_not_hot(&self, pfn: Pfn) -> Fast {
        let owner = &self.state.owner;
        let key = pfn.get() >> 6;
        let lone = owner.last_key.get() != key && owner.holds_frame();
        if lone && self.free_lone(pfn) {
            owner.last_key.set(key);
            return self.counted();
        }
        self.free_in_other_word(pfn)
    }

    /// The first frame of its word in a while: into a block of which nothing is known but that it is this CPU's own,
    /// with no list to change. `false` where it is not so simple.
    #[inline(always)]
    fn free_lone(&self, pfn: Pfn) -> bool {
        let Some(index) = self.fh.map.locate(pfn.get()) else { return false };
        let Some(block) = self.fh.map.blocks.get(index as usize) else { return false };
        let tag = block.tag();
        let (w, mask) = ((pfn.get() >> 6) as usize % WORDS, 1u64 << (pfn.get() % 64));
        let now = block.free_word(w) | mask;
        let simple = tag.lower() == self.mine
            && tag.class() == CLASS_DIRTY
            && !block.is_queued()
            && block.hint.get() == HINT_NONE
            && block.virgin_words.get() == 0
            && block.free_word(w) & mask == 0
            && now != !0;
        if simple {
            self.fh.poisoned(pfn, 1);
            block.set_free_word(w, now);
        }
        simple
    }

    /// The same where the combining buffer did not come last either. Leaves.
    #[inline(never)]
    fn free_in_other_word(&self, pfn: Pfn) -> Fast {
        let (owner, pcp, blocks) = (&self.state.owner, self.pcp, self.fh.map.blocks);
        let key = pfn.get() >> 6;
        let (w, mask) = (key as usize % WORDS, 1u64 << (pfn.get() % 64));
        let entry = &self.state.combine[key as usize % COMBINE];
        if entry.key.get() == key && entry.mask.get() != 0 {
            self.know_remote(key, entry);
            return self.free_combined(pfn);
        }
        let Some(index) = self.fh.map.locate(pfn.get()) else { return self.refused() };
        let Some(block) = blocks.get(index as usize) else { return self.refused() };
        let tag = block.tag();
        if tag.lower() != self.mine {
            return self.free_combining(index, key, mask);
        }
        let word = block.free_word(w);
        let queued = block.is_queued();
        if word & mask != 0 || (queued && block.remote_word(w) & mask != 0) {
            return self.refused();
        }
        let hint = block.hint.get();
        if hint == HINT_BLOCK {
            if owner.holds_block() {
                return self.refused();
            }
            // Part of it goes its own way from now on.
            owner.put_back_block(pcp, blocks);
        }
        self.fh.poisoned(pfn, 1);
        let active = tag.class() == CLASS_ACTIVE;
        let virgins = if block.virgin_words.get() == 0 { 0 } else { self.note_use_of_word(block, w, word) };
        let keep = !owner.holds_frame() && !queued && hint == HINT_NONE;
        // A frame kept aside changes no list and does not lower the active word. The next one of its word sets a bit, so it
        // must, unless everything is already as after a free.
        let settled = match active {
            true => w >= pcp.active[usize::from(tag.migratetype())].word.get() as usize,
            false => tag.class() == CLASS_DIRTY,
        };
        if (virgins != 0 && active) || (keep && !settled) {
            // Nor can frames of a word of which some were never handed out be freed without a look: each is noted when it
            // is freed first.
            owner.hot_key.set(NO_KEY);
        } else {
            owner.hot_key.set(key);
            owner.hot_block.set(index);
            owner.hot_full.set(if active { 0 } else { !0 });
            self.known.hot.set(block.free_cell(w));
            self.known.hot_queued.set(block.queued_cell());
        }
        if keep {
            // Kept aside: the next allocation takes just this one.
            owner.put_back_frame(pcp, blocks);
            owner.keep_frame(pfn.get(), index, tag.migratetype());
            block.hint.set(w as u8 + 1);
            return self.counted();
        }
        let now = word | mask;
        block.set_free_word(w, now);
        if active {
            owner.lower_active(pcp, block, w);
        } else if tag.class() != CLASS_DIRTY || now == !0 {
            pcp.touched(blocks, index, now == !0);
        }
        self.counted()
    }

    /// Everything of word `w` that is in use has been handed out; returns what was not.
    #[cold]
    #[inline(never)]
    fn note_use_of_word(&self, block: &Block, w: usize, free: u64) -> u64 {
        block.note_use(w, !free);
        block.virgins(w)
    }

    /// Makes an open entry of the combining buffer the one that the next free of its word finds first.
    fn know_remote(&self, key: u64, entry: &'m Combine) {
        if let Some(block) = self.fh.map.blocks.get(entry.block.get() as usize) {
            self.known.remote.set((entry, block.remote_cell(key as usize % WORDS)));
            self.state.owner.remote_key.set(key);
        }
    }

    /// The first frame of its word of a block that somebody else holds, by the owner, who is inside. Leaves.
    #[inline]
    fn free_combining(&self, index: u32, key: u64, mask: u64) -> Fast {
        let block = &self.fh.map.blocks[index as usize];
        let tag = block.tag();
        let w = key as usize % WORDS;
        let slot = key as usize % COMBINE;
        let entry = &self.state.combine[slot];
        let known = block.free_word(w) | block.remote_word(w);
        // Its own, but not ordinary: of another zone, say, or CMA.
        let mine = tag.lower() as u16 == self.mine as u16;
        let odd = tag.is_odd() || mine || tag.holder() == Holder::NOBODY || may_hold(block.hint.get(), w);
        if known & mask != 0 || odd {
            return self.refused();
        }
        if entry.key.get() == key {
            // The second one in a short time: more will follow, and go together.
            self.fh.poisoned_mask(block, w, mask);
            entry.mask.set(mask);
            entry.known.set(known);
            entry.block.set(index);
            self.state.combining.set(self.state.combining.get() | 1 << slot);
            self.know_remote(key, entry);
        } else {
            // On its own so far: buffering it would cost as much as publishing it. The entry only remembers the word.
            if entry.mask.get() != 0 {
                self.fh.flush_entry(self.state, slot);
            }
            self.fh.poisoned_mask(block, w, mask);
            if self.fh.publish(index, w, mask) != 0 {
                // Somebody else was faster; the long way says so.
                return self.refused();
            }
            entry.key.set(key);
            entry.block.set(index);
        }
        self.state.owner.remote_frees.add(1);
        self.state.lock.leave_owner();
        Fast::Done
    }

    /// A whole block of this CPU's own, all of it in use.
    #[inline(always)]
    pub(crate) fn free_block(&self, pfn: Pfn) -> Fast {
        let CpuState { lock, owner, .. } = self.state;
        if !lock.try_enter_owner() {
            return Fast::No;
        }
        if owner.block.get() != pfn.get() {
            return self.free_other_block(pfn);
        }
        if owner.block_held.get() != NOT_HELD || self.known.block_queued.get().get() {
            return self.refused();
        }
        self.fh.poisoned(pfn, FRAMES as u64);
        owner.block_held.set(owner.block_type.get());
        owner.block_frees.add(1);
        lock.leave_owner();
        Fast::Done
    }

    /// The same, by the owner, who is inside, where it is not the one kept aside. Leaves.
    #[inline(never)]
    fn free_other_block(&self, pfn: Pfn) -> Fast {
        let (owner, pcp, blocks) = (&self.state.owner, self.pcp, self.fh.map.blocks);
        let Some(index) = self.fh.map.locate(pfn.get()) else { return self.refused() };
        let Some(block) = blocks.get(index as usize) else { return self.refused() };
        let tag = block.tag();
        let odd = tag.lower() != self.mine || block.is_queued() || block.hint.get() != HINT_NONE;
        if odd || !pfn.is_aligned(Order::PAGEBLOCK) || block.has_free() {
            return self.refused();
        }
        self.fh.poisoned(pfn, FRAMES as u64);
        if block.virgin_words.get() != 0 {
            block.note_use_of_all();
        }
        if owner.hot_key.get() >> 3 == pfn.get() >> 9 {
            // The next free of a part of it must look at everything.
            owner.hot_key.set(NO_KEY);
        }
        if !owner.holds_block() {
            // Kept aside: the next allocation of a block takes just this one.
            owner.put_back_block(pcp, blocks);
            owner.keep_block(pfn.get(), index, tag.migratetype());
            block.hint.set(HINT_BLOCK);
            self.known.block_queued.set(block.queued_cell());
        } else {
            block.fill(!0);
            if tag.class() == CLASS_ACTIVE {
                owner.lower_active(pcp, block, 0);
            } else {
                pcp.shelf.unlink(blocks, index);
                pcp.shelf.link(blocks, index, CLASS_WHOLE);
            }
        }
        owner.block_frees.add(1);
        let over = owner.budget.get() <= FRAMES as u64;
        owner.move_budget(0, FRAMES as u64);
        self.state.lock.leave_owner();
        if over { Fast::OverHigh } else { Fast::Done }
    }

    /// Looks whether the CPU holds more than its high mark; where it does not, the owner may go on freeing. For the owner,
    /// outside; `false` also where somebody else is inside.
    pub(crate) fn renew_budget(&self) -> bool {
        if !self.state.lock.try_enter_owner() {
            return false;
        }
        let room = self.pcp.high.get().saturating_sub(self.pcp.count_with(Some(&self.state.owner)));
        if room > 0 {
            self.state.owner.set_budget(u64::from(room) + 1);
        }
        self.state.lock.leave_owner();
        room > 0
    }
}

/// Moves free frames of the word whose first frame is `base` into `out`, lowest first; returns what is left of the word
/// and how many there were.
#[inline(always)]
fn take_frames(word: u64, base: u64, out: &mut [Pfn]) -> (u64, usize) {
    if let (u64::MAX, Some(out)) = (word, out.first_chunk_mut::<64>()) {
        // The common case, without a branch for each.
        out.iter_mut().enumerate().for_each(|(i, pfn)| *pfn = Pfn::new(base + i as u64));
        return (0, 64);
    }
    take_runs(word, base, out)
}

/// The same run by run: neighbours are filled in without looking at each bit.
#[inline(never)]
pub(crate) fn take_runs(mut word: u64, base: u64, out: &mut [Pfn]) -> (u64, usize) {
    let mut done = 0;
    while word != 0 && done < out.len() {
        let start = word.trailing_zeros();
        let run = ((word >> start).trailing_ones() as usize).min(out.len() - done);
        let first = base + u64::from(start);
        out[done..done + run].iter_mut().enumerate().for_each(|(i, pfn)| *pfn = Pfn::new(first + i as u64));
        word &= !mask(start, run as u32);
        done += run;
    }
    (word, done)
}

/// How many frames at the start of the slice follow one another, at most `most` (64 or less).
#[inline(always)]
pub(crate) fn ascending(frames: &[Pfn], most: usize) -> usize {
    if let (64, Some(all)) = (most, frames.first_chunk::<64>()) {
        let first = all[0].get();
        let differ = all.iter().enumerate().fold(0, |d, (i, pfn)| d | (pfn.get() ^ first.wrapping_add(i as u64)));
        if differ == 0 {
            return 64;
        }
    }
    // Wrapping: a frame number may be anything the caller makes up.
    let first = frames.first().map_or(0, |pfn| pfn.get());
    frames.iter().take(most).enumerate().take_while(|(i, pfn)| pfn.get() == first.wrapping_add(*i as u64)).count()
}
