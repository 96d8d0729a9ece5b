//! Frames that this CPU has freed lately into words that it does not lease: where to look first for a single frame.
//!
//! Only hints: the frame is in its word, visible to everybody, and may be gone. Without them a random free and the next
//! allocation would each lease a word for one frame (churn: 25 to 40 ns instead of 12 to 17).

use crate::block::{FRAMES, NONE};
use crate::primitive::{AtomicU32, AtomicU64, Plain};

/// Hints kept; the oldest is forgotten. A power of two.
const HINTS: usize = 64;
/// An entry without a hint.
const EMPTY: u64 = u64::MAX;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Hints {
    /// The block's index and the frame within it, as one number. Behind the newest hint there are empty entries, or the
    /// oldest one.
    ring: [AtomicU64; HINTS],
    /// The newest.
    top: AtomicU32,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self { ring: core::array::from_fn(|_| AtomicU64::new(EMPTY)), top: AtomicU32::new(0) }
    }

    /// A frame, by its block's index and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, index: u32, offset: u32) {
        debug_assert!(index != NONE && offset < FRAMES as u32);
        let top = self.top.get().wrapping_add(1);
        self.ring[top as usize % HINTS].set(u64::from(index) * FRAMES as u64 + u64::from(offset));
        self.top.set(top);
    }

    /// The newest.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<(u32, u32)> {
        let top = self.top.get();
        let entry = &self.ring[top as usize % HINTS];
        let hint = entry.get();
        if hint == EMPTY {
            return None;
        }
        entry.set(EMPTY);
        self.top.set(top.wrapping_sub(1));
        Some(((hint / FRAMES as u64) as u32, (hint % FRAMES as u64) as u32))
    }

    pub(crate) fn clear(&self) {
        self.ring.iter().for_each(|hint| hint.set(EMPTY));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let hints = Hints::new();
        assert_eq!(hints.pop(), None);
        for n in 0..HINTS as u32 + 10 {
            hints.push(n / 3, n % FRAMES as u32);
        }
        let all: Vec<_> = core::iter::from_fn(|| hints.pop()).collect();
        let expected: Vec<_> = (10..HINTS as u32 + 10).rev().map(|n| (n / 3, n % FRAMES as u32)).collect();
        assert_eq!(all, expected);
        hints.push(NONE - 1, 511);
        assert_eq!(hints.pop(), Some((NONE - 1, 511)));
        hints.push(1, 2);
        hints.clear();
        assert_eq!(hints.pop(), None);
    }
}
