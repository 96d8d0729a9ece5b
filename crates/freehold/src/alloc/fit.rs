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

use crate::block::Block;
use crate::block::tag::MOVABLE;
use crate::block::words::{class_of, free_tail, smallest_gap};
use crate::block::{FRAMES, SECTION_BLOCKS, SECTION_BLOCKS_LOG, WORDS, bits};
use crate::calls::handle::{Door, Handle};
use crate::cpu::by::{Cpu, Inside};
use crate::free::word::Freeing;
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

#[cfg(all(test, not(loom)))]
mod tests;
