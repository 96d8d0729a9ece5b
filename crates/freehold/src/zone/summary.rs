//! Two levels above a row of words: which of them are not 0, so that the next one is found in a few
//! steps however large the zone is.
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

use crate::primitive::{AtomicU64, Ordering, Relaxed};

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
