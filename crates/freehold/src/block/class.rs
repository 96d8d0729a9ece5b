//! Putting frames into a block's words, and what the board says of the block.
//!
//! A block's **class** is the size of the largest free run that the board knows of; the block has a
//! bit in the row of its type and class ([`board`](crate::zone::board)).
//!
//! | who | does | why nothing is lost |
//! |---|---|---|
//! | a free | the word, then reads the class; raises it if the word has a larger run | see below |
//! | a call that raises | class up, then the bit of its row; the bit of the lower class is left for a thread that meets it | |
//! | a search that finds no such run | class to the next smaller one by a glance, or none; then **one** look at the words, which raises it | see below |
//! | a call that meets a bit that is not right | clears it, then reads tag and class, sets it again if it is right after all | the same pair of writes and reads |
//! | a free that completes the block | class to BUSY: one at a time, nobody waits; all eight words, each if it is full; tag WHOLE; class none; the zone's bit | all of it or nothing |
//! | the same where a word is gone | puts the words back, class none, one look | |
//! | a call that wants a whole block | clears its bit; it has the block alone. Words, then tag SPLIT, then class, then the row's bit | frames taken before the tag says SPLIT are put back by the taker |
//!
//! Each side writes one place and then reads the other's, sequentially consistently: a thread that
//! frees writes the word and reads the class, a thread that lowers writes the class and reads the
//! words. So one of them sees the other, and no run is left that the class does not tell.
//!
//! A class may be too high: frames are taken without telling, and a thread that read the words
//! before a block became whole may raise the class of the whole block. That costs a look, which the
//! tag ends; a thread that makes a split block of one says its class on the board again.
//!
//! While a block is BUSY nobody sees its frames; nor while its class is up and the row does not say
//! so yet, or its tag has just made it one that requests may look at. A request that is about to
//! fail beside them knows it: by the door of the CPU whose state the free is in, or by the mark of
//! one that is in none ([`moving`](crate::zone::moving)). It looks again then.

use crate::alloc::watch::{ANY, Watch};
use crate::block::words::{
    CLASS_BUSY, CLASS_NONE, CLASS_OF_WORD, CLASS_WHOLE, EMPTY, class_of, count_of,
};
use crate::block::{Block, FRAMES, FRESH, HIGH_ATOMIC, MOVABLE, SPLIT, Tag, WHOLE, WORDS, bits};
use crate::cpu::By;
use crate::primitive::{Ordering, Relaxed, rarely};
use crate::zone::Zone;
use crate::zone::allowance::{ORDINARY, kind_of};
use crate::zone::board::{LOOSE, row_of};
use crate::zone::moving::Moving;
use crate::{Freehold, Pfn, Platform};

/// Ends the program where the host panics inside the allocator: a second panic does, while the
/// first is under way. To go on would leave a CPU's door shut, and frames in nobody's hands.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        panic!("Platform::late_double_free has panicked, which it must not");
    }
}

impl<'m, P: Platform> By<'_, 'm, P> {
    /// Puts frames that were in somebody's hand, or that nobody may have, back into their word.
    pub(crate) fn put_back(self, block: Block<'m>, w: usize, bits: u64) {
        let now = self.put_in_word(block, w, bits);
        self.raise_by(block, now);
    }

    /// [`put_back`](Self::put_back) without a word to the board. Returns what the word is now.
    pub(crate) fn put_in_word(self, block: Block<'m>, w: usize, bits: u64) -> u64 {
        let tag = block.tag.get();
        // A whole word needs no count of its bits.
        let count = match bits {
            u64::MAX => 64,
            bits => {
                rarely();
                bits.count_ones().into()
            }
        };
        // Before they can be seen: see `watch`.
        self.count_free(tag, count);
        let (now, strays) = block.line.put_back(w, bits);
        if strays != 0 {
            self.count_free(tag, u64::from(strays.count_ones()).wrapping_neg());
        }
        block.report_late(self.fh, w, strays);
        now
    }

    /// A word is `now`, after frames came into it: raises the block's class if that says less.
    #[inline(always)]
    pub(crate) fn raise_by(self, block: Block<'m>, now: u64) {
        block.set_no_gap(0);
        self.tell_watchers();
        if block.completes(now) {
            self.raise_for(block, now);
        }
        if block.tells_loose(now) {
            self.list_loose(block);
        }
        self.fh.watch.came(ANY);
    }

    /// Frames have come into a word, and somebody waits for any: the zone hears of all that this
    /// CPU has kept to itself before the generation ends.
    #[inline(always)]
    fn tell_watchers(self) {
        if self.fh.watch.is_for(ANY) {
            if let Some(cpu) = self.cpu() {
                cpu.tell_all();
            }
        }
    }

    /// [`By::raise_by`] for `LEN` whole words from `first` on, which were put: only
    /// where they complete a run that the board does not know of.
    #[inline(always)]
    pub(crate) fn raise_by_words<const LEN: usize>(self, block: Block<'m>, mut first: usize) {
        let (line, known, mut len) = (block.line, block.class(), LEN);
        self.tell_watchers();
        // SeqCst, both: of two that put the two halves of a run one sees it.
        let full =
            |first: usize, len: usize| (first..first + len).all(|w| line.word_after_class(w) == !0);
        while len < WORDS && full(first ^ len, len) {
            first &= !len;
            len *= 2;
        }
        self.fh.watch.came(ANY);
        let class = CLASS_OF_WORD + len.ilog2() as u8;
        if len == WORDS {
            self.raise_full(block, true);
        } else if known < class {
            self.raise_to(block, class);
        }
    }

    #[cold]
    #[inline(never)]
    fn raise_for(self, block: Block<'m>, now: u64) {
        if now == !0 {
            let tag = block.tag.get();
            let is_largest = block.class() == CLASS_WHOLE - 1 && tag.migratetype() < HIGH_ATOMIC;
            if is_largest && self.is_in_use(block, tag) {
                // It has no larger class, and stays split.
                return;
            }
            // The words beside it matter.
            return self.raise(block);
        }
        let class = bits::largest_run(now).map_or(CLASS_NONE, |order| order as u8 + 1);
        self.raise_to(block, class);
    }

    /// Raises a block's class to one whose run somebody has just completed, of less than a block:
    /// no other word is looked at.
    #[inline(never)]
    fn raise_to(self, block: Block<'m>, class: u8) {
        let _moving = self.moving_block(block);
        let mut known = block.class();
        while known != CLASS_BUSY && known < class {
            self.fh.watch.came(class);
            if block.change_class(known, class) {
                return self.list(block, class, 1);
            }
            known = block.class();
        }
    }

    /// Brings a block's class up to what its words have; one that is wholly free becomes whole.
    #[inline(always)]
    pub(crate) fn raise(self, block: Block<'m>) {
        self.raise_full(block, false);
    }

    /// [`raise`](Self::raise), of a block all of whose words were seen `full` a moment ago.
    #[inline(never)]
    fn raise_full(self, block: Block<'m>, mut full: bool) {
        let _moving = self.moving_block(block);
        loop {
            let known = block.class();
            if known == CLASS_BUSY {
                // A thread that has it so looks at the words when it is done.
                return;
            }
            // What is leased does not count.
            let mut class = match full && (0..WORDS).fold(0, |any, w| any | block.lease(w)) == 0 {
                true => CLASS_WHOLE,
                false => block.class_by_words(known),
            };
            full = false;
            let tag = block.tag.get();
            if class == CLASS_WHOLE && tag.migratetype() < HIGH_ATOMIC {
                if tag.is_open() && !self.is_in_use(block, tag) {
                    self.fh.watch.came(CLASS_WHOLE);
                    if block.change_class(known, CLASS_BUSY) && self.retire(block) {
                        return;
                    }
                    continue;
                }
                class = CLASS_WHOLE - 1;
            }
            if class <= known {
                return;
            }
            self.fh.watch.came(class);
            if block.change_class(known, class) {
                return self.list(block, class, 1);
            }
        }
    }

    /// Marks that a block's frames may be in nobody's sight until they are in the bitmap, or in a
    /// row of the board again: while the block is BUSY, and between its class and that class's row.
    /// Others clear the bit of the class before meanwhile, and frees that bring no larger run tell
    /// nobody. Before the tag is looked at: a thread that marks this after a block was isolated
    /// takes no words of it.
    pub(crate) fn moving_block(self, block: Block<'m>) -> Option<Moving<'m>> {
        if self.cpu().is_some() {
            return None;
        }
        let zone = block.tag.get().zone_of(self.fh.zones);
        zone.moving(self, block.number as usize)
    }

    /// Whether a block is one that the CPU takes its next words from: it stays split, since it
    /// would be split again at once. It becomes whole when the CPU goes on to another one.
    fn is_in_use(self, block: Block<'m>, tag: Tag) -> bool {
        self.cpu().is_some_and(|cpu| cpu.cursors(tag.zone()).names(block))
    }

    /// A search has found less in a block than its class says, and no run of class `lacks`.
    #[cold]
    #[inline(never)]
    pub(crate) fn lower(self, block: Block<'m>, known: u8, lacks: u8) {
        // Until it is raised no row leads to what it has.
        let _moving = self.moving_block(block);
        // Most have the next smaller run: a glance spares a class that is raised at once.
        let has_next = (2..6).contains(&lacks) && block.has_open_run(u32::from(lacks) - 2);
        let next = if has_next { lacks - 1 } else { CLASS_NONE };
        // A thread that has it BUSY looks at the words when it is done.
        if known != CLASS_BUSY && block.change_class(known, next) {
            let tag = block.tag.get();
            let zone = tag.zone_of(self.fh.zones);
            self.wrote(zone, 1);
            self.unlist(block, zone, row_of(tag.migratetype(), known));
            if has_next {
                self.list(block, next, 0);
            }
            // All words: hardly any has a larger run, and no branch for each is less.
            let words = (0..WORDS).map(|w| block.line.word_after_class(w));
            let larger = match next {
                // Whatever there is.
                CLASS_NONE => words.fold(0, |any, word| any | word),
                _ => {
                    let larger = bits::LANES[usize::from(next)];
                    words.fold(0, |any, word| any | larger.full(word))
                }
            };
            if larger != 0 {
                self.raise(block);
            }
        }
    }

    /// Says a block's class on the board, for which `writes` were made already.
    #[inline(always)]
    fn list(self, block: Block<'m>, class: u8, writes: u32) {
        // After the class was written: a thread that changes the type reads the class afterwards.
        let tag = block.tag.get();
        let zone = tag.zone_of(self.fh.zones);
        let row = row_of(tag.migratetype(), class);
        let listed = zone.board.set(self.fh.map.blocks.rows(block), row, block.number);
        self.fh.watch.came(class);
        self.wrote(zone, writes + listed);
    }

    /// Says on the board that a block has loose frames.
    #[cold]
    #[inline(never)]
    pub(crate) fn list_loose(self, block: Block<'m>) {
        // SeqCst: the row's bit is read next; a thread that clears it reads this afterwards.
        block.loose.store(true, Ordering::SeqCst);
        let tag = block.tag.get();
        if tag.migratetype() == MOVABLE {
            let zone = tag.zone_of(self.fh.zones);
            let writes = zone.board.set(self.fh.map.blocks.rows(block), LOOSE, block.number);
            self.wrote(zone, writes);
        }
    }

    /// Clears the bit of a block that has no loose frames, or is no movable one.
    pub(crate) fn unlist_loose(self, block: Block<'m>, zone: &Zone<'m>) {
        let is_right = || {
            let tag = block.tag.get();
            tag.is_open() && tag.migratetype() == MOVABLE
        };
        if is_right() {
            // SeqCst: as in `list_loose`.
            block.loose.store(false, Ordering::SeqCst);
        }
        let belongs = || block.loose.load(Ordering::SeqCst) && is_right();
        let writes = zone.board.clear(self.fh.map.blocks.rows(block), LOOSE, block.number, belongs);
        self.wrote(zone, writes);
    }

    /// Says what a block has on the board, after its tag has changed.
    pub(crate) fn publish(self, block: Block<'m>) {
        let class = block.class();
        if class != CLASS_NONE && class != CLASS_BUSY {
            self.list(block, class, 0);
        }
        if block.loose.get() {
            self.list_loose(block);
        }
    }

    /// Clears a bit of the board that is not right.
    pub(crate) fn unlist(self, block: Block<'m>, zone: &Zone<'m>, row: usize) {
        let belongs = || {
            let (tag, class) = (block.tag.get(), block.class());
            let has_class = class != CLASS_NONE && class != CLASS_BUSY;
            tag.is_open() && has_class && row_of(tag.migratetype(), class) == row
        };
        let writes = zone.board.clear(self.fh.map.blocks.rows(block), row, block.number, belongs);
        self.wrote(zone, writes);
    }

    /// The class of a block with a bit in a row, if it belongs there; else the bit is cleared.
    #[inline(never)]
    pub(crate) fn class_in_row(self, block: Block<'m>, zone: &Zone<'m>, row: usize) -> Option<u8> {
        let (tag, class) = (block.tag.get(), block.class());
        if class == CLASS_BUSY {
            return None;
        }
        let right = tag.is_open()
            && tag.zone() == usize::from(zone.id)
            && class != CLASS_NONE
            && row_of(tag.migratetype(), class) == row;
        if !right {
            self.unlist(block, zone, row);
        }
        right.then_some(class)
    }

    /// Makes a split block whole that this thread has made BUSY, if no word of it is leased and all
    /// are full. Otherwise nothing has changed; its class is none then, and the words are to be
    /// looked at.
    fn retire(self, block: Block<'m>) -> bool {
        let whole = block.take_all_words(self.fh) && self.become_whole(block);
        block.end_busy();
        if whole {
            self.insert_whole(block);
        }
        whole
    }

    /// The tag of a block all of whose words were taken says so.
    fn become_whole(self, block: Block<'m>) -> bool {
        loop {
            let tag = block.tag.get();
            if !tag.is_open() {
                // Isolated meanwhile.
                for w in 0..WORDS {
                    block.put_back_uncounted(self.fh, w, !0);
                }
                return false;
            }
            // In the bitmap a type means nothing.
            if block.tag.exchange(tag, tag.with_state(WHOLE).with_type(MOVABLE)) {
                let zone = &self.fh.zones[tag.zone()];
                self.wrote(zone, 1);
                return true;
            }
        }
    }

    /// A whole block that was in use, or in a hand, is anybody's from now on, and counts as free.
    pub(crate) fn free_whole(self, block: Block<'m>) {
        let zone = block.tag.get().zone_of(self.fh.zones);
        // Before it can be seen: see `watch`.
        zone.add_free(ORDINARY, FRAMES as u64);
        self.insert_whole(block);
    }

    /// A whole block that this thread has is anybody's from now on.
    pub(crate) fn insert_whole(self, block: Block<'m>) {
        let zone = &self.fh.zones[block.tag.get().zone()];
        let writes = zone.insert_whole(block.number);
        self.fh.watch.came(CLASS_WHOLE);
        self.wrote(zone, writes);
        zone.update_mode();
    }

    /// A whole block that this thread has is a split one of that type, and its frames can be had.
    pub(crate) fn split(self, block: Block<'m>, migratetype: usize) {
        // What the block said of loose frames before it was whole: its row's bit may be gone.
        block.loose.set(false);
        block.set_no_gap(0);
        block.tag.set(block.fill(self.fh, migratetype));
        let mut known = block.class();
        while known != CLASS_BUSY {
            if block.change_class(known, CLASS_WHOLE - 1) {
                return self.list(block, CLASS_WHOLE - 1, 1);
            }
            known = block.class();
        }
    }

    /// Gives a split block another type, if its tag still is `tag`.
    pub(crate) fn retype(self, block: Block<'m>, tag: Tag, migratetype: usize) -> bool {
        // Until it is published no row of its new type leads to it.
        let _moving = self.moving_block(block);
        let changed = tag.is_open() && block.tag.exchange(tag, tag.with_type(migratetype));
        if changed {
            let zone = &self.fh.zones[tag.zone()];
            let (from, to) = (kind_of(tag.migratetype()), kind_of(migratetype));
            if from != to {
                let frames = u64::from(count_of(&block.words()));
                zone.sub_free(from, frames);
                zone.add_free(to, frames);
            }
            self.publish(block);
            self.fh.watch.came(ANY);
            self.wrote(zone, 3);
        }
        changed
    }
}

impl<'m> Block<'m> {
    /// Puts frames back that were taken out of their word and never counted as gone. What was freed
    /// there meanwhile, wrongly, was counted by a thread that freed it: each frame is free once.
    pub(crate) fn put_back_uncounted(self, fh: &Freehold<'m, impl Platform>, w: usize, bits: u64) {
        let (_, strays) = self.line.put_back(w, bits);
        self.forget_strays(fh, w, strays);
    }

    /// Whether there is anything more to do for [`By::raise_by`] after a chunk of that
    /// order has come into a word, which is `now`.
    #[inline(always)]
    pub(crate) fn is_news<const ORDER: u32>(self, watch: &Watch, now: u64, chunk: u64) -> bool {
        self.set_no_gap(0);
        // None of a run of four is loose: mostly there is nothing beside it.
        let beside = if ORDER < bits::KEPT_ORDER { now } else { now & !chunk };
        self.completes(now) || self.tells_loose(beside) || watch.is_for(ANY)
    }

    /// Whether there is anything more to do for [`By::raise_by_words`]. One that is `in_use` has no
    /// larger class than 9, and stays split.
    #[inline(always)]
    pub(crate) fn words_are_news<const LEN: usize>(
        self,
        watch: &Watch,
        first: usize,
        in_use: impl Fn() -> bool,
    ) -> bool {
        let line = self.line;
        self.set_no_gap(0);
        let (known, beside) = (self.class(), first ^ LEN);
        // SeqCst: as in `raise_by_words`.
        let lacks =
            |mut words: core::ops::Range<usize>| words.any(|w| line.word_after_class(w) != !0);
        // What is beside it comes first: that is mostly in use.
        let told = known >= CLASS_OF_WORD + LEN.ilog2() as u8 && lacks(beside..beside + LEN)
            || known == CLASS_WHOLE - 1 && (in_use() || lacks(0..WORDS));
        !told || watch.is_for(ANY)
    }

    /// The class by a block's words, as a thread that has lowered it reads them: what is leased
    /// does not count, since nobody else may take it. The word before its lease: a thread that puts
    /// frames there, or ends the lease, after either look reads the class then, and raises it.
    #[inline(always)]
    fn class_by_words(self, known: u8) -> u8 {
        let (line, least) = (self.line, known.min(CLASS_WHOLE - 1));
        class_of(least, |w| line.word_after_class(w), |w| !self.is_leased(w))
    }

    /// Takes all eight words, or none.
    fn take_all_words(self, fh: &Freehold<'m, impl Platform>) -> bool {
        let line = self.line;
        for w in 0..WORDS {
            let lease = self.lease(w);
            let free = lease == 0 || lease & EMPTY != 0 && self.change_lease(w, lease, 0);
            if !free || !line.take_whole(w) {
                for w in 0..w {
                    self.put_back_uncounted(fh, w, !0);
                }
                return false;
            }
        }
        true
    }

    /// The words of a whole block that this thread has are full; the tag that it is to have.
    pub(crate) fn fill(self, fh: &Freehold<'m, impl Platform>, migratetype: usize) -> Tag {
        let line = self.line;
        let tag = self.tag.get();
        // The words first: a free is refused until they are full. Between a tag that says split and
        // a word that is still empty a wrong free would count, and its frame could be handed out
        // twice. Who takes a frame by a hint meanwhile looks at the tag then, and puts it back.
        for w in 0..WORDS {
            let strays = line.fill_word(w);
            self.forget_strays(fh, w, strays);
        }
        tag.with_state(SPLIT).with_type(migratetype).with_flag(FRESH, false)
    }

    /// Frames were freed that were free already, and the call could not see it.
    #[inline(always)]
    pub(crate) fn report_late(self, fh: &Freehold<'m, impl Platform>, w: usize, strays: u64) {
        if strays != 0 {
            self.report_late_slow(fh, w, strays);
        }
    }

    #[cold]
    fn report_late_slow(self, fh: &Freehold<'m, impl Platform>, w: usize, strays: u64) {
        for bit in bits::each(strays) {
            // Relaxed: a statistic.
            fh.late_double_frees.fetch_add(1, Ordering::Relaxed);
            let pfn = Pfn::new(self.base() + w as u64 * 64 + u64::from(bit));
            let ends = NoUnwinding;
            fh.platform.late_double_free(pfn);
            core::mem::forget(ends);
        }
    }

    /// Frames were found in a word where none can be, and taken out: who freed them counted them.
    fn forget_strays(self, fh: &Freehold<'m, impl Platform>, w: usize, strays: u64) {
        if strays != 0 {
            let (tag, frames) = (self.tag.get(), strays.count_ones());
            fh.outside().count_free(tag, u64::from(frames).wrapping_neg());
            self.report_late(fh, w, strays);
        }
    }

    /// Empties the words of a whole or taken block: of frees that went wrong unnoticed.
    #[inline(always)]
    pub(crate) fn report_strays(self, fh: &Freehold<'m, impl Platform>) {
        if self.line.has_strays() {
            self.report_these_strays(fh, [!0; WORDS]);
        }
    }

    /// Its words, one after another, by a glance.
    pub(crate) fn words(self) -> [u64; WORDS] {
        core::array::from_fn(|w| self.line.word(w))
    }

    /// Takes just these frames out of the words again. For who has made the block a split one: what
    /// was there before that cannot have been a right free, what came after may be.
    #[cold]
    pub(crate) fn report_these_strays(
        self,
        fh: &Freehold<'m, impl Platform>,
        strays: [u64; WORDS],
    ) {
        for (w, strays) in strays.into_iter().enumerate().filter(|(_, strays)| *strays != 0) {
            let taken = self.line.take_stray_bits(w, strays);
            self.forget_strays(fh, w, taken);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
