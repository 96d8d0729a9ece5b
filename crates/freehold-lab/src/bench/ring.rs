//! A ring between one thread that fills messages and one that empties them.
//!
//! ```text
//!   tail ──> oldest message not yet freed        head ──> next to be filled
//!
//!   [ message | message | message | ... ]        each of N frame numbers, on cache lines of its own
//! ```
//!
//! Each index has its line. A slot is written before `head` passes it and read before `tail` does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::calls::Refused;
use super::yardstick::{Line, wait_until};

/// Messages of `N` frame numbers.
pub(crate) struct Ring<const N: usize> {
    head: Line,
    tail: Line,
    messages: Vec<Message<N>>,
    /// One of the threads has given up.
    abandoned: AtomicBool,
}

#[repr(align(64))]
struct Message<const N: usize>([AtomicU64; N]);

impl<const N: usize> Ring<N> {
    /// Room for `depth` messages, a power of two.
    pub(crate) fn new(depth: usize) -> Self {
        // So that the place of a message is a mask away.
        debug_assert!(depth.is_power_of_two());
        Self {
            head: Line::default(),
            tail: Line::default(),
            messages: (0..depth)
                .map(|_| Message(std::array::from_fn(|_| AtomicU64::new(0))))
                .collect(),
            abandoned: AtomicBool::new(false),
        }
    }

    pub(super) fn abandon(&self) {
        // Relaxed: a flag that carries nothing.
        self.abandoned.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn wait(&self, done: impl Fn() -> bool) -> Result<(), Refused> {
        if done() {
            return Ok(());
        }
        // Relaxed: as in `abandon`.
        wait_until(|| done() || self.abandoned.load(Ordering::Relaxed));
        if done() { Ok(()) } else { Err(Refused::Abandoned) }
    }

    #[inline(always)]
    pub(crate) fn message(&self, n: u64) -> &[AtomicU64; N] {
        &self.messages[n as usize & (self.messages.len() - 1)].0
    }

    /// The `n`-th message, once there is room for it.
    #[inline(always)]
    pub(super) fn empty(&self, n: u64) -> Result<&[AtomicU64; N], Refused> {
        self.wait(|| self.has_room(n))?;
        Ok(self.message(n))
    }

    /// Whether there is room for the `n`-th message.
    #[inline(always)]
    pub(crate) fn has_room(&self, n: u64) -> bool {
        // Acquire: the consumer has read the slots that are filled again.
        n - self.tail.0.load(Ordering::Acquire) < self.messages.len() as u64
    }

    #[inline(always)]
    pub(crate) fn produced(&self, n: u64) {
        // Release: the slots are filled.
        self.head.0.store(n + 1, Ordering::Release);
    }

    /// The `n`-th message, once it has been filled.
    #[inline(always)]
    pub(super) fn filled(&self, n: u64) -> Result<&[AtomicU64; N], Refused> {
        self.wait(|| self.is_filled(n))?;
        Ok(self.message(n))
    }

    #[inline(always)]
    pub(crate) fn is_filled(&self, n: u64) -> bool {
        // Acquire: the slots are filled.
        self.head.0.load(Ordering::Acquire) > n
    }

    /// How many messages have been produced and consumed, for a thread that does not count them
    /// itself: its own count is exact.
    pub(crate) fn passed(&self) -> (u64, u64) {
        // Relaxed: only the thread that asks writes the one it looks at.
        (self.head.0.load(Ordering::Relaxed), self.tail.0.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn consumed(&self, n: u64) {
        // Release: the slots have been read.
        self.tail.0.store(n + 1, Ordering::Release);
    }
}
