//! The words of a block, and the only two ways in which frames move between a word and a hand.
//!
//! ```text
//!            put: fetch_or, by anybody at any time
//!   hand  ------------------------------------------>  word
//!         <------------------------------------------
//!            take: swap(0) by a thread that has leased the word; compare-exchange by anybody, where nobody has
//! ```
//!
//! A frame is in exactly one place: allocated, in its word, in the mask of the one CPU that leases
//! the word, or in a block whose tag says that all of it is free. `fetch_or` shows whether a frame
//! was in its word already: a double free changes nothing and is seen at once.
//!
//! **Leases.** `leases[w]` names the CPU whose hand the frames of word `w` may be in. It is set, by
//! a compare-exchange, before the word is emptied, and cleared after the frames are back. [`EMPTY`]
//! beside the name says that the hand had nothing left: anybody else may take the lease over.
//!
//! **The class** says how large a free run the zone's board knows of: 0 = none, `k` = of order
//! `k - 1`. It may be too high, since frames are taken without telling, but when all is quiet it is
//! not too low: see [`class`](crate::block::class).
//!
//! **Past the leases** a block's words serve runs of a word and more, requests within address
//! limits, single frames near the watermarks, and CPUs that may lease nothing because there is too
//! little memory.

use crate::block::TagCell;
use crate::block::{BLOCK_ORDER, Block, FRAMES, FRESH, IN_HAND, TAKEN, WHOLE, WORDS, bits};
use crate::cpu::By;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering, Relaxed};
use crate::types::MAX_CPUS;
use crate::{Freehold, Platform};

/// Nothing is known to be free.
pub(crate) const CLASS_NONE: u8 = 0;
/// A word is, and no more.
pub(crate) const CLASS_OF_WORD: u8 = 7;
/// Every frame is free.
pub(crate) const CLASS_WHOLE: u8 = BLOCK_ORDER as u8 + 1;
/// Somebody takes all of its words, to make it whole, and looks at the words afterwards.
pub(crate) const CLASS_BUSY: u8 = u8::MAX;

/// In a lease: the CPU has nothing of the word in hand.
pub(crate) const EMPTY: u16 = 1 << 15;

/// The words of one block: a cache line that all who free into it write.
#[repr(C, align(64))]
pub(crate) struct Line([AtomicU64; WORDS]);

/// What a free reads of a block before it touches the words, and who leases each word.
#[repr(C, align(32))]
pub(crate) struct Head {
    pub(crate) tag: TagCell,
    /// The pageblock's number: PFN divided by 512.
    pub(crate) number: u32,
    leases: [AtomicU16; WORDS],
    class: AtomicU8,
    /// The board says, or is about to say, that it has loose frames: in no run of four. A
    /// preference, for which single frames are taken first: it may be wrong either way.
    pub(crate) loose: AtomicBool,
    /// See [`has_no_gap`](Self::has_no_gap). None of `primitive`'s: no protocol rests on it.
    no_gap: core::sync::atomic::AtomicU16,
    /// Which one it is of all whose metadata is set up.
    pub(super) index: u32,
}

impl Head {
    pub(crate) fn new(number: u32, index: u32) -> Self {
        Self {
            index,
            tag: TagCell::new(),
            number,
            leases: core::array::from_fn(|_| AtomicU16::new(0)),
            class: AtomicU8::new(CLASS_NONE),
            loose: AtomicBool::new(false),
            no_gap: core::sync::atomic::AtomicU16::new(0),
        }
    }

    /// Who leases a word: 0 for nobody, a CPU's number plus 1, with [`EMPTY`] if its hand is empty.
    #[inline(always)]
    pub(crate) fn lease(&self, w: usize) -> u16 {
        // SeqCst: a thread that has lowered the class reads it after the word. Acquire is part of
        // it: what the leaseholder's hand shows was written before.
        self.leases[w % WORDS].load(Ordering::SeqCst)
    }

    /// Changes who leases a word; `false` where it is not `from` any more.
    #[inline(always)]
    pub(crate) fn change_lease(&self, w: usize, from: u16, to: u16) -> bool {
        // SeqCst: the tag is read after it; isolation changes the tag and then reads this. AcqRel
        // is part of it: a thread that had the word before is done with it.
        self.leases[w % WORDS]
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// The leaseholder says that its hand is empty, or gives the lease up.
    #[inline(always)]
    pub(crate) fn set_lease(&self, w: usize, to: u16) {
        // SeqCst: the class is read next; see the module's documentation.
        self.leases[w % WORDS].store(to, Ordering::SeqCst);
    }

    /// Whether somebody may have frames of the word in hand.
    #[inline(always)]
    pub(crate) fn is_leased(&self, w: usize) -> bool {
        // Neither nobody's, 0, nor with EMPTY, the top bit: one comparison for both.
        self.lease(w).wrapping_sub(1) < EMPTY - 1
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> u8 {
        // SeqCst: see the module's documentation.
        self.class.load(Ordering::SeqCst)
    }

    /// Changes the class if it still is `from`.
    pub(crate) fn change_class(&self, from: u8, to: u8) -> bool {
        // SeqCst: the words are read next by a thread that lowers it, the row of the board is
        // written next by a thread that raises it. Relaxed on failure: the caller looks again.
        self.class.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody takes all of the words, to make the block whole.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.class() == CLASS_BUSY
    }

    /// Ends [`CLASS_BUSY`].
    pub(crate) fn end_busy(&self) {
        // SeqCst: the words are read next.
        self.class.store(CLASS_NONE, Ordering::SeqCst);
    }

    /// Whether a search has found no gap of `len` frames, and nothing was freed into the block
    /// since, as far as was seen: a preference, which may be wrong either way.
    #[inline(always)]
    pub(crate) fn has_no_gap(&self, len: usize) -> bool {
        // Relaxed, here and below: a preference.
        let no_gap = usize::from(self.no_gap.load(core::sync::atomic::Ordering::Relaxed));
        no_gap != 0 && no_gap <= len
    }

    /// A search has found no gap of so many frames; of 0: frames have come, and there may be.
    #[inline(always)]
    pub(crate) fn set_no_gap(&self, len: u16) {
        if len != 0 || self.no_gap.load(core::sync::atomic::Ordering::Relaxed) != 0 {
            self.no_gap.store(len, core::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Whether a word that is `now` has a larger run than the class says. From order 6 on runs are
    /// whole words: a thread that raises the class looks at the others, and whether the block is
    /// BUSY.
    #[inline(always)]
    pub(crate) fn completes(&self, now: u64) -> bool {
        // CLASS_BUSY as well, of which this leaves 15.
        bits::LANES[usize::from(self.class()) % bits::LANES.len()].full(now) != 0
    }

    /// Whether a word that is `now` has loose frames that the board is to be told of.
    #[inline(always)]
    pub(crate) fn tells_loose(&self, now: u64) -> bool {
        !self.loose.get() && bits::has_several_loose(now)
    }
}

impl Line {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// A word itself, for a thread that leases it.
    pub(crate) fn cell(&self, w: usize) -> &AtomicU64 {
        &self.0[w % WORDS]
    }

    /// A glance at a word.
    #[inline(always)]
    pub(crate) fn word(&self, w: usize) -> u64 {
        // Relaxed: a glance. What depends on it is checked by the exchange that follows.
        self.0[w % WORDS].load(Ordering::Relaxed)
    }

    /// A word as who has just lowered the class reads it.
    pub(crate) fn word_after_class(&self, w: usize) -> u64 {
        // SeqCst: see the module's documentation.
        self.0[w % WORDS].load(Ordering::SeqCst)
    }

    /// Puts frames into their word. Returns what the word is now.
    ///
    /// # Errors
    ///
    /// Those of the frames that were there already; nothing has changed then.
    #[inline(always)]
    pub(crate) fn put(&self, w: usize, bits: u64) -> Result<u64, u64> {
        if bits & (bits - 1) == 0 { self.put_frame(w, bits) } else { self.put_run(w, bits) }
    }

    /// [`put`](Self::put) of one frame.
    #[inline(always)]
    pub(crate) fn put_frame(&self, w: usize, frame: u64) -> Result<u64, u64> {
        // SeqCst: the class is read next; see the module's documentation. Release is part of
        // it: what the freer did to the frames comes before their next owner's use.
        let old = self.0[w % WORDS].fetch_or(frame, Ordering::SeqCst);
        if old & frame == 0 { Ok(old | frame) } else { Err(frame) }
    }

    /// [`put`](Self::put) of several frames.
    #[inline(always)]
    pub(crate) fn put_run(&self, w: usize, bits: u64) -> Result<u64, u64> {
        let word = &self.0[w % WORDS];
        let mut old = self.word(w);
        loop {
            if old & bits != 0 {
                return Err(old & bits);
            }
            // SeqCst: as above. Each failure is another CPU's success on the same word.
            match word.compare_exchange_weak(old, old | bits, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(old | bits),
                Err(now) => old = now,
            }
        }
    }

    /// Puts all of a word, none of which may be there.
    ///
    /// # Errors
    ///
    /// Those that are; nothing has changed then.
    #[inline(always)]
    pub(crate) fn put_whole(&self, w: usize) -> Result<(), u64> {
        // SeqCst: as `put`. Relaxed on failure: the caller looks again.
        self.0[w % WORDS].compare_exchange(0, !0, Ordering::SeqCst, Ordering::Relaxed).map(|_| ())
    }

    /// Puts frames that this CPU had in hand. Returns what the word is now, and which frames were
    /// there already: frees that went wrong unnoticed, which leave the frame free once.
    #[inline]
    pub(crate) fn put_back(&self, w: usize, bits: u64) -> (u64, u64) {
        // SeqCst: as `put`.
        let old = self.0[w % WORDS].fetch_or(bits, Ordering::SeqCst);
        (old | bits, old & bits)
    }

    /// Takes all of a word: for a thread that has just leased it, or has it leased.
    #[inline(always)]
    pub(crate) fn take_word(&self, w: usize) -> u64 {
        // Acquire: pairs with the puts. SeqCst, since the tag is read next: see
        // `words::Line::take_word`'s callers.
        self.0[w % WORDS].swap(0, Ordering::SeqCst)
    }

    /// Takes one frame if it is there; for words that nobody leases.
    #[inline(always)]
    pub(crate) fn take_frame(&self, w: usize, frame: u64) -> bool {
        // Acquire: pairs with the puts. SeqCst: the tag is read next.
        self.0[w % WORDS].fetch_and(!frame, Ordering::SeqCst) & frame != 0
    }

    /// Takes just these frames if all of them are there; for words that nobody leases.
    pub(crate) fn take_bits(&self, w: usize, bits: u64) -> bool {
        self.take_bits_of(w, self.word(w), bits)
    }

    /// [`take_bits`](Self::take_bits) of a word that was `old`.
    #[inline(always)]
    pub(crate) fn take_bits_of(&self, w: usize, mut old: u64, bits: u64) -> bool {
        let word = &self.0[w % WORDS];
        while old & bits == bits {
            // Acquire: pairs with the puts. SeqCst: the tag is read next.
            match word.compare_exchange_weak(old, old & !bits, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Takes all of a word if all of it is there; for words that nobody leases.
    #[inline(always)]
    pub(crate) fn take_whole(&self, w: usize) -> bool {
        // Acquire: pairs with the puts. SeqCst: the tag is read next.
        self.0[w % WORDS].compare_exchange(!0, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Takes these frames if they are there; returns those that were.
    #[cold]
    pub(crate) fn take_stray_bits(&self, w: usize, bits: u64) -> u64 {
        // Relaxed: they are told of, and nobody gets them by it.
        self.0[w % WORDS].fetch_and(!bits, Ordering::Relaxed) & bits
    }

    /// Makes all frames of a word free, for a thread that is about to split the block. Returns what
    /// was there: frees that went wrong unnoticed.
    pub(crate) fn fill_word(&self, w: usize) -> u64 {
        // Release: a thread that takes frames of it sees that the block was whole. An exchange: who
        // looked at the block when it was another one may put frames there just now.
        self.0[w % WORDS].swap(!0, Ordering::SeqCst)
    }

    /// Whether a block that is wholly free, or taken as a whole, has frames in its words: frees
    /// that went wrong unnoticed.
    #[inline(always)]
    pub(crate) fn has_strays(&self) -> bool {
        self.0.iter().fold(0, |any, word| any | word.get()) != 0
    }
}

/// Where the first aligned run of that order (0 to 9) starts in the words given.
pub(crate) fn find_run(words: &[u64; WORDS], order: u32) -> Option<usize> {
    if order <= 6 {
        let lanes = bits::LANES[order as usize];
        let w = (0..WORDS).find(|&w| lanes.full(words[w]) != 0)?;
        return Some(w * 64 + bits::runs(words[w], order).trailing_zeros() as usize);
    }
    let len = 1usize << (order - 6);
    (0..WORDS)
        .step_by(len)
        .find(|&w| words[w..w + len].iter().all(|&word| word == !0))
        .map(|w| w * 64)
}

/// The class by which of the words are full, where one is.
const CLASS_OF_FULL: [u8; 256] = {
    let mut classes = [0; 256];
    let mut full = 1;
    while full < 256 {
        classes[full] = match full {
            0xff => CLASS_WHOLE,
            _ if full & 0x0f == 0x0f || full & 0xf0 == 0xf0 => 9,
            _ if (full & full >> 1) & 0x55 != 0 => 8,
            _ => 7,
        };
        full += 1;
    }
    classes
};

/// The class of a block whose word `w` has the free frames `word(w)`, unless they do not count;
/// `least`, which is below that of a whole block, where it is less.
#[inline(always)]
pub(crate) fn class_of(least: u8, word: impl Fn(usize) -> u64, seen: impl Fn(usize) -> bool) -> u8 {
    let (mut class, mut larger, mut full) = (least, bits::LANES[usize::from(least)], 0);
    for w in 0..WORDS {
        let word = word(w);
        // Mostly it has no more than the words before: whether it counts does not matter then.
        if larger.full(word) == 0 || !seen(w) {
            continue;
        }
        if word == !0 {
            full |= 1 << w;
            larger = bits::LANES[6];
            continue;
        }
        // A thread that has a run has half of it.
        while larger.full(word) != 0 {
            class += 1;
            larger = bits::LANES[usize::from(class)];
        }
    }
    // Of full words how many there are side by side.
    class.max(CLASS_OF_FULL[full])
}

/// Between two frames in use in one word.
const LONGEST_INSIDE: usize = 62;

/// The smallest of the gaps of `len` free frames or more (1 to 512 of them), wherever they start,
/// and of those the lowest: its length, and its first frame.
///
/// # Errors
///
/// Where there is none: how many frames no gap has, as far as was seen; at most `len`.
pub(crate) fn smallest_gap(words: &[u64; WORDS], len: usize) -> Result<(usize, usize), usize> {
    let (mut best, mut before, mut longest) = ((usize::MAX, 0), 0, LONGEST_INSIDE);
    let mut see = |size: usize, start: usize| {
        if size >= len {
            if size < best.0 {
                best = (size, start);
            }
        } else if size > longest {
            longest = size;
        }
    };
    for (w, &word) in words.iter().enumerate() {
        let base = w * 64;
        if word == !0 {
            before += 64;
            continue;
        }
        // What began in a word before ends in this one.
        see(before + word.trailing_ones() as usize, base - before);
        before = word.leading_ones() as usize;
        if len > LONGEST_INSIDE {
            continue;
        }
        let inside = word & (word + 1) & !0 >> before;
        // A bit is set where `have` free frames start.
        let (mut starts, mut have) = (inside, 1);
        while have < len && starts != 0 {
            let step = have.min(len - have);
            starts &= starts >> step;
            have += step;
        }
        while starts != 0 {
            let at = starts.trailing_zeros();
            let size = (inside >> at).trailing_ones();
            see(size as usize, base + at as usize);
            starts &= !bits::mask(at, size);
        }
    }
    see(before, FRAMES - before);
    if best.0 == usize::MAX { Err(len.min(longest + 1)) } else { Ok(best) }
}

/// How many frames are free up to the last one.
pub(crate) fn free_tail(words: &[u64; WORDS]) -> usize {
    let used = words.iter().enumerate().rev().find(|&(_, &word)| word != !0);
    used.map_or(FRAMES, |(w, &word)| (WORDS - 1 - w) * 64 + word.leading_ones() as usize)
}

/// Free frames in these words.
pub(crate) fn count_of(words: &[u64; WORDS]) -> u32 {
    words.iter().map(|&word| if word == 0 { 0 } else { word.count_ones() }).sum()
}

// A lease names each CPU by its number plus 1.
const _: () =
    assert!(MAX_CPUS < EMPTY - 1, "a number plus 1 is neither EMPTY nor all 15 bits below it");
const _: () = assert!(FRAMES == 512 && size_of::<Head>() <= 32 || cfg!(loom));

impl<'m> Block<'m> {
    /// Whether frames just taken out of a word may be handed out; otherwise they are put back. They
    /// may where the block is a split one, nobody is making it whole, and nobody leases the word.
    /// Who looked before taking them may have been away for long: the hand of a lease that ends
    /// shows its frames for some steps after they are in the word again, and a free of them would
    /// be refused. What is in the words of a block that somebody makes whole was freed twice. And
    /// the zone has to keep its mark. `count` of them.
    #[inline(always)]
    pub(crate) fn still_open(
        self,
        by: By<'_, 'm, impl Platform>,
        w: usize,
        frames: u64,
        count: u64,
    ) -> bool {
        // Before the tag, as in `lease`.
        let busy = self.is_busy();
        let tag = self.tag.get();
        let open = !busy && tag.is_open() && !self.is_leased(w) && by.pay(tag, count);
        if !open {
            self.put_back_after_all(by, w, frames, count);
        }
        open
    }

    /// Hardly ever: out of the way of those who may have their frames.
    #[cold]
    #[inline(never)]
    fn put_back_after_all(self, by: By<'_, 'm, impl Platform>, w: usize, frames: u64, count: u64) {
        // Before they are put back, which counts them again.
        by.count_free(self.tag.get(), count.wrapping_neg());
        by.put_back(self, w, frames);
    }

    /// The words of a block that nobody leases, by a glance.
    pub(crate) fn open_words(self) -> [u64; WORDS] {
        let line = self.line;
        core::array::from_fn(|w| match line.word(w) {
            0 => 0,
            _ if self.is_leased(w) => 0,
            word => word,
        })
    }

    /// Whether the words that nobody leases have a run of that order (0 to 9), by a glance.
    #[inline(always)]
    pub(crate) fn has_open_run(self, order: u32) -> bool {
        if order > 6 {
            return find_run(&self.open_words(), order).is_some();
        }
        let line = self.line;
        if order == 6 {
            // One comparison a word.
            return (0..WORDS).any(|w| line.word(w) == !0 && !self.is_leased(w));
        }
        let lanes = bits::LANES[order as usize];
        (0..WORDS).any(|w| lanes.full(line.word(w)) != 0 && !self.is_leased(w))
    }

    /// Takes a run of that order (0 to 9) out of a split block's words; its first frame.
    pub(crate) fn claim(self, by: By<'_, 'm, impl Platform>, order: u32) -> Option<u64> {
        match order {
            ..6 => {}
            6 => return self.claim_words::<1>(by),
            7 => return self.claim_words::<2>(by),
            8 => return self.claim_words::<4>(by),
            _ => return self.claim_words::<WORDS>(by),
        }
        // Somebody else may be faster, but each time that is one chance less.
        for _ in 0..WORDS {
            let offset = find_run(&self.open_words(), order)?;
            if self.claim_at(by, offset, 1 << order) {
                return Some(self.base() + offset as u64);
            }
        }
        None
    }

    /// [`claim`](Self::claim) of `LEN` whole words: 1, 2, 4 or 8 of them.
    #[inline(always)]
    pub(crate) fn claim_words<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
    ) -> Option<u64> {
        let line = self.line;
        // A loop: unrolled, which an iterator's search is not.
        for first in (0..WORDS).step_by(LEN) {
            let mut words = first..first + LEN;
            if words.all(|w| line.word(w) == !0 && !self.is_leased(w))
                && self.claim_words_at::<LEN>(by, first)
            {
                return Some(self.base() + first as u64 * 64);
            }
        }
        None
    }

    /// Takes `LEN` whole words from word `first` on; all or none. For callers that have reason to
    /// think that all of them are there.
    #[inline(always)]
    pub(crate) fn claim_words_at<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
        first: usize,
    ) -> bool {
        let end = self.take_words::<LEN>(first);
        self.keep_words::<LEN>(by, first, end)
    }

    /// Takes `LEN` whole words from word `first` on, up to the first that is not there: which one.
    #[inline(always)]
    pub(crate) fn take_words<const LEN: usize>(self, first: usize) -> usize {
        (first..first + LEN).find(|&w| !self.line.take_whole(w)).unwrap_or(first + LEN)
    }

    /// Whether `LEN` words from word `first` on, of which those up to `end` were taken, may be
    /// handed out; otherwise they are put back.
    #[inline(always)]
    pub(crate) fn keep_words<const LEN: usize>(
        self,
        by: By<'_, 'm, impl Platform>,
        first: usize,
        end: usize,
    ) -> bool {
        let leased = || (first..first + LEN).any(|w| self.is_leased(w));
        // One look for all of them, as in `still_open`; the class before the tag.
        let busy = self.is_busy();
        let tag = self.tag.get();
        let open = end == first + LEN && !busy && tag.is_open() && !leased();
        if open && by.pay(tag, 64 * LEN as u64) {
            return true;
        }
        self.put_words_back(by, first..end);
        false
    }

    /// Words that nobody may have, taken but not counted as gone yet, go back.
    #[cold]
    #[inline(never)]
    fn put_words_back(self, by: By<'_, 'm, impl Platform>, words: core::ops::Range<usize>) {
        let tag = self.tag.get();
        // Before they are put back, which counts them again.
        by.count_free(tag, (64 * words.len() as u64).wrapping_neg());
        words.for_each(|w| by.put_back(self, w, !0));
    }

    /// [`claim`](Self::claim) of a run that starts at a multiple of `align` and whose frames lie in
    /// `low..high` of the block.
    pub(crate) fn claim_within(
        self,
        by: By<'_, 'm, impl Platform>,
        order: u32,
        align: usize,
        low: usize,
        high: usize,
    ) -> Option<u64> {
        let len = 1 << order;
        if (low, high, align) == (0, FRAMES, len) {
            return self.claim(by, order);
        }
        let words = self.open_words();
        let is_free = |start: usize| bits::spans(start, len).all(|(w, m)| words[w] & m == m);
        let mut starts = (low.next_multiple_of(align)..high).step_by(align);
        let claimed =
            starts.find(|&at| at + len <= high && is_free(at) && self.claim_at(by, at, len));
        claimed.map(|at| self.base() + at as u64)
    }

    /// Takes exactly these frames; all or none.
    pub(crate) fn claim_at(self, by: By<'_, 'm, impl Platform>, offset: usize, len: usize) -> bool {
        let line = self.line;
        for (done, (w, m)) in bits::spans(offset, len).enumerate() {
            let count = u64::from(m.count_ones());
            if !(line.take_bits(w, m) && self.still_open(by, w, m, count)) {
                for (w, m) in bits::spans(offset, len).take(done) {
                    by.put_back(self, w, m);
                }
                return false;
            }
        }
        true
    }

    /// Whether another CPU leases a word of a block.
    pub(crate) fn is_shared(self, by: By<'_, 'm, impl Platform>) -> bool {
        let me = by.cpu().map_or(0, |cpu| cpu.number + 1);
        (0..WORDS).any(|w| self.is_leased(w) && self.lease(w) != me)
    }

    /// A whole block that this thread has is handed out; its first frame.
    #[inline(always)]
    pub(crate) fn take_block(self, fh: &Freehold<'m, impl Platform>, migratetype: usize) -> u64 {
        debug_assert_eq!(self.tag.get().state(), WHOLE);
        self.report_strays(fh);
        let tag = self.tag.get();
        let tag = tag.with_state(TAKEN).with_type(migratetype);
        self.tag.set(tag.with_flag(FRESH | IN_HAND, false));
        self.base()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::testing::*;

    /// Four frames at 8 would start within the limits and end beyond them.
    #[test]
    fn a_run_ends_within_the_limits() {
        let fh = machine(1, 1024);
        let cpu = fh.here();
        let pfn = cpu.alloc(movable(0)).unwrap();
        cpu.flush().unwrap();
        let (block, _) = place(&fh, pfn);
        let claimed = || block.claim_within(fh.outside(), 2, 4, 4, 10);
        assert_eq!((claimed(), claimed()), (Some(4), None));
    }
}
