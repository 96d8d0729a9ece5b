//! What is known of each block's memory: whether the OS has backed any of it, and which frames are still zero.
//!
//! ```text
//! note  1 byte a block    0             nothing to note: the usual case, and all that an allocation looks at
//!                         FRESH         some frame has not been handed out since the block came from the OS: it is zero
//!                         RELEASED      no frame has: the OS backs none of it (always together with FRESH)
//!                         SEEN          a pass found the block wholly free, and nothing was handed out of it since
//! used  64 bytes a block  bit f = frame f was handed out since the block came from the OS; read only while FRESH
//! ```
//!
//! 65 bytes for each 2 MiB (0.0031 %). An allocation loads its block's note, which is 0 once every frame of the block has
//! been used, and costs nothing else then. Notes are only set by who has every frame of the block; they are only cleared
//! by who has been given a frame of it. So the two can never meet, and the allocator's own hand-over (whoever
//! gets a frame sees what its last user did) orders them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use freehold::{FrameRange, PAGEBLOCK_FRAMES, Pfn};

use crate::Error;
use crate::sys::Mapping;

const FRESH: u8 = 1 << 0;
const RELEASED: u8 = 1 << 1;
const SEEN: u8 = 1 << 2;
const WORDS: usize = (PAGEBLOCK_FRAMES / 64) as usize;

/// See the module's documentation.
pub(crate) struct Notes {
    notes: Box<[AtomicU8]>,
    /// `WORDS` words a block, in a mapping so that blocks never used cost nothing.
    used: Mapping,
    first_block: u64,
    /// Blocks without `RELEASED`.
    resident: AtomicU64,
}

impl Notes {
    /// For `blocks` blocks that come fresh from the OS, the first of which has that number; `backed` where the OS backs
    /// them already.
    pub(crate) fn new(first_block: u64, blocks: u64, backed: bool) -> Result<Self, Error> {
        let note = if backed { FRESH } else { FRESH | RELEASED };
        Ok(Self {
            notes: (0..blocks).map(|_| AtomicU8::new(note)).collect(),
            used: Mapping::zeroed(blocks as usize * WORDS * size_of::<AtomicU64>())?,
            first_block,
            resident: AtomicU64::new(if backed { blocks } else { 0 }),
        })
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.notes.len() as u64
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

    fn used(&self, block: usize) -> &[AtomicU64] {
        // SAFETY: the mapping has `WORDS` words for each note, zeroed, aligned, and only ever used as atomics.
        let all = unsafe {
            std::slice::from_raw_parts(self.used.base().cast::<AtomicU64>().as_ptr(), self.notes.len() * WORDS)
        };
        &all[block * WORDS..(block + 1) * WORDS]
    }

    /// Whether there may be something to note about frames of that block that are handed out.
    #[inline(always)]
    pub(crate) fn is_noted(&self, pfn: Pfn) -> bool {
        let block = (pfn.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block) as usize;
        // Relaxed: it says 0 only after a previous holder of a frame of this block cleared it; a stale value that is
        // not 0 costs a look. A stale 0 cannot be: who set the note freed the frame that the caller now has.
        self.notes.get(block).is_some_and(|note| note.load(Ordering::Relaxed) != 0)
    }

    /// Whether the OS backs nothing of the block that a frame is in. A hint for who does not have the frame.
    pub(crate) fn is_released(&self, pfn: Pfn) -> bool {
        !self.is_resident((pfn.get() / PAGEBLOCK_FRAMES).wrapping_sub(self.first_block))
    }

    /// Frames have been handed out. Calls `dirty` with each run of them that may be other than zero.
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
        let note = &self.notes[block];
        // Relaxed: others clear the same bits at the same moment; each bit is cleared by one of them, who counts. A frame
        // that is used again and again while its block is still fresh finds nothing to clear, and writes nothing.
        let mut old = note.load(Ordering::Relaxed);
        if old & (RELEASED | SEEN) != 0 {
            old = note.fetch_and(!(RELEASED | SEEN), Ordering::Relaxed);
        }
        if old & RELEASED != 0 {
            self.resident.fetch_add(1, Ordering::Relaxed);
        }
        if old & FRESH == 0 {
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
            // Relaxed: a frame's bit is set by who has the frame, so these bits came with the frames.
            let mut left = mask;
            if word.load(Ordering::Relaxed) & mask != mask {
                // SeqCst, with the loads below: of two threads that fill the last two words at the same moment, the later
                // one in the single order of these operations sees that all are full.
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
            // Relaxed: whoever still sees FRESH looks at the bits, and finds them all set.
            note.fetch_and(!FRESH, Ordering::Relaxed);
        }
    }

    /// Whether the OS may back some of a block.
    pub(crate) fn is_resident(&self, block: u64) -> bool {
        // Relaxed: who acts on it takes the block first and looks again.
        self.notes[block as usize].load(Ordering::Relaxed) & RELEASED == 0
    }

    /// Whether an earlier pass found the block wholly free and nothing was handed out of it since.
    pub(crate) fn is_seen(&self, block: u64) -> bool {
        self.notes[block as usize].load(Ordering::Relaxed) & SEEN != 0
    }

    /// A pass has found the block wholly free. The caller has all of its frames.
    pub(crate) fn see(&self, block: u64) {
        // Relaxed: handed to the next user with the frames.
        self.notes[block as usize].fetch_or(SEEN, Ordering::Relaxed);
    }

    /// The OS has taken a block's memory back. The caller has all of its frames.
    pub(crate) fn released(&self, block: u64) {
        // Relaxed throughout: handed to the next user with the frames.
        for word in self.used(block as usize) {
            word.store(0, Ordering::Relaxed);
        }
        let old = self.notes[block as usize].swap(FRESH | RELEASED, Ordering::Relaxed);
        if old & RELEASED == 0 {
            self.resident.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many blocks say that they are resident, counted one by one.
    pub(crate) fn count_resident(&self) -> u64 {
        (0..self.blocks()).filter(|&block| self.is_resident(block)).count() as u64
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
                            (0..128).map(|i| dirty(notes, range(i * 4 + thread, 1)).len()).sum::<usize>()
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
}
