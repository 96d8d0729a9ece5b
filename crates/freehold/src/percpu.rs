//! What each CPU has: its lock, its inbox, its combining buffer, its counters, and per zone the blocks it holds.
//!
//! ```text
//! CpuState   lock, owner's state        one line written on every operation
//!            combining buffer           its own lines
//!            inbox                      a line of its own: others push here
//!            counters                   its own lines
//! Pcp        one for each (CPU, zone): active block a migratetype, count and high, shelf
//! ```

use crate::biased::BiasedLock;
use crate::block::{Block, CLASS_ACTIVE, CLASS_DETACHED, CLASS_DIRTY, CLASS_FULL, CLASS_WHOLE, NONE, WORDS};
use crate::inbox::Inbox;
use crate::owner::OwnerState;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Count, Plain};
use crate::shelf::{Shelf, TYPES};
use crate::stats::CpuCounters;

/// Entries of the combining buffer. A power of two; the word's number picks the entry.
pub(crate) const COMBINE: usize = 8;
/// The key of an entry that is not in use.
pub(crate) const NO_KEY: u64 = u64::MAX;

/// Frees into one word of a block that somebody else holds, waiting to be published with one atomic.
pub(crate) struct Combine {
    /// PFN divided by 64, or [`NO_KEY`]. While `mask` is 0, only a note that a frame of that word was freed lately.
    pub(crate) key: AtomicU64,
    /// Frames freed.
    pub(crate) mask: AtomicU64,
    /// Frames that were free when the entry was opened.
    pub(crate) known: AtomicU64,
    /// Index of the block.
    pub(crate) block: AtomicU32,
    /// Frees by the owner's fast path that are not in the CPU's counters yet: beside the mask, since storing to two lines
    /// in turn takes twice as long.
    pub(crate) frees: AtomicU32,
}

impl Combine {
    fn new() -> Self {
        Self {
            key: AtomicU64::new(NO_KEY),
            mask: AtomicU64::new(0),
            known: AtomicU64::new(0),
            block: AtomicU32::new(NONE),
            frees: AtomicU32::new(0),
        }
    }
}

/// See the module's documentation. 128 bytes apart, since adjacent lines are fetched in pairs.
#[repr(C, align(128))]
pub(crate) struct CpuState {
    pub(crate) lock: BiasedLock,
    pub(crate) owner: OwnerState,
    /// Somebody has taken it for good with `own`.
    pub(crate) owned: AtomicBool,
    /// Which of all [`Pcp`]s is that of the zone this CPU goes to first.
    pub(crate) first_pcp: AtomicU32,
    pub(crate) online: AtomicBool,
    /// Bit e set: entry e of `combine` is in use.
    pub(crate) combining: AtomicU32,
    pub(crate) combine: [Combine; COMBINE],
    pub(crate) inbox: Inbox,
    pub(crate) counters: CpuCounters,
}

impl CpuState {
    pub(crate) fn new() -> Self {
        Self {
            lock: BiasedLock::new(),
            owner: OwnerState::new(),
            owned: AtomicBool::new(false),
            first_pcp: AtomicU32::new(0),
            online: AtomicBool::new(false),
            combining: AtomicU32::new(0),
            combine: core::array::from_fn(|_| Combine::new()),
            inbox: Inbox::new(false),
            counters: CpuCounters::new(),
        }
    }
}

/// The block a CPU allocates from.
pub(crate) struct Active {
    /// Its index, or [`NONE`].
    pub(crate) block: AtomicU32,
    /// No word below this one has a free frame.
    pub(crate) word: AtomicU32,
    /// The PFN of that word's first frame.
    pub(crate) base: AtomicU64,
}

impl Active {
    fn new() -> Self {
        Self { block: AtomicU32::new(NONE), word: AtomicU32::new(0), base: AtomicU64::new(0) }
    }

    /// Makes `w` the word of `block`, the active one, that allocations come from.
    #[inline]
    pub(crate) fn set_word(&self, block: &Block, w: usize) {
        self.word.set(w as u32);
        self.base.set(block.base() + w as u64 * 64);
    }

    /// Frames of word `w` have become free: allocations come from the lowest word that has any. Whether that is a change.
    #[inline]
    pub(crate) fn lower_word(&self, block: &Block, w: usize) -> bool {
        let lower = (w as u32) < self.word.get();
        if lower {
            self.set_word(block, w);
        }
        lower
    }
}

/// The blocks of one zone that one CPU holds. Under that CPU's lock.
#[repr(C, align(128))]
pub(crate) struct Pcp {
    pub(crate) active: [Active; TYPES],
    /// Free frames in hand, but for what the owner's fast path has not booked yet.
    count: AtomicU64,
    /// Free frames in hand of CMA blocks.
    count_of_cma: AtomicU64,
    /// Above this many free frames, blocks go back to the zone. Tunes itself between the two next.
    pub(crate) high: AtomicU32,
    pub(crate) high_min: AtomicU32,
    pub(crate) high_max: AtomicU32,
    /// Blocks to claim at the next refill; doubles while refills follow one another.
    pub(crate) ramp: AtomicU32,
    /// Blocks held.
    pub(crate) blocks: AtomicU32,
    pub(crate) shelf: Shelf,
}

impl Pcp {
    pub(crate) fn new() -> Self {
        Self {
            active: core::array::from_fn(|_| Active::new()),
            count: AtomicU64::new(0),
            count_of_cma: AtomicU64::new(0),
            high: AtomicU32::new(0),
            high_min: AtomicU32::new(0),
            high_max: AtomicU32::new(0),
            ramp: AtomicU32::new(1),
            blocks: AtomicU32::new(0),
            shelf: Shelf::new(),
        }
    }

    /// Takes a block in: it is detached, held by this CPU, and has its migratetype.
    pub(crate) fn insert(&self, blocks: &[Block], index: u32) {
        let block = &blocks[index as usize];
        debug_assert_eq!(block.class(), CLASS_DETACHED);
        self.shelf.link(blocks, index, block.exact_class());
        self.note_frames(block, block.popcount());
        self.blocks.add(1);
    }

    /// Lets go of a block; it is detached then, and still says that this CPU holds it.
    pub(crate) fn remove(&self, blocks: &[Block], index: u32) {
        let block = &blocks[index as usize];
        if block.class() == CLASS_ACTIVE {
            let active = &self.active[block.migratetype() as usize];
            debug_assert_eq!(active.block.get(), index);
            active.block.set(NONE);
        } else {
            self.shelf.unlink(blocks, index);
        }
        block.set_class(CLASS_DETACHED);
        self.forget_frames(block, block.popcount());
        self.blocks.sub(1);
    }

    /// Free frames in hand. For those who have entered, which settles what the owner's fast path did.
    pub(crate) fn count(&self) -> u32 {
        self.count.get() as u32
    }

    /// The same for readers who have not entered: with what `owner` has not booked, where this is the zone it goes to
    /// first.
    pub(crate) fn count_with(&self, owner: Option<&OwnerState>) -> u32 {
        // Parts of different moments may be seen.
        let count = self.count.get().wrapping_add(owner.map_or(0, OwnerState::unbooked)) as i64;
        count.clamp(0, i64::from(u32::MAX)) as u32
    }

    /// Free frames in hand of CMA blocks.
    pub(crate) fn count_cma(&self) -> u32 {
        self.count_of_cma.get() as u32
    }

    /// Counts frames of that block as free in hand.
    #[inline]
    pub(crate) fn note_frames(&self, block: &Block, frames: u32) {
        self.count.add(u64::from(frames));
        if block.migratetype() == CMA {
            self.count_of_cma.add(u64::from(frames));
        }
    }

    /// Counts frames of that block as gone.
    #[inline]
    pub(crate) fn forget_frames(&self, block: &Block, frames: u32) {
        self.count.sub(u64::from(frames));
        if block.migratetype() == CMA {
            self.count_of_cma.sub(u64::from(frames));
        }
    }

    /// Counts frames as free in hand; a number that wraps counts them as gone.
    pub(crate) fn add_frames(&self, frames: u64) {
        self.count.add(frames);
    }

    /// How many frames the owner may free before the high mark is to be looked at.
    pub(crate) fn budget(&self) -> u64 {
        u64::from(self.high.get().saturating_sub(self.count())) + 1
    }

    /// Makes a block on the shelf the one to allocate from; the last one goes on the shelf.
    pub(crate) fn activate(&self, blocks: &[Block], index: u32) {
        let block = &blocks[index as usize];
        let migratetype = block.migratetype() as usize;
        self.retire(blocks, migratetype);
        self.shelf.unlink(blocks, index);
        block.set_class(CLASS_ACTIVE);
        let active = &self.active[migratetype];
        active.block.set(index);
        let first = (0..WORDS).find(|&w| block.free_word(w) != 0).unwrap_or(0);
        active.set_word(block, first);
    }

    /// Puts the active block of that type on the shelf, where its free runs say.
    pub(crate) fn retire(&self, blocks: &[Block], migratetype: usize) {
        let active = &self.active[migratetype];
        let index = active.block.get();
        if index != NONE {
            active.block.set(NONE);
            self.shelf.link(blocks, index, blocks[index as usize].exact_class());
        }
    }

    /// Frames of a block on the shelf have become free; `filled` where a word may have become all free. Most of the
    /// time there is nothing to do: the block is dirty already.
    #[inline]
    pub(crate) fn touched(&self, blocks: &[Block], index: u32, filled: bool) {
        let block = &blocks[index as usize];
        let class = block.class();
        debug_assert!(class <= CLASS_DIRTY);
        let now = if filled && block.is_whole() { CLASS_WHOLE } else { CLASS_DIRTY };
        if class != now {
            self.shelf.unlink(blocks, index);
            self.shelf.link(blocks, index, now);
        }
    }

    /// A chunk was taken from a block on the shelf: its list shall say what is left, or small requests would not find it
    /// and break up a better one.
    pub(crate) fn reclassify(&self, blocks: &[Block], index: u32) {
        let class = blocks[index as usize].exact_class();
        if class != blocks[index as usize].class() {
            self.shelf.unlink(blocks, index);
            self.shelf.link(blocks, index, class);
        }
    }

    /// Looks how large the free runs of up to `limit` dirty blocks are; whether there were any.
    pub(crate) fn classify(&self, blocks: &[Block], migratetype: usize, limit: u32) -> bool {
        let mut any = false;
        for _ in 0..limit {
            let Some(index) = self.shelf.first(migratetype, CLASS_DIRTY) else { break };
            any = true;
            self.shelf.unlink(blocks, index);
            self.shelf.link(blocks, index, blocks[index as usize].exact_class());
        }
        any
    }

    /// A block of that type with an aligned free run of that order, on the shelf: the smallest class that has one.
    ///
    /// Blocks found to have less than their list says move to the list they belong to, so that each is looked at in
    /// vain at most once between two frees; dirty ones are looked at when nothing else has the run, or, for single
    /// frames, taken as they are.
    pub(crate) fn find(&self, blocks: &[Block], migratetype: usize, order: u32) -> Option<(u32, usize)> {
        loop {
            let class = self.shelf.smallest(migratetype, order as u8 + 1);
            let class = match class {
                // Whole blocks last: something dirty will do as well.
                Some(CLASS_WHOLE | CLASS_DIRTY) | None => {
                    if order == 0 {
                        let dirty = self.shelf.first(migratetype, CLASS_DIRTY);
                        if let Some(index) = dirty {
                            if let Some(offset) = blocks[index as usize].find_run(0) {
                                return Some((index, offset));
                            }
                        }
                    }
                    if self.classify(blocks, migratetype, 16) {
                        continue;
                    }
                    class?
                }
                Some(class) => class,
            };
            let index = self.shelf.first(migratetype, class)?;
            let block = &blocks[index as usize];
            if let Some(offset) = block.find_run(order) {
                return Some((index, offset));
            }
            self.shelf.unlink(blocks, index);
            self.shelf.link(blocks, index, block.exact_class());
        }
    }

    /// The same, but whole blocks stay whole.
    pub(crate) fn find_partial(&self, blocks: &[Block], migratetype: usize, order: u32) -> Option<(u32, usize)> {
        // The lists of partly free blocks first: `find` goes by rising class, so whole ones come last.
        let (index, offset) = self.find(blocks, migratetype, order)?;
        // A CMA block can serve nothing but small movable requests, so there is no use in sparing it.
        (migratetype == CMA as usize || !blocks[index as usize].is_whole()).then_some((index, offset))
    }

    /// A wholly free block on the shelf, of any of the ordinary migratetypes.
    pub(crate) fn find_whole(&self, blocks: &[Block]) -> Option<u32> {
        for migratetype in 0..3 {
            while let Some(index) = self.shelf.first(migratetype, CLASS_WHOLE) {
                let block = &blocks[index as usize];
                if block.is_whole() {
                    return Some(index);
                }
                self.shelf.unlink(blocks, index);
                self.shelf.link(blocks, index, block.exact_class());
            }
        }
        // An active block may have become whole without anyone noticing.
        for migratetype in 0..3 {
            let index = self.active[migratetype].block.get();
            if index != NONE && blocks[index as usize].is_whole() {
                self.retire(blocks, migratetype);
                return Some(index);
            }
        }
        None
    }

    /// Changes the type of a block on the shelf.
    pub(crate) fn retype(&self, blocks: &[Block], index: u32, migratetype: u8) {
        let block = &blocks[index as usize];
        debug_assert!(block.class() <= CLASS_DIRTY);
        self.shelf.unlink(blocks, index);
        block.set_migratetype(migratetype);
        self.shelf.link(blocks, index, block.class());
    }

    /// Any block held, for emptying the CPU.
    pub(crate) fn any(&self) -> Option<u32> {
        for migratetype in 0..TYPES {
            let index = self.active[migratetype].block.get();
            if index != NONE {
                return Some(index);
            }
            if let Some(class) = self.shelf.smallest(migratetype, CLASS_FULL) {
                return self.shelf.first(migratetype, class);
            }
        }
        None
    }
}

/// The number of [`Migratetype::Cma`](crate::Migratetype::Cma).
pub(crate) const CMA: u8 = 4;
