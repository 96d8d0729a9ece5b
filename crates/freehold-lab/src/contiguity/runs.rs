//! Free runs of a pageblock, by its bits: one for each frame, set where the frame is free.
//!
//! A run here is aligned to its length, a power of two, and lies in no larger one. So each free
//! frame is in exactly one run.

use freehold::{Order, PAGEBLOCK_FRAMES};

pub(super) type Block = [u64; (PAGEBLOCK_FRAMES / 64) as usize];

/// Orders of runs in a block: 0 to 9.
pub(super) const ORDERS: usize = Order::PAGEBLOCK.get() as usize + 1;

/// The order of a word's 64 frames.
const WORD: u32 = 6;

/// Places at which a run of order `k` may begin, `k` at most 6.
const fn aligned(k: u32) -> u64 {
    if k >= WORD { 1 } else { u64::MAX / ((1 << (1u32 << k)) - 1) }
}

/// Where free runs of `k` frames' order begin in a word, inside larger ones or not.
fn starts(word: u64, k: u32) -> u64 {
    let narrowed = (0..k).fold(word, |mask, step| mask & mask >> (1u32 << step));
    narrowed & aligned(k)
}

/// Where runs of order `k` begin in a word, those inside larger ones left out; `k` below 6.
fn exact(word: u64, k: u32) -> u64 {
    let larger = starts(word, k + 1);
    starts(word, k) & !(larger | larger << (1u32 << k))
}

/// Runs of order `k` in a block: how many, and the first frame of the first one.
pub(super) fn of_order(block: &Block, k: usize) -> (u64, Option<u32>) {
    let k = k as u32;
    if k < WORD {
        let masks = block.map(|word| exact(word, k));
        let first = masks.iter().position(|&mask| mask != 0);
        let count = masks.iter().map(|mask| u64::from(mask.count_ones())).sum();
        return (count, first.map(|at| at as u32 * 64 + masks[at].trailing_zeros()));
    }
    let words = 1 << (k - WORD);
    let full = |from: usize| block[from..from + words].iter().all(|&word| word == u64::MAX);
    let alone = |from: &usize| words == block.len() || !full(from ^ words);
    let mut found = (0..block.len()).step_by(words).filter(|&from| full(from)).filter(alone);
    let first = found.next();
    (u64::from(first.is_some()) + found.count() as u64, first.map(|from| from as u32 * 64))
}

pub(super) fn free(block: &Block) -> u64 {
    block.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// The words that a run covers, each with the bits in it.
pub(super) fn covered(at: u32, order: Order) -> impl Iterator<Item = (usize, u64)> {
    let frames = order.frames() as u32;
    let mask = if frames >= 64 { u64::MAX } else { ((1 << frames) - 1) << (at % 64) };
    let first = at as usize / 64;
    (first..first + frames.div_ceil(64) as usize).map(move |word| (word, mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::random::Random;

    /// Frame by frame: the largest aligned run that is free, then on behind it.
    fn slowly(block: &Block) -> [u64; ORDERS] {
        let is_free = |frame: usize| block[frame / 64] >> (frame % 64) & 1 == 1;
        let (mut runs, mut at) = ([0; ORDERS], 0);
        while at < PAGEBLOCK_FRAMES as usize {
            let fits = |&k: &usize| at % (1 << k) == 0 && (at..at + (1 << k)).all(is_free);
            match (0..ORDERS).rev().find(fits) {
                Some(k) => {
                    runs[k] += 1;
                    at += 1 << k;
                }
                None => at += 1,
            }
        }
        runs
    }

    #[test]
    fn every_free_frame_is_in_one_run() {
        let mut random = Random::new(3);
        for round in 0..300u32 {
            let mut block: Block = [u64::MAX; 8];
            for _ in 0..random.scaled(24) {
                let order = Order::new(random.scaled(9) as u8).unwrap();
                let at = random.scaled(512) as u32 & !(order.frames() as u32 - 1);
                covered(at, order).for_each(|(word, mask)| block[word] &= !mask);
            }
            let wanted = slowly(&block);
            for (k, &count) in wanted.iter().enumerate() {
                let (found, first) = of_order(&block, k);
                assert_eq!(
                    (found, first.is_some()),
                    (count, count > 0),
                    "round {round}, order {k}"
                );
                let order = Order::new(k as u8).unwrap();
                let whole = |at| covered(at, order).all(|(word, mask)| block[word] & mask == mask);
                assert!(first.is_none_or(whole), "round {round}, order {k}");
            }
            let frames: u64 = wanted.iter().enumerate().map(|(k, count)| count << k).sum();
            assert_eq!(frames, free(&block));
        }
    }
}
