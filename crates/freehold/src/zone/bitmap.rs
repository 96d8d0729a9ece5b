//! The zone's wholly free blocks: one bit each, so that 1 GiB (512 blocks in a row) is found as
//! eight full words.
//!
//! ```text
//! words   bit b = block (base + b) is wholly free and in the zone's hand       1 bit a block
//! any     bit w = words[w] is not 0                                            1 bit a word
//! any2    bit v = any[v] is not 0                                              1 bit 64 words
//! ```
//!
//! The next set bit is found in three steps for up to 512 GiB; above that, one step more for each
//! further 512 GiB. Used under the zone lock only.

use crate::block::bits;
use crate::primitive::{AtomicU64, Plain};

/// What a bounded search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// A run starts at that bit.
    Found(u64),
    /// There is none.
    None,
    /// The budget is used up; go on from that bit.
    More(u64),
}

/// See the module's documentation.
pub(crate) struct WholeBitmap<'m> {
    words: &'m [AtomicU64],
    any: &'m [AtomicU64],
    any2: &'m [AtomicU64],
}

impl<'m> WholeBitmap<'m> {
    /// How many words the three levels need for that many blocks.
    pub(crate) const fn sizes(blocks: u64) -> [usize; 3] {
        let words = blocks.div_ceil(64);
        let any = words.div_ceil(64);
        [words as usize, any as usize, any.div_ceil(64) as usize]
    }

    pub(crate) fn new(words: &'m [AtomicU64], any: &'m [AtomicU64], any2: &'m [AtomicU64]) -> Self {
        Self { words, any, any2 }
    }

    /// Sets a bit; returns the steps of work done.
    pub(crate) fn insert(&self, bit: u64) -> u32 {
        let w = (bit / 64) as usize;
        let word = self.words[w].get();
        debug_assert_eq!(word >> (bit % 64) & 1, 0);
        self.words[w].set(word | 1 << (bit % 64));
        if word != 0 {
            return 1;
        }
        let any = self.any[w / 64].get();
        self.any[w / 64].set(any | 1 << (w % 64));
        if any != 0 {
            return 2;
        }
        let top = w / 64;
        self.any2[top / 64].set(self.any2[top / 64].get() | 1 << (top % 64));
        3
    }

    /// Clears bits of one word; returns the steps of work done.
    pub(crate) fn remove(&self, w: usize, mask: u64) -> u32 {
        let word = self.words[w].get();
        debug_assert_eq!(word & mask, mask);
        self.words[w].set(word & !mask);
        if word & !mask != 0 {
            return 1;
        }
        let any = self.any[w / 64].get() & !(1 << (w % 64));
        self.any[w / 64].set(any);
        if any != 0 {
            return 2;
        }
        let top = w / 64;
        self.any2[top / 64].set(self.any2[top / 64].get() & !(1 << (top % 64)));
        3
    }

    /// Sets all bits of `from..to`, none of which is set.
    pub(crate) fn insert_range(&self, from: u64, to: u64) {
        let levels = [self.words, self.any, self.any2];
        let (mut from, mut to) = (from as usize, to as usize);
        for level in levels {
            if from >= to {
                return;
            }
            for (w, m) in bits::spans(from, to - from) {
                level[w].set(level[w].get() | m);
            }
            (from, to) = (from / 64, to.div_ceil(64));
        }
    }

    pub(crate) fn contains(&self, bit: u64) -> bool {
        self.words.get((bit / 64) as usize).is_some_and(|w| w.get() >> (bit % 64) & 1 == 1)
    }

    /// The first set bit from `from` on, and the steps it took.
    pub(crate) fn next(&self, from: u64) -> (Option<u64>, u32) {
        let w = (from / 64) as usize;
        let Some(word) = self.words.get(w) else { return (None, 0) };
        let rest = word.get() & (!0 << (from % 64));
        if rest != 0 {
            return (Some(w as u64 * 64 + u64::from(rest.trailing_zeros())), 1);
        }
        let mut steps = 2;
        let Some(w) = Self::next_in(self.any, w as u64 + 1, &mut steps).or_else(|| {
            // The word of `any` after the one just looked at, then the top level, word by word.
            let mut from = (w as u64 + 1) / 64 + 1;
            let v = loop {
                if from >= self.any2.len() as u64 * 64 {
                    return None;
                }
                match Self::next_in(self.any2, from, &mut steps) {
                    Some(v) => break v,
                    None => from = (from / 64 + 1) * 64,
                }
            };
            Self::next_in(self.any, v * 64, &mut steps)
        }) else {
            return (None, steps);
        };
        let word = self.words[w as usize].get();
        (Some(w * 64 + u64::from(word.trailing_zeros())), steps)
    }

    /// The first set bit from `from` on within the same word.
    fn next_in(level: &[AtomicU64], from: u64, steps: &mut u32) -> Option<u64> {
        let first = (from / 64) as usize;
        *steps += 1;
        let rest = level.get(first)?.get() & (!0 << (from % 64));
        (rest != 0).then(|| first as u64 * 64 + u64::from(rest.trailing_zeros()))
    }

    /// An aligned run of `2^order` whole blocks (orders 0 to 9) within the bits `from..to`, looking
    /// at no more than `budget` words. `from` need not be aligned. Adds the steps taken to `steps`.
    pub(crate) fn find(
        &self,
        order: u32,
        from: u64,
        to: u64,
        budget: u32,
        steps: &mut u32,
    ) -> Search {
        let len = 1u64 << order;
        let to = to.min(self.words.len() as u64 * 64);
        let mut at = from;
        let mut left = budget;
        while at < to {
            let (bit, taken) = self.next(at);
            *steps += taken;
            let Some(bit) = bit.filter(|&bit| bit < to) else { return Search::None };
            // The run that contains this bit, or the next one where that starts too early.
            let start =
                if bit & !(len - 1) >= from { bit & !(len - 1) } else { (bit | (len - 1)) + 1 };
            if order < 6 {
                let w = (bit / 64) as usize;
                let mut word = self.words[w].get() & (!0 << (bit % 64));
                if to - w as u64 * 64 < 64 {
                    word &= bits::mask(0, (to - w as u64 * 64) as u32);
                }
                let starts = bits::runs(word, order);
                *steps += 1;
                if starts != 0 {
                    return Search::Found(w as u64 * 64 + u64::from(starts.trailing_zeros()));
                }
                at = (w as u64 + 1) * 64;
                left = left.saturating_sub(1);
            } else {
                if start + len > to {
                    return Search::None;
                }
                let words = (len / 64) as usize;
                let first = (start / 64) as usize;
                let full =
                    (first..first + words).take_while(|&w| self.words[w].get() == !0).count();
                *steps += full as u32 + 1;
                left = left.saturating_sub(full as u32 + 1);
                if full == words {
                    return Search::Found(start);
                }
                at = start + len;
            }
            if left == 0 && at < to {
                return Search::More(at);
            }
        }
        Search::None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn level(n: usize) -> Vec<AtomicU64> {
        (0..n).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn every_search_agrees_with_looking_at_every_bit() {
        let blocks = 64 * 300u64;
        let sizes = WholeBitmap::sizes(blocks);
        let levels = sizes.map(level);
        let map = WholeBitmap::new(&levels[0], &levels[1], &levels[2]);
        let mut model = std::vec![false; blocks as usize];
        let mut seed = 7u64;
        let mut random = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            seed >> 33
        };
        for round in 0..400 {
            let order = random() % 10;
            let start = (random() % blocks) & !((1 << order) - 1);
            let set = round % 3 != 2;
            for bit in start..(start + (1 << order)).min(blocks) {
                if model[bit as usize] != set {
                    model[bit as usize] = set;
                    if set {
                        map.insert(bit);
                    } else {
                        map.remove((bit / 64) as usize, 1 << (bit % 64));
                    }
                }
            }
            let from = random() % blocks;
            let naive = (from..blocks).find(|&b| model[b as usize]);
            assert_eq!(map.next(from).0, naive);
            let to = from + random() % (blocks - from);
            for order in 0..10u32 {
                let len = 1u64 << order;
                let naive = (from.next_multiple_of(len)..to)
                    .step_by(len as usize)
                    .find(|&s| s + len <= to && (s..s + len).all(|b| model[b as usize]));
                let mut at = from;
                let found = loop {
                    let mut steps = 0;
                    match map.find(order, at, to, 8, &mut steps) {
                        Search::More(next) => at = next,
                        Search::Found(bit) => break Some(bit),
                        Search::None => break None,
                    }
                    assert!(steps <= 64);
                };
                assert_eq!(found, naive, "order {order} in {from}..{to}");
            }
        }
    }
}
