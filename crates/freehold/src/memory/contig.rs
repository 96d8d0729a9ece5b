//! Allocation of a given range (`alloc_contig_range`), no matter who has it; the search for one.

use crate::alloc::watch::Failing;
use crate::block::{ABSENT, CMA, FRAMES, FrameMap, HOLES, ISOLATED, MOVABLE, WHOLE, WORDS, bits};
use crate::cpu::recall::Recall;
use crate::free::slow::Freeing;
use crate::memory::isolate::{Isolated, blocks_of, check_range};
use crate::primitive::Relaxed;
use crate::zone::moving::Movers;
use crate::{AllocError, FrameRange, Freehold, Pfn, Platform};

impl<'m, P: Platform> Freehold<'m, P> {
    /// Allocates exactly these frames, moving their users away (`alloc_contig_range`).
    ///
    /// Every pageblock that the range touches is isolated, no matter who holds it. `migrate` is
    /// then called, with no lock held, for each run of frames in use: it moves their contents
    /// elsewhere and frees them (on any CPU), and returns whether trying was of use. Frames of the
    /// blocks outside the range are not touched. The allocation is of type `migratetype` only in
    /// name: blocks keep the type they have.
    ///
    /// Takes time proportional to the range, times the rounds of migration (5 at most).
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRange`], [`AllocError::Busy`] with the first frame that is still in use or
    /// whose block somebody else is isolating. Every block is as it was then, but for what
    /// `migrate` has moved; one never used counts as used, so that a wrong free of its frames is a
    /// [`DoubleFree`](crate::FreeError::DoubleFree).
    pub fn alloc_contig_range(
        &self,
        range: FrameRange,
        mut migrate: impl FnMut(FrameRange) -> bool,
    ) -> Result<(), AllocError> {
        check_range(self, range)?;
        let isolated = Isolated::new(self, range)?;
        // What is on the way comes to where it is found; what a stopped thread has is in use.
        let _ = Movers(self).wait();
        isolated.empty(range, &mut migrate)?;
        let taken = isolated.take(range);
        drop(isolated);
        let give_back = || _ = taken.map(|()| Freeing::of(self, None).commit(range));
        self.outside().tell_pressure_or(give_back);
        #[cfg(feature = "debug-poison")]
        if taken.is_ok() {
            self.platform.check_poison(range);
        }
        taken
    }

    /// Finds and allocates `count` frames in a row that start at a multiple of `2^align` frames and
    /// lie within `limits`: any number, in any zone (those of CPU 0's node first).
    ///
    /// First where nothing has to be moved; then where only movable and CMA blocks are in the way.
    /// Each frame that is in the way and does not move is asked for once.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoRange`] where no candidate could be had, also where no memory is so
    /// aligned; [`AllocError::ZeroLength`].
    pub fn alloc_contig(
        &self,
        count: u64,
        align: crate::Order,
        limits: FrameRange,
        mut migrate: impl FnMut(FrameRange) -> bool,
    ) -> Result<FrameRange, AllocError> {
        match self.alloc_contig_free(count, align, limits) {
            Err(AllocError::NoRange { .. }) => {
                Search { fh: self, count, moving: true }.find(align, limits, &mut migrate)
            }
            found => found,
        }
    }

    /// A start among free frames alone: for a thread that can move nothing. Blocks with frames in
    /// use are left as they are.
    ///
    /// # Errors
    ///
    /// As [`Self::alloc_contig`].
    pub fn alloc_contig_free(
        &self,
        count: u64,
        align: crate::Order,
        limits: FrameRange,
    ) -> Result<FrameRange, AllocError> {
        if count == 0 {
            return Err(AllocError::ZeroLength);
        }
        // What CPUs have in hand may be all that is missing, and stays out of it until the end.
        let _failing = Failing::new(self);
        Recall::of_all(self).for_order(None);
        Search { fh: self, count, moving: false }.find(align, limits, |_| false)
    }
}

/// A look for a range that can be allocated.
struct Search<'a, 'm, P: Platform> {
    fh: &'a Freehold<'m, P>,
    /// Frames in a row that are wanted.
    count: u64,
    /// Frames in use may be moved away, where their block's type says so.
    moving: bool,
}

impl<'m, P: Platform> Search<'_, 'm, P> {
    /// From zone to zone; `migrate` moves what is in the way.
    fn find(
        &self,
        align: crate::Order,
        limits: FrameRange,
        mut migrate: impl FnMut(FrameRange) -> bool,
    ) -> Result<FrameRange, AllocError> {
        let (fh, count, step) = (self.fh, self.count, align.frames());
        for zone in fh.zonelists.of(0, None).map(|z| &fh.zones[z]) {
            let low = zone.span.start.max(limits.start).get();
            let end = zone.span.end.min(limits.end).get();
            let Some(mut start) = low.checked_next_multiple_of(step) else { continue };
            while start.checked_add(count).is_some_and(|last| last <= end) {
                let range = FrameRange { start: Pfn::new(start), end: Pfn::new(start + count) };
                if let Some(behind) = self.obstacle(range) {
                    // Nothing with the obstacle in it can work, nor in a hole behind it.
                    let Some(there) = fh.map.next_present(behind) else { break };
                    start = there.next_multiple_of(step);
                    continue;
                }
                start = match fh.alloc_contig_range(range, &mut migrate) {
                    Ok(()) => return Ok(range),
                    // Nothing that contains that frame can work.
                    Err(AllocError::Busy { pfn }) => (pfn.get() + 1).next_multiple_of(step),
                    Err(_) => (start + count).next_multiple_of(step),
                };
            }
        }
        Err(AllocError::NoRange { frames: count, align })
    }

    /// Where the next range could start after one that cannot be allocated, by a glance without
    /// locks: behind the last of its frames that do not exist or are isolated, are in use, or where
    /// they may be moved are in use in a block whose frames cannot be.
    fn obstacle(&self, range: FrameRange) -> Option<u64> {
        let blocks = blocks_of(range).rev();
        let mut parts = blocks.map(|number| {
            let base = number << 9;
            let start = range.start.get().max(base);
            (number, start, range.end.get().min(base + FRAMES as u64))
        });
        parts.find_map(|(number, start, end)| self.obstacle_in(number, start, end))
    }

    /// [`obstacle`](Self::obstacle) in the part `start..end` of one block. What is known of the
    /// block's other frames is put to use: up to its end no range of `count` frames starts before
    /// the one that is returned.
    fn obstacle_in(&self, number: u64, start: u64, end: u64) -> Option<u64> {
        let (base, map) = (number << 9, &self.fh.map);
        let there = map.locate_block(number).filter(|block| block.tag.get().state() != ABSENT);
        let Some(block) = there else {
            // Never used: there if the ranges say so.
            return (start..end).rev().find(|&pfn| !map.is_present(pfn)).map(|last| last + 1);
        };
        let tag = block.tag.get();
        if tag.has(ISOLATED) {
            return Some(end);
        }
        let movable = tag.migratetype() == MOVABLE || tag.migratetype() == CMA;
        let moves = self.moving && movable;
        if tag.state() == WHOLE || moves && !tag.has(HOLES) {
            return None;
        }
        let present = map.present(block);
        let bad = |w: usize| {
            let free = block.line.word(w) | block.leased_frames(self.fh, w);
            if moves { !present[w] } else { !free | !present[w] }
        };
        let here = bits::spans((start - base) as usize, (end - start) as usize);
        let last = here
            .filter_map(|(w, m)| (bad(w) & m).checked_ilog2().map(|bit| w * 64 + bit as usize))
            .last()?;
        Some(base + next_start(&core::array::from_fn(bad), last, self.count) as u64)
    }
}

impl<'m> FrameMap<'m> {
    /// The first frame of a range that does not exist.
    pub(crate) fn first_absent(&self, range: FrameRange) -> Option<Pfn> {
        self.looked_at(|| {
            let mut at = range.start.get();
            while at < range.end.get() {
                // Pieces of memory do not overlap.
                let mut ends =
                    self.ranges.iter().filter(|r| r.start.get() <= at).map(|r| r.end.get());
                match ends.find(|&end| at < end) {
                    None => return Some(Pfn::new(at)),
                    Some(end) => at = end,
                }
            }
            None
        })
    }
}

/// The first frame behind the one at `last` of a block from which there are `count` frames that are
/// not `bad`, or all up to the block's end.
fn next_start(bad: &[u64; WORDS], last: usize, count: u64) -> usize {
    let mut obstacle = last;
    if count >= FRAMES as u64 {
        // None lies between obstacles of one block.
        let words = bad.iter().enumerate().rev();
        let mut lasts =
            words.filter_map(|(w, &word)| word.checked_ilog2().map(|bit| w * 64 + bit as usize));
        obstacle = lasts.next().map_or(last, |of_block| of_block.max(last));
    }
    loop {
        let start = bits::next(bad, obstacle, false);
        obstacle = bits::next(bad, start, true);
        if obstacle == FRAMES || (obstacle - start) as u64 >= count {
            return start;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_start_is_passed_over_and_none_that_is_too_short_is_returned() {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..300 {
            let bad: [u64; WORDS] = core::array::from_fn(|_| {
                word = word.rotate_left(7).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                // Dense, thin, and none or all of a word.
                [word, word & word << 9 & word >> 3, 0, !0][word as usize % 4]
            });
            let is_bad = |frame: usize| bad[frame / 64] >> (frame % 64) & 1 != 0;
            let (last, count) =
                (round * 7 % FRAMES, [1 + round as u64 % 130, 511, 512, 600][round % 4]);
            let fits = |&start: &usize| {
                (start..FRAMES.min(start + count as usize)).all(|frame| !is_bad(frame))
            };
            let expected = (last + 1..=FRAMES).find(fits).unwrap();
            if is_bad(last) {
                assert_eq!(
                    next_start(&bad, last, count),
                    expected,
                    "{bad:x?} from {last} for {count}"
                );
            }
        }
    }
}
