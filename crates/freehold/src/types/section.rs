//! Sections of 128 MiB: the pieces in which the blocks' metadata is set up.

use crate::{Order, Pfn};

/// Log2 of the blocks in a section. Small under loom, which looks at every one.
pub(crate) const SECTION_BLOCKS_LOG: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 6 };
/// Blocks in a section.
pub(crate) const SECTION_BLOCKS: u64 = 1 << SECTION_BLOCKS_LOG;
/// Log2 of the frames in a section.
pub(crate) const SECTION_SHIFT: u32 = Order::PAGEBLOCK.get() as u32 + SECTION_BLOCKS_LOG;

/// The section of a frame.
pub(crate) const fn section(pfn: Pfn) -> u64 {
    pfn.get() >> SECTION_SHIFT
}
