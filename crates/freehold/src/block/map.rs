//! Which block a frame belongs to: constant time, whatever the holes between the zones.
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

use super::bits;
use super::layout::{Blocks, SetUp};
use super::tag::{ABSENT, HOLES};
use super::{Block, FRAMES, WORDS};
use crate::block::{SECTION_BLOCKS, SECTION_BLOCKS_LOG, SECTION_SHIFT};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, Relaxed, acquire_fence, release_fence};

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
