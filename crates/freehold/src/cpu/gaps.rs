//! The gaps that this CPU cuts runs of any length from: for each power of two of lengths the one
//! that a search has found last.
//!
//! ```text
//! a search for 5 frames:   |###.......###|   the smallest gap that will do: 7 frames
//!                              ^^^^^         taken
//!                                   ..       what is left: too short for 5
//!
//! in a block just split:   |#####........|   what is left is the next one to cut
//! ```
//!
//! **Why that is best fit still.** The search for `least` frames has seen no smaller gap, and what
//! is left of the one it found is smaller than that was. So it is the one for each length from
//! `least` up to its own. What is freed behind the search's back may fit better: what this CPU
//! frees right in front of a gap is a part of it again, and all else waits until the gap is used
//! up, which is one block at most.
//!
//! Only hints: the frames are in their words, and may be gone.

use crate::FrameRange;
use crate::block::FRAMES;
use crate::primitive::{AtomicBool, AtomicU16, AtomicU32, Relaxed};
use crate::zone::board::CLASSES;

/// Powers of two of lengths, up to half a block and more. Few under loom, whose threads have small
/// stacks.
const KEPT: usize = if cfg!(any(loom, shuttle)) { 1 } else { FRAMES.ilog2() as usize };

/// One gap: its block's number, and where in the block it starts and ends; `end` is 0 where there
/// is none.
struct Gap {
    block: AtomicU32,
    start: AtomicU16,
    end: AtomicU16,
    least: AtomicU16,
}

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Gaps {
    gaps: [Gap; KEPT],
    any: AtomicBool,
    /// By class the least length of which a search has found no gap in as many blocks as it looks
    /// at, since the last [`TRUSTED`]th search.
    missed: [AtomicU16; CLASSES as usize + 1],
    searches: AtomicU32,
}

/// How many searches in a row trust what one of them has missed.
const TRUSTED: u32 = 8;

impl Gaps {
    pub(crate) fn new() -> Self {
        let gap = || Gap {
            block: AtomicU32::new(0),
            start: AtomicU16::new(0),
            end: AtomicU16::new(0),
            least: AtomicU16::new(0),
        };
        Self {
            gaps: core::array::from_fn(|_| gap()),
            any: AtomicBool::new(false),
            missed: core::array::from_fn(|_| AtomicU16::new(u16::MAX)),
            searches: AtomicU32::new(0),
        }
    }

    /// A search begins.
    pub(crate) fn begin_search(&self) {
        let searches = self.searches.get().wrapping_add(1);
        self.searches.set(searches);
        if searches % TRUSTED == 0 {
            self.missed.iter().for_each(|missed| missed.set(u16::MAX));
        }
    }

    /// A search has found no gap of that length in as many blocks of a class as it looks at.
    pub(crate) fn miss(&self, class: u8, len: usize) {
        let missed = &self.missed[usize::from(class)];
        missed.set(missed.get().min(len as u16));
    }

    /// Whether one of the last searches has missed such a gap.
    pub(crate) fn missed(&self, class: u8, len: usize) -> bool {
        len >= usize::from(self.missed[usize::from(class)].get())
    }

    /// Whether runs were cut here since everything was last given back.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.get()
    }

    /// Of runs of so many frames, at least one.
    #[inline]
    fn of(&self, count: u64) -> &Gap {
        &self.gaps[(count.ilog2() as usize).min(KEPT - 1)]
    }

    /// Where a run of so many frames, less than a block, is to be cut, if that is known.
    #[inline]
    pub(crate) fn first(&self, count: u64) -> Option<u64> {
        let gap = self.of(count);
        let (start, end) = (u64::from(gap.start.get()), u64::from(gap.end.get()));
        let serves = u64::from(gap.least.get()) <= count && start + count <= end;
        serves.then(|| u64::from(gap.block.get()) * FRAMES as u64 + start)
    }

    /// A search for `least` frames has found a gap in the block of that number, of which the frames
    /// `start..end` of the block are left.
    pub(crate) fn set(&self, least: u64, block: u32, (start, end): (usize, usize)) {
        let gap = self.of(least);
        gap.block.set(block);
        gap.start.set(start as u16);
        gap.end.set(end as u16);
        gap.least.set(least as u16);
        self.any.set(true);
    }

    /// A run of so many frames was cut off the front of a gap.
    #[inline]
    pub(crate) fn cut(&self, count: u64) {
        let start = &self.of(count).start;
        start.set(start.get() + count as u16);
    }

    /// A run was freed: right in front of a gap in its block it is a part of that again.
    #[inline]
    pub(crate) fn freed(&self, run: FrameRange) {
        let (first, gap) = (run.start.get(), self.of(run.len()));
        let offset = first % FRAMES as u64;
        if first / FRAMES as u64 == u64::from(gap.block.get())
            && offset + run.len() == u64::from(gap.start.get())
            && gap.start.get() < gap.end.get()
        {
            gap.start.set(offset as u16);
        }
    }

    pub(crate) fn clear(&self) {
        self.gaps.iter().for_each(|gap| gap.end.set(0));
        self.missed.iter().for_each(|missed| missed.set(u16::MAX));
        self.any.set(false);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Pfn;

    #[test]
    fn a_gap_serves_what_it_was_found_for_and_longer_runs_while_it_lasts() {
        let gaps = Gaps::new();
        let run = |start: u64, len: u64| FrameRange::new(Pfn::new(start), len).unwrap();
        assert_eq!((gaps.first(5), gaps.any()), (None, false));
        gaps.set(5, 2, (0, 12));
        // Of 4 frames there may be a smaller one; runs of 8 and more have another.
        assert_eq!(
            [4, 5, 7, 8].map(|count| gaps.first(count)),
            [None, Some(1024), Some(1024), None]
        );
        gaps.cut(7);
        assert_eq!([5, 6].map(|count| gaps.first(count)), [Some(1031), None]);
        gaps.freed(run(1020, 4));
        assert_eq!(gaps.first(5), Some(1031), "what is freed elsewhere is no part of it");
        gaps.freed(run(1024, 7));
        assert_eq!(gaps.first(7), Some(1024));
        // Over the end of the block before.
        gaps.freed(run(1018, 6));
        assert_eq!(gaps.first(7), Some(1024));
        gaps.clear();
        assert_eq!((gaps.first(5), gaps.any()), (None, false));
    }

    #[test]
    fn what_a_search_has_missed_is_trusted_for_a_while() {
        let gaps = Gaps::new();
        gaps.miss(3, 100);
        gaps.miss(3, 120);
        assert_eq!([99, 100, 130].map(|len| gaps.missed(3, len)), [false, true, true]);
        assert!(!gaps.missed(4, 130));
        (0..TRUSTED).for_each(|_| gaps.begin_search());
        assert!(!gaps.missed(3, 130));
    }
}
