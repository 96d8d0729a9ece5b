//! Runs of set bits in words: what a buddy system keeps lists for is here shift and mask.

/// Bit positions at which an aligned run of `2^order` bits may start, for orders 0 to 6.
const ALIGNED: [u64; 7] = [
    !0,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// The starts of all aligned runs of `2^order` set bits in `word`; `order` is at most 6.
#[inline]
pub(crate) const fn runs(word: u64, order: u32) -> u64 {
    let mut starts = word;
    let mut k = 0;
    // After step k a bit is set where 2^(k+1) set bits start.
    while k < order {
        starts &= starts >> (1 << k);
        k += 1;
    }
    starts & ALIGNED[order as usize]
}

/// Whether there is such a run.
#[inline(always)]
pub(crate) const fn has_run(word: u64, order: u32) -> bool {
    LANES[order as usize].full(word) != 0
}

/// Where the only aligned run of `2^order` set bits in `word` starts, if there is one and no more.
#[inline]
pub(crate) const fn only_run(word: u64, order: u32) -> Option<u32> {
    let starts = runs(word, order);
    if starts.is_power_of_two() { Some(starts.trailing_zeros()) } else { None }
}

/// A word as lanes of `2^order` bits: the first and the last bit of each.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    firsts: u64,
    lasts: u64,
}

/// Those of orders 0 to 6, and from there on those of whole words.
pub(crate) const LANES: [Lanes; 16] = {
    let mut lanes = [Lanes { firsts: 1, lasts: 1 << 63 }; 16];
    let mut order = 0;
    while order < 6 {
        lanes[order] =
            Lanes { firsts: ALIGNED[order], lasts: ALIGNED[order] << ((1 << order) - 1) };
        order += 1;
    }
    lanes
};

impl Lanes {
    /// A bit of each lane all of whose bits are set, in the same few steps for every order.
    #[inline(always)]
    pub(crate) const fn full(self, word: u64) -> u64 {
        // Such a lane is 0 in the complement, and with 1 taken away its last bit is set. The lowest
        // one borrows from none below.
        (!word).wrapping_sub(self.firsts) & word & self.lasts
    }
}

/// Of these starts of runs of `2^order` bits, `order` at most 5, those where a run twice as long
/// starts, and those that are no half of such a run.
#[inline(always)]
const fn longer_and_lone(starts: u64, order: u32) -> (u64, u64) {
    let longer = starts & starts >> (1 << order) & ALIGNED[order as usize + 1];
    (longer, starts & !(longer | longer << (1 << order)))
}

/// Which of these starts of runs of `2^order` bits to take, `order` at most 5: the lowest one that
/// is not half of a run twice as long, or the lowest where larger runs may be broken up; `None`
/// where none of them may.
#[inline(always)]
pub(crate) const fn best_start(starts: u64, order: u32, breakable: u64) -> Option<u32> {
    let (_, lone) = longer_and_lone(starts, order);
    let fitting = if lone != 0 { lone } else { starts & breakable };
    if fitting != 0 { Some(fitting.trailing_zeros()) } else { None }
}

/// The smallest maximal run of at least `2^order` set bits, as a mask and its order.
pub(crate) fn smallest_run(word: u64, order: u32) -> Option<(u64, u32)> {
    if word == !0 {
        return Some((!0, 6));
    }
    let mut starts = runs(word, order);
    for order in order..6 {
        if starts == 0 {
            return None;
        }
        let (longer, lone) = longer_and_lone(starts, order);
        if lone != 0 {
            return Some((mask(lone.trailing_zeros(), 1 << order), order));
        }
        starts = longer;
    }
    None
}

/// The order from which on single frames do not break up a run unasked: four bits in a row.
pub(crate) const KEPT_ORDER: u32 = 2;
/// Such a run at bit 0.
pub(crate) const KEPT_RUN: u64 = mask(0, 1 << KEPT_ORDER);

/// The bits that lie in aligned runs of four set ones.
#[inline(always)]
pub(crate) const fn in_kept_runs(word: u64) -> u64 {
    runs(word, KEPT_ORDER) * KEPT_RUN
}

/// The bits that lie in none: loose frames.
#[inline(always)]
pub(crate) const fn loose(word: u64) -> u64 {
    word & !in_kept_runs(word)
}

/// Whether there are three loose frames or more: as many as are worth a bit on the board.
#[inline(always)]
pub(crate) const fn has_several_loose(word: u64) -> bool {
    // Most words have no three frames at all.
    has_three(word) && has_three(loose(word))
}

/// Whether at least three bits are set.
#[inline(always)]
const fn has_three(word: u64) -> bool {
    let but_one = word & word.wrapping_sub(1);
    but_one & but_one.wrapping_sub(1) != 0
}

/// A word with `len` bits set from `start` on; `start + len` is at most 64.
#[inline]
pub(crate) const fn mask(start: u32, len: u32) -> u64 {
    if len >= 64 { !0 } else { ((1 << len) - 1) << start }
}

/// The bits of a chunk of order 0 to 5 in its word; none for larger ones, and where it is not
/// aligned: it has frames of another word then, or bits beyond the end of this one.
#[inline(always)]
pub(crate) const fn of_chunk(pfn: u64, order: u32) -> u64 {
    let at = (pfn % 64) as u32;
    match order {
        0 => 1 << at,
        1..6 if at % (1 << order) == 0 => mask(at, 1 << order),
        _ => 0,
    }
}

/// The part of the bits `start..start + len` of a bitmap in each word: (index of the word, mask).
#[inline]
pub(crate) fn spans(start: usize, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    let end = start + len;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let bit = at % 64;
        let n = (64 - bit).min(end - at);
        let item = (at / 64, mask(bit as u32, n as u32));
        at += n;
        Some(item)
    })
}

/// The positions of the set bits, lowest first.
pub(crate) fn each(mut word: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}

/// The first bit from `at` on that is `set`; where there is none, the number of bits.
pub(crate) fn next(words: &[u64], at: usize, set: bool) -> usize {
    let mut behind = !0 << (at % 64);
    for (w, &word) in words.iter().enumerate().skip(at / 64) {
        let found = if set { word } else { !word } & behind;
        if found != 0 {
            return w * 64 + found.trailing_zeros() as usize;
        }
        behind = !0;
    }
    words.len() * 64
}

/// The order of the largest aligned run of set bits in `word`; `None` where no bit is set.
#[inline]
pub(crate) const fn largest_run(word: u64) -> Option<u32> {
    if word == 0 {
        return None;
    }
    let mut order = 0;
    let mut starts = word;
    while order < 6 {
        starts &= starts >> (1 << order);
        starts &= ALIGNED[order as usize + 1];
        if starts == 0 {
            break;
        }
        order += 1;
    }
    Some(order)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tests::testing::*;

    fn naive_free(word: u64, start: u32, order: u32) -> bool {
        (start..start + (1 << order)).all(|b| word >> b & 1 == 1)
    }

    #[test]
    fn runs_agree_with_looking_at_every_start() {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..400u64 {
            word = word.rotate_left(7).wrapping_mul(0xbf58_476d_1ce4_e5b9) | (word << (round % 33));
            let dense = word | word.rotate_left(3) | word.rotate_left(11);
            for w in [word, dense, !word, 0, !0, 0xffff_0000_ffff_ffff] {
                for order in 0..=6u32 {
                    let expected = (0..64u32)
                        .step_by(1 << order)
                        .filter(|&s| naive_free(w, s, order))
                        .fold(0u64, |m, s| m | 1 << s);
                    assert_eq!(runs(w, order), expected, "{w:#x} order {order}");
                    assert_eq!(has_run(w, order), expected != 0, "{w:#x} order {order}");
                    let only = (expected.count_ones() == 1).then(|| expected.trailing_zeros());
                    assert_eq!(only_run(w, order), only, "{w:#x} order {order}");
                }
                let largest = (0..=6u32).rev().find(|&o| runs(w, o) != 0);
                assert_eq!(largest_run(w), largest);
            }
        }
    }

    #[test]
    fn the_start_taken_is_of_a_lone_run_if_there_is_one() {
        // Frames 0 to 3 and 6 are free: of the single ones 6, of the pairs none is alone.
        assert_eq!(best_start(runs(0b100_1111, 0), 0, 0), Some(6));
        assert_eq!(best_start(runs(0b100_1111, 1), 1, 0), None);
        assert_eq!(best_start(runs(0b100_1111, 1), 1, 0b1100), Some(2));
        assert_eq!(best_start(runs(0b11_1111, 1), 1, 0), Some(4));
        assert_eq!(best_start(1 << 32, 5, 0), Some(32));
    }

    #[test]
    fn the_smallest_run_is_broken_and_what_is_kept_is_in_runs_of_four() {
        let word = 0xff00_ffff_00f0_0c01;
        assert_eq!(smallest_run(word, 0), Some((1, 0)));
        assert_eq!(smallest_run(word, 1), Some((0xc00, 1)));
        assert_eq!(smallest_run(word, 2), Some((0xf << 20, 2)));
        assert_eq!(smallest_run(word, 3), Some((0xff << 56, 3)));
        assert_eq!(smallest_run(word, 4), Some((0xffff << 32, 4)));
        assert_eq!(smallest_run(word, 5), None);
        assert_eq!(smallest_run(!0, 0), Some((!0, 6)));
        assert_eq!(in_kept_runs(word), 0xff00_ffff_00f0_0000);
        assert_eq!(loose(word), 0x0c01);
        assert!(has_several_loose(word) && !has_several_loose(word & !1) && !has_several_loose(0));
    }

    #[test]
    fn spans_cover_exactly_the_range() {
        for start in 0..130 {
            for len in 0..200 {
                let mut bits = Vec::new();
                for (w, m) in spans(start, len) {
                    bits.extend((0..64).filter(|b| m >> b & 1 == 1).map(|b| w * 64 + b));
                }
                assert!(bits.into_iter().eq(start..start + len));
            }
        }
    }
}
