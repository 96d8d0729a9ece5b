//! A pageblock's metadata: which of its 512 frames are free, in what state it is, which CPU leases
//! which of its words.
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
//! | [`layout`] | how the caller's metadata memory is cut |

pub(crate) mod bits;
#[expect(unsafe_code, reason = "cuts the caller's memory into slices; see there")]
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod tag;
pub(crate) mod words;

/// Words of 64 frames in a block.
pub(crate) const WORDS: usize = 8;
/// Frames in a block.
pub(crate) const FRAMES: usize = WORDS * 64;
/// The order of a block.
pub(crate) const BLOCK_ORDER: u32 = 9;

/// One pageblock, by its metadata: what all who work on a block ask for what it has.
#[derive(Clone, Copy)]
pub(crate) struct Block<'m> {
    pub(crate) head: &'m words::Head,
    pub(crate) line: &'m words::Line,
}

impl Block<'_> {
    /// Where its metadata is.
    #[inline(always)]
    pub(crate) fn index(self) -> layout::Index {
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
        let head = Box::leak(Box::new(words::Head::new(0, layout::Index::unused(0))));
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
