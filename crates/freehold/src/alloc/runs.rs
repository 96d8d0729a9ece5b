//! Runs of any number of frames, wherever they start: best fit.
//!
//! A chunk is aligned, and the rest of the next larger chunk beside 17 frames is 15: an arena of
//! such is full when half of it is in use. So a run is laid beside others:
//!
//! ```text
//! block       |####..######...#|      1  the smallest gap that will do, of the blocks of the smallest class that
//!                  ^^                    may have one, a few of which are looked at
//!
//! blocks      |###########.....|................|................|...####|
//!                         ^^^^^ ^^^^^^^^^^^^^^^^ ^^^^^^^^^^^^^^^^ ^^^
//!                         tail   whole blocks, in a row           head       2  the lowest place
//! ```
//!
//! | step | holds |
//! |---|---|
//! | the gap's frames, word by word | all or none of it, as of any run past the leases |
//! | the tail, then the bits of whole blocks, one by one | what is had is nobody else's; anything missing, and all of it goes back |
//! | the block that is not needed as a whole is split, and its first frames taken | the board knows what is left |
//! | blocks needed as a whole: in use | the run is the caller's |
//!
//! Where both steps come to nothing all blocks are looked at, and the ends of each two neighbours.
//! What CPUs have in hand is not asked for, nor what lies in blocks of other types:
//! [`alloc_contig_free`](crate::Freehold::alloc_contig_free) does both.
//!
//! **Runs by their place** are for an owner that remembers where it has freed some: just those
//! frames, if they are free still; and the free before, which leaves the word to everybody.
//!
//! | a run | of a word that this CPU leases | of words that nobody leases |
//! |---|---|---|
//! | taken | out of the hand | out of the words, all or none |
//! | freed | into the hand; over the end of a word the whole way | into its words |
//!
//! What is remembered is a hint: nothing is held back for it, frees are checked as any.

use crate::alloc::fast::{FastAlloc, HINT_CLASS};
use crate::block::words::{class_of, free_tail, smallest_gap};
use crate::block::{
    Block, FRAMES, MOVABLE, SECTION_BLOCKS, SECTION_BLOCKS_LOG, WHOLE, WORDS, bits,
};
use crate::calls::{Door, Handle, Owner};
use crate::cpu::lease::Leases;
use crate::cpu::{Cpu, Inside};
use crate::free::fast::{FastFree, InHand};
use crate::free::slow::Freeing;
use crate::platform::PlatformExt;
use crate::primitive::{Count, Relaxed};
use crate::zone::Zone;
use crate::zone::board::{CLASSES, row_of};
use crate::{AllocError, AllocFlags, FrameRange, Freehold, Order, Pfn, Platform};

/// Blocks of one class that have a gap of which the smallest is taken, and places of whole blocks
/// for a run of up to a block.
const LOOKS: u32 = 8;
/// Blocks of one class that turn out to have no gap before others are looked at.
const MISSES: u32 = 8;
/// Likewise of which that is known.
const SKIPS: u32 = 32;

impl<'m, P: Platform, D: Door<'m>> Handle<'_, 'm, P, D> {
    /// Allocates `count` movable frames in a row, any number, which start anywhere: best fit, so
    /// that memory can be filled with runs of any length. A chunk, which is aligned, comes from
    /// [`alloc`](Self::alloc).
    ///
    /// Up to a block's length it takes constant time while there are whole blocks, or gaps that are
    /// soon found; otherwise, and beyond a block, time in proportion to the blocks of the zone.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] where no such run was found: that does not mean that there is none,
    /// see [`alloc_contig_free`](crate::Freehold::alloc_contig_free). [`AllocError::ZeroLength`],
    /// [`AllocError::CpuOffline`].
    pub fn alloc_run(&self, count: u64) -> Result<FrameRange, AllocError> {
        self.alloc_run_and_rest(count).map(|(run, _)| run)
    }

    /// [`alloc_run`](Self::alloc_run), and how many frames behind the run are free in its last
    /// block, as far as could be seen: runs up to that length come best from there.
    ///
    /// # Errors
    ///
    /// As [`alloc_run`](Self::alloc_run).
    #[doc(hidden)]
    pub fn alloc_run_and_rest(&self, count: u64) -> Result<(FrameRange, u64), AllocError> {
        let inside = self.enter(AllocFlags::empty())?;
        let found = inside.alloc_run(count).map(|run| (run, inside.rest_behind(run.end)));
        let fh = self.fh;
        drop(inside);
        let give_back = || _ = found.map(|(run, _)| Freeing::of(fh, None).commit(run));
        fh.outside().tell_pressure_or(give_back);
        #[cfg(feature = "debug-poison")]
        if let Ok((run, _)) = found {
            fh.platform.check_poison(run);
        }
        found
    }
}

/// A place for a run, by a glance: `tail` frames at the end of a block, `whole` blocks behind it of
/// which all frames are needed, and `head` frames of the block after those.
#[derive(Clone, Copy)]
struct Place {
    /// The bit of the first block behind the tail.
    bit: u64,
    tail: usize,
    whole: u64,
    head: usize,
}

impl<'m, P: Platform> Inside<'_, 'm, P> {
    fn alloc_run(&self, count: u64) -> Result<FrameRange, AllocError> {
        if count == 0 {
            return Err(AllocError::ZeroLength);
        }
        self.is_online()?;
        let mut zones = self.fh.zonelists.of(self.id().index(), None).map(|z| &self.fh.zones[z]);
        let start = zones.find_map(|zone| Runs { cpu: **self, zone, count }.find());
        let Some(run) = start.and_then(|start| FrameRange::new(Pfn::new(start), count)) else {
            self.cpu.counters.failed.add(1);
            return Err(AllocError::NoMemory {
                order: Order::fitting(count).unwrap_or(Order::MAX),
            });
        };
        // As the chunk that it would lie in.
        let order = count.next_power_of_two().ilog2() as usize;
        self.cpu.counters.allocs[MOVABLE][order.min(Order::MAX.index())].add(1);
        Ok(run)
    }

    /// Free frames from there on in a block of the home zone; of a thrifty one those in memory.
    fn rest_behind(&self, end: Pfn) -> u64 {
        let (at, zone) = (end.get() as usize % FRAMES, self.home());
        let block = zone.movable_block(self.fh, end.get() / FRAMES as u64);
        block.filter(|_| at != 0).map_or(0, |block| {
            let words = block.words_to_use(self.fh, zone.thrifty.get());
            (bits::next(&words, at, false) - at) as u64
        })
    }
}

/// A search for a run of so many frames in one zone, and its taking.
struct Runs<'c, 'm, P: Platform> {
    cpu: Cpu<'c, 'm, P>,
    zone: &'m Zone<'m>,
    count: u64,
}

impl<'m, P: Platform> Runs<'_, 'm, P> {
    fn find(&self) -> Option<u64> {
        let (zone, by) = (self.zone, self.cpu.by());
        if !zone.leaves_mark(by, MOVABLE, self.count, AllocFlags::empty()) {
            return None;
        }
        // What was given back is avoided where other memory is found soon.
        Some(MISSES)
            .filter(|_| zone.thrifty.get())
            .and_then(|most| self.gap_in_block((most, true)))
            .or_else(|| self.gap_in_block((MISSES, false)))
            .or_else(|| self.run_beside_whole_blocks())
            .or_else(|| self.gap_in_block((u32::MAX, false)))
            .or_else(|| self.gap_over_two_blocks())
    }

    /// The smallest gap of that many frames in one block, in the smallest class that has one; of
    /// frames in memory, if so asked. Looks at `most` blocks of each class that have none.
    fn gap_in_block(&self, how: (u32, bool)) -> Option<u64> {
        if self.count >= FRAMES as u64 {
            return None;
        }
        let len = self.count as usize;
        // So many frames in a row contain an aligned run of half as many or more.
        for class in (len + 1).ilog2() as u8..=CLASSES {
            // Of a larger class every block has one: the lowest will do. Of a smaller one they may
            // be far, so that the search goes on from where the last one ended.
            let all_have = 1 << (class - 1) >= len;
            let from = if all_have { 0 } else { u64::from(self.cpu.next_gap.get()) };
            let Some((block, start)) = self.gap_of_class((class, len), from, how) else {
                continue;
            };
            if block.claim_at(self.cpu.by(), start, len) {
                return Some(block.base() + start as u64);
            }
            // Somebody was faster; the next class will do.
        }
        None
    }

    /// The smallest of the first gaps of at least `len` frames in blocks of a class, from a block
    /// of the zone on, and from the first again.
    fn gap_of_class(
        &self,
        (class, len): (u8, usize),
        from: u64,
        (most, in_memory): (u32, bool),
    ) -> Option<(Block<'m>, usize)> {
        let (mut best, mut looks, mut misses, mut skips) = (None, LOOKS, most, SKIPS);
        let row = row_of(MOVABLE, class);
        let mut see = |block: Block<'m>| {
            // But where all are looked at.
            if most != u32::MAX && block.has_no_gap(len) {
                skips -= 1;
                return (skips == 0).then_some(block);
            }
            let known = self.cpu.by().class_in_row(block, self.zone, row)?;
            let words = block.words_to_use(self.cpu.fh, in_memory);
            match smallest_gap(&words, len) {
                Ok((size, start)) => {
                    looks -= 1;
                    if best.is_none_or(|(least, _, _)| size < least) {
                        best = Some((size, block, start));
                    }
                    (size == len || looks == 0).then_some(block)
                }
                Err(longer) => {
                    // Or it would be looked at again each time.
                    if !in_memory {
                        block.set_no_gap(longer as u16);
                        if class_of(known - 1, |w| words[w], |_| true) < known {
                            self.cpu.by().lower(block, known, known);
                        }
                    }
                    misses = misses.saturating_sub(1);
                    (misses == 0).then_some(block)
                }
            }
        };
        let mut last = self.zone.each_in_row_from(self.cpu.by(), row, from, &mut see);
        if last.is_none() && from != 0 {
            last = self.zone.each_in_row_from(self.cpu.by(), row, 0, &mut see);
        }
        if let Some(last) = last {
            let number = last.head.number;
            let first = self.zone.board.section_of(number) << SECTION_BLOCKS_LOG;
            self.cpu.next_gap.set(first as u32 + number % SECTION_BLOCKS as u32 + 1);
        }
        best.map(|(_, block, start)| (block, start))
    }

    /// The smallest gap over the end of one block and the start of the next, neither of which is
    /// whole. Looks at all blocks.
    fn gap_over_two_blocks(&self) -> Option<u64> {
        if self.count >= 2 * FRAMES as u64 {
            return None;
        }
        let (mut at, end) = (self.zone.span.start.get() >> 9, self.zone.span.end.get() >> 9);
        let (mut best, mut tail) = (None, 0);
        while let Some(number) = self.cpu.fh.map.next_set_up(at, end) {
            if number != at {
                tail = 0;
            }
            at = number + 1;
            let block = self.zone.movable_block(self.cpu.fh, number);
            let words = block.map_or([0; WORDS], |block| block.open_words());
            let head = bits::next(&words, 0, false);
            let size = tail + head;
            let fits = tail > 0 && head > 0 && size as u64 >= self.count;
            if fits && best.is_none_or(|(least, _, _)| size < least) {
                best = Some((size, number, tail));
            }
            tail = free_tail(&words);
        }
        let (_, number, tail) = best?;
        let tail = tail.min(self.count as usize - 1);
        let head = self.count as usize - tail;
        self.take_place(Place { bit: number - self.zone.first_block, tail, whole: 0, head })
    }

    /// The lowest place with whole blocks in it, or one whole block.
    fn run_beside_whole_blocks(&self) -> Option<u64> {
        let (mut from, mut looks) = (0, if self.count <= FRAMES as u64 { LOOKS } else { u32::MAX });
        while let Some(bit) = self.zone.bitmap.next(from).filter(|_| looks > 0) {
            looks -= 1;
            match self.place_at(bit) {
                Ok(place) => {
                    if let Some(start) = self.take_place(place) {
                        return Some(start);
                    }
                    // The first block without metadata is one whose section somebody is setting up:
                    // no place that reaches into it can be had.
                    let is_set_up =
                        |bit| self.cpu.fh.map.locate_block(self.zone.first_block + bit).is_some();
                    let stuck = (bit..=bit + place.whole).find(|&bit| !is_set_up(bit));
                    from = stuck.map_or(bit + 1, |stuck| self.zone.bit_after(self.cpu.fh, stuck));
                }
                Err(next) => from = next,
            }
        }
        None
    }

    /// The place whose first whole block is that of `bit`; where the run does not fit, the next bit
    /// that may be one's.
    fn place_at(&self, bit: u64) -> Result<Place, u64> {
        let number = self.zone.first_block + bit;
        let words =
            |number| self.zone.movable_block(self.cpu.fh, number).map(|block| block.open_words());
        let before = number.checked_sub(1).and_then(words);
        let tail = (before.map_or(0, |words| free_tail(&words)) as u64).min(self.count) as usize;
        let rest = self.count - tail as u64;
        let (needed, head) = (rest / FRAMES as u64, (rest % FRAMES as u64) as usize);
        let missing = (0..needed).find(|n| !self.zone.bitmap.contains(bit + n));
        if let Some(missing) = missing {
            return Err(bit + missing + 1);
        }
        let behind = bit + needed;
        let has_head = head == 0
            || self.zone.bitmap.contains(behind)
            || words(self.zone.first_block + behind)
                .is_some_and(|words| bits::next(&words, 0, false) >= head);
        if has_head { Ok(Place { bit, tail, whole: needed, head }) } else { Err(behind + 1) }
    }

    /// Takes a place; its first frame. Where some of it is gone by now nothing has changed.
    fn take_place(&self, place: Place) -> Option<u64> {
        let fh = self.cpu.fh;
        let first = self.zone.first_block + place.bit;
        let tail = match place.tail {
            0 => None,
            len => {
                let block = self.zone.movable_block(self.cpu.fh, first - 1)?;
                if !block.claim_at(self.cpu.by(), FRAMES - len, len) {
                    return None;
                }
                Some(block)
            }
        };
        let granted = place.whole == 0
            || self.zone.grant_blocks(self.cpu.by(), place.whole, AllocFlags::empty(), false);
        let claimed = granted && (place.whole == 0 || self.zone.claim_wholes(place.whole));
        let wanted = if claimed { place.whole } else { 0 };
        let take = |n: &u64| self.zone.take_whole_at(self.cpu.by(), place.bit + n, true).is_some();
        let got = (0..wanted).take_while(take).count() as u64;
        if got != wanted {
            self.zone.give_up_wholes(fh, wanted - got);
        }
        if claimed && got == place.whole && self.take_head(place) {
            for number in first..first + place.whole {
                if let Some(block) = fh.map.locate_block(number) {
                    block.take_block(fh, MOVABLE);
                }
            }
            self.zone.update_mode();
            return Some(first * FRAMES as u64 - place.tail as u64);
        }
        for block in (first..first + got).filter_map(|number| fh.map.locate_block(number)) {
            self.cpu.by().insert_whole(block);
        }
        if granted && place.whole != 0 {
            self.zone.give_back_blocks(fh, place.whole);
        }
        if let Some(block) = tail {
            let spans = bits::spans(FRAMES - place.tail, place.tail);
            spans.for_each(|(w, m)| self.cpu.by().put_back(block, w, m));
        }
        None
    }

    /// Takes the first frames of the block behind the whole ones, which is split if it is whole.
    fn take_head(&self, place: Place) -> bool {
        if place.head == 0 {
            return true;
        }
        let (fh, behind) = (self.cpu.fh, place.bit + place.whole);
        let number = self.zone.first_block + behind;
        if self.zone.bitmap.contains(behind) {
            let Some(block) = self.zone.claim_whole_at(self.cpu.by(), behind) else { return false };
            self.cpu.by().split(block, MOVABLE);
            if place.whole == 0 {
                // While runs are cut of it, it stays split, as what other words come from does.
                self.cpu.holds();
                if let Some(before) =
                    self.cpu.cursors(usize::from(self.zone.id)).cut_from(&fh.map.blocks, block)
                {
                    self.cpu.by().leave(before);
                }
            }
        }
        let Some(block) = self.zone.movable_block(self.cpu.fh, number) else { return false };
        let claimed = block.claim_at(self.cpu.by(), 0, place.head);
        if !claimed {
            // It may be one that was split for this.
            self.cpu.by().raise(block);
        }
        claimed
    }
}

impl<'m> Zone<'m> {
    /// Its split movable block of that number, of which no frame is missing.
    fn movable_block<P>(&self, fh: &Freehold<'m, P>, number: u64) -> Option<Block<'m>> {
        let block = fh.map.locate_block(number)?;
        let tag = block.tag.get();
        (tag.is_ordinary_of(MOVABLE) && tag.zone() == usize::from(self.id)).then_some(block)
    }
}

impl<'m> Block<'m> {
    /// The words of a block that nobody leases; of frames that have memory, if so asked.
    pub(crate) fn words_to_use(
        self,
        fh: &Freehold<'m, impl Platform>,
        in_memory: bool,
    ) -> [u64; WORDS] {
        let mut words = self.open_words();
        if in_memory {
            for (w, word) in words.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
                *word &= fh.platform.frames_in_memory(self.base(), w);
            }
        }
        words
    }
}

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
            match way.free_in_hand(key * 64, frames) {
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
        let mask = lease.mask.get();
        // What is in the word as well was freed twice: the slow way knows.
        let taken = mask & !lease.word() & frames == frames;
        if taken {
            lease.mask.set(mask & !frames);
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

#[cfg(all(test, not(loom)))]
mod tests;
