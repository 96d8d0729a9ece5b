//! Runs of any number of frames, wherever they start: best fit.
//!
//! A chunk is aligned, and the rest of the next larger chunk beside 17 frames is 15: an arena of such
//! is full when half of it is in use. So a run is laid beside others:
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
//! Where both come to nothing all blocks are looked at, and the ends of each two neighbours. What CPUs
//! have in hand is not asked for, nor what lies in blocks of other types:
//! [`alloc_contig_free`](crate::Freehold::alloc_contig_free) does both.

use super::door::Door;
use super::handle::Handle;
use crate::block::layout::Index;
use crate::block::words::{class_of, free_head, free_tail, smallest_gap};
use crate::block::{FRAMES, WORDS, bits};
use crate::cpu::inside::Inside;
use crate::platform::OnPanic;
use crate::primitive::{Count, Plain};
use crate::zone::Zone;
use crate::zone::board::{CLASSES, row_of};
use crate::{AllocError, AllocFlags, FrameRange, Migratetype, Order, Pfn, Platform};

/// Blocks of one class that have a gap of which the smallest is taken, and places of whole blocks for
/// a run of up to a block.
const LOOKS: u32 = 16;
/// Blocks of one class that turn out to have no gap before others are looked at.
const MISSES: u32 = 16;

const MOVABLE: usize = Migratetype::Movable as usize;

impl<'m, P: Platform, D: Door<'m>> Handle<'_, 'm, P, D> {
    /// Allocates `count` movable frames in a row, any number, which start anywhere: best fit, so that
    /// memory can be filled with runs of any length. A chunk, which is aligned, comes from
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
        let inside = self.enter(AllocFlags::empty())?;
        let found = inside.alloc_run(count);
        let fh = self.fh;
        drop(inside);
        let back = OnPanic(|| _ = found.map(|run| fh.commit_range(None, run)));
        fh.tell_pressure();
        core::mem::forget(back);
        #[cfg(feature = "debug-poison")]
        if let Ok(run) = found {
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
        if !self.cpu.online.get() {
            return Err(AllocError::CpuOffline { cpu: self.id });
        }
        self.fh.begin_look(self.cpu);
        let found = self.fh.zonelist(self.id.index(), None).find_map(|z| {
            let zone = &self.fh.zones[z];
            if !self.fh.leaves_mark(self.by(), zone, count, AllocFlags::empty(), false) {
                return None;
            }
            self.gap_in_block(zone, count, MISSES)
                .or_else(|| self.run_beside_whole_blocks(zone, count))
                .or_else(|| self.gap_in_block(zone, count, u32::MAX))
                .or_else(|| self.gap_over_two_blocks(zone, count))
        });
        let counters = &self.cpu.counters;
        let Some(run) = found.and_then(|start| FrameRange::new(Pfn::new(start), count)) else {
            counters.failed.add(1);
            return Err(AllocError::NoMemory {
                order: Order::fitting(count).unwrap_or(Order::MAX),
            });
        };
        // As the chunk that it would lie in.
        let order = count.next_power_of_two().ilog2() as usize;
        counters.allocs[MOVABLE][order.min(Order::MAX.index())].add(1);
        Ok(run)
    }

    /// The smallest gap of that many frames in one block that was found, in the smallest class that
    /// has one. Looks at `most` blocks of each class that have none.
    fn gap_in_block(&self, zone: &'m Zone<'m>, count: u64, most: u32) -> Option<u64> {
        if count >= FRAMES as u64 {
            return None;
        }
        let len = count as usize;
        // So many frames in a row contain an aligned run of half as many or more.
        for class in (len + 1).ilog2() as u8..=CLASSES {
            // Of a larger class every block has one: the lowest will do. Of a smaller one they may
            // be far, so that the search goes on from where the last one ended.
            let all_have = 1 << (class - 1) >= len;
            let from = if all_have { 0 } else { u64::from(self.cpu.next_gap.get()) };
            let Some((index, start)) = self.gap_of_class(zone, (class, len), from, most) else {
                continue;
            };
            if self.fh.claim_at(self.by(), index, start, len) {
                return Some(self.fh.map.base(index) + start as u64);
            }
            // Somebody was faster; the next class will do.
        }
        None
    }

    /// The smallest of the first gaps of at least `len` frames in blocks of a class, from a section
    /// of the zone on, and from the first again.
    fn gap_of_class(
        &self,
        zone: &'m Zone<'m>,
        (class, len): (u8, usize),
        from: u64,
        most: u32,
    ) -> Option<(Index, usize)> {
        let fh = self.fh;
        let (mut best, mut looks, mut misses) = (None, LOOKS, most);
        let row = row_of(MOVABLE, class);
        let mut see = |index: Index| {
            if !fh.belongs(self.by(), index, zone, row) {
                return None;
            }
            let words = fh.open_words(index);
            match smallest_gap(&words, len) {
                Some((size, start)) => {
                    looks -= 1;
                    if best.is_none_or(|(least, _, _)| size < least) {
                        best = Some((size, index, start));
                    }
                    (size == len || looks == 0).then_some(index)
                }
                None => {
                    // Or it would be looked at again each time.
                    let known = fh.map.head(index).class();
                    if class_of(&words) < known {
                        fh.lower(self.by(), index, known);
                    }
                    misses = misses.saturating_sub(1);
                    (misses == 0).then_some(index)
                }
            }
        };
        let mut last = fh.each_in_row_from(self.by(), zone, row, from, &mut see);
        if last.is_none() && from != 0 {
            last = fh.each_in_row_from(self.by(), zone, row, 0, &mut see);
        }
        if let Some(last) = last {
            let section = zone.board.section_of(fh.map.head(last).number);
            self.cpu.next_gap.set(section as u32);
        }
        best.map(|(_, index, start)| (index, start))
    }

    /// The smallest gap over the end of one block and the start of the next, neither of which is
    /// whole. Looks at all blocks.
    fn gap_over_two_blocks(&self, zone: &'m Zone<'m>, count: u64) -> Option<u64> {
        if count >= 2 * FRAMES as u64 {
            return None;
        }
        let (mut at, end) = (zone.span.start.get() >> 9, zone.span.end.get() >> 9);
        let (mut best, mut tail) = (None, 0);
        while let Some(number) = self.fh.map.next_set_up(at, end) {
            if number != at {
                tail = 0;
            }
            at = number + 1;
            let index = self.split_neighbour(zone, number);
            let words = index.map_or([0; WORDS], |index| self.fh.open_words(index));
            let (head, size) = (free_head(&words), tail + free_head(&words));
            let fits = tail > 0 && head > 0 && size as u64 >= count;
            if fits && best.is_none_or(|(least, _, _)| size < least) {
                best = Some((size, number, tail));
            }
            tail = free_tail(&words);
        }
        let (_, number, tail) = best?;
        let tail = tail.min(count as usize - 1);
        let head = count as usize - tail;
        self.take_place(zone, Place { bit: number - zone.first_block, tail, whole: 0, head })
    }

    /// The lowest place with whole blocks in it, or one whole block.
    fn run_beside_whole_blocks(&self, zone: &'m Zone<'m>, count: u64) -> Option<u64> {
        let (mut from, mut looks) = (0, if count <= FRAMES as u64 { LOOKS } else { u32::MAX });
        while let Some(bit) = zone.bitmap.next(from).0.filter(|_| looks > 0) {
            looks -= 1;
            match self.place_at(zone, bit, count) {
                Ok(place) => {
                    if let Some(start) = self.take_place(zone, place) {
                        return Some(start);
                    }
                    // The first block without metadata is one whose section somebody is setting up:
                    // no place that reaches into it can be had.
                    let is_set_up =
                        |bit| self.fh.map.locate_block(zone.first_block + bit).is_some();
                    let stuck = (bit..=bit + place.whole).find(|&bit| !is_set_up(bit));
                    from = stuck.map_or(bit + 1, |stuck| self.fh.bit_after(zone, stuck));
                }
                Err(next) => from = next,
            }
        }
        None
    }

    /// The place whose first whole block is that of `bit`; where the run does not fit, the next bit
    /// that may be one's.
    fn place_at(&self, zone: &'m Zone<'m>, bit: u64, count: u64) -> Result<Place, u64> {
        let number = zone.first_block + bit;
        let words = |number: u64| {
            let index = self.split_neighbour(zone, number)?;
            Some(self.fh.open_words(index))
        };
        let before = number.checked_sub(1).and_then(words);
        let tail = (before.map_or(0, |words| free_tail(&words)) as u64).min(count) as usize;
        let rest = count - tail as u64;
        let (needed, head) = (rest / FRAMES as u64, (rest % FRAMES as u64) as usize);
        let missing = (0..needed).find(|n| !zone.bitmap.contains(bit + n));
        if let Some(missing) = missing {
            return Err(bit + missing + 1);
        }
        let behind = bit + needed;
        let has_head = head == 0
            || zone.bitmap.contains(behind)
            || words(zone.first_block + behind).is_some_and(|words| free_head(&words) >= head);
        if has_head { Ok(Place { bit, tail, whole: needed, head }) } else { Err(behind + 1) }
    }

    /// A block of that number that runs may be taken of: split, movable, of this zone.
    fn split_neighbour(&self, zone: &Zone<'m>, number: u64) -> Option<Index> {
        let index = self.fh.map.locate_block(number)?;
        let tag = self.fh.map.head(index).tag.get();
        (tag.is_plain_split_of(MOVABLE) && tag.zone() == usize::from(zone.id)).then_some(index)
    }

    /// Takes a place; its first frame. Where some of it is gone by now nothing has changed.
    fn take_place(&self, zone: &'m Zone<'m>, place: Place) -> Option<u64> {
        let fh = self.fh;
        let first = zone.first_block + place.bit;
        let tail = match place.tail {
            0 => None,
            len => {
                let index = self.split_neighbour(zone, first - 1)?;
                if !fh.claim_at(self.by(), index, FRAMES - len, len) {
                    return None;
                }
                Some(index)
            }
        };
        // Of two that ask for many at once the second one sees what the first one leaves.
        let leaves_mark = || {
            let frames = place.whole * FRAMES as u64;
            fh.leaves_mark(self.by(), zone, frames, AllocFlags::empty(), false)
        };
        let claimed = place.whole == 0 || zone.claim_wholes(place.whole, leaves_mark);
        let wanted = if claimed { place.whole } else { 0 };
        let take = |n: &u64| fh.take_whole_at(self.by(), zone, place.bit + n, true).is_some();
        let got = (0..wanted).take_while(take).count() as u64;
        if got != wanted {
            fh.give_up_wholes(zone, wanted - got);
        }
        if got == place.whole && self.take_head(zone, place) {
            for number in first..first + place.whole {
                if let Some(index) = fh.map.locate_block(number) {
                    fh.take_block(index, MOVABLE);
                }
            }
            zone.update_mode();
            return Some(first * FRAMES as u64 - place.tail as u64);
        }
        for index in (first..first + got).filter_map(|number| fh.map.locate_block(number)) {
            fh.insert_whole(self.by(), index);
        }
        if let Some(index) = tail {
            let spans = bits::spans(FRAMES - place.tail, place.tail);
            spans.for_each(|(w, m)| fh.put_back(self.by(), index, w, m));
        }
        None
    }

    /// Takes the first frames of the block behind the whole ones, which may be whole too: it is
    /// split then.
    fn take_head(&self, zone: &'m Zone<'m>, place: Place) -> bool {
        if place.head == 0 {
            return true;
        }
        let (fh, behind) = (self.fh, place.bit + place.whole);
        let number = zone.first_block + behind;
        if zone.bitmap.contains(behind) {
            let Some(index) = fh.claim_whole_at(self.by(), zone, behind) else { return false };
            fh.split(self.by(), index, MOVABLE);
        }
        let Some(index) = self.split_neighbour(zone, number) else { return false };
        let claimed = fh.claim_at(self.by(), index, 0, place.head);
        if !claimed {
            // It may be one that was split for this.
            fh.raise(self.by(), index);
        }
        claimed
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use crate::block::words::{free_head, free_tail, smallest_gap};
    use crate::testing::machine_with;
    use crate::{
        AllocError, CpuId, FrameRange, Freehold, Migratetype, Order, Pfn, Request, SingleCpu,
        Watermarks,
    };

    /// Of which every frame can be had.
    fn machine(cpus: u16, frames: u64) -> Freehold<'static, SingleCpu> {
        machine_with(SingleCpu, cpus, frames, Watermarks::None)
    }

    /// Runs of that length until there is none.
    fn fill(fh: &Freehold<'_, SingleCpu>, len: u64) -> Vec<FrameRange> {
        let cpu = fh.on(CpuId::new(0));
        let mut runs = Vec::new();
        while let Ok(run) = cpu.alloc_run(len) {
            runs.push(run);
        }
        runs.sort_unstable_by_key(|run| run.start);
        assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start), "length {len}");
        runs
    }

    /// All that is free is in split blocks, whose sum nobody has made yet, or has when there was too
    /// little.
    #[test]
    fn a_run_counts_what_is_free_each_time() {
        let movable = Request::new(Order::ZERO, Migratetype::Movable);
        for too_little_at_first in [false, true] {
            let fh = machine(2, 4096);
            let [cpu, other] = [0, 1].map(|id| fh.on(CpuId::new(id)));
            let frames: Vec<Pfn> = (0..4096).map(|_| cpu.alloc(movable).unwrap()).collect();
            let free = |offsets: core::ops::Range<u64>| {
                let back = frames.iter().filter(|pfn| offsets.contains(&(pfn.get() % 512)));
                back.for_each(|&pfn| cpu.free(pfn, Order::ZERO).unwrap());
                fh.drain_all();
            };
            free(448..512);
            fh.set_watermarks(0, 600, 700, 800).unwrap();
            if too_little_at_first {
                other.alloc_run(5).unwrap_err();
            }
            free(1..448);
            other.alloc_run(5).unwrap();
        }
    }

    /// The second of two that ask for many blocks at once sees what the first one leaves.
    #[test]
    fn whole_blocks_of_a_run_leave_the_mark() {
        let fh = machine(1, 1 << 16);
        fh.set_watermarks(0, 20_000, 20_000, 20_000).unwrap();
        let cpu = fh.on(CpuId::new(0));
        let runs = core::iter::from_fn(|| cpu.alloc_run(8192).ok()).count() as u64;
        assert!(runs > 0 && (1 << 16) - runs * 8192 >= 20_000, "{runs} runs");
    }

    #[test]
    fn memory_is_full_of_runs_of_any_length() {
        for len in [2, 3, 5, 17, 33, 64, 129, 171, 257, 300, 511, 512, 513, 700, 1025, 3000] {
            let fh = machine(1, 1 << 15);
            let cpu = fh.on(CpuId::new(0));
            let runs = fill(&fh, len);
            let left = (1 << 15) - runs.len() as u64 * len;
            assert!(left < len + 512, "length {len}: {left} frames are left");
            // Every other one, and all of it again.
            runs.iter().step_by(2).for_each(|&run| cpu.free_range(run).unwrap());
            cpu.flush().unwrap();
            let again = fill(&fh, len).len() + runs.len() / 2;
            let lost = runs.len().saturating_sub(again);
            // Where gaps are of two lengths, or over blocks of which one was split meanwhile.
            assert!(lost <= 1 + runs.len() / 50, "length {len}: {again} of {}", runs.len());
            fh.validate().unwrap();
        }
    }

    /// Gaps of 9, 6 and 30 frames: 5 frames go to the one of 6, and what is left is no smaller.
    #[test]
    fn the_smallest_gap_is_used() {
        let fh = machine(1, 512);
        let cpu = fh.on(CpuId::new(0));
        let all = cpu.alloc_run(511).unwrap();
        let first = all.start.get();
        for (at, len) in [(10, 9), (60, 6), (100, 30)] {
            let gap = FrameRange::new(Pfn::new(first + at), len).unwrap();
            cpu.free_range(gap).unwrap();
        }
        cpu.flush().unwrap();
        assert_eq!(cpu.alloc_run(5).unwrap().start.get(), first + 60);
        assert_eq!(cpu.alloc_run(7).unwrap().start.get(), first + 10);
        assert_eq!(cpu.alloc_run(31), Err(AllocError::NoMemory { order: Order::new(4).unwrap() }));
        assert_eq!(cpu.alloc_run(30).unwrap().start.get(), first + 100);
    }

    /// A run lies over the end of a block in use, whole blocks, and the start of another in use.
    #[test]
    fn a_run_over_whole_blocks_has_what_is_free_beside_them() {
        let fh = machine(1, 2048);
        let cpu = fh.on(CpuId::new(0));
        let before = cpu.alloc_run(500).unwrap();
        let rest = cpu.alloc_run(1548).unwrap();
        assert_eq!((before.start.get(), rest.start.get(), rest.end.get()), (0, 500, 2048));
        assert!(cpu.alloc_run(1).is_err() && cpu.alloc_run(600).is_err());
        fh.validate().unwrap();
        cpu.free_range(FrameRange { start: Pfn::new(490), end: Pfn::new(1600) }).unwrap();
        cpu.flush().unwrap();
        // 10 and 12 frames, a block and one more, and 64 frames of the last block.
        assert_eq!(cpu.alloc_run(1110).unwrap().start.get(), 490);
        fh.validate().unwrap();
    }

    #[test]
    fn no_run_of_nothing_and_none_that_memory_is_too_small_for() {
        let fh = machine(1, 1024);
        let cpu = fh.on(CpuId::new(0));
        assert_eq!(cpu.alloc_run(0), Err(AllocError::ZeroLength));
        for len in [1025, 1 << 40, u64::MAX] {
            assert!(matches!(cpu.alloc_run(len), Err(AllocError::NoMemory { .. })));
        }
        assert_eq!(cpu.alloc_run(1024).unwrap().len(), 1024);
        fh.validate().unwrap();
    }

    /// As with chunks: what is left after a run is anybody's.
    #[test]
    fn runs_and_chunks_share_blocks() {
        let fh = machine(2, 4096);
        let (a, b) = (fh.on(CpuId::new(0)), fh.on(CpuId::new(1)));
        let mut taken = Vec::new();
        for n in 0..200u64 {
            taken.push(a.alloc_run(1 + n % 13).unwrap());
            let chunk = Request::new(Order::new((n % 4) as u8).unwrap(), Migratetype::Movable);
            let pfn = b.alloc(chunk).unwrap();
            taken.push(FrameRange::new(pfn, chunk.order.frames()).unwrap());
        }
        taken.sort_unstable_by_key(|run| run.start);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start));
        taken.into_iter().for_each(|run| b.free_range(run).unwrap());
        fh.drain_all();
        fh.validate().unwrap();
        assert_eq!(fh.zone_stats(0).unwrap().free_blocks, 8);
    }

    #[test]
    fn gaps_are_those_that_looking_at_every_frame_finds() {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..400 {
            let words: [u64; 8] = core::array::from_fn(|_| {
                word = word.rotate_left(7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                [word, word | word << 9 | word >> 3, 0, !0][word as usize % 4]
            });
            let free: Vec<bool> = (0..512).map(|at| words[at / 64] >> (at % 64) & 1 != 0).collect();
            let mut gaps = Vec::new();
            let mut at = 0;
            while at < 512 {
                let len = free[at..].iter().take_while(|&&free| free).count();
                if len > 0 {
                    gaps.push((len, at));
                }
                at += len + 1;
            }
            let len = 1 + round * 37 % 512;
            let best = gaps.iter().filter(|gap| gap.0 >= len).min();
            assert_eq!(smallest_gap(&words, len), best.copied(), "{words:x?} for {len}");
            let ends = (free_head(&words), free_tail(&words));
            let count =
                |free: &mut dyn Iterator<Item = &bool>| free.take_while(|&&free| free).count();
            assert_eq!(ends, (count(&mut free.iter()), count(&mut free.iter().rev())));
        }
    }
}
