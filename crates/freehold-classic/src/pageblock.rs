//! What is known about each pageblock: its migratetype, whether it is isolated, and who owns it.
//!
//! Two layouts, because the first patch of the pcp-buddy proposal changes one into the other:
//!
//! ```text
//!   packed bits (7.2 and before)          one struct a block (pcp-buddy, patch 1)
//!   4 bits a block, 16 blocks a word:     +-------+-------+------+------+------+
//!   |iso mt mt mt|iso mt mt mt| ...       | flags | owner | next | prev | list |
//!                                         +-------+-------+------+------+------+
//!   neighbours share a word, so           a free finds type and owner on one cache line;
//!   a change needs a compare-exchange     owner = CPU + 1, 0 = the zone
//! ```
//!
//! Both give the same answers; only the second can say who owns a block. `next`, `prev` and `list`
//! link a block into its owner's list of blocks that have fragments in the zone; they are read and
//! written under the zone lock only.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use freehold::Migratetype;

use crate::list::Links;
use crate::page::NIL;

const TYPE: u64 = 0b0111;
const ISOLATED: u64 = 0b1000;

/// Not on a list of owned blocks.
pub(crate) const UNLISTED: u32 = u32::MAX;

/// One pageblock's struct. All fields Relaxed: a type may be read without a lock at any time and
/// may then be out of date, exactly as in the kernel; whoever must not be wrong reads it under the
/// zone lock.
pub(crate) struct PageblockData {
    flags: AtomicU32,
    owner: AtomicU32,
    pub(crate) next: AtomicU32,
    prev: AtomicU32,
    /// Which list of owned blocks it is on: [`UNLISTED`], or `cpu * 6 + type`.
    pub(crate) list: AtomicU32,
}

/// The pageblocks of one zone.
pub(crate) enum Pageblocks {
    /// 4 bits a block.
    Packed {
        /// 16 blocks a word.
        words: Box<[AtomicU64]>,
        /// How many blocks.
        blocks: u32,
    },
    /// One struct a block.
    Structs(Box<[PageblockData]>),
}

impl Pageblocks {
    pub(crate) fn new(blocks: u32, structs: bool, migratetype: Migratetype) -> Self {
        if structs {
            let block = |_| PageblockData {
                flags: AtomicU32::new(migratetype as u32),
                owner: AtomicU32::new(0),
                next: AtomicU32::new(NIL),
                prev: AtomicU32::new(NIL),
                list: AtomicU32::new(UNLISTED),
            };
            Self::Structs((0..blocks).map(block).collect())
        } else {
            let word = (0..16).fold(0, |word, i| word | (migratetype as u64) << (4 * i));
            Self::Packed {
                words: (0..blocks.div_ceil(16)).map(|_| AtomicU64::new(word)).collect(),
                blocks,
            }
        }
    }

    /// How many blocks.
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Packed { blocks, .. } => *blocks,
            Self::Structs(blocks) => blocks.len() as u32,
        }
    }

    fn bits(&self, block: u32) -> u64 {
        match self {
            Self::Packed { words, .. } => {
                words[(block / 16) as usize].load(Relaxed) >> (block % 16 * 4) & 0xf
            }
            Self::Structs(blocks) => u64::from(blocks[block as usize].flags.load(Relaxed)),
        }
    }

    /// Replaces the bits of `mask` by `bits`. Blocks that share a word may change at the same
    /// moment under different locks, hence the compare-exchange for the packed layout.
    fn change(&self, block: u32, mask: u64, bits: u64) {
        match self {
            Self::Packed { words, .. } => {
                let shift = block % 16 * 4;
                let word = &words[(block / 16) as usize];
                let mut now = word.load(Relaxed);
                while let Err(changed) = word.compare_exchange_weak(
                    now,
                    now & !(mask << shift) | bits << shift,
                    Relaxed,
                    Relaxed,
                ) {
                    now = changed;
                }
            }
            Self::Structs(blocks) => {
                // Every writer holds the zone lock, and the word is the block's own.
                let flags = &blocks[block as usize].flags;
                flags.store((u64::from(flags.load(Relaxed)) & !mask | bits) as u32, Relaxed);
            }
        }
    }

    /// The block's type as an allocation or free has to treat it: [`Migratetype::Isolate`] while
    /// isolated.
    #[inline]
    pub(crate) fn migratetype(&self, block: u32) -> Migratetype {
        let bits = self.bits(block);
        if bits & ISOLATED != 0 { Migratetype::Isolate } else { type_of(bits) }
    }

    /// The type underneath, isolated or not.
    pub(crate) fn type_underneath(&self, block: u32) -> Migratetype {
        type_of(self.bits(block))
    }

    pub(crate) fn set_migratetype(&self, block: u32, migratetype: Migratetype) {
        self.change(block, TYPE, migratetype as u64);
    }

    pub(crate) fn set_isolated(&self, block: u32, isolated: bool) {
        self.change(block, ISOLATED, if isolated { ISOLATED } else { 0 });
    }

    /// The CPU that owns the block.
    #[inline]
    pub(crate) fn owner(&self, block: u32) -> Option<u32> {
        match self {
            Self::Packed { .. } => None,
            Self::Structs(blocks) => blocks[block as usize].owner.load(Relaxed).checked_sub(1),
        }
    }

    pub(crate) fn set_owner(&self, block: u32, owner: Option<u32>) {
        if let Self::Structs(blocks) = self {
            blocks[block as usize].owner.store(owner.map_or(0, |cpu| cpu + 1), Relaxed);
        }
    }

    /// The block's struct, where blocks have one.
    pub(crate) fn data(&self, block: u32) -> Option<&PageblockData> {
        match self {
            Self::Packed { .. } => None,
            Self::Structs(blocks) => blocks.get(block as usize),
        }
    }

    /// Bytes of metadata: the cost of the first pcp-buddy patch.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Self::Packed { words, .. } => size_of_val(&**words),
            Self::Structs(blocks) => size_of_val(&**blocks),
        }
    }
}

fn type_of(bits: u64) -> Migratetype {
    Migratetype::from_index((bits & TYPE) as usize).unwrap_or(Migratetype::Isolate)
}

impl Links for Pageblocks {
    /// Only owned blocks are on lists, which have structs.
    fn links(&self, block: u32) -> (&AtomicU32, &AtomicU32) {
        let data = self.data(block).unwrap_or_else(|| unreachable!("packed blocks have no owner"));
        (&data.next, &data.prev)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_answer_alike() {
        for structs in [false, true] {
            let blocks = Pageblocks::new(40, structs, Migratetype::Movable);
            blocks.set_migratetype(17, Migratetype::Cma);
            blocks.set_isolated(17, true);
            assert_eq!(blocks.migratetype(17), Migratetype::Isolate);
            assert_eq!(blocks.type_underneath(17), Migratetype::Cma);
            blocks.set_isolated(17, false);
            assert_eq!(blocks.migratetype(17), Migratetype::Cma);
            for neighbour in [16, 18] {
                assert_eq!(blocks.migratetype(neighbour), Migratetype::Movable);
            }
        }
    }

    #[test]
    fn packed_bits_cost_half_a_byte_and_structs_twenty() {
        assert_eq!(Pageblocks::new(512, false, Migratetype::Movable).bytes(), 256);
        assert_eq!(Pageblocks::new(512, true, Migratetype::Movable).bytes(), 512 * 20);
    }
}
