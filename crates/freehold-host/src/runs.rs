//! Where a thread has freed runs of an arena: the places to look at first for the next one.
//!
//! ```text
//! newest[5]  ->  place 93  ->  place 90  ->  place 12      of 5 frames, the one freed last first
//! newest[17] ->  place 92
//! ```
//!
//! A run waits by its exact length, and the one freed last is taken first: its memory is there, and
//! mostly in the processor's cache. Where none of a length waits, the shortest longer one is cut,
//! and the rest waits in its place.
//!
//! What waits is free, and everybody may take it: nothing is held back for its thread. So it counts
//! as free for large requests, limits, statistics and trims, a second free of it is refused as
//! ever, and nothing is to be done where a thread ends or a process forks. The place is a hint,
//! which [`alloc_run_at`](freehold::Owned) holds against what is free by then.
//!
//! Places are numbered as they are written, and a new one takes that of the one [`PLACES`] before
//! it. So a list ends where a place has another number by now.

use std::cell::Cell;

/// The longest run that waits: half of a block. A longer one is a whole block, mostly.
pub(crate) const LONGEST: u64 = 256;

/// Lists, by length; none of length 0.
const LISTS: usize = LONGEST as usize + 1;

/// Places kept, of 16 bytes each.
const PLACES: usize = 512;

/// One run that waits.
#[derive(Default)]
struct Place {
    /// Which place this is: 0 for none.
    number: Cell<u32>,
    /// The place before it in its list, or one that is none any more.
    older: Cell<u32>,
    /// Its first frame, counted from the arena's first.
    first: Cell<u32>,
    frames: Cell<u16>,
    list: Cell<u16>,
}

/// What is left of the gaps that searches have found, by the power of two of what was looked for.
///
/// A search for `least` frames has seen no smaller gap, and what is left of the one that it found
/// is smaller than that was. So it is the one for each length from `least` up to its own. What is
/// freed meanwhile may fit better; that waits in its own list.
#[derive(Default)]
pub(crate) struct Gaps([Gap; LONGEST.ilog2() as usize + 1]);

#[derive(Default)]
struct Gap {
    first: Cell<u32>,
    frames: Cell<u16>,
    least: Cell<u16>,
}

impl Gaps {
    #[inline]
    fn of(&self, count: u64) -> Option<&Gap> {
        self.0.get(count.checked_ilog2()? as usize)
    }

    /// Where a run of so many frames is to be cut.
    pub(crate) fn first(&self, count: u64) -> Option<u64> {
        let gap = self.of(count)?;
        let serves = (u64::from(gap.least.get())..=u64::from(gap.frames.get())).contains(&count);
        serves.then(|| u64::from(gap.first.get()))
    }

    /// A run of so many frames was cut there.
    pub(crate) fn cut(&self, count: u64) {
        let Some(gap) = self.of(count) else { return };
        gap.first.set(gap.first.get() + count as u32);
        gap.frames.set(gap.frames.get() - count as u16);
    }

    /// A search for `least` frames has come by a gap of which those are left, less than a block.
    pub(crate) fn set(&self, least: u64, (first, frames): Run) {
        let Some(gap) = self.of(least) else { return };
        gap.first.set(first as u32);
        gap.frames.set(frames as u16);
        gap.least.set(least as u16);
    }
}

/// See the module's documentation. For one thread.
pub(crate) struct Runs {
    pub(crate) gaps: Gaps,
    /// By length, the number of the place of the run freed last.
    newest: [Cell<u32>; LISTS],
    /// Bit n: some run may be in the list of length n.
    any: [Cell<u64>; LISTS.div_ceil(64)],
    places: [Place; PLACES],
    /// The number of the place written last.
    last: Cell<u32>,
}

/// A run by the arena's frames: its first, and how many.
pub(crate) type Run = (u64, u64);

/// The list that a run belongs into: the longest request that it is sure to serve. A power of two
/// of frames has to be aligned to its size.
#[inline(always)]
fn list_of((first, frames): Run) -> usize {
    let chunk = frames & (frames - 1) == 0 && first & (frames - 1) != 0;
    (frames - u64::from(chunk)) as usize
}

impl Runs {
    pub(crate) fn new() -> Self {
        Self {
            gaps: Gaps::default(),
            newest: [const { Cell::new(0) }; LISTS],
            any: [const { Cell::new(0) }; LISTS.div_ceil(64)],
            places: std::array::from_fn(|_| Place::default()),
            last: Cell::new(0),
        }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize % PLACES]
    }

    /// A run of 1 to [`LONGEST`] frames was freed. Nothing where it lies beyond the first 16 TiB of
    /// the arena.
    #[inline(always)]
    pub(crate) fn push(&self, run: Run) {
        if run.0 >> u32::BITS != 0 {
            return;
        }
        let list = list_of(run);
        let list = list.min(LISTS - 1);
        let (number, newest) = (self.last.get().wrapping_add(1), &self.newest[list]);
        self.last.set(number);
        let place = self.place(number);
        place.number.set(number);
        place.older.set(newest.get());
        place.first.set(run.0 as u32);
        place.frames.set(run.1 as u16);
        place.list.set(list as u16);
        newest.set(number);
        let any = &self.any[list / 64];
        any.set(any.get() | 1 << (list % 64));
    }

    /// The newest run of that list, which does not wait any more.
    #[inline(always)]
    fn pop_of(&self, list: usize) -> Option<Run> {
        let list = list.min(LISTS - 1);
        let newest = &self.newest[list];
        let number = newest.get();
        let place = self.place(number);
        // The list as well: after 2^32 places a number comes again. And number 0 may have been
        // given.
        if place.number.get() != number || usize::from(place.list.get()) != list {
            return self.none_of(list);
        }
        newest.set(place.older.get());
        place.list.set(0);
        // The usual exchange writes one place again and again.
        if number == self.last.get() {
            self.last.set(number.wrapping_sub(1));
        }
        Some((u64::from(place.first.get()), u64::from(place.frames.get())))
    }

    #[cold]
    fn none_of(&self, list: usize) -> Option<Run> {
        let any = &self.any[list / 64];
        any.set(any.get() & !(1 << (list % 64)));
        None
    }

    /// The newest run of just so many frames, at most [`LONGEST`].
    #[inline(always)]
    pub(crate) fn pop(&self, frames: u64) -> Option<Run> {
        self.pop_of(frames as usize)
    }

    /// The newest of the shortest runs that have `frames` frames, and more, wherever an aligned one
    /// of a power of two may start.
    pub(crate) fn pop_longer(&self, frames: u64) -> Option<Run> {
        let least = if frames.is_power_of_two() { 2 * frames - 1 } else { frames + 1 };
        let mut word = least as usize / 64;
        let mut lists = self.any.get(word)?.get() & !0 << (least % 64);
        loop {
            while lists == 0 {
                word += 1;
                lists = self.any.get(word)?.get();
            }
            let found = self.pop_of(word * 64 + lists.trailing_zeros() as usize);
            if found.is_some() {
                return found;
            }
            lists &= lists - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_its_own_and_the_newest_comes_first() {
        let runs = Runs::new();
        assert_eq!((runs.pop(5), runs.pop_longer(5)), (None, None));
        for first in [0, 100, 200] {
            runs.push((first, 5));
            runs.push((first + 50, 7));
        }
        assert_eq!([runs.pop(5), runs.pop(5), runs.pop(6)], [Some((200, 5)), Some((100, 5)), None]);
        assert_eq!([runs.pop_longer(3), runs.pop_longer(5)], [Some((0, 5)), Some((250, 7))]);
        runs.push((1 << 32, 9));
        assert_eq!(runs.pop(9), None, "its number has more than 32 bits");
        runs.push((300, 7));
        assert_eq!([runs.pop(7), runs.pop(7), runs.pop(5)], [Some((300, 7)), Some((150, 7)), None]);
    }

    #[test]
    fn a_gap_serves_what_it_was_found_for_and_longer_runs_while_it_lasts() {
        let gaps = Gaps::default();
        assert_eq!(gaps.first(5), None);
        gaps.set(5, (1024, 12));
        // Of 4 frames there may be a smaller one; runs of 8 and more have another.
        assert_eq!(
            [4, 5, 7, 8, 600].map(|count| gaps.first(count)),
            [None, Some(1024), Some(1024), None, None]
        );
        gaps.cut(7);
        assert_eq!([5, 6].map(|count| gaps.first(count)), [Some(1031), None]);
        gaps.set(5, (2000, 0));
        assert_eq!(gaps.first(5), None);
    }

    /// A chunk is aligned: what is not serves the requests below.
    #[test]
    fn a_power_of_two_waits_for_what_it_can_serve() {
        let runs = Runs::new();
        runs.push((2, 4));
        runs.push((8, 7));
        assert_eq!((runs.pop(4), runs.pop(3)), (None, Some((2, 4))));
        // Of 6 frames no aligned 4 need be free, of 7 there are.
        runs.push((6, 6));
        assert_eq!((runs.pop_longer(4), runs.pop_longer(4)), (Some((8, 7)), None));
        runs.push((4, 4));
        assert_eq!((runs.pop_longer(2), runs.pop(6)), (Some((4, 4)), Some((6, 6))));
    }

    #[test]
    fn the_oldest_place_is_given_up_for_a_new_one() {
        let runs = Runs::new();
        for n in 0..3 * PLACES as u64 {
            runs.push((n * 8, 1 + n % 2));
        }
        let left: usize = [1, 2].map(|n| std::iter::from_fn(|| runs.pop(n)).count()).iter().sum();
        assert_eq!((left, runs.pop_longer(1)), (PLACES, None));
    }
}
