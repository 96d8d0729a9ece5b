//! Chunks under test, chained through their own memory, every frame stamped.
//!
//! ```text
//!   a chunk's first frame   word 0: the next chunk + 1, 1: order, 2: whose
//!   every frame             word 3 and word 511: made of its number and whose it is
//! ```
//!
//! A frame that two have at once shows as a wrong stamp. So does one that was written through a
//! stale translation.

use core::sync::atomic::Ordering;

use freehold::{Order, Pfn};

use super::{Failure, Machine, same};

/// What a frame's stamp is.
#[must_use]
pub const fn stamp(pfn: Pfn, whose: u64) -> u64 {
    // Any mixture that two frames, or two owners, do not share.
    (pfn.get() ^ whose.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Stamps the frames of a chunk.
pub fn stamped(machine: &impl Machine, pfn: Pfn, order: Order, whose: u64) {
    for frame in (pfn.get()..pfn.get() + order.frames()).map(Pfn::new) {
        let words = machine.words(frame);
        // Relaxed, here and below: a chunk goes from CPU to CPU with what orders it.
        words[3].store(stamp(frame, whose), Ordering::Relaxed);
        words[511].store(stamp(frame, whose), Ordering::Relaxed);
    }
}

/// Checks the stamps of a chunk, and takes them off.
pub(super) fn check(
    machine: &impl Machine,
    pfn: Pfn,
    order: Order,
    whose: u64,
) -> Result<(), Failure> {
    for frame in (pfn.get()..pfn.get() + order.frames()).map(Pfn::new) {
        let words = machine.words(frame);
        for word in [&words[3], &words[511]] {
            let found = word.swap(0, Ordering::Relaxed);
            same("a frame was written to by somebody else", found, stamp(frame, whose))?;
        }
    }
    Ok(())
}

/// See the module's documentation. Not a container to be dropped: what is left in it stays
/// allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The first chunk + 1; 0 for none.
    first: u64,
    /// Frames in it.
    pub frames: u64,
}

impl Chain {
    /// Nothing in it.
    pub const EMPTY: Self = Self { first: 0, frames: 0 };

    /// Adds a chunk, stamped.
    pub fn push(&mut self, machine: &impl Machine, pfn: Pfn, order: Order, whose: u64) {
        stamped(machine, pfn, order, whose);
        let words = machine.words(pfn);
        for (word, value) in words.iter().zip([self.first, u64::from(order.get()), whose]) {
            word.store(value, Ordering::Relaxed);
        }
        self.first = pfn.get() + 1;
        self.frames += order.frames();
    }

    /// Takes the last chunk out, with its order and whose it was, after checking its stamps.
    ///
    /// # Errors
    ///
    /// A stamp that is wrong.
    pub fn pop(&mut self, machine: &impl Machine) -> Result<Option<(Pfn, Order, u64)>, Failure> {
        let Some(pfn) = self.first.checked_sub(1).map(Pfn::new) else { return Ok(None) };
        let words = machine.words(pfn);
        let [next, order, whose] = [0, 1, 2].map(|i: usize| words[i].load(Ordering::Relaxed));
        let bad = Failure { what: "a chunk's order was written over", found: order, expected: 0 };
        let order = u8::try_from(order).ok().and_then(Order::new).ok_or(bad)?;
        check(machine, pfn, order, whose)?;
        self.first = next;
        self.frames = self.frames.saturating_sub(order.frames());
        Ok(Some((pfn, order, whose)))
    }

    /// As one word, for a mailbox: [`Chain::from_word`] makes a chain of it again, without its
    /// length.
    #[must_use]
    pub fn into_word(self) -> u64 {
        self.first
    }

    /// See [`Chain::into_word`].
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self { first: word, frames: 0 }
    }
}
