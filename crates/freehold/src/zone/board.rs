//! The scoreboard: which block of each type has a free run of which size, as far as is known.
//!
//! ```text
//! rows      rows[type, class]: bit b = block b of the section has a run of that class, as far as is known    240 bytes / 128 MiB
//!           rows[loose]: bit b = block b is a movable one, and has frames that lie in no run of four
//! summary   for each row of the zone which sections have such a block, in two levels: see below
//! ```
//!
//! A request takes the block of the smallest class that will do, and of those the lowest: large
//! runs stay, low memory fills up, and what is high becomes whole. (After long aging on 16 CPUs
//! with 1 GiB, 70 % used, that leaves as much of free memory in whole blocks as a full search for
//! the best fit does; the lowest block whatever its runs leaves a seventh less.) Blocks of
//! HIGHATOMIC and of CMA type are few and rarely looked for: each of the two has one row for all
//! classes.
//!
//! **Loose frames.** A block's class says nothing of the single frames beside its largest run.
//! Before a run of four is broken up for single frames the row of loose ones is asked: without it
//! such frames stayed unused in every block that had a large run as well, beside runs that were
//! broken for want of them (two CPUs with 320 MiB, half in use: .97 of free memory in runs of
//! eight, with the row .99). Runs of eight were kept together once: with runs of four page cache on
//! 1 to 4 CPUs leaves .01 to .02 more of free memory for order 3, for two instructions in a hundred
//! of mixed churn. A block over half of which is free is left alone. A block comes into the row
//! with the third loose frame of a word: by the first one there are a quarter more shared writes in
//! that workload, for .001 of free memory. The row is a preference. It may be wrong either way,
//! which costs a look or a run.
//!
//! Bits are set and cleared without any lock, by the rules of
//! [`class`](crate::block::class). A bit may be stale, which costs a look; a block with
//! free frames always has the bit of its class once all is quiet.
//!
//! **Summaries** are two levels above a row of words: which of them are not 0, so that the next one
//! is found in a few steps however large the zone is.
//!
//! ```text
//! any2    bit v = any[v] is not 0          1 bit for 4,096 words below
//! any     bit w = word w is not 0          1 bit a word
//! ```
//!
//! Nothing here is locked. A bit may be set for a word that is 0 by now, which costs a thread that
//! looks there one look; a thread that finds it so clears the bit and looks at the word once more.
//! A thread that makes a word other than 0 does that first and then looks at the bit. Both write
//! one place and then read the other, sequentially consistently, so one of the two sees the other:
//! no word with something in it is left without its bit once both are done.

use crate::FrameRange;
use crate::block::{
    BLOCK_ORDER, CMA, HIGH_ATOMIC, SECTION_BLOCKS, SECTION_BLOCKS_LOG, SECTION_SHIFT,
};
use crate::primitive::{AtomicU64, Ordering, Relaxed};

/// Classes that the three ordinary types have rows for: 1 to 9, runs of orders 0 to 8. What has
/// more is whole. A block that was of CMA or HIGHATOMIC type while all of it was free still has a
/// class above these, and is in the row of the last one.
pub(crate) const CLASSES: u8 = BLOCK_ORDER as u8;
/// Rows of a section.
pub(crate) const ROWS: usize = HIGH_ATOMIC * CLASSES as usize + 3;

/// The row of blocks of that type and class, which is not 0.
#[inline(always)]
pub(crate) fn row_of(migratetype: usize, class: u8) -> usize {
    debug_assert!(class != 0 && migratetype <= CMA);
    match migratetype.checked_sub(HIGH_ATOMIC) {
        None => migratetype * usize::from(CLASSES) + usize::from(class.min(CLASSES)) - 1,
        Some(reserved) => HIGH_ATOMIC * usize::from(CLASSES) + reserved.min(1),
    }
}

/// The row of movable blocks that have loose frames.
pub(crate) const LOOSE: usize = ROWS - 1;

/// The rows of one section.
pub(crate) struct Rows([AtomicU64; ROWS]);

impl Rows {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// A glance at a row.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> u64 {
        self.0[row].get()
    }
}

/// What a zone knows of all its sections' rows.
pub(crate) struct Board<'m> {
    /// Row after row.
    any: &'m [AtomicU64],
    any2: &'m [AtomicU64],
    /// Words of each that a row has.
    words: [usize; 2],
    /// The section of the zone's first block.
    first_section: u64,
    span: FrameRange,
}

impl<'m> Board<'m> {
    /// How many words the summaries of all rows need.
    pub(crate) fn sizes(span: FrameRange) -> [usize; 2] {
        let last = (span.end.get() - 1) >> SECTION_SHIFT;
        Summary::sizes(last - (span.start.get() >> SECTION_SHIFT) + 1).map(|words| words * ROWS)
    }

    pub(crate) fn new(span: FrameRange, any: &'m [AtomicU64], any2: &'m [AtomicU64]) -> Self {
        let words = [any.len() / ROWS, any2.len() / ROWS];
        Self { any, any2, words, first_section: span.start.get() >> SECTION_SHIFT, span }
    }

    /// Which sections have something in that row.
    #[inline]
    fn summary(&self, row: usize) -> Summary<'m> {
        let [any, any2] = self.words;
        Summary::new(&self.any[row * any..][..any], &self.any2[row * any2..][..any2])
    }

    /// The bit of the block of that number in its section's rows.
    pub(crate) const fn bit(number: u32) -> u64 {
        number as u64 % SECTION_BLOCKS
    }

    /// Puts a block of that number into a row; returns the writes that it took.
    #[inline]
    pub(crate) fn set(&self, rows: &Rows, row: usize, number: u32) -> u32 {
        let section = self.section_of(number);
        let at = self.words.map(|words| row * words);
        set_bit(&rows.0[row], Self::bit(number)) + note_at([self.any, self.any2], at, section)
    }

    /// Takes a block out of a row where it does not belong; `belongs` looks once more. Returns the
    /// writes that it took.
    pub(crate) fn clear(
        &self,
        rows: &Rows,
        row: usize,
        number: u32,
        belongs: impl Fn() -> bool,
    ) -> u32 {
        // SeqCst: tag and class are read next, which who puts it into the row has written before.
        rows.0[row].fetch_and(!(1 << Self::bit(number)), Ordering::SeqCst);
        if belongs() { 1 + self.set(rows, row, number) } else { 1 }
    }

    /// The next section from `from` on, counted from the zone's first, that may have a block in
    /// that row, and its word of that row. `rows` finds a section's rows by the number of its first
    /// block, and what the caller knows it by.
    #[inline]
    pub(crate) fn next<T: Copy>(
        &self,
        row: usize,
        mut from: u64,
        rows: impl Fn(u64) -> Option<(T, &'m Rows)>,
        writes: &mut u32,
    ) -> Option<(u64, T, u64)> {
        let summary = self.summary(row);
        while let Some(section) = summary.next(from) {
            // Another zone may have the other blocks of a section.
            let first = (section + self.first_section) << SECTION_BLOCKS_LOG;
            let low = (self.span.start.get() >> 9).saturating_sub(first);
            let high = ((self.span.end.get() >> 9) - first).min(SECTION_BLOCKS);
            let mine = crate::block::bits::mask(low as u32, (high - low) as u32);
            let look = || {
                let (known, rows) = rows(first)?;
                let word = rows.0[row].load(Ordering::SeqCst) & mine;
                (word != 0).then_some((section, known, word))
            };
            let found = look();
            if found.is_some() {
                return found;
            }
            *writes += summary.forget(section, || look().is_none());
            from = section + 1;
        }
        None
    }

    /// The smallest class of that type from `class` on that some block may have, by a glance. Of
    /// types with one row for all classes it is `class`.
    #[inline]
    pub(crate) fn smallest(&self, migratetype: usize, class: u8) -> Option<u8> {
        let rows = if migratetype < HIGH_ATOMIC { (CLASSES + 1).saturating_sub(class) } else { 1 };
        // One look for all of them: the rows of a type lie side by side.
        let (first, words) = (row_of(migratetype, class), self.words[1]);
        let summaries = &self.any2[first * words..][..usize::from(rows) * words];
        let at = summaries.iter().position(|word| word.get() != 0)?;
        // A zone of up to 512 GiB has one word for each: no division.
        Some(class + if words == 1 { at } else { at / words } as u8)
    }

    /// Whether none of these rows may have a block, by a glance.
    #[inline]
    pub(crate) fn are_empty(&self, rows: core::ops::Range<usize>) -> bool {
        let words = self.words[1];
        let summaries = &self.any2[rows.start * words..rows.end * words];
        summaries.iter().all(|word| word.get() == 0)
    }

    /// Whether the block of that number is the lowest one that a row shows, by a glance. Blocks of
    /// other zones in its section count.
    #[inline]
    pub(crate) fn is_first(&self, rows: &Rows, row: usize, number: u32) -> bool {
        let below = rows.row(row) & !(!0 << Self::bit(number));
        below == 0 && self.summary(row).next(0) == Some(self.section_of(number))
    }

    /// Whether no row may have a block of the ordinary types of that class or above, by a glance.
    pub(crate) fn is_empty_from(&self, class: u8) -> bool {
        (0..HIGH_ATOMIC).all(|migratetype| self.smallest(migratetype, class).is_none())
    }

    /// Whether some block may have a bit in a row, by a glance.
    #[inline]
    pub(crate) fn has_any(&self, row: usize) -> bool {
        let words = self.words[1];
        self.any2[row * words..][..words].iter().any(|word| word.get() != 0)
    }

    /// Whether a block of that number is in a row, and the summaries show it.
    pub(crate) fn shows(&self, rows: &Rows, row: usize, number: u32) -> bool {
        let section = self.section_of(number);
        rows.row(row) >> Self::bit(number) & 1 == 1 && self.summary(row).shows(section)
    }

    /// The section of the block of that number, counted from the zone's first.
    pub(crate) const fn section_of(&self, number: u32) -> u64 {
        (number as u64 >> SECTION_BLOCKS_LOG) - self.first_section
    }
}

/// See the module's documentation.
#[derive(Clone, Copy)]
pub(crate) struct Summary<'m> {
    any: &'m [AtomicU64],
    any2: &'m [AtomicU64],
}

/// Sets a bit unless it is set; returns how many writes that took.
pub(crate) fn set_bit(word: &AtomicU64, bit: u64) -> u32 {
    // SeqCst, both: what the bit stands for was written before; see the module's documentation.
    if word.load(Ordering::SeqCst) >> bit & 1 == 1 {
        return 0;
    }
    word.fetch_or(1 << bit, Ordering::SeqCst);
    1
}

/// [`Summary::note`] of the one whose two levels begin there in these words.
#[inline(always)]
pub(crate) fn note_at([any, any2]: [&[AtomicU64]; 2], at: [usize; 2], w: u64) -> u32 {
    let v = (w / 64) as usize;
    // The upper one too where the lower one is set: who set that may be stopped before.
    set_bit(&any[at[0] + v], w % 64) + set_bit(&any2[at[1] + v / 64], v as u64 % 64)
}

impl<'m> Summary<'m> {
    /// How many words the two levels need above so many.
    pub(crate) const fn sizes(words: u64) -> [usize; 2] {
        let any = words.div_ceil(64);
        [any as usize, any.div_ceil(64) as usize]
    }

    pub(crate) fn new(any: &'m [AtomicU64], any2: &'m [AtomicU64]) -> Self {
        Self { any, any2 }
    }

    /// Word `w` is not 0 any more. Returns the writes that it took.
    pub(crate) fn note(&self, w: u64) -> u32 {
        note_at([self.any, self.any2], [0, 0], w)
    }

    /// Word `w` was seen to be 0; `is_empty` looks once more. Returns the writes that it took.
    pub(crate) fn forget(&self, w: u64, is_empty: impl Fn() -> bool) -> u32 {
        let (v, bit) = ((w / 64) as usize, 1 << (w % 64));
        // SeqCst: the word is read next; see the module's documentation.
        let old = self.any[v].fetch_and(!bit, Ordering::SeqCst);
        if !is_empty() {
            return 1 + self.note(w);
        }
        if old & !bit != 0 {
            return 1;
        }
        self.any2[v / 64].fetch_and(!(1 << (v % 64)), Ordering::SeqCst);
        // SeqCst: one level up.
        match self.any[v].load(Ordering::SeqCst) {
            0 => 2,
            _ => 2 + set_bit(&self.any2[v / 64], v as u64 % 64),
        }
    }

    /// The first word from `from` on that may be other than 0.
    #[inline]
    pub(crate) fn next(&self, from: u64) -> Option<u64> {
        let mut v = (from / 64) as usize;
        let rest = self.any.get(v)?.get() & (!0 << (from % 64));
        if rest != 0 {
            return Some(v as u64 * 64 + u64::from(rest.trailing_zeros()));
        }
        v += 1;
        loop {
            let rest = self.any2.get(v / 64)?.get() & (!0 << (v % 64));
            if rest == 0 {
                v = (v / 64 + 1) * 64;
                continue;
            }
            v = v / 64 * 64 + rest.trailing_zeros() as usize;
            match self.any.get(v)?.get() {
                0 => v += 1,
                word => return Some(v as u64 * 64 + u64::from(word.trailing_zeros())),
            }
        }
    }

    /// The last word below `to` that may be other than 0.
    pub(crate) fn previous(&self, to: u64) -> Option<u64> {
        let below = |at: u64| (1 << (at % 64)) - 1;
        let mut v = to / 64;
        let mut rest = self.any.get(v as usize).map_or(0, Relaxed::get) & below(to);
        while rest == 0 {
            let mut upper = v / 64;
            let mut left = self.any2.get(upper as usize).map_or(0, Relaxed::get) & below(v);
            while left == 0 {
                upper = upper.checked_sub(1)?;
                left = self.any2[upper as usize].get();
            }
            v = upper * 64 + u64::from(left.ilog2());
            rest = self.any[v as usize].get();
        }
        Some(v * 64 + u64::from(rest.ilog2()))
    }

    /// Whether the bits for that word are set.
    pub(crate) fn shows(&self, w: u64) -> bool {
        let v = w / 64;
        self.any[v as usize].get() >> (w % 64) & 1 == 1
            && self.any2[v as usize / 64].get() >> (v % 64) & 1 == 1
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::boxed::Box;

    use super::*;
    use crate::tests::loom_tests::{both, model, roles, together};

    /// Words with these values, for good.
    fn words<const N: usize>(values: [u64; N]) -> &'static [AtomicU64] {
        Box::leak(Box::new(values.map(AtomicU64::new)))
    }

    /// Somebody finds a word empty and clears its bit, which was left from before; somebody else
    /// puts something into it meanwhile.
    #[test]
    fn a_word_with_something_in_it_is_shown() {
        both(3, || {
            let (word, summary) = (words([0]), Summary::new(words([1]), words([1])));
            together::<()>(roles![
                move || {
                    word[0].fetch_or(1, Ordering::SeqCst);
                    summary.note(0);
                },
                move || {
                    summary.forget(0, || word[0].load(Ordering::SeqCst) == 0);
                }
            ]);
            assert!(summary.shows(0), "something is in the word, and no search comes to it");
        });
    }

    /// The bit that is cleared is the last one of its word, and another one comes into that word.
    #[test]
    fn an_upper_bit_is_not_lost() {
        both(3, || {
            let (word, summary) = (words([0]), Summary::new(words([1]), words([1])));
            together::<()>(roles![
                move || {
                    summary.note(1);
                },
                move || {
                    summary.forget(0, || word[0].load(Ordering::SeqCst) == 0);
                }
            ]);
            assert!(summary.shows(1), "a search ends at the upper level");
        });
    }

    #[test]
    fn two_bits_of_one_word_are_set_at_once() {
        model(|| {
            let summary = Summary::new(words([0]), words([0]));
            together::<()>(roles![
                move || {
                    summary.note(0);
                },
                move || {
                    summary.note(1);
                }
            ]);
            assert!(summary.shows(0) && summary.shows(1), "one bit is lost");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::testing::*;

    /// Two zones have the two halves of a section. The bit of a block of one is nothing to the
    /// other's search, which would look at it each time: the block is not that zone's to lower.
    #[test]
    fn a_search_leaves_out_blocks_of_the_zone_beside_it() {
        let half = SECTION_BLOCKS / 2;
        let zone = |first: u64| frames_at(first << 9, half << 9);
        let words = |first: u64| -> [Vec<AtomicU64>; 2] {
            Board::sizes(zone(first)).map(|n| (0..n).map(|_| AtomicU64::new(0)).collect())
        };
        let [lower, upper] = [words(0), words(half)];
        let low = Board::new(zone(0), &lower[0], &lower[1]);
        let high = Board::new(zone(half), &upper[0], &upper[1]);
        let (rows, row, mut writes) = (Rows::new(), row_of(1, 4), 0);
        high.set(&rows, row, half as u32 + 3);
        low.set(&rows, row, 5);
        let there = |_| Some(((), &rows));
        assert_eq!(low.next(row, 0, there, &mut writes), Some((0, (), 1 << 5)));
        low.clear(&rows, row, 5, || false);
        assert_eq!(low.next(row, 0, there, &mut writes), None);
        assert!(!low.has_any(row), "the zone's summary still leads to a block of another zone");
        assert_eq!(high.next(row, 0, there, &mut writes), Some((0, (), 1 << (half + 3))));
    }
}
