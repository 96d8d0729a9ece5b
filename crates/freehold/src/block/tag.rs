//! What there is to know about a block before touching its words, in one 32-bit tag.
//!
//! ```text
//! bits 0..2 state | 2..5 migratetype | 5 holes | 6 isolated | 7 fresh | 8..16 zone | 16..32 group
//! ```
//!
//! ```text
//!            populate                  split (a group needs frames)
//!   ABSENT ------------> WHOLE -----------------------------------------> SPLIT
//!             remove     ^  |  <--- retire (all eight words are free) ---   ^
//!                        |  | alloc of order 9 and above                    | free of a part
//!                 free   |  v                                               |
//!                        TAKEN ---------------------------------------------+
//! ```
//!
//! | state | the block's words | who may change the tag |
//! |---|---|---|
//! | `ABSENT` | 0 | hotplug |
//! | `WHOLE` | 0: all of it is free, and its holder says so | who has it: group, zone (their lock) or CPU (its door) |
//! | `SPLIT` | tell which frames are free | the holder of the lock of its group |
//! | `TAKEN` | 0: all of it is in use | the freer that wins a compare-exchange |

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
const GROUP_SHIFT: u32 = 16;

/// The group number of the zone itself: blocks that no group holds.
pub(crate) const ZONE_GROUP: u16 = 0;
/// The group number of a wholly free block in a CPU's hand.
pub(crate) const IN_HAND: u16 = u16::MAX;

/// Migratetypes that lists are kept for: all but [`Isolate`](crate::Migratetype::Isolate), which is
/// a flag here.
pub(crate) const TYPES: usize = 5;
/// The number of [`HighAtomic`](crate::Migratetype::HighAtomic).
pub(crate) const HIGH_ATOMIC: usize = 3;
/// The number of [`Cma`](crate::Migratetype::Cma).
pub(crate) const CMA: usize = 4;

/// A tag's value; see the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

impl Tag {
    pub(crate) const fn new(state: u32, migratetype: usize, zone: u8, group: u16) -> Self {
        Self(
            state
                | (migratetype as u32) << TYPE_SHIFT
                | (zone as u32) << ZONE_SHIFT
                | (group as u32) << GROUP_SHIFT,
        )
    }
    #[inline(always)]
    pub(crate) const fn state(self) -> u32 {
        self.0 & STATE
    }
    /// An ordinary split block: frames may go into its words without a closer look.
    #[inline(always)]
    pub(crate) const fn is_plain_split(self) -> bool {
        self.0 & (STATE | HOLES | ISOLATED) == SPLIT
    }
    /// The same, of that type.
    #[inline(always)]
    pub(crate) const fn is_plain_split_of(self, migratetype: usize) -> bool {
        self.0 & (STATE | TYPE | HOLES | ISOLATED) == SPLIT | (migratetype as u32) << TYPE_SHIFT
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
    #[inline(always)]
    pub(crate) const fn group(self) -> u16 {
        (self.0 >> GROUP_SHIFT) as u16
    }
    /// Zone and group together, to be compared at once.
    #[inline(always)]
    pub(crate) const fn holder(self) -> u32 {
        self.0 >> ZONE_SHIFT
    }
    pub(crate) const fn with_state(self, state: u32) -> Self {
        Self(self.0 & !STATE | state)
    }
    pub(crate) const fn with_type(self, migratetype: usize) -> Self {
        Self(self.0 & !TYPE | (migratetype as u32) << TYPE_SHIFT)
    }
    pub(crate) const fn with_group(self, group: u16) -> Self {
        Self(self.0 & 0xffff | (group as u32) << GROUP_SHIFT)
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

    /// For who may change it, see the table above.
    pub(crate) fn set(&self, tag: Tag) {
        // Release: who sees the new state sees the words that go with it. Where it is a question of
        // who was first (isolation against leases), `exchange` is used.
        self.0.store(tag.0, Ordering::Release);
    }

    /// The same for who has had the block to itself and announces it next.
    pub(crate) fn hand(&self, tag: Tag) {
        // SeqCst: the class is read next. Whoever has just cleared that and then reads the tag must
        // not miss this one while the announcer misses the cleared class: nobody would look at the
        // block.
        self.0.store(tag.0, Ordering::SeqCst);
    }

    /// Changes it if it still is `from`; for states that freers change.
    pub(crate) fn exchange(&self, from: Tag, to: Tag) -> bool {
        // SeqCst: see `get`. Relaxed on failure: the caller looks again.
        self.0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}
