//! What an arena does beside allocating and freeing where it is asked to: it notes where
//! allocations start, so that a free of too much is refused at once, and it writes zeros over what
//! is freed.
//!
//! ```text
//! start  1 bit a frame    |1.......|1.......|1...      three allocations, of 8, 8 and 4 frames
//!                         free(first, 16 frames)       meets the second: refused
//! ```
//!
//! Both cost nothing where they are off: the arena of which one is on has a [`Key`](crate::key::Key)
//! in optimised builds that no thread's cache holds, so that its calls go the slow way, which looks
//! here. In debug builds the fast way looks here, too, so that tests of such builds run through it.

use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, FrameRange, Pfn};

use crate::Error;
use crate::mapping::Mapping;
use crate::memory::Memory;

/// Whether the fast way looks at what is noted here.
pub(crate) const ON_THE_FAST_WAY: bool = cfg!(debug_assertions);

/// See the module's documentation.
pub(crate) struct Checks {
    /// A bit for each frame, where starts are noted.
    starts: Option<Mapping>,
    first: u64,
    zero: bool,
}

impl Checks {
    /// For the frames that there may be; `None` where there is nothing to do.
    pub(crate) fn new(
        reserved: FrameRange,
        starts: bool,
        zero: bool,
    ) -> Result<Option<Self>, Error> {
        if !starts && !zero {
            return Ok(None);
        }
        let mapped = || Mapping::zeroed((reserved.len() / 8) as usize);
        let starts = if starts { Some(mapped()?) } else { None };
        if let Some(starts) = &starts {
            starts.no_huge_pages();
        }
        Ok(Some(Self { starts, first: reserved.start.get(), zero }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.starts.as_ref().map_or(0, |starts| starts.len() as u64)
    }

    fn word(&self, frame: u64) -> Option<&AtomicU64> {
        let starts = self.starts.as_ref()?;
        let word = (frame / 64) as usize;
        // SAFETY: the mapping has a bit for each frame there may be, zeroed, and is only ever used
        // as atomics; callers name frames of the arena.
        (word * 8 < starts.len())
            .then(|| unsafe { starts.base().cast::<AtomicU64>().add(word).as_ref() })
    }

    /// Frames have been allocated.
    pub(crate) fn began(&self, first: Pfn) {
        let frame = first.get() - self.first;
        if let Some(word) = self.word(frame) {
            // Relaxed, here and below: a frame's bit is changed by whoever has the frame, and
            // comes and goes with it.
            word.fetch_or(1 << (frame % 64), Ordering::Relaxed);
        }
    }

    /// The first allocation that starts behind the first frame of that range.
    fn start_within(&self, range: FrameRange) -> Option<Pfn> {
        let (start, end) = (range.start.get() - self.first + 1, range.end.get() - self.first);
        let mut at = start;
        while at < end {
            let bits = self.word(at)?.load(Ordering::Relaxed) >> (at % 64);
            if bits != 0 {
                let found = at + u64::from(bits.trailing_zeros());
                return (found < end).then(|| Pfn::new(found + self.first));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// No allocation starts in these frames any more.
    pub(crate) fn forget_starts(&self, range: FrameRange) {
        let (start, end) = (range.start.get() - self.first, range.end.get() - self.first);
        let mut at = start;
        while at < end {
            let Some(word) = self.word(at) else { return };
            let len = (64 - at % 64).min(end - at);
            let mask = (!0 >> (64 - len)) << (at % 64);
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::Relaxed);
            }
            at += len;
        }
    }

    /// A chunk is to be freed, which was allocated as one or is a part of one.
    pub(crate) fn check_chunk(&self, range: FrameRange) -> Result<(), Error> {
        self.start_within(range).map_or(Ok(()), |next| {
            Err(Error::WrongOrder { pfn: range.start, frames: range.len(), next })
        })
    }

    /// Frames of the arena, all of them allocated, are to be freed by whoever has them.
    pub(crate) fn ending(&self, memory: &Memory, range: FrameRange) {
        self.forget_starts(range);
        if self.zero {
            let bytes = (range.len() * FRAME_SIZE) as usize;
            // SAFETY: frames of the arena, which whoever frees them has, and uses no more: the
            // promise of every free, by handle or by number.
            unsafe { std::ptr::write_bytes(memory.pointer(range.start), 0, bytes) };
        }
    }
}
