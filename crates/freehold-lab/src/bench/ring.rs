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
pub(super) struct Ring<const N: usize> {
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
    pub(super) fn new(depth: usize) -> Self {
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
    fn message(&self, n: u64) -> &[AtomicU64; N] {
        &self.messages[n as usize & (self.messages.len() - 1)].0
    }

    /// The `n`-th message, once there is room for it.
    #[inline(always)]
    pub(super) fn empty(&self, n: u64) -> Result<&[AtomicU64; N], Refused> {
        // Acquire: the consumer has read the slots that are filled again.
        self.wait(|| n - self.tail.0.load(Ordering::Acquire) < self.messages.len() as u64)?;
        Ok(self.message(n))
    }

    #[inline(always)]
    pub(super) fn produced(&self, n: u64) {
        // Release: the slots are filled.
        self.head.0.store(n + 1, Ordering::Release);
    }

    /// The `n`-th message, once it has been filled.
    #[inline(always)]
    pub(super) fn filled(&self, n: u64) -> Result<&[AtomicU64; N], Refused> {
        // Acquire: the slots are filled.
        self.wait(|| self.head.0.load(Ordering::Acquire) > n)?;
        Ok(self.message(n))
    }

    #[inline(always)]
    pub(super) fn consumed(&self, n: u64) {
        // Release: the slots have been read.
        self.tail.0.store(n + 1, Ordering::Release);
    }
}
