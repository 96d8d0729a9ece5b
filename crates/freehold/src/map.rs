//! Which block a frame belongs to: constant time, whatever the holes between the zones.
//!
//! ```text
//! sections  one u32 for each 128 MiB of the PFN span: the slot of its 64 blocks, or none
//! blocks    slot * 64 + (block within its section)
//! ranges    where memory is, at frame granularity: looked at only for blocks with holes and for wrong frees
//! ```
//!
//! A section keeps its slot for good, so a lookup can never race with its reuse.

use crate::block::{Block, FLAG_HOLES, FRAMES, NONE, WORDS};
use crate::holder::Holder;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, Plain};

/// Blocks in a section.
pub(crate) const SECTION_BLOCKS: u64 = 64;
/// Log2 of the frames in a section.
pub(crate) const SECTION_SHIFT: u32 = 15;

/// A piece of memory, at frame granularity; empty entries are free to use.
pub(crate) struct MemoryRange {
    pub(crate) start: AtomicU64,
    pub(crate) end: AtomicU64,
}

impl MemoryRange {
    pub(crate) fn new() -> Self {
        Self { start: AtomicU64::new(0), end: AtomicU64::new(0) }
    }
}

/// See the module's documentation.
pub(crate) struct FrameMap<'m> {
    pub(crate) sections: &'m [AtomicU32],
    pub(crate) first_section: u64,
    pub(crate) blocks: &'m [Block],
    pub(crate) ranges: &'m [MemoryRange],
    /// Slots in use; only grows, under the hotplug lock.
    pub(crate) slots: AtomicU32,
}

impl FrameMap<'_> {
    /// The index of the frame's block; `None` where no section has memory metadata.
    #[inline(always)]
    pub(crate) fn locate(&self, pfn: u64) -> Option<u32> {
        let section = (pfn >> SECTION_SHIFT).wrapping_sub(self.first_section);
        // Acquire: pairs with `slot_for`, so that the section's blocks are seen set up. A plain load on x86.
        let slot = self.sections.get(section as usize)?.load(Ordering::Acquire);
        if slot == NONE {
            return None;
        }
        Some((slot << 6) | ((pfn >> 9) as u32 % 64))
    }

    /// The index of a pageblock by its number.
    pub(crate) fn locate_block(&self, number: u64) -> Option<u32> {
        self.locate(number << 9)
    }

    /// The slot of the section that `pfn` is in, a new one if need be; `None` where all are used up or the frame is
    /// outside the span. Under the hotplug lock.
    pub(crate) fn slot_for(&self, pfn: u64) -> Option<u32> {
        let section = (pfn >> SECTION_SHIFT).wrapping_sub(self.first_section);
        let entry = self.sections.get(section as usize)?;
        if entry.get() != NONE {
            return Some(entry.get());
        }
        let slot = self.slots.get();
        if u64::from(slot) * SECTION_BLOCKS >= self.blocks.len() as u64 {
            return None;
        }
        for i in 0..SECTION_BLOCKS {
            let block = &self.blocks[(u64::from(slot) * SECTION_BLOCKS + i) as usize];
            block.number.set((((section + self.first_section) << (SECTION_SHIFT - 9)) + i) as u32);
        }
        self.slots.set(slot + 1);
        // Release: see `locate`.
        entry.store(slot, Ordering::Release);
        Some(slot)
    }

    /// How many more sections can get memory.
    pub(crate) fn free_slots(&self) -> u64 {
        self.blocks.len() as u64 / SECTION_BLOCKS - u64::from(self.slots.get())
    }

    /// Blocks in use or not, in no order: all that have a slot.
    pub(crate) fn all(&self) -> &[Block] {
        &self.blocks[..(u64::from(self.slots.get()) * SECTION_BLOCKS) as usize]
    }

    /// Whether there is memory at that frame. Looks at every range: for the rare cases only.
    pub(crate) fn is_present(&self, pfn: u64) -> bool {
        self.ranges.iter().any(|r| r.start.get() <= pfn && pfn < r.end.get())
    }

    /// Which frames of a block exist.
    pub(crate) fn present(&self, block: &Block) -> [u64; WORDS] {
        if block.holder() == Holder::NOBODY {
            return [0; WORDS];
        }
        if !block.has_flag(FLAG_HOLES) {
            return [!0; WORDS];
        }
        self.present_of_ranges(block)
    }

    /// Which frames of a block exist, by the ranges alone.
    pub(crate) fn present_of_ranges(&self, block: &Block) -> [u64; WORDS] {
        let mut present = [0; WORDS];
        let base = block.base();
        for r in self.ranges {
            let start = r.start.get().max(base);
            let end = r.end.get().min(base + FRAMES as u64);
            if start < end {
                for (w, m) in crate::bits::spans((start - base) as usize, (end - start) as usize) {
                    present[w] |= m;
                }
            }
        }
        present
    }
}
