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
//! A run waits in one of two ways:
//!
//! | | the allocator | taken by |
//! |---|---|---|
//! | kept | knows nothing: to it the run is handed out, see [`Marks`](crate::marks) | its thread, and nobody asks |
//! | named | has it: everybody may take it | a look whether it is free still |
//!
//! A thread keeps 8 MiB at most, and a 256th of its arena; all threads together keep an eighth. The
//! runs kept longest are freed then and wait on by name. What is kept counts as free all the same:
//! whoever finds no memory [holds](crate::core::Core::hold_kept) what all threads keep while it
//! tries again, and whoever gives memory back or counts it [gathers](crate::core::Core::gather) it
//! first. A forked child counts it as used.
//!
//! Places are numbered as they are written, and a new one takes that of the one [`PLACES`] before
//! it. So a list ends where a place has another number by now.

use std::cell::Cell;

use crate::stops::Door;

/// The longest run that waits: half of a block. A longer one is a whole block, mostly.
pub(crate) const LONGEST: u64 = 256;

/// Lists, by length; none of length 0.
const LISTS: usize = LONGEST as usize + 1;

/// Words of a bit for each list.
const ANY: usize = LISTS.div_ceil(64);

/// Places kept, of 16 bytes each.
const PLACES: usize = 1024;

/// Places looked at for an empty one.
const SOON: u32 = 64;

/// One run that waits.
#[derive(Default)]
struct Place {
    /// Which place this is: 0 for none.
    number: Cell<u32>,
    /// The place before it in its list, or one that is none any more.
    older: Cell<u32>,
    /// Its first frame, counted from the arena's first.
    first: Cell<u32>,
    /// Of a run that waits by name.
    frames: Cell<u16>,
    /// 0 for none, with [`NAMED`] for one that waits by name. Else the run is kept, and has just so
    /// many frames.
    list: Cell<u16>,
}

/// In `Place::list`: the run waits by name.
const NAMED: u16 = 1 << 15;

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

impl Place {
    #[inline(always)]
    fn is_kept(&self) -> bool {
        self.list.get() as i16 > 0
    }
}

/// See the module's documentation. For one thread, which is inside the door whenever it uses
/// [`Places`]; somebody else only while no thread may be.
pub(crate) struct Runs {
    pub(crate) gaps: Gaps,
    /// By length, whether one may be kept: the thread's to look at before it goes through the door.
    may_have: [Cell<bool>; LISTS],
    pub(crate) door: Door<Places>,
}

/// Where runs wait.
pub(crate) struct Places {
    /// By length, the number of the place of the run freed last.
    newest: [Cell<u32>; LISTS],
    /// By length, how often a kept run was taken.
    taken: [Cell<u64>; LISTS],
    /// Bit n: some run may be in the list of length n.
    any: [Cell<u64>; ANY],
    places: [Place; PLACES],
    /// The number of the place written last.
    last: Cell<u32>,
    /// Up to this number no place was empty when it was looked at.
    full: Cell<u32>,
    /// No place up to this number is of a kept run.
    oldest: Cell<u32>,
    /// Frames that may be kept beside those that are: 0 until the arena knows that this thread
    /// [fills](Places::may_fill) its places.
    room: Cell<u32>,
    fills: Cell<bool>,
    most: u32,
}

/// A run by the arena's frames: its first, and how many.
pub(crate) type Run = (u64, u64);

/// A run that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) run: Run,
    pub(crate) kept: bool,
}

/// The list that a run belongs into: the longest request that it is sure to serve. A power of two
/// of frames has to be aligned to its size.
#[inline(always)]
fn list_of((first, frames): Run) -> usize {
    let chunk = frames & (frames - 1) == 0 && first & (frames - 1) != 0;
    (frames - u64::from(chunk)) as usize
}

impl Runs {
    /// Of which `most` frames may be kept.
    pub(crate) fn new(most: u32) -> Self {
        let may_have = [const { Cell::new(false) }; LISTS];
        Self { gaps: Gaps::default(), may_have, door: Door::new(Places::new(most)) }
    }

    /// Whether a run of just so many frames may be kept.
    #[inline(always)]
    pub(crate) fn may_have(&self, frames: u64) -> bool {
        self.may_have.get(frames as usize).is_some_and(Cell::get)
    }

    /// One is kept, or none has been found.
    #[inline(always)]
    pub(crate) fn has(&self, frames: u64, one: bool) {
        if let Some(may_have) = self.may_have.get(frames as usize) {
            may_have.set(one);
        }
    }
}

impl Places {
    fn new(most: u32) -> Self {
        Self {
            newest: [const { Cell::new(0) }; LISTS],
            taken: [const { Cell::new(0) }; LISTS],
            any: [const { Cell::new(0) }; ANY],
            places: std::array::from_fn(|_| Place::default()),
            last: Cell::new(0),
            full: Cell::new(0),
            oldest: Cell::new(0),
            room: Cell::new(0),
            fills: Cell::new(false),
            most,
        }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> &Place {
        &self.places[number as usize % PLACES]
    }

    /// A run of 1 to [`LONGEST`] frames was freed and waits by name. Nothing where it lies
    /// beyond the first 16 TiB of the arena, or the place that it takes is of one that is kept.
    #[inline(always)]
    pub(crate) fn push(&self, run: Run) {
        self.move_on();
        if run.0 >> u32::BITS == 0 && self.may_write_next() {
            let list = list_of(run).min(LISTS - 1);
            let place = self.write(run.0, &self.newest[list], list as u16 | NAMED);
            place.frames.set(run.1 as u16);
        }
    }

    /// Whether a run may be kept: not more than the thread keeps, and whoever takes it from its
    /// list takes all of it.
    pub(crate) fn may_keep(&self, run: Run) -> bool {
        run.1 <= self.most.into() && list_of(run) as u64 == run.1
    }

    /// A run that is kept waits, where it [may](Self::may_keep) and there is room; `false`: not
    /// before this is [said](Self::may_fill), or others are [let go](Self::let_go).
    #[inline(always)]
    pub(crate) fn keep(&self, (first, frames): Run) -> bool {
        let Some(newest) = self.newest.get(frames as usize) else { return false };
        let Some(room) = self.room.get().checked_sub(frames as u32) else { return false };
        let misaligned = first & (frames - 1) != 0 && frames & (frames - 1) == 0;
        if misaligned || !self.may_write_next() {
            return false;
        }
        self.room.set(room);
        self.write(first, newest, frames as u16);
        true
    }

    /// The arena knows from now on that this thread keeps runs.
    pub(crate) fn may_fill(&self) {
        if !self.fills.replace(true) {
            self.room.set(self.most);
        }
    }

    #[inline(always)]
    fn write(&self, first: u64, newest: &Cell<u32>, list: u16) -> &Place {
        let number = self.next();
        self.last.set(number);
        let place = self.place(number);
        let mut older = newest.get();
        if older == 0 {
            // Its bit is cleared with it only. Itself for the one before it, which is no place any
            // more when this one has been taken: so that 0 does not come again.
            let list = usize::from(list & !NAMED);
            let any = &self.any[list / 64 % ANY];
            any.set(any.get() | 1 << (list % 64));
            older = number;
        }
        place.number.set(number);
        place.older.set(older);
        place.first.set(first as u32);
        place.list.set(list);
        newest.set(number);
        place
    }

    #[inline(always)]
    fn next(&self) -> u32 {
        self.last.get().wrapping_add(1)
    }

    /// Whether nothing waits in the next place, or by name only, as in those behind it.
    #[inline(always)]
    fn may_write_next(&self) -> bool {
        let place = self.place(self.next());
        place.list.get() == 0 || !place.is_kept() && self.is_full()
    }

    fn is_full(&self) -> bool {
        (self.next().wrapping_sub(self.full.get()) as i32) < 0
    }

    /// Goes on to an empty place, where there is one soon.
    pub(crate) fn move_on(&self) {
        let is_empty = |number| self.place(number).list.get() == 0;
        let next = self.next();
        if is_empty(next) || self.is_full() {
            return;
        }
        match (1..SOON).map(|more| next.wrapping_add(more)).find(|&number| is_empty(number)) {
            Some(number) => self.last.set(number.wrapping_sub(1)),
            None => self.full.set(next.wrapping_add(SOON)),
        }
    }

    /// The run that has been kept longest: it waits by name from now on, and is the caller's to
    /// free.
    #[cold]
    pub(crate) fn let_go(&self) -> Option<Run> {
        let last = self.last.get();
        if last.wrapping_sub(self.oldest.get()) > PLACES as u32 {
            self.oldest.set(last.wrapping_sub(PLACES as u32));
        }
        while self.oldest.get() != last {
            let number = self.oldest.get().wrapping_add(1);
            self.oldest.set(number);
            let run = self.name(self.place(number));
            if run.is_some() {
                return run;
            }
        }
        None
    }

    /// A kept run waits by name from now on.
    fn name(&self, place: &Place) -> Option<Run> {
        if !place.is_kept() {
            return None;
        }
        let frames = place.list.get();
        place.list.set(frames | NAMED);
        place.frames.set(frames);
        self.room.set(self.room.get() + u32::from(frames));
        Some((place.first.get().into(), frames.into()))
    }

    /// Calls `free` for all runs that are kept, which wait by name from now on, and `taken` with
    /// lengths and how often a run of each was taken.
    pub(crate) fn all_kept(&self, mut free: impl FnMut(Run), mut taken: impl FnMut(u64, u64)) {
        self.places.iter().filter_map(|place| self.name(place)).for_each(&mut free);
        self.room.set(0);
        self.fills.set(false);
        for (length, times) in self.taken.iter().enumerate().filter(|(_, times)| times.get() > 0) {
            taken(length as u64, times.take());
        }
    }

    /// So many frames of a kept run are handed out.
    #[inline(always)]
    pub(crate) fn count(&self, frames: u64) {
        let taken = &self.taken[(frames as usize).min(LISTS - 1)];
        taken.set(taken.get() + 1);
    }

    /// The first frame of the newest run of just so many frames, if that is kept.
    #[inline(always)]
    pub(crate) fn pop_kept(&self, frames: u64) -> Option<u64> {
        let newest = self.newest.get(frames as usize)?;
        let number = newest.get();
        let place = self.place(number);
        // Whatever its number: a place of that list is of a kept run, and its thread's.
        if place.list.get() != frames as u16 {
            return None;
        }
        newest.set(place.older.get());
        place.list.set(0);
        self.give_up_last(number);
        self.room.set(self.room.get() + frames as u32);
        self.count(frames);
        Some(place.first.get().into())
    }

    /// The usual exchange writes one place again and again.
    #[inline(always)]
    fn give_up_last(&self, number: u32) {
        if number == self.last.get() {
            self.last.set(number.wrapping_sub(1));
        }
    }

    /// The newest run of that list, which does not wait any more.
    fn pop_of(&self, list: usize) -> Option<Found> {
        let list = list.min(LISTS - 1);
        let newest = &self.newest[list];
        let number = newest.get();
        let place = self.place(number);
        // The list as well: after 2^32 places a number comes again. And number 0 may have been
        // given.
        if place.number.get() != number || usize::from(place.list.get() & !NAMED) != list {
            newest.set(0);
            let any = &self.any[list / 64];
            any.set(any.get() & !(1 << (list % 64)));
            return None;
        }
        let kept = place.is_kept();
        let run = self.name(place);
        newest.set(place.older.get());
        place.list.set(0);
        self.give_up_last(number);
        if self.oldest.get() == number {
            // Its number may be that of a kept one next.
            self.oldest.set(number.wrapping_sub(1));
        }
        let run = run.unwrap_or((place.first.get().into(), place.frames.get().into()));
        Some(Found { run, kept })
    }

    /// The newest run of just so many frames, at most [`LONGEST`].
    pub(crate) fn pop(&self, frames: u64) -> Option<Found> {
        self.pop_of(frames as usize)
    }

    /// The newest of the shortest runs that have `frames` frames, and more, wherever an aligned one
    /// of a power of two may start.
    pub(crate) fn pop_longer(&self, frames: u64) -> Option<Found> {
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

    /// Places of which the arena knows.
    fn filling(most: u32) -> Places {
        let places = Places::new(most);
        places.may_fill();
        places
    }

    impl Places {
        fn named(&self, frames: u64) -> Option<Run> {
            self.pop(frames).map(|found| found.run)
        }

        fn longer(&self, frames: u64) -> Option<Run> {
            self.pop_longer(frames).map(|found| found.run)
        }
    }

    #[test]
    fn each_length_has_its_own_and_the_newest_comes_first() {
        let runs = Places::new(64);
        assert_eq!((runs.named(5), runs.longer(5)), (None, None));
        for first in [0, 100, 200] {
            runs.push((first, 5));
            runs.push((first + 50, 7));
        }
        assert_eq!(
            [runs.named(5), runs.named(5), runs.named(6)],
            [Some((200, 5)), Some((100, 5)), None]
        );
        assert_eq!([runs.longer(3), runs.longer(5)], [Some((0, 5)), Some((250, 7))]);
        runs.push((1 << 32, 9));
        assert_eq!(runs.named(9), None, "its number has more than 32 bits");
        runs.push((300, 7));
        assert_eq!(
            [runs.named(7), runs.named(7), runs.named(5)],
            [Some((300, 7)), Some((150, 7)), None]
        );
    }

    #[test]
    fn the_runs_kept_longest_are_let_go_where_there_is_no_room() {
        let runs = filling(64);
        assert!((0..12).all(|n| runs.keep((n * 10, 5))) && !runs.keep((500, 5)));
        assert_eq!(runs.pop(5), Some(Found { run: (110, 5), kept: true }));
        assert!(runs.keep((110, 5)) && !runs.keep((500, 9)));
        assert!(runs.let_go() == Some((0, 5)) && runs.keep((500, 9)));
        let mut all = Vec::new();
        runs.all_kept(|run| all.push(run.0), |_, _| panic!("nothing was counted"));
        assert_eq!((all.len(), all.first(), all.last()), (12, Some(&10), Some(&500)));
        assert_eq!(runs.let_go(), None);
        assert_eq!(runs.pop(5), Some(Found { run: (110, 5), kept: false }), "it waits by name");
        // Each place is a kept run's: the next one has to be let go, and a named run is forgotten.
        let runs = filling(4 * PLACES as u32);
        assert!((0..PLACES as u64).all(|n| runs.keep((n, 1))));
        runs.push((9_999, 1));
        assert_eq!(runs.named(1), Some((PLACES as u64 - 1, 1)));
        assert!(runs.keep((9_998, 1)) && !runs.keep((9_997, 1)));
        assert!(runs.let_go() == Some((0, 1)) && runs.keep((9_997, 1)));
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

    /// A chunk is aligned: what is not serves the requests below, and is not kept.
    #[test]
    fn a_power_of_two_waits_for_what_it_can_serve() {
        let runs = filling(64);
        assert!(!runs.keep((2, 4)) && runs.keep((4, 4)) && runs.keep((3, 1)));
        assert_eq!(runs.pop(4), Some(Found { run: (4, 4), kept: true }));
        assert_eq!(runs.pop(1), Some(Found { run: (3, 1), kept: true }));
        runs.push((2, 4));
        runs.push((8, 7));
        assert_eq!((runs.named(4), runs.named(3)), (None, Some((2, 4))));
        // Of 6 frames no aligned 4 need be free, of 7 there are.
        runs.push((6, 6));
        assert_eq!((runs.longer(4), runs.longer(4)), (Some((8, 7)), None));
        runs.push((4, 4));
        assert_eq!((runs.longer(2), runs.named(6)), (Some((4, 4)), Some((6, 6))));
    }

    #[test]
    fn an_empty_place_is_written_before_one_where_a_run_waits() {
        let runs = Places::new(64);
        let length = |n: u64| if (16..32).contains(&n) { 5 } else { 2 };
        (0..PLACES as u64).for_each(|n| runs.push((n * 8, length(n))));
        assert_eq!(std::iter::from_fn(|| runs.named(5)).count(), 16);
        (0..16).for_each(|n| runs.push((n * 8, 3)));
        let left = [2, 3].map(|n| std::iter::from_fn(|| runs.named(n)).count());
        assert_eq!(left, [PLACES - 16, 16]);
    }

    #[test]
    fn the_oldest_place_is_given_up_for_a_new_one() {
        let runs = Places::new(64);
        for n in 0..3 * PLACES as u64 {
            runs.push((n * 8, 1 + n % 2));
        }
        let left: usize = [1, 2].map(|n| std::iter::from_fn(|| runs.named(n)).count()).iter().sum();
        assert_eq!((left, runs.longer(1)), (PLACES, None));
    }
}
