//! A pageblock's metadata: which of its 512 frames are free, its state, who leases its words.
//!
//! ```text
//! PFN ──map──> Block ──> Line   words[8]                    1 bit a frame, 1 = free and in nobody's hand   64 bytes
//!                        Head   tag, class, leases[8]       read by every free                             32 bytes
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`bits`] | runs of set bits: what a buddy system keeps lists for |
//! | [`words`] | the only two ways in which frames move between a word and a hand: `take` and `put`; frames taken past the leases |
//! | [`class`] | frames come into words; what the board says of a block; blocks become whole and split |
//! | [`layout`] | how the caller's metadata memory is cut, section by section when first used |
//!
//! **From a PFN to its block**, in constant time, whatever the holes between the zones.
//!
//! ```text
//! slots     one u32 for each 128 MiB of the PFN span: where its 64 blocks are, or none until first used
//! blocks    slot * 64 + (block within its section)
//! ranges    where memory is, at frame granularity: looked at only for blocks with holes and for wrong frees
//! ```
//!
//! A section without a slot is either no memory or memory of which nothing was ever allocated: all
//! its blocks are whole, and only the zone's bitmap knows them. A section keeps its slot for good,
//! so a lookup can never race with its reuse.
//!
//! **The tag** is what there is to know about a block before touching its words, in one 32-bit tag.
//!
//! ```text
//! bits 0..2 state | 2..5 migratetype | 5 holes | 6 isolated | 7 fresh | 8..16 zone | 16 in a CPU's hand
//! ```
//!
//! ```text
//!            populate                  split (a CPU needs frames)
//!   ABSENT ------------> WHOLE -----------------------------------------> SPLIT
//!             remove     ^  |  <--- retire (all eight words are free) ---   ^
//!                        |  | alloc of order 9 and above                    | free of a part
//!                 free   |  v                                               |
//!                        TAKEN ---------------------------------------------+
//! ```
//!
//! | state | the block's words | who may change the tag |
//! |---|---|---|
//! | `ABSENT` | 0 | hotplug, and a thread that has cleared the block's bit in the zone's bitmap |
//! | `WHOLE` | 0: all of it is free | who has cleared its bit, has it in hand, or has just made it whole |
//! | `SPLIT` | tell which frames are free | anybody, by a compare-exchange |
//! | `TAKEN` | 0: all of it is in use | anybody who frees it, by a compare-exchange |
//!
//! A whole block is in one of three places: its bit in the zone's bitmap; in a CPU's hand, which
//! the tag says; or with who is a few steps from setting the bit or from using the block.

use crate::Pfn;
use crate::block::layout::{Blocks, SetUp};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, Relaxed, acquire_fence, release_fence};

pub(crate) mod bits;
pub(crate) mod class;
#[expect(unsafe_code, reason = "cuts the caller's memory into slices; see there")]
pub(crate) mod layout;
pub(crate) mod words;

/// Words of 64 frames in a block.
pub(crate) const WORDS: usize = 8;
/// Frames in a block.
pub(crate) const FRAMES: usize = WORDS * 64;
/// The order of a block.
pub(crate) const BLOCK_ORDER: u32 = 9;

// Sections of 128 MiB: the pieces in which the blocks' metadata is set up.

/// Log2 of the blocks in a section. Small under loom, which looks at every one.
pub(crate) const SECTION_BLOCKS_LOG: u32 = if cfg!(loom) { 1 } else { 6 };
/// Blocks in a section.
pub(crate) const SECTION_BLOCKS: u64 = 1 << SECTION_BLOCKS_LOG;
/// Log2 of the frames in a section.
pub(crate) const SECTION_SHIFT: u32 = BLOCK_ORDER + SECTION_BLOCKS_LOG;

/// The section of a frame.
pub(crate) const fn section(pfn: Pfn) -> u64 {
    pfn.get() >> SECTION_SHIFT
}

/// The sections of so many pieces of memory, none of which overlap, each counted once. Takes steps
/// that grow with the square of the pieces.
pub(crate) fn sections_of(pieces: impl Iterator<Item = crate::FrameRange> + Clone) -> u64 {
    let ends = pieces.map(|piece| (section(piece.start), section(Pfn::new(piece.end.get() - 1))));
    let mut sum = 0;
    for (i, (first, last)) in ends.clone().enumerate() {
        sum += last - first + 1;
        // Only those at its ends can be counted already.
        let counted = |s| ends.clone().take(i).any(|(first, last)| first <= s && s <= last);
        sum -= u64::from(counted(first)) + u64::from(last != first && counted(last));
    }
    sum
}

/// One pageblock, by its metadata, which is set up: what all who work on a block ask for what it
/// has. Made by [`Blocks`], which never takes a slot back.
#[derive(Clone, Copy)]
pub(crate) struct Block<'m> {
    pub(crate) head: &'m words::Head,
    pub(crate) line: &'m words::Line,
}

/// A block is asked for its tag, class and leases.
impl core::ops::Deref for Block<'_> {
    type Target = words::Head;

    #[inline(always)]
    fn deref(&self) -> &words::Head {
        self.head
    }
}

impl Block<'_> {
    /// The PFN of its first frame.
    #[inline(always)]
    pub(crate) fn base(self) -> u64 {
        u64::from(self.number) << BLOCK_ORDER
    }
}

#[cfg(test)]
impl Block<'static> {
    /// One of no allocator.
    pub(crate) fn unused() -> Self {
        use std::boxed::Box;
        let head = Box::leak(Box::new(words::Head::new(0, 0)));
        Self { head, line: Box::leak(Box::new(words::Line::new())) }
    }
}

impl PartialEq for Block<'_> {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.head, other.head)
    }
}

/// The part of a range in each block: (first frame of the block, offset in it, length).
pub(crate) fn pieces(range: crate::FrameRange) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, end) = (range.start.get(), range.end.get());
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let offset = at % FRAMES as u64;
        let len = (FRAMES as u64 - offset).min(end - at);
        let item = (at - offset, offset as usize, len as usize);
        at += len;
        Some(item)
    })
}

/// A piece of memory, at frame granularity; spent entries are there to be used.
///
/// A thread that changes one may be stopped between its two ends, and must not claim memory
/// meanwhile that is not there: a spent entry starts and ends at 0, its end goes first, and a new
/// one's start comes first.
#[derive(Default)]
pub(crate) struct MemoryRange {
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
}

impl MemoryRange {
    pub(crate) fn is_spent(&self) -> bool {
        self.end.get() <= self.start.get()
    }

    /// Has the entry stand for that piece.
    pub(crate) fn set(&self, start: u64, end: u64) {
        self.start.set(start);
        self.end.set(end);
    }

    pub(crate) fn spend(&self) {
        self.end.set(0);
        self.start.set(0);
    }
}

/// Looks at what somebody else is changing before what is seen must do: at the ranges, and at a
/// section that is being set up.
pub(crate) const LOOKS: u32 = if cfg!(loom) { 2 } else { 4096 };

/// See the module's documentation.
pub(crate) struct FrameMap<'m> {
    pub(crate) first_section: u64,
    pub(crate) blocks: Blocks<'m>,
    pub(crate) ranges: &'m [MemoryRange],
    /// Odd while the ranges change. A thread that has not found a frame in them looks again if it
    /// has changed.
    pub(crate) ranges_version: AtomicU32,
}

impl<'m> FrameMap<'m> {
    /// The frame's block; `None` where its section is not set up, or outside the span.
    #[inline(always)]
    pub(crate) fn locate(&self, pfn: u64) -> Option<Block<'m>> {
        let section = (pfn >> SECTION_SHIFT).wrapping_sub(self.first_section);
        self.blocks.locate(section, (pfn >> 9) as u32)
    }

    /// A block by its number: its PFN divided by 512.
    pub(crate) fn locate_block(&self, number: u64) -> Option<Block<'m>> {
        self.locate(number << 9)
    }

    /// Sets up the section of that frame if it is not; `false` where there is no room for another
    /// one, outside the span, or where somebody else is at it and `wait`, which is called some
    /// thousand times at most, says not to wait: who may have interrupted that one must not.
    pub(crate) fn set_up(&self, pfn: u64, wait: impl Fn() -> bool) -> bool {
        let section = (pfn >> SECTION_SHIFT).wrapping_sub(self.first_section);
        let number = (pfn >> SECTION_SHIFT) << SECTION_BLOCKS_LOG;
        for _ in 0..LOOKS {
            match self.blocks.set_up(section, number as u32) {
                SetUp::Done => return true,
                SetUp::Full => return false,
                SetUp::Elsewhere if !wait() => return false,
                SetUp::Elsewhere => {}
            }
        }
        false
    }

    /// All blocks that are set up, lowest first. Looks at every section of the span below the last.
    pub(crate) fn all(&self) -> impl Iterator<Item = Block<'m>> + '_ {
        let section = 0..SECTION_BLOCKS as u32;
        let of_section = move |first| section.clone().map(move |n| self.blocks.beside(first, n));
        self.blocks.sections().flat_map(of_section)
    }

    /// The first block from number `number` on, before `end`, whose section is set up.
    pub(crate) fn next_set_up(&self, number: u64, end: u64) -> Option<u64> {
        let mut at = number;
        while at < end && self.locate_block(at).is_none() {
            at = (at | (SECTION_BLOCKS - 1)) + 1;
        }
        (at < end).then_some(at)
    }

    /// Whether there is memory at that frame. Looks at every range: for the rare cases only.
    pub(crate) fn is_present(&self, pfn: u64) -> bool {
        self.next_present(pfn) == Some(pfn)
    }

    /// The first frame from `pfn` on where there is memory.
    pub(crate) fn next_present(&self, pfn: u64) -> Option<u64> {
        self.looked_at(|| {
            let behind =
                self.ranges.iter().filter(|r| pfn < r.end.get() && r.start.get() < r.end.get());
            behind.map(|r| r.start.get().max(pfn)).min()
        })
    }

    /// Looks at the ranges, again if they have changed meanwhile: a piece that moves from one entry
    /// to another may be missed once. A thread that changes them does so for a few stores, so this
    /// ends; it gives up after some thousand looks, if that one was stopped in the middle.
    pub(crate) fn looked_at<T>(&self, look: impl Fn() -> T) -> T {
        for _ in 0..LOOKS {
            // Acquire: the look comes after it.
            let before = self.ranges_version.load(Ordering::Acquire);
            let found = look();
            // The look comes before what follows: a thread that saw a change sees that the version
            // has changed.
            acquire_fence();
            if before % 2 == 0 && self.ranges_version.load(Ordering::Relaxed) == before {
                return found;
            }
        }
        look()
    }

    /// Runs `change` on the ranges. Under the hotplug lock.
    pub(crate) fn change_ranges<T>(&self, change: impl FnOnce() -> T) -> T {
        // Relaxed, and a fence: a thread that sees anything that `change` writes sees this.
        self.ranges_version.fetch_add(1, Ordering::Relaxed);
        release_fence();
        let result = change();
        // Release: a thread that sees this sees all of it.
        self.ranges_version.fetch_add(1, Ordering::Release);
        result
    }

    /// Which frames of a block exist.
    pub(crate) fn present(&self, block: Block<'_>) -> [u64; WORDS] {
        let tag = block.tag.get();
        match tag.state() {
            ABSENT => [0; WORDS],
            _ if !tag.has(HOLES) => [!0; WORDS],
            _ => self.present_of_ranges(block.base()),
        }
    }

    /// Which frames of the block that starts at `base` exist, by the ranges alone.
    pub(crate) fn present_of_ranges(&self, base: u64) -> [u64; WORDS] {
        self.looked_at(|| {
            let mut present = [0; WORDS];
            for r in self.ranges {
                let start = r.start.get().max(base) - base;
                let end = r.end.get().min(base + FRAMES as u64).saturating_sub(base);
                let len = end.saturating_sub(start) as usize;
                bits::spans(start as usize, len).for_each(|(w, m)| present[w] |= m);
            }
            present
        })
    }
}

/// There is no memory.
pub(crate) const ABSENT: u32 = 0;
/// Frames are told by the words.
pub(crate) const SPLIT: u32 = 1;
/// Wholly free.
pub(crate) const WHOLE: u32 = 2;
/// Allocated as a whole.
pub(crate) const TAKEN: u32 = 3;

const STATE: u32 = 0b11;
const TYPE_SHIFT: u32 = 2;
const TYPE: u32 = 0b111 << TYPE_SHIFT;
/// Some of its frames do not exist.
pub(crate) const HOLES: u32 = 1 << 5;
/// Being emptied: nothing may be allocated from it.
pub(crate) const ISOLATED: u32 = 1 << 6;
/// Nothing of it was ever allocated.
pub(crate) const FRESH: u32 = 1 << 7;
const ZONE_SHIFT: u32 = 8;
const ZONE: u32 = 0xff << ZONE_SHIFT;
/// Wholly free, and kept by a CPU.
pub(crate) const IN_HAND: u32 = 1 << 16;

/// Migratetypes of blocks: all but [`Isolate`](crate::Migratetype::Isolate), which is a flag here.
pub(crate) const TYPES: usize = 5;
/// The number of [`Movable`](crate::Migratetype::Movable).
pub(crate) const MOVABLE: usize = crate::Migratetype::Movable as usize;
/// The number of [`HighAtomic`](crate::Migratetype::HighAtomic).
pub(crate) const HIGH_ATOMIC: usize = 3;
/// The number of [`Cma`](crate::Migratetype::Cma).
pub(crate) const CMA: usize = 4;

/// A tag's value; see the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) const fn new(state: u32, migratetype: usize, zone: u8) -> Self {
        Self(state | (migratetype as u32) << TYPE_SHIFT | (zone as u32) << ZONE_SHIFT)
    }
    #[inline(always)]
    pub(crate) const fn state(self) -> u32 {
        self.0 & STATE
    }
    /// An ordinary split block: frames may go into its words without a closer look.
    #[inline(always)]
    pub(crate) const fn is_ordinary(self) -> bool {
        self.0 & (STATE | HOLES | ISOLATED) == SPLIT
    }
    /// An ordinary split block of that type.
    #[inline(always)]
    pub(crate) const fn is_ordinary_of(self, migratetype: usize) -> bool {
        self.0 & (STATE | TYPE | HOLES | ISOLATED) == SPLIT | (migratetype as u32) << TYPE_SHIFT
    }
    /// What an ordinary split block of type 0 has in a zone, for
    /// [`is_ordinary_in`](Self::is_ordinary_in).
    pub(crate) const fn ordinary_in(zone: u8) -> u32 {
        Self::new(SPLIT, 0, zone).0
    }
    /// An ordinary split block of the zone that [`ordinary_in`](Self::ordinary_in) was asked for.
    #[inline(always)]
    pub(crate) const fn is_ordinary_in(self, ordinary: u32) -> bool {
        self.0 & (STATE | HOLES | ISOLATED | ZONE) == ordinary
    }
    /// [`is_ordinary_in`](Self::is_ordinary_in), of that type.
    #[inline(always)]
    pub(crate) const fn is_ordinary_of_in(self, migratetype: usize, ordinary: u32) -> bool {
        let own = ordinary | (migratetype as u32) << TYPE_SHIFT;
        self.0 & (STATE | TYPE | HOLES | ISOLATED | ZONE) == own
    }
    /// A split block of that type and zone whose frames may be handed out.
    #[inline(always)]
    pub(crate) const fn is_open_of(self, migratetype: usize, zone: u8) -> bool {
        self.0 & (STATE | TYPE | ISOLATED | ZONE) == Self::new(SPLIT, migratetype, zone).0
    }
    /// A split block whose frames may be handed out.
    #[inline(always)]
    pub(crate) const fn is_open(self) -> bool {
        self.0 & (STATE | ISOLATED) == SPLIT
    }
    #[inline(always)]
    pub(crate) const fn migratetype(self) -> usize {
        ((self.0 & TYPE) >> TYPE_SHIFT) as usize
    }
    #[inline(always)]
    pub(crate) const fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
    #[inline(always)]
    pub(crate) const fn zone(self) -> usize {
        (self.0 >> ZONE_SHIFT) as u8 as usize
    }
    pub(crate) const fn with_state(self, state: u32) -> Self {
        Self(self.0 & !STATE | state)
    }
    pub(crate) const fn with_type(self, migratetype: usize) -> Self {
        Self(self.0 & !TYPE | (migratetype as u32) << TYPE_SHIFT)
    }
    pub(crate) const fn with_flag(self, flag: u32, on: bool) -> Self {
        Self(if on { self.0 | flag } else { self.0 & !flag })
    }
}

/// Where a tag is kept.
pub(crate) struct TagCell(AtomicU32);

impl TagCell {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(ABSENT))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Tag {
        // SeqCst: a thief that has leased a word looks whether the block is still what it was; see
        // `words::take_word`.
        Tag(self.0.load(Ordering::SeqCst))
    }

    /// For who has the block alone; see the table above.
    pub(crate) fn set(&self, tag: Tag) {
        // SeqCst: the class is read next by a thread that makes a block a split one, while a thread
        // that clears a stale bit of the board reads this after it; see `block::class`. Release
        // is part of it: a thread that sees the new state sees the words that go with it.
        self.0.store(tag.0, Ordering::SeqCst);
    }

    /// Changes it if it still is `from`.
    pub(crate) fn exchange(&self, from: Tag, to: Tag) -> bool {
        // SeqCst: see `get` and `set`. Relaxed on failure: the caller looks again.
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::LOOKS;
    use crate::tests::testing::*;

    #[test]
    fn ranges_that_change_while_they_are_looked_at_are_looked_at_again() {
        let fh = machine(1, 1024);
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            looks.get()
        };
        assert_eq!(fh.map.looked_at(look), 1);
        // Somebody else changes them during the first look.
        looks.set(0);
        let disturbed = || match look() {
            1 => fh.map.change_ranges(|| 1),
            n => n,
        };
        assert_eq!(fh.map.looked_at(disturbed), 2);
        // Somebody who is stopped in the middle does not keep others for ever.
        looks.set(0);
        assert_eq!(fh.map.change_ranges(|| fh.map.looked_at(look)), LOOKS + 1);
    }
}
