//! Chunks that this CPU has freed lately into words that it does not lease: where to look first for one of that order.
//!
//! Only hints: the frames are in their word, visible to everybody, and may be gone. Without them a random free and the next
//! allocation would each lease a word for one frame or run, the latter under its group's lock.

use crate::block::{FRAMES, NONE};
use crate::primitive::{AtomicU32, AtomicU64, Plain};

/// Hints kept of single frames, and of the runs of each order; the oldest is forgotten. Powers of two.
const FRAME_HINTS: usize = 64;
const RUN_HINTS: usize = 16;
/// Orders that have hints: those that a word has room for two of.
pub(crate) const HINTED_ORDERS: u32 = 6;
/// An entry without a hint.
const EMPTY: u64 = u64::MAX;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Hints {
    frames: Ring<FRAME_HINTS>,
    runs: [Ring<RUN_HINTS>; HINTED_ORDERS as usize - 1],
}

/// The newest hints of one order.
struct Ring<const N: usize> {
    /// The block's index and the frame within it, as one number. Behind the newest hint there are empty entries, or the
    /// oldest one.
    entries: [AtomicU64; N],
    /// The newest.
    top: AtomicU32,
}

impl<const N: usize> Ring<N> {
    fn new() -> Self {
        Self { entries: core::array::from_fn(|_| AtomicU64::new(EMPTY)), top: AtomicU32::new(0) }
    }

    #[inline(always)]
    fn push(&self, hint: u64) {
        let top = self.top.get().wrapping_add(1);
        self.entries[top as usize % N].set(hint);
        self.top.set(top);
    }

    #[inline(always)]
    fn pop(&self) -> Option<u64> {
        let top = self.top.get();
        let entry = &self.entries[top as usize % N];
        let hint = entry.get();
        if hint == EMPTY {
            return None;
        }
        entry.set(EMPTY);
        self.top.set(top.wrapping_sub(1));
        Some(hint)
    }
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self { frames: Ring::new(), runs: core::array::from_fn(|_| Ring::new()) }
    }

    /// A chunk of that order, by its block's index and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, order: u32, index: u32, offset: u32) {
        debug_assert!(index != NONE && offset < FRAMES as u32 && order < HINTED_ORDERS);
        let hint = u64::from(index) * FRAMES as u64 + u64::from(offset);
        match order.checked_sub(1).and_then(|run| self.runs.get(run as usize)) {
            None => self.frames.push(hint),
            Some(ring) => ring.push(hint),
        }
    }

    /// The newest of that order.
    #[inline(always)]
    pub(crate) fn pop(&self, order: u32) -> Option<(u32, u32)> {
        let hint = match order.checked_sub(1).and_then(|run| self.runs.get(run as usize)) {
            None => self.frames.pop(),
            Some(ring) => ring.pop(),
        }?;
        Some(((hint / FRAMES as u64) as u32, (hint % FRAMES as u64) as u32))
    }

    pub(crate) fn clear(&self) {
        let runs = self.runs.iter().flat_map(|ring| &ring.entries);
        self.frames.entries.iter().chain(runs).for_each(|hint| hint.set(EMPTY));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let hints = Hints::new();
        for (order, kept) in [(0, FRAME_HINTS), (1, RUN_HINTS), (5, RUN_HINTS)] {
            assert_eq!(hints.pop(order), None);
            let kept = kept as u32;
            for n in 0..kept + 10 {
                hints.push(order, n / 3, n % FRAMES as u32);
            }
            let all: Vec<_> = core::iter::from_fn(|| hints.pop(order)).collect();
            let expected: Vec<_> = (10..kept + 10).rev().map(|n| (n / 3, n % FRAMES as u32)).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn each_order_has_its_own() {
        let hints = Hints::new();
        (0..HINTED_ORDERS).for_each(|order| hints.push(order, NONE - 1, 32 * order));
        (0..HINTED_ORDERS).for_each(|order| assert_eq!(hints.pop(order), Some((NONE - 1, 32 * order))));
        (0..HINTED_ORDERS).for_each(|order| hints.push(order, 1, 2));
        hints.clear();
        (0..HINTED_ORDERS).for_each(|order| assert_eq!(hints.pop(order), None));
    }
}
