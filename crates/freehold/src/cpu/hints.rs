//! Frames that this CPU has freed lately into words that it does not lease: where to look first for a single frame.
//!
//! Only hints: the frame is in its word, visible to everybody, and may be gone. Without them a random free and the next
//! allocation would each lease a word for one frame (churn: 25 to 40 ns instead of 12 to 17).

use crate::primitive::{AtomicU32, AtomicU64, Plain};

/// Hints kept; the oldest is forgotten. A power of two.
const HINTS: usize = 64;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Hints {
    ring: [AtomicU64; HINTS],
    /// Where the next one goes.
    top: AtomicU32,
    len: AtomicU32,
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self { ring: core::array::from_fn(|_| AtomicU64::new(0)), top: AtomicU32::new(0), len: AtomicU32::new(0) }
    }

    #[inline(always)]
    pub(crate) fn push(&self, pfn: u64) {
        let top = self.top.get();
        self.ring[top as usize % HINTS].set(pfn);
        self.top.set(top.wrapping_add(1));
        let len = self.len.get();
        self.len.set(len + u32::from(len < HINTS as u32));
    }

    /// The newest.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<u64> {
        let len = self.len.get();
        if len == 0 {
            return None;
        }
        self.len.set(len - 1);
        let top = self.top.get().wrapping_sub(1);
        self.top.set(top);
        Some(self.ring[top as usize % HINTS].get())
    }

    pub(crate) fn clear(&self) {
        self.len.set(0);
    }
}
