//! The metadata of one pageblock: which of its 512 frames are free, and who has it.
//!
//! ```text
//! line 0  free[8]     1 = free and in the holder's hand          written by the holder only
//! line 1  remote[8]   1 = freed by somebody else, not collected  fetch_or by freers, swap by the holder
//! line 2  holder, queued, inbox link, class, links ...           written rarely, read by every free
//! line 3  virgin[8]   1 = in use, or never handed out since it was added
//! ```
//!
//! A frame whose bit is in neither `free` nor `remote` is allocated (or a hole: there the block says so). An allocated
//! frame carries no order, so an allocation can be freed in any pieces and splitting one is free.
//!
//! The *class* is the upper bound of the largest free run that the lists go by: 0 = nothing free, k = a run of order
//! `k - 1`. It is exact for blocks of the zone; on a CPU's lists it may be too high, never too low, and a block that was
//! freed into since anyone looked is *dirty*: most frees then do nothing but set a bit.

use crate::bits;
use crate::holder::Holder;
use crate::primitive::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, Plain};

/// Words of 64 frames in a block.
pub(crate) const WORDS: usize = 8;
/// Frames in a block.
pub(crate) const FRAMES: usize = WORDS * 64;
/// No block: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Nothing free.
pub(crate) const CLASS_FULL: u8 = 0;
/// Every frame free.
pub(crate) const CLASS_WHOLE: u8 = 10;
/// On a CPU's list: something is free, not all, and nobody has looked how large the runs are.
pub(crate) const CLASS_DIRTY: u8 = 11;
/// How many classes lists are kept for.
pub(crate) const CLASSES: usize = 12;
/// Between two holders: on no list, and frees must not put it on one.
pub(crate) const CLASS_DETACHED: u8 = 254;
/// The block a CPU allocates from: on no list, and its class is not kept up to date.
pub(crate) const CLASS_ACTIVE: u8 = 255;

/// Some of its frames do not exist.
pub(crate) const FLAG_HOLES: u8 = 1;
/// Being emptied: nothing may be allocated from it.
pub(crate) const FLAG_ISOLATED: u8 = 2;

/// What there is to know about a block before freeing into it, in one word that only its holder writes: a free on the
/// fast path compares the lower half with "mine, of this zone, without flags" at once.
///
/// ```text
/// bits 0..16 holder | 16..24 zone | 24..32 flags | 32..40 class | 40..48 migratetype
/// ```
#[derive(Clone, Copy)]
pub(crate) struct Tag(u64);

impl Tag {
    /// The lower half of the tag of an ordinary block of that holder and zone.
    pub(crate) const fn expected(holder: Holder, zone: u8) -> u32 {
        holder.raw() | (zone as u32) << 16
    }
    #[inline(always)]
    pub(crate) const fn lower(self) -> u32 {
        self.0 as u32
    }
    #[inline(always)]
    pub(crate) const fn holder(self) -> Holder {
        Holder::from_raw(self.0 as u16 as u32)
    }
    /// There are holes in it, or it is isolated.
    #[inline(always)]
    pub(crate) const fn is_odd(self) -> bool {
        (self.0 >> 24) as u8 & !(SLOW_CLASS | SLOW_TYPE) != 0
    }
    #[inline(always)]
    pub(crate) const fn class(self) -> u8 {
        (self.0 >> 32) as u8
    }
    #[inline(always)]
    pub(crate) const fn migratetype(self) -> u8 {
        (self.0 >> 40) as u8
    }
}

/// Among the flags in a tag, set along with the class and the type: frees must look closer at blocks between two holders
/// and at blocks that are not of an ordinary type.
const SLOW_CLASS: u8 = 0x80;
const SLOW_TYPE: u8 = 0x40;

/// See the module's documentation.
#[repr(C, align(64))]
pub(crate) struct Block {
    free: [AtomicU64; WORDS],
    remote: [AtomicU64; WORDS],
    /// Holder, zone, flags, class and migratetype: see [`Tag`].
    tag: AtomicU64,
    /// The pageblock's number: PFN divided by 512.
    pub(crate) number: AtomicU32,
    /// Link of the inbox it waits in while `queued`.
    pub(crate) inbox_next: AtomicU32,
    /// Links of the holder's list.
    pub(crate) next: AtomicU32,
    pub(crate) prev: AtomicU32,
    /// Links of the zone's list of blocks that one CPU calls home.
    pub(crate) home_next: AtomicU32,
    pub(crate) home_prev: AtomicU32,
    /// The holder that last gave it to the zone partly used, or [`Holder::NOBODY`].
    pub(crate) home: AtomicU32,
    /// Free frames, kept up to date while the zone has it.
    pub(crate) count: AtomicU16,
    /// Bit w set: word w has virgin frames left.
    pub(crate) virgin_words: AtomicU8,
    /// Somebody has put it, or is about to put it, into an inbox.
    queued: AtomicBool,
    /// Whether its holder keeps some of it aside: see [`crate::owner`].
    pub(crate) hint: AtomicU8,
    virgin: Line,
    /// Lets loom see who uses the inbox link: see [`Block::watch_link`].
    #[cfg(loom)]
    link: loom::cell::UnsafeCell<()>,
}

/// Words with a cache line of their own.
#[repr(C, align(64))]
struct Line([AtomicU64; WORDS]);

impl Block {
    /// A block without memory.
    pub(crate) fn new() -> Self {
        Self {
            free: core::array::from_fn(|_| AtomicU64::new(0)),
            remote: core::array::from_fn(|_| AtomicU64::new(0)),
            tag: AtomicU64::new(0),
            number: AtomicU32::new(0),
            inbox_next: AtomicU32::new(NONE),
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
            home_next: AtomicU32::new(NONE),
            home_prev: AtomicU32::new(NONE),
            home: AtomicU32::new(Holder::NOBODY.raw()),
            count: AtomicU16::new(0),
            virgin_words: AtomicU8::new(0),
            queued: AtomicBool::new(false),
            hint: AtomicU8::new(0),
            virgin: Line(core::array::from_fn(|_| AtomicU64::new(0))),
            #[cfg(loom)]
            link: loom::cell::UnsafeCell::new(()),
        }
    }

    /// The PFN of its first frame.
    #[inline(always)]
    pub(crate) fn base(&self) -> u64 {
        u64::from(self.number.get()) << 9
    }

    #[inline(always)]
    pub(crate) fn tag(&self) -> Tag {
        // Acquire: pairs with `set_holder`, so that who sees itself as the holder sees the frames it was given.
        Tag(self.tag.load(Ordering::Acquire))
    }

    #[inline(always)]
    pub(crate) fn holder(&self) -> Holder {
        self.tag().holder()
    }

    /// Hands the block over. The caller has the giver's lock and has taken the block off its lists.
    #[inline]
    pub(crate) fn set_holder(&self, holder: Holder) {
        // Release: see `tag`. Not a read-modify-write: only who has the block writes here.
        self.tag.store(self.tag.get() & !0xffff | u64::from(holder.raw()), Ordering::Release);
    }

    fn field(&self, shift: u32) -> u8 {
        (self.tag.get() >> shift) as u8
    }

    /// The holder's alone: a plain load and store.
    fn set_field(&self, shift: u32, value: u8) {
        self.tag.set(self.tag.get() & !(0xff << shift) | u64::from(value) << shift);
    }

    #[inline(always)]
    pub(crate) fn zone(&self) -> u8 {
        self.field(16)
    }

    pub(crate) fn set_zone(&self, zone: u8) {
        self.set_field(16, zone);
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        self.field(24) & !(SLOW_CLASS | SLOW_TYPE)
    }

    pub(crate) fn set_flags(&self, flags: u8) {
        self.set_field(24, flags | self.field(24) & (SLOW_CLASS | SLOW_TYPE));
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> u8 {
        self.field(32)
    }

    #[inline(always)]
    pub(crate) fn set_class(&self, class: u8) {
        let slow = if class == CLASS_DETACHED { u64::from(SLOW_CLASS) << 24 } else { 0 };
        let tag = self.tag.get() & !(0xff << 32 | u64::from(SLOW_CLASS) << 24);
        self.tag.set(tag | u64::from(class) << 32 | slow);
    }

    #[inline(always)]
    pub(crate) fn migratetype(&self) -> u8 {
        self.field(40)
    }

    pub(crate) fn set_migratetype(&self, migratetype: u8) {
        let slow = if migratetype >= 3 { u64::from(SLOW_TYPE) << 24 } else { 0 };
        let tag = self.tag.get() & !(0xff << 40 | u64::from(SLOW_TYPE) << 24);
        self.tag.set(tag | u64::from(migratetype) << 40 | slow);
    }

    #[inline(always)]
    pub(crate) fn free_word(&self, word: usize) -> u64 {
        self.free[word].get()
    }

    /// One word itself, for its holder to come back to.
    #[inline(always)]
    pub(crate) fn free_cell(&self, word: usize) -> &AtomicU64 {
        &self.free[word]
    }

    /// One word of what others freed, for a freer to come back to.
    #[inline(always)]
    pub(crate) fn remote_cell(&self, word: usize) -> &AtomicU64 {
        &self.remote[word]
    }

    /// The queued flag itself, for its holder to come back to.
    #[inline(always)]
    pub(crate) fn queued_cell(&self) -> &AtomicBool {
        &self.queued
    }

    /// The holder's alone.
    #[inline(always)]
    pub(crate) fn set_free_word(&self, word: usize, value: u64) {
        self.free[word].set(value);
    }

    #[inline(always)]
    pub(crate) fn remote_word(&self, word: usize) -> u64 {
        self.remote[word].get()
    }

    /// Whether somebody has put it, or is about to put it, into an inbox.
    #[inline(always)]
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.get()
    }

    #[inline(always)]
    pub(crate) fn has_flag(&self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    pub(crate) fn set_flag(&self, flag: u8, on: bool) {
        let flags = self.flags();
        self.set_flags(if on { flags | flag } else { flags & !flag });
    }

    // ---- free from elsewhere: see `remote.rs` for the protocol ----

    /// Marks frames as freed by somebody who is not the holder; returns what was marked before.
    #[inline]
    pub(crate) fn or_remote(&self, word: usize, mask: u64) -> u64 {
        // Release: what the freer did to the frames' contents comes before their next owner's use. Nothing need be
        // acquired: a freer that finds bits leaves, and one that finds none learns all it needs from `claim_queue`.
        self.remote[word].fetch_or(mask, Ordering::Release)
    }

    /// Takes what others freed in `word`.
    #[inline]
    pub(crate) fn take_remote(&self, word: usize) -> u64 {
        // Relaxed pre-check, sparing the read-modify-write: bits that `claim_queue`'s acquire does not cover belong to
        // a freer that has yet to queue the block.
        if self.remote[word].get() == 0 {
            return 0;
        }
        // Acquire: pairs with `or_remote`'s release.
        self.remote[word].swap(0, Ordering::Acquire)
    }

    /// Claims the right to put the block into an inbox; `true` for exactly one caller until [`Block::unqueue`].
    #[inline]
    pub(crate) fn claim_queue(&self) -> bool {
        // AcqRel. Release: a collector whose `unqueue` reads this must see the bits set before it, also where
        // the block was queued already and this caller leaves the work to others.
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// The collector's first step, before it takes the bits: from now on a freer queues the block anew.
    #[inline]
    pub(crate) fn unqueue(&self) {
        // A read-modify-write, not a store: it must read the last `claim_queue` in the order of modification and
        // (Acquire) see the bits of everyone who relied on it. Release: a freer that claims next must find the inbox
        // link out of use.
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Where the inbox link is read or written: under loom, a race with another use of it is reported.
    #[inline(always)]
    pub(crate) fn watch_link(&self) {
        #[cfg(loom)]
        self.link.with_mut(|_| ());
    }

    // ---- searching and counting, by the holder ----

    /// Free frames in the holder's hand.
    pub(crate) fn popcount(&self) -> u32 {
        // Whole blocks move most, and many machines have no instruction to count bits with.
        if self.is_whole() {
            return FRAMES as u32;
        }
        (0..WORDS).map(|w| self.free_word(w).count_ones()).sum()
    }

    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        // All words, without a branch for each.
        (0..WORDS).fold(!0, |all, w| all & self.free_word(w)) == !0
    }

    /// Sets every word.
    #[inline]
    pub(crate) fn fill(&self, value: u64) {
        (0..WORDS).for_each(|w| self.set_free_word(w, value));
    }

    #[inline]
    pub(crate) fn has_free(&self) -> bool {
        (0..WORDS).fold(0, |any, w| any | self.free_word(w)) != 0
    }

    /// Where the first aligned free run of that order (0 to 9) starts.
    pub(crate) fn find_run(&self, order: u32) -> Option<usize> {
        if order <= 6 {
            return (0..WORDS).find_map(|w| {
                let starts = bits::runs(self.free_word(w), order);
                (starts != 0).then(|| w * 64 + starts.trailing_zeros() as usize)
            });
        }
        let words = 1usize << (order - 6);
        (0..WORDS).step_by(words).find(|&w| (w..w + words).all(|v| self.free_word(v) == !0)).map(|w| w * 64)
    }

    /// The exact class: 0 for a full block, otherwise one more than the order of the largest aligned free run.
    pub(crate) fn exact_class(&self) -> u8 {
        if self.is_whole() {
            return CLASS_WHOLE;
        }
        let mut full_words = 0u32;
        let mut largest = None;
        for w in 0..WORDS {
            let word = self.free_word(w);
            if word == !0 {
                full_words |= 1 << w;
            } else {
                largest = largest.max(bits::largest_run(word));
            }
        }
        match full_words {
            0 => largest.map_or(CLASS_FULL, |order| order as u8 + 1),
            _ if full_words & 0x0f == 0x0f || full_words & 0xf0 == 0xf0 => 9,
            _ if (full_words & full_words >> 1) & 0x55 != 0 => 8,
            _ => 7,
        }
    }

    /// The frames of the run are handed out. They must be free.
    pub(crate) fn take_run(&self, offset: usize, len: usize) {
        for (w, m) in bits::spans(offset, len) {
            let word = self.free_word(w);
            debug_assert_eq!(word & m, m, "taking frames that are not free");
            self.set_free_word(w, word & !m);
        }
    }

    /// Frames of one word that were in use are free again, in the holder's hand. Returns what the word is now.
    #[inline(always)]
    pub(crate) fn give(&self, word: usize, mask: u64) -> u64 {
        let now = self.free_word(word) | mask;
        self.set_free_word(word, now);
        if self.virgin_words.get() != 0 {
            self.note_use(word, mask);
        }
        now
    }

    /// Frames of one word have been handed out once. Noted when they are freed, not when they are handed out, since a
    /// frame in use is no virgin whatever its bit says.
    #[cold]
    pub(crate) fn note_use(&self, word: usize, mask: u64) {
        let left = self.virgin.0[word].get() & !mask;
        self.virgin.0[word].set(left);
        if left == 0 {
            self.virgin_words.set(self.virgin_words.get() & !(1 << word));
        }
    }

    /// Whether that frame was never handed out.
    pub(crate) fn is_virgin(&self, offset: usize) -> bool {
        self.virgins(offset / 64) >> (offset % 64) & 1 == 1
    }

    /// Every frame of it has been handed out.
    #[cold]
    pub(crate) fn note_use_of_all(&self) {
        (0..WORDS).for_each(|w| self.virgin.0[w].set(0));
        self.virgin_words.set(0);
    }

    /// The frames of a word that were never handed out: free ones, in the holder's hand.
    pub(crate) fn virgins(&self, word: usize) -> u64 {
        self.virgin.0[word].get() & self.free_word(word)
    }

    /// The bits that say so, in use or not, for the invariant walk.
    pub(crate) fn virgin_bits(&self, word: usize) -> u64 {
        self.virgin.0[word].get()
    }

    /// Gives the block new memory, all of it free: bit `i` of `present` says that frame `i` exists.
    pub(crate) fn add_memory(&self, present: &[u64; WORDS]) {
        for (w, &m) in present.iter().enumerate() {
            self.free[w].set(self.free[w].get() | m);
            self.add_virgins(w, m);
        }
    }

    /// Notes frames of one word as never handed out.
    pub(crate) fn add_virgins(&self, word: usize, mask: u64) {
        if mask != 0 {
            self.virgin.0[word].set(self.virgin.0[word].get() | mask);
            self.virgin_words.set(self.virgin_words.get() | 1 << word);
        }
    }

    /// Takes the memory away again: nothing is free in it any more.
    pub(crate) fn remove_memory(&self) {
        for w in 0..WORDS {
            self.free[w].set(0);
            self.virgin.0[w].set(0);
        }
        self.virgin_words.set(0);
        self.count.set(0);
        self.set_flags(0);
        self.home.set(Holder::NOBODY.raw());
        self.set_class(CLASS_FULL);
        self.set_holder(Holder::NOBODY);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_four_cache_lines() {
        assert_eq!(size_of::<Block>(), 256);
        assert_eq!(core::mem::offset_of!(Block, tag), 128);
        assert_eq!(core::mem::offset_of!(Block, virgin), 192);
    }

    #[test]
    fn classes_agree_with_searching_every_order() {
        let block = Block::new();
        let mut seed = 12345u64;
        for round in 0..3000 {
            for w in 0..WORDS {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let sparse = seed ^ seed >> 29;
                let word = match (round + w) % 5 {
                    0 => sparse,
                    1 => !0,
                    2 if round % 3 == 0 => !0,
                    3 => sparse | sparse << 1 | sparse >> 5 | sparse << 17,
                    _ if round % 7 < 4 => !0,
                    _ => 0,
                };
                block.set_free_word(w, word);
            }
            let largest = (0..=9u32).rev().find(|&o| block.find_run(o).is_some());
            assert_eq!(block.exact_class(), largest.map_or(0, |o| o as u8 + 1));
        }
    }

    #[test]
    fn taken_frames_are_virgins_no_more() {
        let block = Block::new();
        block.add_memory(&[!0; WORDS]);
        assert!(block.is_whole() && block.is_virgin(511));
        block.take_run(64, 128);
        assert!(!block.is_virgin(64) && !block.is_virgin(191) && block.is_virgin(63) && block.is_virgin(192));
        block.give(1, !0);
        block.give(2, 1);
        assert!(!block.is_virgin(64) && !block.is_virgin(128) && !block.is_virgin(129));
        assert_eq!(block.virgin_words.get(), 0b1111_1101);
        block.take_run(64, 64);
        block.take_run(128, 1);
        assert_eq!(block.popcount(), 384);
        assert_eq!(block.find_run(8), Some(256));
        assert_eq!(block.exact_class(), 9);
    }
}
