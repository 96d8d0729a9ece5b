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
/// has. Made by [`Blocks`](layout::Blocks), which never takes a slot back.
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
