//! What there is to know about a block before touching its words, in one 32-bit tag.
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

use crate::primitive::{AtomicU32, Ordering};

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
