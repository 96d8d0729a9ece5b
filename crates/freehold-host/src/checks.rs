//! What an arena does beside allocating and freeing where it is asked to: it notes where
//! allocations start, so that a free of too much is refused at once, and it writes zeros over what
//! is freed.
//!
//! ```text
//! start  1 bit a frame    |1.......|1.......|1...      three allocations, of 8, 8 and 4 frames
//!                         free(first, 16 frames)       meets the second: refused
//! used   1 bit a frame    |11111111|11111111|1111      somebody has it, and nobody has begun to free it
//!                         free and free, at once       one clears the bits, the other is refused
//! ```
//!
//! The second bit is there because a free first does something to the frames. Two frees of the same
//! frames at the same moment would both find them allocated; by the time the slower one writes its
//! zeros they may be somebody else's.
//!
//! Both cost nothing where they are off: the arena of which one is on has a [`Key`](crate::key::Key)
//! in optimised builds that no thread's cache holds, so that its calls go the slow way, which looks
//! here. In debug builds the fast way looks here, too, so that tests of such builds run through it.

use std::sync::atomic::{AtomicU64, Ordering};

use freehold::{FRAME_SIZE, FrameRange, FreeError, Pfn};

use crate::Error;
use crate::mapping::Mapping;
use crate::memory::Memory;

/// Whether the fast way looks at what is noted here.
pub(crate) const ON_THE_FAST_WAY: bool = cfg!(debug_assertions);

/// One bit for each frame there may be.
struct Bits {
    words: Mapping,
    first: u64,
}

impl Bits {
    fn new(reserved: FrameRange) -> Result<Self, Error> {
        let words = Mapping::zeroed((reserved.len() / 8) as usize)?;
        words.no_huge_pages();
        Ok(Self { words, first: reserved.start.get() })
    }

    /// The words with the bits of a range's frames: each with its first frame, and these bits.
    fn of(&self, range: FrameRange) -> impl Iterator<Item = (u64, &AtomicU64, u64)> {
        let (start, end) = (range.start.get() - self.first, range.end.get() - self.first);
        let words = self.words.len() as u64 / 8;
        debug_assert!(end.div_ceil(64) <= words, "callers name frames of the arena");
        let behind = if start < end { end.div_ceil(64).min(words) } else { 0 };
        (start / 64..behind).map(move |number| {
            let from = start.saturating_sub(number * 64);
            let len = (end - number * 64).min(64) - from;
            // SAFETY: below the number of words that the mapping has, which is zeroed and only ever
            // used as atomics.
            let word =
                unsafe { self.words.base().cast::<AtomicU64>().add(number as usize).as_ref() };
            (self.first + number * 64, word, (!0u64 >> (64 - len)) << from)
        })
    }

    fn set(&self, range: FrameRange) {
        for (_, word, mask) in self.of(range) {
            // Relaxed, here and below: a frame's bits are changed by whoever has the frame, and
            // come and go with it. Where two frees believe that they have it, the exchange of its
            // word decides, and the loser touches nothing.
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    fn clear(&self, range: FrameRange) {
        for (_, word, mask) in self.of(range) {
            if word.load(Ordering::Relaxed) & mask != 0 {
                word.fetch_and(!mask, Ordering::Relaxed);
            }
        }
    }

    /// The first frame of the range whose bit is set.
    fn first_in(&self, range: FrameRange) -> Option<Pfn> {
        self.of(range).find_map(|(first, word, mask)| {
            let found = word.load(Ordering::Relaxed) & mask;
            (found != 0).then(|| Pfn::new(first + u64::from(found.trailing_zeros())))
        })
    }

    /// Clears all of the range's bits, or, where one is clear already, none; then says which.
    fn take(&self, range: FrameRange) -> Result<(), Pfn> {
        for (first, word, mask) in self.of(range) {
            let all = |now: u64| (now & mask == mask).then_some(now & !mask);
            if let Err(now) = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all) {
                let missing = Pfn::new(first + u64::from((!now & mask).trailing_zeros()));
                let taken = FrameRange { end: Pfn::new(first), ..range };
                if taken.start < taken.end {
                    self.set(taken);
                }
                return Err(missing);
            }
        }
        Ok(())
    }
}

/// See the module's documentation.
pub(crate) struct Checks {
    /// Where starts are noted.
    starts: Option<Bits>,
    used: Bits,
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
        let starts = if starts { Some(Bits::new(reserved)?) } else { None };
        Ok(Some(Self { starts, used: Bits::new(reserved)?, zero }))
    }

    pub(crate) fn bytes(&self) -> u64 {
        let each = self.used.words.len() as u64;
        each + self.starts.as_ref().map_or(0, |_| each)
    }

    /// Frames have been allocated.
    pub(crate) fn began(&self, range: FrameRange) {
        if let Some(starts) = &self.starts {
            starts.set(FrameRange { end: Pfn::new(range.start.get() + 1), ..range });
        }
        self.used.set(range);
    }

    /// Frames have been added to an allocation.
    pub(crate) fn extended(&self, range: FrameRange) {
        self.used.set(range);
    }

    /// Nobody has these frames, and no allocation starts in them any more.
    pub(crate) fn forget(&self, range: FrameRange) {
        if let Some(starts) = &self.starts {
            starts.clear(range);
        }
        self.used.clear(range);
    }

    /// A chunk is to be freed, which was allocated as one or is a part of one.
    pub(crate) fn check_chunk(&self, range: FrameRange) -> Result<(), Error> {
        let behind = FrameRange { start: Pfn::new(range.start.get() + 1), ..range };
        let next = self.starts.as_ref().and_then(|starts| starts.first_in(behind));
        next.map_or(Ok(()), |next| {
            Err(Error::WrongOrder { pfn: range.start, frames: range.len(), next })
        })
    }

    /// Frames of the arena, all of them allocated, are to be freed by whoever has them. Refused
    /// where another free of one of them has come so far; then nothing has changed.
    pub(crate) fn ending(&self, memory: &Memory, range: FrameRange) -> Result<(), Error> {
        self.used.take(range).map_err(|pfn| FreeError::DoubleFree { pfn })?;
        if let Some(starts) = &self.starts {
            starts.clear(range);
        }
        #[cfg(test)]
        tests::before_zeros();
        if self.zero {
            let bytes = (range.len() * FRAME_SIZE) as usize;
            // SAFETY: frames of the arena, which whoever frees them has, and uses no more: the
            // promise of every free, by handle or by number.
            unsafe { std::ptr::write_bytes(memory.pointer(range.start), 0, bytes) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use freehold::{Migratetype, Order};

    use super::*;
    use crate::Arena;

    thread_local! {
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Called in the middle of a free: the frames were found to be allocated.
    pub(super) fn before_zeros() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }

    #[test]
    fn of_two_frees_at_once_the_second_is_refused_and_writes_over_nothing() {
        for (zero, checked) in [(true, false), (false, true), (true, true)] {
            for order in [0, 3, 8].map(|order| Order::new(order).unwrap()) {
                let builder = Arena::builder(4 << 20).zero_on_free(zero).checked(checked);
                let arena: &'static Arena = builder.build().unwrap().leak();
                let pfn = arena.alloc(order, Migratetype::Movable).unwrap();
                let part = Pfn::new(pfn.get() + order.frames() - 1);
                let told = Rc::new(Cell::new(None));
                let tell = Rc::clone(&told);
                MEANWHILE.set(Some(Box::new(move || {
                    // SAFETY: it is the mistake that is tried; nobody uses the frames.
                    let freed = unsafe { arena.free(part, Order::ZERO) };
                    tell.set(Some(freed));
                })));
                // SAFETY: allocated above, and used by nobody.
                unsafe { arena.free(pfn, order) }.unwrap();
                let refused = Err(Error::Free(FreeError::DoubleFree { pfn: part }));
                assert_eq!(told.take(), Some(refused), "zero {zero}, checked {checked}");
                arena.validate().unwrap();
                assert_eq!((arena.free_frames(), arena.stats().late_double_frees), (1024, 0));
            }
        }
    }

    #[test]
    fn bits_are_taken_all_or_none() {
        let all = FrameRange::new(Pfn::new(512), 1024).unwrap();
        let bits = Bits::new(all).unwrap();
        let range = |start: u64, len| FrameRange::new(Pfn::new(512 + start), len).unwrap();
        bits.set(range(60, 200));
        assert_eq!(bits.first_in(all), Some(Pfn::new(572)));
        assert_eq!(bits.first_in(FrameRange { start: Pfn::new(612), end: Pfn::new(612) }), None);
        assert_eq!(bits.take(range(60, 201)), Err(Pfn::new(512 + 260)));
        assert_eq!(bits.take(range(59, 20)), Err(Pfn::new(512 + 59)));
        assert_eq!(bits.take(range(60, 199)), Ok(()), "what was refused took nothing");
        assert_eq!(bits.first_in(all), Some(Pfn::new(512 + 259)));
        bits.clear(range(0, 1024));
        assert_eq!(bits.first_in(all), None);
    }
}
