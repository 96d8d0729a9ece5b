//! Runs by their place, for an owner that remembers where it has freed some: just those frames, if
//! they are free still; and the free before, which leaves the word to everybody.
//!
//! | a run | of a word that this CPU leases | of words that nobody leases |
//! |---|---|---|
//! | taken | out of the hand | out of the words, all or none |
//! | freed | into the hand; over the end of a word the whole way | into its words |
//!
//! What is remembered is a hint: nothing is held back for it, frees are checked as any.

use crate::alloc::fast::{FastAlloc, HINT_CLASS};
use crate::block::tag::WHOLE;
use crate::block::{Block, FRAMES, WORDS, bits};
use crate::calls::handle::{Handle, Owner};
use crate::cpu::lease::Leases;
use crate::free::fast::{FastFree, InHand};
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::{FrameRange, Freehold, Migratetype, Pfn, Platform};

const MOVABLE: usize = Migratetype::Movable as usize;

impl<'a, 'm, P: Platform> Handle<'a, 'm, P, Owner<'a, 'm, P>> {
    /// Allocates the `count` movable frames from `first` on, of one block, if they are free in the
    /// CPU's home zone, which has no watermarks. `false` says no more than that they were not to be
    /// had at once; nothing has changed then. Takes a step for each word.
    ///
    /// Where not nearly all of the zone is whole, not every such run may be taken, see [`Fit`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_run_at(&self, first: Pfn, count: u64, fit: Fit) -> bool {
        let cpu = self.fh.cpu(self.door.state);
        let run = Run { first: first.get(), start: (first.get() % FRAMES as u64) as usize, count };
        if count == 0 || count > (FRAMES - run.start) as u64 || cfg!(feature = "debug-poison") {
            return false;
        }
        if !cpu.door.try_enter(self.door.biased) {
            return false;
        }
        let taken = FastAlloc(cpu).take_run_at(run, fit);
        if taken {
            let order = count.next_power_of_two().trailing_zeros();
            cpu.counters.allocs[MOVABLE][order as usize % 16].add(1);
        }
        cpu.door.leave(self.door.biased);
        taken
    }

    /// Whether a part of a run may be taken of some block: see [`Fit::Part`].
    #[doc(hidden)]
    pub fn may_cut_runs(&self) -> bool {
        let zone = self.fh.cpu(self.door.state).home();
        zone.is_roomy() || zone.thrifty.get()
    }

    /// Frees a run of one block, and does nothing else: the frames are still the caller's where it
    /// says no. No word is leased for it.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_run_at_hand(&self, first: Pfn, count: u64) -> bool {
        let cpu = self.fh.cpu(self.door.state);
        let (bit, at) = (first.get() % 64, first.get() % FRAMES as u64);
        let in_block = count.wrapping_sub(1) < FRAMES as u64 - at;
        if !in_block || cfg!(feature = "debug-poison") {
            return false;
        }
        if !cpu.door.try_enter(self.door.biased) {
            return false;
        }
        let way = FastFree(cpu);
        let freed = if bit + count > 64 {
            way.run_to_open_words(first.get(), count)
        } else {
            let (key, frames) = (first.get() / 64, bits::mask(bit as u32, count as u32));
            match way.free_in_hand(key, frames) {
                InHand::Yes => true,
                InHand::No => false,
                InHand::Elsewhere => way.run_to_word(key, (frames, count)),
            }
        };
        cpu.door.leave(self.door.biased);
        freed
    }

    /// A run of free frames of one block, with the free ones on both sides that are in memory and
    /// in nobody's hand: where a longer run may be had, by a glance. One over two blocks by itself.
    #[doc(hidden)]
    pub fn free_around(&self, run: FrameRange) -> FrameRange {
        let (first, end) = (run.start.get(), run.end.get());
        let block = self.fh.map.locate(first).filter(|block| end - block.base() <= FRAMES as u64);
        let Some(block) = block else { return run };
        let (words, base) = (block.words_to_use(self.fh, true), block.base());
        let behind = |words, at| bits::next(words, at as usize, false) as u64 - at;
        let end = end + behind(&words, end - base);
        let back: [u64; WORDS] = core::array::from_fn(|w| words[WORDS - 1 - w].reverse_bits());
        let start = first - behind(&back, base + FRAMES as u64 - first);
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    }
}

/// What a run is of what is remembered.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The front of a gap that a search has found for such runs: the smallest one.
    Gap,
    /// All of a run that was freed. Taken while it is no part of a larger one, or its block has no
    /// large run: what is nearly free may become whole.
    All,
    /// A part of one. Taken of a block of which memory was taken away, which is no use whole.
    Part,
}

/// A run of one block, by its first frame, and by its place in the block.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    start: usize,
    count: u64,
}

impl<'m, P: Platform> FastAlloc<'_, 'm, P> {
    #[inline(always)]
    fn take_run_at(self, run: Run, fit: Fit) -> bool {
        let Some(block) = self.fh.map.locate(run.first) else { return false };
        let head = block.head;
        let tag = head.tag.get();
        let zone = self.home();
        // Where there are marks, how much is left has to be told.
        if !tag.is_ordinary_of_in(MOVABLE, self.home_split.get()) || zone.high.get() != 0 {
            return zone.thrifty.get() && self.take_of_whole(block, run);
        }
        if !(zone.is_roomy() || block.may_take(self.fh, run, fit)) {
            return false;
        }
        let (w, bit) = (run.start / 64, run.start as u64 % 64);
        if bit + run.count > 64 {
            return block.claim_at(self.by(), run.start, run.count as usize);
        }
        let frames = bits::mask(bit as u32, run.count as u32);
        if head.is_leased(w) {
            return self.take_of_hand(run.first / 64, frames);
        }
        if !block.line.take_bits(w, frames) {
            return false;
        }
        // By the rules of `still_open`. A tag that is the same is as good as it was before.
        let (busy, now) = (head.is_busy(), head.tag.get());
        let own = &self.allowance[MOVABLE];
        let left = own.get().wrapping_sub(run.count);
        if busy || now != tag || head.is_leased(w) || (left as i64) < 0 {
            return self.taken_after_all(block, run);
        }
        own.set(left);
        true
    }

    /// Takes a run, of which the caller knows that it is in memory, of a block that has become whole
    /// since, and is no use so: memory was taken away from it.
    #[cold]
    #[inline(never)]
    fn take_of_whole(self, block: Block<'m>, run: Run) -> bool {
        let (zone, by, tag) = (self.home(), self.by(), block.head.tag.get());
        let usable = tag.state() == WHOLE && tag.zone() == usize::from(zone.id);
        let is_here = |w| self.fh.platform.frames_in_memory(block.base(), w) == !0;
        if !usable || zone.high.get() != 0 || (0..WORDS).all(is_here) {
            return false;
        }
        let bit = u64::from(block.head.number) - zone.first_block;
        let Some(block) = zone.claim_whole_at(by, bit) else { return false };
        by.split(block, MOVABLE);
        let taken = block.claim_at(by, run.start, run.count as usize);
        if !taken {
            by.raise(block);
        }
        taken
    }

    /// Frames of one word were taken, and may be to be put back.
    #[cold]
    #[inline(never)]
    fn taken_after_all(self, block: Block<'m>, run: Run) -> bool {
        let frames = bits::mask(run.start as u32 % 64, run.count as u32);
        block.still_open(self.by(), run.start / 64, frames, run.count)
    }

    /// Takes frames of that word that this CPU has in hand.
    #[inline(never)]
    fn take_of_hand(self, key: u64, frames: u64) -> bool {
        let lease = self.leases.slot(Leases::slot_of(key));
        if !lease.is_of(key) || lease.is_of_chunk() {
            return false;
        }
        lease.divide();
        let mask = lease.mask();
        // What is in the word as well was freed twice: the slow way knows.
        let taken = mask & !lease.word() & frames == frames;
        if taken {
            lease.set_mask(mask & !frames);
        }
        taken
    }
}

impl<'m> Block<'m> {
    /// Whether a run of free frames may be taken by a hint although little of the zone is whole: a
    /// freed one where its block has no large run or it fits exactly, and any where it is no use to
    /// have its block whole.
    #[inline(never)]
    fn may_take(self, fh: &Freehold<'m, impl Platform>, run: Run, fit: Fit) -> bool {
        let small = || !run.count.is_power_of_two() && self.head.class() <= HINT_CLASS;
        match fit {
            Fit::Gap => true,
            Fit::All => small() || self.is_gap(run) || self.is_sparse(fh),
            Fit::Part => self.is_sparse(fh),
        }
    }

    /// Whether the frames beside a run of free ones are in use.
    fn is_gap(self, run: Run) -> bool {
        let (before, behind) = (run.start.wrapping_sub(1), run.start + run.count as usize);
        let free = |at: usize| at < FRAMES && self.line.word(at / 64) >> (at % 64) & 1 != 0;
        !free(before) && !free(behind)
    }

    /// Whether the memory of free frames of a block was taken away.
    fn is_sparse(self, fh: &Freehold<'m, impl Platform>) -> bool {
        let zone = self.head.tag.get().zone_of(fh.zones);
        zone.thrifty.get()
            && (0..WORDS)
                .any(|w| self.line.word(w) & !fh.platform.frames_in_memory(self.base(), w) != 0)
    }
}
