//! What is known of each block's memory: whether the OS has backed any of it, and which frames are
//! still zero.
//!
//! ```text
//! note  4 bytes a block
//!   RESIDENT      some frame was handed out since the block came from the OS, which backs some
//!   USED_UP       every frame was: the usual case (together with RESIDENT), and all that an
//!                 allocation looks at
//!   SEEN          a pass has found the block wholly free, and nothing was handed out of it since
//!   WATCHED       a pass has found it in use, and the allocator has handed out nothing of it
//!                 since; what a thread has freed and takes again by itself is not looked at
//!   PARTED        some of it was given back since, so that the OS backs it page by page
//!   BACKED        the OS has backed all of it beforehand, used or not (populate)
//!   generation    how often parts of the block were given back
//! used  64 bytes a block
//!   bit f         frame f was handed out since it came from the OS; read only while not USED_UP
//! ```
//!
//! 68 bytes for each 2 MiB (0.0032 %), zero for a block that nobody has used, so that an arena's
//! notes cost nothing until then. An allocation loads its block's note, and where frames of the
//! block are still to come the word that has its bit.
//!
//! Notes are lost only by whoever has been given a frame of the block, and come back by whoever has
//! every frame that they are about. So the two meet in one place only: a thread finds that every
//! frame has been used, and before it can say so a pass gives some of them back. The generation
//! tells: what was found out in an older one is not noted.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use freehold::{FrameRange, PAGEBLOCK_FRAMES, Pfn};

use crate::Error;
use crate::mapping::Metadata;

const RESIDENT: u32 = 1 << 0;
const USED_UP: u32 = 1 << 1;
const SEEN: u32 = 1 << 2;
const WATCHED: u32 = 1 << 3;
const FLAGS: u32 = RESIDENT | USED_UP | SEEN | WATCHED;
/// Nothing to note.
const USUAL: u32 = RESIDENT | USED_UP;
const PARTED: u32 = 1 << 4;
const BACKED: u32 = 1 << 5;
const GENERATION: u32 = 1 << 6;
const WORDS: usize = (PAGEBLOCK_FRAMES / 64) as usize;

/// See the module's documentation.
pub(crate) struct Notes {
    /// One for each block, in a mapping so that blocks never used cost nothing; and where it is,
    /// which each allocation asks.
    notes: Metadata,
    first_note: NonNull<AtomicU32>,
    /// `WORDS` words a block.
    used: Metadata,
    first_used: NonNull<AtomicU64>,
    first_block: u64,
    blocks: u64,
    /// The OS backs a block as a whole as soon as one frame is used, until part of it is given
    /// back.
    huge: bool,
    /// Blocks with `RESIDENT`.
    resident: AtomicU64,
    /// No block from here on has ever been resident.
    top: AtomicU64,
}

// SAFETY: what it points to is atomic, and its own.
unsafe impl Send for Notes {}
// SAFETY: likewise.
unsafe impl Sync for Notes {}

impl Notes {
    /// For `blocks` blocks that come fresh from the OS, the first of which has that number.
    pub(crate) fn new(first_block: u64, blocks: u64, huge: bool) -> Result<Self, Error> {
        let notes = Metadata::new(blocks as usize * size_of::<AtomicU32>())?;
        let used = Metadata::new(blocks as usize * WORDS * size_of::<AtomicU64>())?;
        Ok(Self {
            first_note: notes.base().cast(),
            notes,
            first_used: used.base().cast(),
            used,
            first_block,
            blocks,
            huge,
            resident: AtomicU64::new(0),
            top: AtomicU64::new(0),
        })
    }

    /// The OS may back all of the blocks that these frames are in, whoever has them.
    pub(crate) fn backed(&self, range: FrameRange) {
        let first = range.start.get() / PAGEBLOCK_FRAMES - self.first_block;
        let end = range.end.get().div_ceil(PAGEBLOCK_FRAMES) - self.first_block;
        for note in &self.all()[first as usize..end as usize] {
            // Relaxed: for the next pass, a hint; for the counters, statistics.
            if note.fetch_or(RESIDENT | BACKED, Ordering::Relaxed) & RESIDENT == 0 {
                self.resident.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.top.fetch_max(end, Ordering::Relaxed);
    }

    #[inline(always)]
    fn all(&self) -> &[AtomicU32] {
        // SAFETY: the mapping has a note for each block, zeroed, aligned, and only ever used as
        // atomics.
        unsafe { std::slice::from_raw_parts(self.first_note.as_ptr(), self.blocks as usize) }
    }

    /// Blocks below this number may be resident; no other is.
    pub(crate) fn top(&self) -> u64 {
        // Relaxed: who comes later is found later.
        self.top.load(Ordering::Relaxed)
    }

    /// Bytes of notes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.notes.len() + self.used.len()) as u64
    }

    /// Blocks of which frames were handed out since they last came from the OS.
    pub(crate) fn resident(&self) -> u64 {
        // Relaxed: a statistic.
        self.resident.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn used(&self, block: usize) -> &[AtomicU64] {
        // SAFETY: the mapping has `WORDS` words for each note, zeroed, aligned, and only ever used
        // as atomics.
        let all = unsafe {
            std::slice::from_raw_parts(self.first_used.as_ptr(), self.blocks as usize * WORDS)
        };
        &all[block * WORDS..(block + 1) * WORDS]
    }

    /// Whether there may be something to note about frames of that block that are handed out.
    #[inline(always)]
    pub(crate) fn is_noted(&self, pfn: Pfn) -> bool {
        let block = (pfn.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block) as usize;
        // Relaxed: it is the usual one only after a previous holder of a frame of this block made
        // it so; a stale value that is not costs a look. A stale usual one cannot be where it
        // matters: who changed it freed the frame that the caller has.
        self.all().get(block).is_some_and(|note| note.load(Ordering::Relaxed) & FLAGS != USUAL)
    }

    /// Whether there is anything to note about a chunk of `frames` frames, a power of two: no where
    /// all of them were handed out before.
    #[inline(always)]
    pub(crate) fn is_news(&self, pfn: Pfn, frames: u64) -> bool {
        let block = (pfn.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block) as usize;
        let Some(note) = self.all().get(block) else { return false };
        // Relaxed: see `is_noted`.
        let flags = note.load(Ordering::Relaxed) & FLAGS;
        if flags == USUAL {
            return frames > PAGEBLOCK_FRAMES;
        }
        if flags != RESIDENT || frames > 64 {
            return true;
        }
        let (at, mask) =
            (pfn.get() % PAGEBLOCK_FRAMES, (!0u64 >> (64 - frames)) << (pfn.get() % 64));
        // Relaxed: the bits came with the frames.
        self.used(block)[at as usize / 64].load(Ordering::Relaxed) & mask != mask
    }

    /// Which of the 64 frames from `first` on the OS backs, as far as was noted. A hint for a
    /// caller that does not have them.
    pub(crate) fn in_memory(&self, first: Pfn) -> u64 {
        let block = (first.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block) as usize;
        let Some(note) = self.all().get(block) else { return !0 };
        // Relaxed, both: a hint.
        let note = note.load(Ordering::Relaxed);
        if note & RESIDENT == 0 {
            return 0;
        }
        // Of a huge page of which nothing was given back all is there.
        if note & (USED_UP | BACKED) != 0 || self.huge && note & PARTED == 0 {
            return !0;
        }
        let word = (first.get() % PAGEBLOCK_FRAMES / 64) as usize;
        self.used(block)[word].load(Ordering::Relaxed)
    }

    /// Whether the OS backs all of a range of one block, as far as was noted. A hint, as
    /// [`in_memory`](Self::in_memory).
    #[inline(always)]
    pub(crate) fn are_in_memory(&self, range: FrameRange) -> bool {
        if !self.is_noted(range.start) {
            return true;
        }
        let (first, last) = (range.start.get(), range.end.get() - 1);
        (first / 64..=last / 64).all(|key| {
            let at = first.max(key * 64);
            let len = (last + 1).min(key * 64 + 64) - at;
            let frames = (!0u64 >> (64 - len)) << (at % 64);
            self.in_memory(Pfn::new(at)) & frames == frames
        })
    }

    /// Whether the OS backs nothing of the block that a frame is in. A hint for a caller that does
    /// not have the frame.
    pub(crate) fn is_released(&self, pfn: Pfn) -> bool {
        !self.is_resident((pfn.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block))
    }

    /// Frames have been handed out. Calls `dirty` with each run of them that may be other than
    /// zero.
    #[inline]
    pub(crate) fn handed_out(&self, range: FrameRange, mut dirty: impl FnMut(FrameRange)) {
        let mut at = range.start.get();
        // Neighbouring dirty frames are told of in one call.
        let mut run = FrameRange { start: range.start, end: range.start };
        let mut tell = |start: u64, len: u64| {
            if run.end.get() != start {
                if !run.is_empty() {
                    dirty(run);
                }
                run.start = Pfn::new(start);
            }
            run.end = Pfn::new(start + len);
        };
        while at < range.end.get() {
            let end = (at / PAGEBLOCK_FRAMES + 1) * PAGEBLOCK_FRAMES;
            let end = end.min(range.end.get());
            if self.is_noted(Pfn::new(at)) {
                self.clear(at, end, &mut tell);
            } else {
                tell(at, end - at);
            }
            at = end;
        }
        if !run.is_empty() {
            dirty(run);
        }
    }

    /// Frames of one block that has a note have been handed out.
    fn clear(&self, start: u64, end: u64, dirty: &mut impl FnMut(u64, u64)) {
        let block = (start / PAGEBLOCK_FRAMES - self.first_block) as usize;
        let note = &self.all()[block];
        // Acquire: the bits that are looked at below are at least as new, see there. Others clear
        // the same flags at the same moment; each is cleared by one of them, who counts. A frame
        // that is used again and again while its block is still fresh finds nothing to clear, and
        // writes nothing.
        let mut old = note.load(Ordering::Acquire);
        if old & (RESIDENT | SEEN | WATCHED) != RESIDENT {
            // Relaxed for those that are told: a statistic, and a hint.
            old = note.fetch_or(RESIDENT, Ordering::AcqRel);
            note.fetch_and(!(SEEN | WATCHED), Ordering::Relaxed);
        }
        if old & RESIDENT == 0 {
            self.resident.fetch_add(1, Ordering::Relaxed);
            self.top.fetch_max(block as u64 + 1, Ordering::Relaxed);
        }
        if old & USED_UP != 0 {
            dirty(start, end - start);
            return;
        }
        let used = self.used(block);
        let base = start / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES;
        let mut at = start;
        let mut news = false;
        while at < end {
            let bit = at % 64;
            let len = (64 - bit).min(end - at);
            let mask = (!0u64 >> (64 - len)) << bit;
            let word = &used[((at - base) / 64) as usize];
            // Relaxed: a frame's bit is set by whoever has the frame, so these bits came with the
            // frames.
            let mut left = mask;
            if word.load(Ordering::Relaxed) & mask != mask {
                // SeqCst, with the loads below: of two threads that fill the last two words at the
                // same moment, the later one in the single order of these operations sees that all
                // are full.
                left = word.fetch_or(mask, Ordering::SeqCst) & mask;
                news = true;
            }
            while left != 0 {
                let first = u64::from(left.trailing_zeros());
                let run = u64::from((left >> first).trailing_ones());
                dirty(at - bit + first, run);
                left &= !((!0u64 >> (64 - run)) << first);
            }
            at += len;
        }
        if news && used.iter().all(|word| word.load(Ordering::SeqCst) == !0) {
            // SeqCst: if a pass has cleared bits after they were looked at, it comes after this,
            // and takes the flag away again; or before, and the generation is another one. Whoever
            // does not see the flag yet looks at the bits.
            let same = |now| (now / GENERATION == old / GENERATION).then_some(now | USED_UP);
            let _ = note.fetch_update(Ordering::SeqCst, Ordering::SeqCst, same);
        }
    }

    /// Whether the OS may back some of a block.
    pub(crate) fn is_resident(&self, block: u64) -> bool {
        // Relaxed: who acts on it takes the block first and looks again.
        self.all()[block as usize].load(Ordering::Relaxed) & RESIDENT != 0
    }

    /// Whether some of a block was given back since it last came, so that it is backed page by
    /// page.
    pub(crate) fn is_parted(&self, block: u64) -> bool {
        // Relaxed: passes set it, one at a time.
        self.all()[block as usize].load(Ordering::Relaxed) & PARTED != 0
    }

    /// Whether a block is in parts, not known to be wholly free, and `least` of its frames or more
    /// were handed out since they came.
    pub(crate) fn is_in_parts_and_used(&self, block: u64, least: u64) -> bool {
        // Relaxed, both: a hint.
        let note = self.all()[block as usize].load(Ordering::Relaxed);
        let used = || {
            let words = self.used(block as usize).iter();
            words.map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum::<u64>()
        };
        note & (RESIDENT | PARTED | SEEN) == RESIDENT | PARTED
            && (note & USED_UP != 0 || used() >= least)
    }

    /// The OS backs a block as a whole again. Frames that were not handed out are still zero.
    pub(crate) fn made_whole(&self, block: u64) {
        // Relaxed: for passes, one at a time, and a hint.
        self.all()[block as usize].fetch_and(!PARTED, Ordering::Relaxed);
    }

    /// Whether an earlier pass found the block wholly free and nothing was handed out of it since.
    pub(crate) fn is_seen(&self, block: u64) -> bool {
        self.all()[block as usize].load(Ordering::Relaxed) & SEEN != 0
    }

    /// A pass has found the block wholly free. The caller has all of its frames.
    pub(crate) fn see(&self, block: u64) {
        // Relaxed: handed to the next user with the frames.
        self.all()[block as usize].fetch_or(SEEN, Ordering::Relaxed);
    }

    /// Whether an earlier pass found the block in use and nothing was handed out of it since.
    pub(crate) fn is_watched(&self, block: u64) -> bool {
        self.all()[block as usize].load(Ordering::Relaxed) & WATCHED != 0
    }

    /// A pass has found the block in use.
    pub(crate) fn watch(&self, block: u64) {
        // Relaxed: a hint, which whoever is given a frame at this moment may miss.
        self.all()[block as usize].fetch_or(WATCHED, Ordering::Relaxed);
    }

    /// The OS has taken a block's memory back. The caller has all of its frames.
    pub(crate) fn released(&self, block: u64) {
        // Relaxed throughout: handed to the next user with the frames. SeqCst for the note: as in
        // `released_part`.
        for word in self.used(block as usize) {
            word.store(0, Ordering::Relaxed);
        }
        let fresh = |old: u32| Some((old & !(FLAGS | PARTED | BACKED)).wrapping_add(GENERATION));
        let old =
            self.all()[block as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, fresh);
        if old.is_ok_and(|old| old & RESIDENT != 0) {
            self.resident.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The words of a block that a part of it lies in, each with the bits of the part.
    fn words(&self, part: FrameRange) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let (start, len) = (part.start.get(), part.len());
        let block = (start / PAGEBLOCK_FRAMES - self.first_block) as usize;
        let first = start % PAGEBLOCK_FRAMES;
        (first / 64..=(first + len - 1) / 64).map(move |word| {
            let (from, to) = (first.max(word * 64), (first + len).min(word * 64 + 64));
            (&self.used(block)[word as usize], (!0 >> (64 - (to - from))) << (from % 64))
        })
    }

    /// Whether the OS backs nothing of a part of a block: nothing was handed out of it since it
    /// came. The caller has all of its frames.
    pub(crate) fn is_absent(&self, part: FrameRange) -> bool {
        let block = (part.start.get() / PAGEBLOCK_FRAMES - self.first_block) as usize;
        // Relaxed: as in `is_noted`; the bits came with the frames.
        let note = self.all()[block].load(Ordering::Relaxed);
        note & (USED_UP | BACKED) == 0
            && (note & PARTED != 0 || !self.huge)
            && self.words(part).all(|(word, mask)| word.load(Ordering::Relaxed) & mask == 0)
    }

    /// The OS has taken back a part of a block, of which the caller has all frames.
    pub(crate) fn released_part(&self, part: FrameRange) {
        let block = (part.start.get() / PAGEBLOCK_FRAMES - self.first_block) as usize;
        // Relaxed: it is set by whoever populates, at any time.
        let backed = self.all()[block].load(Ordering::Relaxed) & BACKED;
        if backed != 0 {
            // Now that some of it is gone, the bits have to tell which: the rest counts as used.
            // SeqCst: as below.
            self.used(block).iter().for_each(|word| word.store(!0, Ordering::SeqCst));
        }
        // SeqCst: see `clear`, where somebody may be about to say that all frames of the block have
        // been used. The bits of frames that are not the caller's are all set where the block was
        // used up, and right where it was not.
        self.words(part).for_each(|(word, mask)| _ = word.fetch_and(!mask, Ordering::SeqCst));
        let fresh =
            |old: u32| Some(((old & !(USED_UP | backed)) | PARTED).wrapping_add(GENERATION));
        let _ = self.all()[block].fetch_update(Ordering::SeqCst, Ordering::SeqCst, fresh);
    }

    /// How many blocks say that they are resident, counted one by one.
    pub(crate) fn count_resident(&self) -> u64 {
        (0..self.top()).filter(|&block| self.is_resident(block)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, frames: u64) -> FrameRange {
        FrameRange::new(Pfn::new(start), frames).unwrap()
    }

    fn dirty(notes: &Notes, range: FrameRange) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        notes.handed_out(range, |run| runs.push((run.start.get(), run.len())));
        runs
    }

    #[test]
    fn frames_are_clean_once_and_again_after_their_block_was_released() {
        let notes = Notes::new(2, 3, false).unwrap();
        assert_eq!(dirty(&notes, range(1024, 3)), []);
        assert_eq!(notes.resident(), 1);
        assert_eq!(dirty(&notes, range(1025, 1)), [(1025, 1)]);
        // Clean, dirty, clean, over the end of a word and of a block.
        assert_eq!(dirty(&notes, range(1024 + 60, 8)), []);
        assert_eq!(dirty(&notes, range(1024 + 56, 16)), [(1024 + 60, 8)]);
        assert_eq!(dirty(&notes, range(1024 + 500, 24)), []);
        assert_eq!(dirty(&notes, range(1024 + 490, 44)), [(1024 + 500, 24)]);
        assert_eq!(notes.resident(), 2);
        notes.released(0);
        assert!(!notes.is_resident(0) && notes.is_resident(1) && !notes.is_resident(2));
        assert_eq!(dirty(&notes, range(1024, 600)), [(1024 + 512, 22)]);
        assert_eq!((notes.resident(), notes.count_resident()), (2, 2));
    }

    #[test]
    fn of_threads_that_fill_a_block_together_one_sees_that_it_is_full() {
        for round in 0..200 {
            let notes = Notes::new(0, 1, false).unwrap();
            let start = std::sync::Barrier::new(4);
            let all = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|thread| {
                        let (notes, start) = (&notes, &start);
                        scope.spawn(move || {
                            start.wait();
                            // Frames of all words, taken in turns by the four.
                            (0..128)
                                .map(|i| dirty(notes, range(i * 4 + thread, 1)).len())
                                .sum::<usize>()
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            assert_eq!(all, 0, "round {round}: every frame was clean once");
            assert!(!notes.is_noted(Pfn::new(0)), "round {round}");
            assert_eq!((notes.resident(), notes.count_resident()), (1, 1));
        }
    }

    #[test]
    fn a_block_whose_every_frame_was_used_has_no_note() {
        let notes = Notes::new(0, 1, false).unwrap();
        assert!(notes.is_noted(Pfn::new(0)));
        for pfn in 0..512 {
            assert_eq!(dirty(&notes, range(pfn, 1)), []);
        }
        assert!(!notes.is_noted(Pfn::new(7)));
        assert_eq!(dirty(&notes, range(0, 512)), [(0, 512)]);
        notes.see(0);
        assert!(notes.is_seen(0));
        assert_eq!(dirty(&notes, range(5, 1)), [(5, 1)]);
        assert!(!notes.is_seen(0));
        notes.released(0);
        assert_eq!(notes.resident(), 0);
        assert_eq!(dirty(&notes, range(0, 512)), []);
    }

    #[test]
    fn parts_that_were_given_back_are_absent_and_clean_and_the_rest_is_not() {
        let notes = Notes::new(0, 2, false).unwrap();
        assert_eq!(dirty(&notes, range(512, 512)), []);
        assert!(!notes.is_noted(Pfn::new(600)));
        // Over the end of a word.
        notes.released_part(range(512 + 48, 32));
        assert!(notes.is_absent(range(512 + 48, 16)) && notes.is_absent(range(512 + 64, 16)));
        assert!(!notes.is_absent(range(512 + 32, 16)) && !notes.is_absent(range(512 + 32, 32)));
        assert!(notes.is_news(Pfn::new(512 + 48), 1) && !notes.is_news(Pfn::new(512 + 32), 16));
        assert_eq!((notes.resident(), notes.count_resident()), (1, 1));
        assert_eq!(dirty(&notes, range(512, 512)), [(512, 48), (512 + 80, 512 - 80)]);
        assert!(!notes.is_noted(Pfn::new(512)), "used up again");
        assert_eq!(dirty(&notes, range(512 + 48, 32)), [(512 + 48, 32)]);
    }

    #[test]
    fn what_was_populated_is_absent_only_once_it_was_given_back() {
        let notes = Notes::new(0, 2, false).unwrap();
        notes.backed(range(512 + 3, 5));
        assert_eq!((notes.resident(), notes.count_resident(), notes.top()), (1, 1, 2));
        assert!(!notes.is_absent(range(512 + 64, 64)));
        assert_eq!(dirty(&notes, range(512, 8)), [], "populated is still zero");
        notes.released_part(range(512 + 64, 64));
        assert!(notes.is_absent(range(512 + 64, 64)) && !notes.is_absent(range(512 + 128, 8)));
        assert_eq!(dirty(&notes, range(512 + 64, 64)), []);
        notes.released(1);
        assert!(notes.is_absent(range(512, 512)));
        assert_eq!((notes.resident(), notes.count_resident()), (0, 0));
    }

    /// A thread uses the last frames of a block while parts of it are given back, over and over:
    /// what is said to be zero was given back since it was last handed out.
    #[test]
    fn parts_given_back_while_others_use_the_block_up_are_clean_once() {
        let notes = Notes::new(0, 1, false).unwrap();
        dirty(&notes, range(0, 512));
        std::thread::scope(|scope| {
            for part in 0..4 {
                let notes = &notes;
                scope.spawn(move || {
                    let mine = range(part * 128, 128);
                    for _ in 0..20_000 {
                        notes.released_part(mine);
                        assert!(notes.is_absent(mine));
                        assert_eq!(dirty(notes, mine), []);
                        assert_eq!(dirty(notes, mine), [(mine.start.get(), 128)]);
                    }
                });
            }
        });
        assert_eq!(dirty(&notes, range(0, 512)), [(0, 512)]);
    }

    /// As many blocks as 16 TiB have: addresses until they are used, and no walk over them.
    #[test]
    fn notes_of_blocks_never_used_take_no_memory() {
        let notes = Notes::new(0, 1 << 23, false).unwrap();
        let backed = || {
            let mapped = |mapping: &Metadata| {
                crate::sys::pages_in_memory((mapping.base(), mapping.len())).unwrap()
            };
            mapped(&notes.notes) + mapped(&notes.used)
        };
        assert_eq!((backed(), notes.count_resident(), notes.top()), (0, 0, 0));
        assert_eq!(dirty(&notes, range(512 * 1000, 512)), []);
        assert_eq!((backed(), notes.count_resident(), notes.top()), (2, 1, 1001));
    }
}
