//! Which frames a thread may keep when it frees them, without a word to the allocator.
//!
//! | marks of a frame | the allocator has it | whose it is |
//! |---|---|---|
//! | none | free, or handed out | the allocator's, or somebody's who frees it there |
//! | kept | handed out | waits in a thread's [`Runs`](crate::runs), or is about to |
//! | kept, out | handed out | somebody's; a thread that frees it may have it wait |
//! | out | handed out | somebody's, who is being given it |
//!
//! So of several frees of one frame that is out one takes it back, and the others find it kept but
//! not out and are refused. A free of frames without marks the allocator judges. 128 bytes a block,
//! zero until used.
//!
//! Orderings: all Relaxed. A mark comes and goes with its frame, which passes from one thread to
//! another by ways that order what was done with it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::{FrameRange, Pfn};

use crate::runs::Run;

/// The marks of 64 frames.
#[derive(Default)]
pub(crate) struct Word {
    kept: AtomicU64,
    out: AtomicU64,
}

impl Word {
    /// Whether some of these frames are kept.
    #[inline(always)]
    pub(crate) fn any(&self, mask: u64) -> bool {
        self.kept.load(Relaxed) & mask != 0
    }

    /// These frames, which are kept, are handed out again.
    #[inline(always)]
    pub(crate) fn give_out(&self, mask: u64) {
        self.out.fetch_or(mask, Relaxed);
    }

    /// [`take_back`](Self::take_back) of a single frame: one instruction that does all.
    #[inline(always)]
    pub(crate) fn take_frame_back(&self, mask: u64) -> bool {
        self.out.fetch_and(!mask, Relaxed) & mask != 0
    }

    /// Whether all of these frames were out, and are the caller's now.
    #[inline(always)]
    pub(crate) fn take_back(&self, mask: u64) -> bool {
        let mut out = self.out.load(Relaxed);
        loop {
            let left = out ^ mask;
            if left & mask != 0 {
                return false;
            }
            match self.out.compare_exchange_weak(out, left, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => out = now,
            }
        }
    }
}

/// Where the marks of an arena are: a copy finds them too.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    base: NonNull<Word>,
    /// The arena's first frame, which is the first of a word.
    first: u64,
    words: u64,
}

// SAFETY: what it points to is atomic.
unsafe impl Send for Marks {}
// SAFETY: likewise.
unsafe impl Sync for Marks {}

impl Marks {
    /// Bytes for so many frames.
    pub(crate) fn bytes(frames: u64) -> usize {
        frames.div_ceil(64) as usize * size_of::<Word>()
    }

    /// Marks of so many frames from a first one on, which is the first of a word.
    ///
    /// # Safety
    ///
    /// Behind `base` are as many bytes, aligned to 16, zero, and there as long as a copy is used.
    pub(crate) unsafe fn new(base: NonNull<u8>, first: Pfn, frames: u64) -> Self {
        Self { base: base.cast(), first: first.get(), words: frames.div_ceil(64) }
    }

    #[inline(always)]
    fn word(&self, index: u64) -> Option<&Word> {
        // SAFETY: there are so many.
        (index < self.words).then(|| unsafe { self.base.add(index as usize).as_ref() })
    }

    /// Whether `f` says so of each word that a run lies in and the run's bits there. Nothing of a
    /// frame beyond the arena. Most runs lie in one word.
    #[inline(always)]
    fn all(&self, first: u64, count: u64, mut f: impl FnMut(&Word, u64, u64) -> bool) -> bool {
        let (mut at, mut left) = (first.wrapping_sub(self.first), count);
        loop {
            let here = (64 - at % 64).min(left);
            let mask = (!0 >> ((64 - here) % 64)) << (at % 64);
            if self.word(at / 64).is_some_and(|word| !f(word, mask, at / 64)) {
                return false;
            }
            (at, left) = (at.wrapping_add(here), left - here);
            if left == 0 {
                return true;
            }
        }
    }

    /// The word of a run that lies in one, and its bits there.
    #[inline(always)]
    pub(crate) fn one(&self, (first, count): Run) -> Option<(&Word, u64)> {
        let bit = first % 64;
        if bit + count > 64 {
            return None;
        }
        // In this order two registers fewer are in use at once.
        let mask = (!0 >> (64 - count)) << bit;
        Some((self.word(first / 64)?, mask))
    }

    /// [`one`](Self::one) of a kept run, whose first frame has to be the arena's.
    #[inline(always)]
    pub(crate) unsafe fn one_kept(&self, run: Run) -> Option<(&Word, u64)> {
        // SAFETY: the caller's promise.
        unsafe { std::hint::assert_unchecked(run.0 / 64 < self.words) };
        self.one(run)
    }

    /// The arena's first frame.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Whether any frame of a run is kept.
    #[inline(always)]
    pub(crate) fn any(&self, first: u64, count: u64) -> bool {
        !self.all(first, count, |word, mask, _| !word.any(mask))
    }

    /// [`any`](Self::any) of whole words, or some are beyond the arena.
    #[inline(always)]
    pub(crate) fn any_of_words(&self, first: u64, count: u64) -> bool {
        let (index, count) = (first.wrapping_sub(self.first) / 64, count / 64);
        if index >= self.words || count > self.words - index {
            return true;
        }
        // SAFETY: there are so many.
        let words = unsafe {
            let first = self.base.add(index as usize);
            std::slice::from_raw_parts(first.as_ptr(), count as usize)
        };
        words.iter().any(|word| word.kept.load(Relaxed) != 0)
    }

    /// Whether any frame of a run of one or more waits with some thread.
    pub(crate) fn waits(&self, first: u64, count: u64) -> bool {
        !self.all(first, count, |word, mask, _| {
            (word.kept.load(Relaxed) & !word.out.load(Relaxed)) & mask == 0
        })
    }

    /// The allocator has handed a run out, which may be kept from now on.
    pub(crate) fn keep(&self, first: u64, count: u64) {
        self.all(first, count, |word, mask, _| {
            word.out.fetch_or(mask, Relaxed);
            word.kept.fetch_or(mask, Relaxed);
            true
        });
    }

    /// A kept run, of one frame or more, is handed out again.
    pub(crate) fn give_out(&self, (first, count): Run) {
        self.all(self.first + first, count, |word, mask, _| {
            word.give_out(mask);
            true
        });
    }

    /// A run of one frame or more is freed: whether all of it was out, and is the caller's now. Of
    /// one that reaches beyond the arena nothing is.
    pub(crate) fn take_back(&self, (first, count): Run) -> bool {
        let frames = self.words * 64;
        if first >= frames || count > frames - first {
            return false;
        }
        let mut end = first;
        let all = self.all(self.first + first, count, |word, mask, index| {
            let taken = word.take_back(mask);
            if taken {
                end = (first + count).min((index + 1) * 64);
            }
            taken
        });
        if !all && end > first {
            self.give_out((first, end - first));
        }
        all
    }

    /// A kept run that is the caller's goes to the allocator.
    pub(crate) fn let_go(&self, first: u64, count: u64) {
        self.all(first, count, |word, mask, _| {
            word.kept.fetch_and(!mask, Relaxed);
            true
        });
    }

    /// Frames about to be freed in the allocator, which knows then what is right of them: none of
    /// them is out any more. The first one that waits is refused; those before it are still handed
    /// out.
    #[inline(always)]
    pub(crate) fn give_up(&self, range: FrameRange) -> Result<(), Pfn> {
        let (first, count) = (range.start.get(), range.end.get().wrapping_sub(range.start.get()));
        if count == 1 && !self.any(first, 1) {
            return Ok(());
        }
        self.give_up_any(first, count)
    }

    #[inline(never)]
    fn give_up_any(&self, first: u64, count: u64) -> Result<(), Pfn> {
        // What is no range, or is beyond the arena, the allocator refuses.
        if count == 0 || count > self.words * 64 {
            return Ok(());
        }
        let mut waits = None;
        self.all(first, count, |word, mask, index| {
            let kept = word.kept.load(Relaxed) & mask;
            if kept == 0 {
                return true;
            }
            let out = word.out.fetch_and(!kept, Relaxed) & kept;
            if out != kept {
                word.out.fetch_or(out, Relaxed);
                let frame = index * 64 + u64::from((kept & !out).trailing_zeros());
                waits = Some(Pfn::new(self.first + frame));
                return false;
            }
            word.kept.fetch_and(!kept, Relaxed);
            true
        });
        waits.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, frames: u64) -> FrameRange {
        FrameRange::new(Pfn::new(start), frames).unwrap()
    }

    #[test]
    fn a_run_that_is_out_is_taken_back_once_and_refused_while_it_waits() {
        let words: [Word; 8] = Default::default();
        // SAFETY: they are there as long as the marks are used.
        let marks = unsafe { Marks::new(NonNull::from(&words).cast(), Pfn::new(512), 512) };
        assert!(!marks.any(512, 512) && !marks.take_back((88, 100)));
        marks.keep(600, 100);
        assert!(marks.any_of_words(512, 512) && !marks.any_of_words(704, 64));
        assert!(marks.any_of_words(960, 128), "beyond the arena");
        assert!(marks.any(699, 1) && !marks.any(700, 1) && !marks.any(599, 1));
        // More than is out: nothing has changed.
        assert!(!marks.take_back((88, 101)) && !marks.take_back((87, 2)));
        assert!(marks.take_back((88, 100)) && !marks.take_back((88, 100)));
        assert_eq!(marks.give_up(range(590, 20)), Err(Pfn::new(600)));
        assert!(marks.waits(512, 512) && !marks.waits(512, 88) && !marks.waits(700, 1));
        marks.give_out((88, 100));
        assert_eq!(marks.give_up(range(640, 1)), Ok(()));
        assert!(!marks.any(640, 1) && !marks.take_back((88, 100)), "a part has gone");
        assert_eq!((marks.give_up(range(600, 100)), marks.any(512, 512)), (Ok(()), false));
        // Beyond the arena, and at the end of all numbers.
        assert!(!marks.any(u64::MAX, 1) && !marks.waits(u64::MAX - 1, 2));
        assert!(!marks.any(1024, 1) && !marks.any(511, 1) && !marks.take_back((508, 8)));
        assert_eq!(marks.give_up(range(0, 1 << 40)), Ok(()));
    }

    #[test]
    fn of_a_run_that_overhangs_the_arena_nothing_is_taken_back() {
        let words: [Word; 8] = Default::default();
        // SAFETY: they are there as long as the marks are used.
        let marks = unsafe { Marks::new(NonNull::from(&words).cast(), Pfn::new(512), 512) };
        for (inside, overhanging) in [((512_u64, 4), (500_u64, 16)), ((1020, 4), (1020, 8))] {
            marks.keep(inside.0, inside.1);
            assert!(
                !marks.take_back((overhanging.0.wrapping_sub(512), overhanging.1)),
                "{overhanging:?}"
            );
            assert!(!marks.waits(inside.0, inside.1), "it is still out");
            assert!(marks.take_back((inside.0 - 512, inside.1)));
        }
        assert!(!marks.take_back((u64::MAX - 3, 8)));
    }
}
