//! What a CPU's owner works with between two calls that look at everything: one cache line that each call writes, and
//! what was freed last, kept aside because most of it is wanted again at once.
//!
//! ```text
//!            remember (a free)                   take (an allocation)
//!   nothing ------------------> held, free ------------------------------> known, in use
//!      ^                            ^    \                                    /    |
//!      |                            |     +-- put back: the block's bits -----|----+ forget
//!      |                            +------------ give (a free of just that) -+    |
//!      +---------------------------------------------------------------------------+
//! ```
//!
//! A CPU remembers one frame and one whole block, of the zone it goes to first. While *held* they are free, but their bits
//! in the block are not set: taking and giving them writes a byte here and nothing in the block, searches nothing and looks
//! nothing up. That is what most pairs of an allocation and a free come to.
//!
//! Everything here is the owner's fast path's alone. Whoever enters the CPU's state in another way (a refill, a drain, a
//! robber, the invariant walk) [settles](OwnerState::settle) it first: what is held is put back, what was counted is
//! booked, so that nothing else has to know of it. Two parties read it without entering: a wrong free from another CPU
//! must find a held frame to be free already, so the block says in [`Block::hint`] that it is worth a look; and the
//! statistics add it up.

use crate::Order;
use crate::block::{Block, CLASS_ACTIVE, FRAMES, NONE, WORDS};
use crate::percpu::{NO_KEY, Pcp};
use crate::primitive::{AtomicU8, AtomicU32, AtomicU64, Count, Ordering, Plain};
use crate::stats::CpuCounters;

/// Instead of a migratetype: the block remembered is in use.
pub(crate) const NOT_HELD: u8 = u8::MAX;
/// Instead of a migratetype: no block is remembered. Not the same, since a caller may free any number, and so also
/// [`NO_PFN`]: the free of what is remembered must find it free already.
const NOT_KEPT: u8 = u8::MAX - 1;
/// Instead of a PFN: nothing is remembered.
pub(crate) const NO_PFN: u64 = u64::MAX;

/// In the state of the frame kept aside: somebody uses it. What taking it and giving it add.
const IN_USE: u64 = 1 << 7;
/// The state of no frame: of no migratetype, so that it cannot be taken, and not in use, so that it cannot be given either,
/// whatever number a caller frees.
const NO_FRAME: u64 = IN_USE - 1;
/// What makes the number of a frame one that no frame has.
const REVOKED: u64 = 1 << 63;

/// In [`Block::hint`]: nothing of the block is remembered.
pub(crate) const HINT_NONE: u8 = 0;
/// All of it is. Other values: a frame in word `hint - 1` is.
pub(crate) const HINT_BLOCK: u8 = u8::MAX;

/// Whether a block with that hint may have held frames in word `w`.
#[inline(always)]
pub(crate) const fn may_hold(hint: u8, w: usize) -> bool {
    hint == w as u8 + 1 || hint == HINT_BLOCK
}

/// See the module's documentation. The fields up to `budget` are what a call for a single frame writes; together with
/// the CPU's lock they fill one cache line, since storing to two lines in turn takes twice as long.
#[repr(C)]
pub(crate) struct OwnerState {
    /// What a free is compared with: the PFN of the frame kept aside, or a number that no frame has. The one field here
    /// that others write: who frees that frame elsewhere [revokes](Self::revoke) it.
    pub(crate) frame: AtomicU64,
    /// The PFN of the frame kept aside, or [`NO_PFN`].
    kept: AtomicU64,
    /// Its migratetype (bits 0..7), whether it is in use (bit 7), how often it was given since it is kept (from bit 8 on).
    /// Taking it and giving it both add 128. One word for all this, since each store that the next call has to read
    /// again costs.
    frame_state: AtomicU64,
    /// Frames handed out since the state was settled, by migratetype.
    pub(crate) allocs: [AtomicU64; 3],
    /// Frames that may still be freed before it is time to compare what the CPU holds with its high mark.
    pub(crate) budget: AtomicU64,

    /// Bit `m` set: the owner's handle knows the active word of migratetype `m`.
    pub(crate) cached: AtomicU8,
    /// The word that a single frame was freed into last, by the way for frames that come alone.
    pub(crate) last_key: AtomicU64,
    /// The word of the combining buffer that the owner freed into last, or [`NO_KEY`].
    pub(crate) remote_key: AtomicU64,
    /// Single frames freed into blocks that others hold, since the state was settled.
    pub(crate) remote_frees: AtomicU64,
    /// What `budget` was when the state was settled.
    granted: AtomicU64,
    /// The word freed into last (PFN divided by 64), or [`NO_KEY`]: of a block about which nothing is out of the ordinary.
    pub(crate) hot_key: AtomicU64,
    /// What the hot word looks like when the block's list may have to change: all ones; or 0, which it cannot be after
    /// a free, while the block is the active one.
    pub(crate) hot_full: AtomicU64,
    pub(crate) hot_block: AtomicU32,
    /// Index of the block of the frame kept aside.
    pub(crate) frame_block: AtomicU32,
    /// The block kept aside, likewise.
    pub(crate) block: AtomicU64,
    pub(crate) block_index: AtomicU32,
    pub(crate) block_held: AtomicU8,
    pub(crate) block_type: AtomicU8,
    /// Whole blocks handed out and freed since the state was settled.
    pub(crate) block_allocs: [AtomicU64; 3],
    pub(crate) block_frees: AtomicU64,
}

impl OwnerState {
    pub(crate) fn new() -> Self {
        Self {
            frame: AtomicU64::new(NO_PFN),
            kept: AtomicU64::new(NO_PFN),
            frame_state: AtomicU64::new(NO_FRAME),
            allocs: core::array::from_fn(|_| AtomicU64::new(0)),
            budget: AtomicU64::new(1),
            cached: AtomicU8::new(0),
            last_key: AtomicU64::new(NO_KEY),
            remote_key: AtomicU64::new(NO_KEY),
            remote_frees: AtomicU64::new(0),
            granted: AtomicU64::new(1),
            hot_key: AtomicU64::new(NO_KEY),
            hot_full: AtomicU64::new(0),
            hot_block: AtomicU32::new(NONE),
            frame_block: AtomicU32::new(NONE),
            block: AtomicU64::new(NO_PFN),
            block_index: AtomicU32::new(NONE),
            block_held: AtomicU8::new(NOT_KEPT),
            block_type: AtomicU8::new(NOT_HELD),
            block_allocs: core::array::from_fn(|_| AtomicU64::new(0)),
            block_frees: AtomicU64::new(0),
        }
    }

    /// Hands out the frame kept aside, if it is held and of that migratetype.
    #[inline(always)]
    pub(crate) fn take_frame(&self, migratetype: usize) -> Option<u64> {
        let state = self.frame_state.get();
        if state as u8 != migratetype as u8 {
            return None;
        }
        self.frame_state.set(state + IN_USE);
        Some(self.kept.get())
    }

    /// Takes back the frame kept aside; `false` where it is free already.
    #[inline(always)]
    pub(crate) fn give_frame(&self) -> bool {
        let state = self.frame_state.get();
        if state & IN_USE == 0 {
            return false;
        }
        // The carry counts.
        self.frame_state.set(state + IN_USE);
        true
    }

    /// Somebody else has freed frames of the word that starts at PFN `base`. Where the frame kept aside is one of them, the
    /// owner's next free of it must look at the block, and finds it free.
    pub(crate) fn revoke(&self, base: u64, mask: u64) {
        let pfn = self.frame.get();
        if pfn >> 6 == base >> 6 && mask >> (pfn % 64) & 1 == 1 {
            // Relaxed: it orders nothing; who frees the frame wrongly after this learnt of it by other means. An exchange,
            // so that a frame that is kept since is let alone. Not NO_PFN, which callers take for granted that they may
            // free in vain: the state still says that the frame is in use.
            let _ = self.frame.compare_exchange(pfn, pfn | REVOKED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The frame kept aside is free.
    #[inline(always)]
    pub(crate) fn holds_frame(&self) -> bool {
        (self.frame_state.get() as u8) < NO_FRAME as u8
    }

    /// The block kept aside is free.
    #[inline(always)]
    pub(crate) fn holds_block(&self) -> bool {
        self.block_held.get() < NOT_KEPT
    }

    /// Something that is kept aside is free.
    pub(crate) fn holds_any(&self) -> bool {
        self.holds_frame() || self.holds_block()
    }

    fn frame_type(&self) -> usize {
        (self.frame_state.get() & (IN_USE - 1)) as usize
    }

    /// How often the frame kept aside was handed out and freed, apart from the free that had it kept.
    fn frame_counts(&self) -> (u64, u64) {
        let (given, in_use) = (self.frame_state.get() >> 8, self.frame_state.get() & IN_USE != 0);
        (given + u64::from(in_use), given)
    }

    /// Single frames freed since the state was settled.
    pub(crate) fn frees(&self) -> u64 {
        self.granted.get().wrapping_sub(self.budget.get()).wrapping_add(self.frame_counts().1)
    }

    /// Single frames of a migratetype handed out since the state was settled.
    pub(crate) fn allocs_of(&self, migratetype: usize) -> u64 {
        let kept = self.frame_type() == migratetype;
        self.allocs[migratetype].get().wrapping_add(if kept { self.frame_counts().0 } else { 0 })
    }

    /// Free frames that the CPU has in hand beyond what is booked. Wraps where they are fewer.
    pub(crate) fn unbooked(&self) -> u64 {
        let (mut frames, mut blocks) = (self.frees(), self.block_frees.get());
        for m in 0..self.allocs.len() {
            frames = frames.wrapping_sub(self.allocs_of(m));
            blocks = blocks.wrapping_sub(self.block_allocs[m].get());
        }
        frames.wrapping_add(blocks.wrapping_mul(FRAMES as u64))
    }

    /// Counts a free; `true` where it is time to compare what the CPU holds with its high mark.
    #[inline(always)]
    pub(crate) fn count_free(&self) -> bool {
        let left = self.budget.get().wrapping_sub(1);
        self.budget.set(left);
        left == 0
    }

    /// Counts several frees at once, unless that is more than may be freed without a look.
    #[inline]
    pub(crate) fn try_count_frees(&self, frames: u64) -> bool {
        let left = self.budget.get();
        let fits = left > frames;
        if fits {
            self.budget.set(left - frames);
        }
        fits
    }

    /// Frames just counted singly were one call: the CPU has them in hand, but they are one free.
    pub(crate) fn counts_as_one_free(&self, pcp: &Pcp, frames: u64) {
        self.granted.set(self.granted.get().wrapping_sub(frames - 1));
        pcp.add_frames(frames - 1);
    }

    /// The CPU has that many more or fewer free frames in hand, which frees did not bring or allocations did not take.
    pub(crate) fn move_budget(&self, up: u64, down: u64) {
        let left = self.budget.get();
        let now = (left + up).saturating_sub(down).max(1);
        self.budget.set(now);
        self.granted.set(self.granted.get().wrapping_add(now).wrapping_sub(left));
    }

    /// Lets the owner free that many frames before the next look.
    pub(crate) fn set_budget(&self, budget: u64) {
        let more = budget.wrapping_sub(self.budget.get());
        self.budget.set(budget);
        self.granted.set(self.granted.get().wrapping_add(more));
    }

    /// Undoes all that only the owner's fast path knows. First thing on every way in but that one; `pcp` is that of the
    /// zone the CPU goes to first.
    #[inline]
    pub(crate) fn settle(&self, pcp: &Pcp, counters: &CpuCounters, blocks: &[Block]) {
        self.hot_key.set(NO_KEY);
        self.remote_key.set(NO_KEY);
        self.cached.set(0);
        if self.kept.get() != NO_PFN {
            self.put_back_frame(pcp, blocks);
        }
        if self.block.get() != NO_PFN {
            self.put_back_block(pcp, blocks);
        }
        pcp.add_frames(self.unbooked());
        counters.local_frees.add(self.frees().wrapping_add(self.block_frees.get()));
        for (m, counts) in counters.allocs.iter().enumerate() {
            counts[Order::ZERO.index()].add(self.allocs_of(m));
            counts[Order::PAGEBLOCK.index()].add(self.block_allocs[m].get());
            self.allocs[m].set(0);
            self.block_allocs[m].set(0);
        }
        counters.remote_frees.add(self.remote_frees.get());
        self.remote_frees.set(0);
        self.block_frees.set(0);
        self.granted.set(self.budget.get());
    }

    /// Starts keeping aside a frame just freed, of an ordinary block in hand, known to have been used before.
    #[inline]
    pub(crate) fn keep_frame(&self, pfn: u64, index: u32, migratetype: u8) {
        self.frame.set(pfn);
        self.kept.set(pfn);
        self.frame_block.set(index);
        self.frame_state.set(u64::from(migratetype));
    }

    /// The same for a whole block.
    #[inline]
    pub(crate) fn keep_block(&self, pfn: u64, index: u32, migratetype: u8) {
        self.block.set(pfn);
        self.block_index.set(index);
        self.block_type.set(migratetype);
        self.block_held.set(migratetype);
    }

    /// Forgets the frame; where it is held, its bit is set again.
    pub(crate) fn put_back_frame(&self, pcp: &Pcp, blocks: &[Block]) {
        let (pfn, index) = (self.kept.get(), self.frame_block.get());
        let Some(block) = blocks.get(index as usize).filter(|_| pfn != NO_PFN) else { return };
        block.hint.set(HINT_NONE);
        let (taken, given) = self.frame_counts();
        self.allocs[self.frame_type()].add(taken);
        self.granted.add(given);
        let held = self.holds_frame();
        self.frame.set(NO_PFN);
        self.kept.set(NO_PFN);
        self.frame_state.set(NO_FRAME);
        if held {
            let (w, bit) = ((pfn >> 6) as usize % WORDS, 1 << (pfn % 64));
            let word = block.free_word(w) | bit;
            block.set_free_word(w, word);
            self.freed_into(pcp, blocks, index, w, word == !0);
        }
    }

    /// Forgets the block; where it is held, its bits are set again.
    pub(crate) fn put_back_block(&self, pcp: &Pcp, blocks: &[Block]) {
        let (pfn, index) = (self.block.get(), self.block_index.get());
        let Some(block) = blocks.get(index as usize).filter(|_| pfn != NO_PFN) else { return };
        block.hint.set(HINT_NONE);
        let held = self.holds_block();
        self.block.set(NO_PFN);
        self.block_held.set(NOT_KEPT);
        if held {
            block.fill(!0);
            self.freed_into(pcp, blocks, index, 0, true);
        }
    }

    /// Bits of word `w` and above of a block in hand have been set.
    fn freed_into(&self, pcp: &Pcp, blocks: &[Block], index: u32, w: usize, filled: bool) {
        let block = &blocks[index as usize];
        if block.class() == CLASS_ACTIVE {
            self.lower_active(pcp, block, w);
        } else {
            pcp.touched(blocks, index, filled);
        }
    }

    /// Frames of word `w` of the active block have become free, by the owner's fast path.
    #[inline]
    pub(crate) fn lower_active(&self, pcp: &Pcp, block: &Block, w: usize) {
        let migratetype = block.migratetype() as usize;
        if pcp.active[migratetype].lower_word(block, w) {
            self.cached.set(self.cached.get() & !(1 << migratetype));
        }
    }

    /// Of the frames of word `w` of a block with a hint, those that are held: free, though their bits are not set.
    /// To be read without entering: exact for whoever knows that nobody is allocating or freeing them at the moment.
    pub(crate) fn held_frames(&self, block: &Block, w: usize) -> u64 {
        if self.holds_block() && self.block.get() == block.base() {
            return !0;
        }
        let pfn = self.kept.get();
        let here = self.holds_frame() && pfn >> 6 == (block.base() >> 6) + w as u64;
        if here { 1 << (pfn % 64) } else { 0 }
    }
}
