//! A pageblock's metadata: which of its 512 frames are free, its state, who leases its words.
//!
//! ```text
//! PFN ──map──> index ──> Line   words[8]                    1 bit a frame, 1 = free and in nobody's hand   64 bytes
//!                        Head   tag, class, leases[8]       read by every free                             32 bytes
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`bits`] | runs of set bits: what a buddy system keeps lists for |
//! | [`tag`] | state, type and zone in one word |
//! | [`map`] | from a PFN to its block, set up section by section when first used |
//! | [`words`] | the only two ways in which frames move between a word and a hand: `take` and `put` |
//! | [`class`] | frames come into words; what the board says of a block; blocks become whole and split |
//! | [`claim`] | frames taken straight from a block's words, past the leases |
//! | [`layout`] | how the caller's metadata memory is cut |

pub(crate) mod bits;
pub(crate) mod claim;
pub(crate) mod class;
#[expect(unsafe_code, reason = "cuts the caller's memory into slices; see there")]
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod tag;
pub(crate) mod words;

use crate::Pfn;

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

/// A block whose metadata is set up. Made by [`Blocks`](layout::Blocks), which never takes a slot
/// back, or of another one of its section, or kept by a [`Place`](layout::Place).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Index(u32);

impl Index {
    #[inline(always)]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    /// The blocks of a section, of which this is the first.
    pub(crate) fn of_section(self) -> impl Iterator<Item = Self> {
        (self.0..self.0 + SECTION_BLOCKS as u32).map(Self)
    }

    /// One of which nobody looks at what it stands for.
    #[cfg(test)]
    pub(crate) const fn unused(raw: u32) -> Self {
        Self(raw)
    }

    /// The block at that place of its section, all of which is set up at once.
    #[inline(always)]
    pub(crate) const fn beside(self, in_section: u32) -> Self {
        let mask = SECTION_BLOCKS as u32 - 1;
        Self(self.0 & !mask | in_section & mask)
    }
}

/// One pageblock, by its metadata: what all who work on a block ask for what it has.
#[derive(Clone, Copy)]
pub(crate) struct Block<'m> {
    pub(crate) head: &'m words::Head,
    pub(crate) line: &'m words::Line,
}

impl Block<'_> {
    /// Where its metadata is.
    #[inline(always)]
    pub(crate) fn index(self) -> Index {
        self.head.index()
    }

    /// The PFN of its first frame.
    #[inline(always)]
    pub(crate) fn base(self) -> u64 {
        u64::from(self.head.number) << BLOCK_ORDER
    }
}

#[cfg(test)]
impl Block<'static> {
    /// One of no allocator.
    pub(crate) fn unused() -> Self {
        use std::boxed::Box;
        let head = Box::leak(Box::new(words::Head::new(0, Index::unused(0))));
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
