//! Lists of blocks by migratetype and class: how a CPU and the zone find a block with a large enough free run.
//!
//! Doubly linked through the blocks' metadata, newest first, with one bit a list that says whether it is empty.
//! Every operation takes constant time. Used under the holder's lock only.

use crate::block::{Block, CLASSES, NONE};
use crate::primitive::{AtomicU16, AtomicU32, Plain};

/// Migratetypes that blocks are listed by: all but Isolate, which is never listed.
pub(crate) const TYPES: usize = 5;

/// See the module's documentation.
pub(crate) struct Shelf {
    heads: [[AtomicU32; CLASSES]; TYPES],
    /// Bit `class` set: that list has a block.
    filled: [AtomicU16; TYPES],
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Self {
            heads: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU32::new(NONE))),
            filled: core::array::from_fn(|_| AtomicU16::new(0)),
        }
    }

    /// Puts a block on the list of its type and of `class`, which becomes its class.
    pub(crate) fn link(&self, blocks: &[Block], index: u32, class: u8) {
        let block = &blocks[index as usize];
        let migratetype = block.migratetype() as usize;
        let head = &self.heads[migratetype][class as usize];
        let first = head.get();
        block.set_class(class);
        block.next.set(first);
        block.prev.set(NONE);
        if first != NONE {
            blocks[first as usize].prev.set(index);
        } else {
            let filled = &self.filled[migratetype];
            filled.set(filled.get() | 1 << class);
        }
        head.set(index);
    }

    /// Takes a block off its list. Its class stays what it was.
    pub(crate) fn unlink(&self, blocks: &[Block], index: u32) {
        let block = &blocks[index as usize];
        let (next, prev) = (block.next.get(), block.prev.get());
        if next != NONE {
            blocks[next as usize].prev.set(prev);
        }
        if prev != NONE {
            blocks[prev as usize].next.set(next);
            return;
        }
        let (migratetype, class) = (block.migratetype() as usize, block.class() as usize);
        debug_assert_eq!(self.heads[migratetype][class].get(), index, "block is not on the list it claims to be on");
        self.heads[migratetype][class].set(next);
        if next == NONE {
            let filled = &self.filled[migratetype];
            filled.set(filled.get() & !(1 << class));
        }
    }

    /// The newest block of that list.
    #[inline]
    pub(crate) fn first(&self, migratetype: usize, class: u8) -> Option<u32> {
        let index = self.heads[migratetype][class as usize].get();
        (index != NONE).then_some(index)
    }

    /// The smallest class, `least` or above, that has a block.
    #[inline]
    pub(crate) fn smallest(&self, migratetype: usize, least: u8) -> Option<u8> {
        let filled = u32::from(self.filled[migratetype].get()) & (!0 << least);
        (filled != 0).then(|| filled.trailing_zeros() as u8)
    }

    /// The largest class, `least` or above, that has a block.
    pub(crate) fn largest(&self, migratetype: usize, least: u8) -> Option<u8> {
        let filled = u32::from(self.filled[migratetype].get()) & (!0 << least);
        (filled != 0).then(|| 31 - filled.leading_zeros() as u8)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn blocks_are_found_by_the_smallest_sufficient_class() {
        let blocks: Vec<Block> = (0..5).map(|_| Block::new()).collect();
        let shelf = Shelf::new();
        for (i, class) in [3, 3, 7, 10, 0].into_iter().enumerate() {
            blocks[i].set_migratetype(1);
            shelf.link(&blocks, i as u32, class);
        }
        assert_eq!(shelf.smallest(1, 1), Some(3));
        assert_eq!(shelf.smallest(1, 4), Some(7));
        assert_eq!(shelf.largest(1, 1), Some(10));
        assert_eq!(shelf.smallest(0, 0), None);
        assert_eq!(shelf.first(1, 3), Some(1));
        shelf.unlink(&blocks, 0);
        assert_eq!(shelf.first(1, 3), Some(1));
        shelf.unlink(&blocks, 1);
        assert_eq!(shelf.first(1, 3), None);
        assert_eq!(shelf.smallest(1, 1), Some(7));
        shelf.unlink(&blocks, 4);
        assert_eq!(shelf.smallest(1, 0), Some(7));
    }
}
