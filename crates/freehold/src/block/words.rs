//! The words of a block, and the only two ways in which frames move between a word and somebody's
//! hand.
//!
//! ```text
//!            put: fetch_or, by anybody at any time
//!   hand  ------------------------------------------>  word
//!         <------------------------------------------
//!            take: swap(0) by who has leased the word; compare-exchange by anybody, where nobody has
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
//! **The class** says how large a free run the lists know of: 0 = none, `k` = of order `k - 1`. It
//! may be too high, since frames are taken without telling, but when all is quiet it is not too
//! low: a put that completes a larger run announces the block to its group. Of the zone's own
//! blocks it says 0, whatever their lists know, so that every put announces them. Who lists a block
//! first sets the class to 0 and then reads the words; who frees first sets the bit and then reads
//! the class. Both are sequentially consistent, so one of them sees the other.

use super::tag::TagCell;
use super::{BLOCK_ORDER, FRAMES, NONE, WORDS, bits};
use crate::primitive::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, Plain};
use crate::types::ids::MAX_CPUS;

/// Nothing is known to be free.
pub(crate) const CLASS_NONE: u8 = 0;
/// Every frame is free.
pub(crate) const CLASS_WHOLE: u8 = BLOCK_ORDER as u8 + 1;
/// Classes that lists are kept for.
pub(crate) const CLASSES: usize = CLASS_WHOLE as usize + 1;
/// A run of each order up to 6 at the start of a word.
const RUN: [u64; 7] = [1, 0b11, 0xf, 0xff, 0xffff, 0xffff_ffff, !0];

/// Announced: in its group's inbox, or between two groups. Puts need not announce it again.
pub(crate) const CLASS_QUEUED: u8 = u8::MAX;

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
}

/// What the holder of the block's lock keeps about it.
pub(crate) struct Links {
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// The link of the inbox it waits in.
    pub(crate) inbox_next: AtomicU32,
    /// Which list it is on; see [`crate::group::lists`].
    pub(crate) list: AtomicU16,
    /// Free frames when it was listed.
    pub(crate) count: AtomicU16,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
            inbox_next: AtomicU32::new(NONE),
            list: AtomicU16::new(crate::group::lists::NO_LIST),
            count: AtomicU16::new(0),
        }
    }
}

impl Head {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            tag: TagCell::new(),
            number,
            leases: core::array::from_fn(|_| AtomicU16::new(0)),
            class: AtomicU8::new(CLASS_NONE),
        }
    }

    /// Who leases a word: 0 for nobody, a CPU's number plus 1, with [`EMPTY`] where it has nothing
    /// in hand.
    #[inline(always)]
    pub(crate) fn lease(&self, w: usize) -> u16 {
        // SeqCst: the lister's side of the class protocol reads it after it has set the class to 0.
        // Acquire is part of it: what the leaseholder's hand shows was written before.
        self.leases[w % WORDS].load(Ordering::SeqCst)
    }

    /// Changes who leases a word; `false` where it is not `from` any more.
    #[inline(always)]
    pub(crate) fn change_lease(&self, w: usize, from: u16, to: u16) -> bool {
        // SeqCst: the tag is read after it; isolation changes the tag and then reads this. AcqRel
        // is part of it: whoever had the word before is done with it.
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

    /// Marks the block as announced; returns the class that it had.
    pub(crate) fn queue(&self) -> u8 {
        // Relaxed: only that of two who announce it one gets it matters. The class was read between
        // the put and this, as the module's documentation has it. A tag that is read too early
        // names a former holder, who sends the block on, or says that there is nothing to tell, and
        // is read once more after `begin_listing`.
        self.class.swap(CLASS_QUEUED, Ordering::Relaxed)
    }

    /// The lister's first step for a block that may be in an inbox; `false` where it is, so that it
    /// is looked at once more.
    pub(crate) fn begin_listing_unless_queued(&self) -> bool {
        let class = self.class();
        // SeqCst: the words are read next. Relaxed on failure: it was announced.
        class != CLASS_QUEUED
            && self
                .class
                .compare_exchange(class, CLASS_NONE, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// The first step of who has just popped it from an inbox: from now on every put announces it
    /// again.
    pub(crate) fn begin_listing(&self) {
        // SeqCst: the words are read next.
        self.class.store(CLASS_NONE, Ordering::SeqCst);
    }

    /// The lister's last step; `false` where a put has announced the block meanwhile, which leaves
    /// it announced.
    pub(crate) fn end_listing(&self, class: u8) -> bool {
        // Relaxed: it hands nothing on, since lists and counts are the lock's. A put in between
        // makes it fail, and of who reads an older class the put came before `begin_listing`.
        self.class.compare_exchange(CLASS_NONE, class, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether a put that left a word as `now` completed a run larger than the lists know of, and
    /// nobody has announced the block yet. `bits` are the frames put.
    #[inline(always)]
    pub(crate) fn completes(&self, now: u64, bits: u64) -> bool {
        let class = self.class();
        if class == CLASS_QUEUED {
            return false;
        }
        // From order 6 on the runs are whole words: who lists the block looks at the others.
        let order = u32::from(class).min(6);
        if bits & (bits - 1) == 0 {
            let start = bits.trailing_zeros() & !((1 << order) - 1);
            let run = RUN[order as usize] << start;
            return now & run == run;
        }
        bits::has_run(now, order)
    }
}

impl Line {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// A word itself, for who leases it.
    pub(crate) fn cell(&self, w: usize) -> &AtomicU64 {
        &self.0[w % WORDS]
    }

    /// A glance at a word.
    #[inline(always)]
    pub(crate) fn word(&self, w: usize) -> u64 {
        // Relaxed: a glance. What depends on it is checked by the exchange that follows.
        self.0[w % WORDS].load(Ordering::Relaxed)
    }

    /// A word as the lister reads it.
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
        let word = &self.0[w % WORDS];
        if bits & (bits - 1) == 0 {
            // SeqCst: the class is read next; see the module's documentation. Release is part of
            // it: what the freer did to the frames comes before their next owner's use.
            let old = word.fetch_or(bits, Ordering::SeqCst);
            return if old & bits == 0 { Ok(old | bits) } else { Err(old & bits) };
        }
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
    /// there already: frees that went wrong unseen, which leave the frame free once.
    #[inline]
    pub(crate) fn put_back(&self, w: usize, bits: u64) -> (u64, u64) {
        // SeqCst: as `put`.
        let old = self.0[w % WORDS].fetch_or(bits, Ordering::SeqCst);
        (old | bits, old & bits)
    }

    /// Takes all of a word: for who has just leased it, or has it leased.
    #[inline(always)]
    pub(crate) fn take_word(&self, w: usize) -> u64 {
        // Acquire: pairs with the puts. SeqCst, since the tag is read next: see
        // `words::Line::take_word`'s callers.
        self.0[w % WORDS].swap(0, Ordering::SeqCst)
    }

    /// Takes one frame if it is there; for words that nobody leases.
    #[inline(always)]
    pub(crate) fn take_frame(&self, w: usize, frame: u64) -> bool {
        // Acquire: pairs with the puts.
        self.0[w % WORDS].fetch_and(!frame, Ordering::Acquire) & frame != 0
    }

    /// Takes just these frames if all of them are there; for words that nobody leases.
    pub(crate) fn take_bits(&self, w: usize, bits: u64) -> bool {
        let word = &self.0[w % WORDS];
        let mut old = self.word(w);
        while old & bits == bits {
            // Acquire: pairs with the puts.
            match word.compare_exchange_weak(old, old & !bits, Ordering::Acquire, Ordering::Relaxed)
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
        // Acquire: pairs with the puts.
        self.0[w % WORDS].compare_exchange(!0, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes these frames if they are there; returns those that were.
    #[cold]
    pub(crate) fn take_stray_bits(&self, w: usize, bits: u64) -> u64 {
        // Relaxed: they are told of, and nobody gets them by it.
        self.0[w % WORDS].fetch_and(!bits, Ordering::Relaxed) & bits
    }

    /// Makes all frames of a word free, for who is about to split the block. Returns what was
    /// there: frees that went wrong unseen.
    pub(crate) fn fill_word(&self, w: usize) -> u64 {
        // Release: who takes frames of it sees that the block was whole. An exchange, since
        // somebody who looked at the block when it was another one may put frames there at this
        // moment.
        self.0[w % WORDS].swap(!0, Ordering::SeqCst)
    }

    /// Whether a block that is wholly free, or taken as a whole, has frames in its words: frees
    /// that went wrong unseen.
    #[inline(always)]
    pub(crate) fn has_strays(&self) -> bool {
        self.0.iter().fold(0, |any, word| any | word.get()) != 0
    }

    /// A stray word; see [`has_strays`](Self::has_strays).
    #[cold]
    pub(crate) fn take_stray(&self, w: usize) -> u64 {
        // Relaxed: as `take_stray_bits`.
        self.0[w % WORDS].swap(0, Ordering::Relaxed)
    }
}

/// Where the first aligned run of that order (0 to 9) starts in the words given.
pub(crate) fn find_run(words: &[u64; WORDS], order: u32) -> Option<usize> {
    if order <= 6 {
        let lanes = bits::LANES[order as usize];
        let w = (0..WORDS).find(|&w| lanes.has_full(words[w]))?;
        return Some(w * 64 + bits::runs(words[w], order).trailing_zeros() as usize);
    }
    let len = 1usize << (order - 6);
    (0..WORDS)
        .step_by(len)
        .find(|&w| words[w..w + len].iter().all(|&word| word == !0))
        .map(|w| w * 64)
}

/// The class of a block with these free frames.
pub(crate) fn class_of(words: &[u64; WORDS]) -> u8 {
    if words == &[0; WORDS] {
        // Most blocks that a hold looks at in vain.
        return CLASS_NONE;
    }
    let mut full_words = 0u32;
    let (mut class, mut larger) = (CLASS_NONE, bits::LANES[0]);
    for (w, &word) in words.iter().enumerate() {
        if word == !0 {
            full_words |= 1 << w;
            continue;
        }
        // Whoever has a run has half of it.
        while larger.has_full(word) {
            class += 1;
            larger = bits::LANES[usize::from(class)];
        }
    }
    match full_words {
        0xff => CLASS_WHOLE,
        0 => class,
        _ if full_words & 0x0f == 0x0f || full_words & 0xf0 == 0xf0 => 9,
        _ if (full_words & full_words >> 1) & 0x55 != 0 => 8,
        _ => 7,
    }
}

/// Free frames in these words.
pub(crate) fn count_of(words: &[u64; WORDS]) -> u32 {
    words.iter().map(|&word| if word == 0 { 0 } else { word.count_ones() }).sum()
}

// A lease names each CPU by its number plus 1.
const _: () =
    assert!(MAX_CPUS < EMPTY - 1, "a number plus 1 is neither EMPTY nor all 15 bits below it");
const _: () = assert!(FRAMES == 512 && size_of::<Links>() <= 16 || cfg!(any(loom, shuttle)));
