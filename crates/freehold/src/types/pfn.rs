//! Which frames, and how many: a frame's number, ranges of them, and orders.

use core::fmt;

use crate::PAGEBLOCK_FRAMES;

/// A page frame number: the physical address divided by [`FRAME_SIZE`](crate::FRAME_SIZE).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Pfn(u64);

impl Pfn {
    /// The frame number `pfn`.
    #[inline]
    #[must_use]
    pub const fn new(pfn: u64) -> Self {
        Self(pfn)
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The frame `frames` further on, or `None` past the end of the number space.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, frames: u64) -> Option<Self> {
        match self.0.checked_add(frames) {
            Some(pfn) => Some(Self(pfn)),
            None => None,
        }
    }

    /// Whether a chunk of `order` may start here.
    #[inline]
    #[must_use]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames() - 1) == 0
    }

    /// The start of the chunk of `order` that this frame lies in.
    #[inline]
    #[must_use]
    pub const fn align_down(self, order: Order) -> Self {
        Self(self.0 & !(order.frames() - 1))
    }

    /// The first frame of this frame's pageblock.
    #[inline]
    #[must_use]
    pub const fn pageblock(self) -> Self {
        Self(self.0 & !(PAGEBLOCK_FRAMES - 1))
    }

    /// The start of the next larger chunk's other half: the number with bit `order` flipped.
    #[inline]
    #[must_use]
    pub const fn buddy(self, order: Order) -> Self {
        Self(self.0 ^ order.frames())
    }

    /// The largest order that may start here; [`Order::MAX`] for frame 0.
    #[inline]
    #[must_use]
    pub const fn alignment(self) -> Order {
        let zeros = self.0.trailing_zeros();
        match Order::new(if zeros > 255 { 255 } else { zeros as u8 }) {
            Some(order) => order,
            None => Order::MAX,
        }
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pfn({:#x})", self.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

/// Neighbouring frames, `start` included, `end` not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FrameRange {
    /// The first frame.
    pub start: Pfn,
    /// The frame after the last.
    pub end: Pfn,
}

impl FrameRange {
    /// `frames` frames from `start` on, or `None` where that passes the end of the number space.
    #[inline]
    #[must_use]
    pub const fn new(start: Pfn, frames: u64) -> Option<Self> {
        match start.checked_add(frames) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// How many frames; 0 where `end` is not after `start`.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end.get().saturating_sub(self.start.get())
    }

    /// Whether there is no frame in it.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `pfn` lies in it.
    #[inline]
    #[must_use]
    pub const fn contains(&self, pfn: Pfn) -> bool {
        self.start.get() <= pfn.get() && pfn.get() < self.end.get()
    }

    /// The largest naturally aligned chunks, none above `max`, that together are exactly this
    /// range, in rising order of frame number.
    ///
    /// This is the decomposition of the thread "Free contiguous order-0 pages efficiently": each
    /// chunk is as large as the alignment of its start and the frames still left allow. At most
    /// `2 * max` chunks besides those of order `max` itself.
    ///
    /// ```
    /// use freehold::{FrameRange, Order, Pfn};
    ///
    /// let range = FrameRange::new(Pfn::new(3), 10).unwrap();
    /// let orders: Vec<u8> = range.chunks(Order::LINUX_MAX).map(|(_, order)| order.get()).collect();
    /// assert_eq!(orders, [0, 2, 2, 0]); // 3 | 4..8 | 8..12 | 12
    /// ```
    #[inline]
    pub fn chunks(&self, max: Order) -> impl Iterator<Item = (Pfn, Order)> + use<> {
        let FrameRange { mut start, end } = *self;
        core::iter::from_fn(move || {
            let left = end.get().saturating_sub(start.get());
            let order = Order::fitting(left)?.min(start.alignment()).min(max);
            let chunk = (start, order);
            start = Pfn::new(start.get() + order.frames());
            Some(chunk)
        })
    }
}

impl fmt::Display for FrameRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}..{:#x}", self.start.get(), self.end.get())
    }
}

/// The base-2 logarithm of a number of frames: order 0 is one frame, order 9 a pageblock of 2 MiB,
/// order 18 is 1 GiB.
///
/// Always at most [`Order::MAX`], so shifting by it can never overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Order(u8);

/// Orders that allocations are counted by.
pub const ORDERS: usize = Order::MAX.index() + 1;

impl Order {
    /// One frame.
    pub const ZERO: Self = Self(0);
    /// The largest order that Linux serves cheaply from its per-CPU lists
    /// (`PAGE_ALLOC_COSTLY_ORDER`).
    pub const COSTLY: Self = Self(3);
    /// A pageblock.
    pub const PAGEBLOCK: Self = Self(9);
    /// The largest order on Linux's free lists (`MAX_PAGE_ORDER` on x86-64).
    pub const LINUX_MAX: Self = Self(10);
    /// The largest order there is: 1 GiB.
    pub const MAX: Self = Self(18);

    /// The order `order`, or `None` above [`Order::MAX`].
    #[inline]
    #[must_use]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::MAX.0 { Some(Self(order)) } else { None }
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number as an index into a table with one entry an order.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// How many frames a chunk of this order has.
    #[inline]
    #[must_use]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// The largest order of which `frames` frames are at least one chunk; `None` for 0 frames.
    ///
    /// Above 2^18 frames the answer stays [`Order::MAX`].
    #[inline]
    #[must_use]
    pub const fn fitting(frames: u64) -> Option<Self> {
        match frames.checked_ilog2() {
            None => None,
            Some(log) if log >= Self::MAX.0 as u32 => Some(Self::MAX),
            Some(log) => Some(Self(log as u8)),
        }
    }

    /// The next larger order, or `None` at [`Order::MAX`].
    #[inline]
    #[must_use]
    pub const fn up(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn chunks_cover_every_alignment_exactly_and_cannot_be_larger() {
        for start in 0..40u64 {
            for len in 0..70u64 {
                let range = FrameRange::new(Pfn::new(start), len).unwrap();
                let chunks: Vec<_> = range.chunks(Order::new(5).unwrap()).collect();
                let mut at = start;
                for &(pfn, order) in &chunks {
                    assert_eq!(pfn.get(), at);
                    assert!(pfn.is_aligned(order));
                    at += order.frames();
                    // One order more would be misaligned, too long, or above the bound.
                    let larger = order.up().unwrap();
                    assert!(
                        order.get() == 5
                            || !pfn.is_aligned(larger)
                            || pfn.get() + larger.frames() > start + len
                    );
                }
                assert_eq!(at, start + len);
            }
        }
    }

    #[test]
    fn buddies_differ_in_one_bit() {
        let order = Order::new(3).unwrap();
        assert_eq!(Pfn::new(8).buddy(order), Pfn::new(0));
        assert_eq!(Pfn::new(0).buddy(order), Pfn::new(8));
        assert_eq!(Pfn::new(0).alignment(), Order::MAX);
        assert_eq!(Pfn::new(24).alignment(), order);
    }

    #[test]
    fn a_range_past_the_number_space_does_not_exist() {
        assert_eq!(FrameRange::new(Pfn::new(u64::MAX), 2), None);
        assert!(FrameRange { start: Pfn::new(5), end: Pfn::new(2) }.is_empty());
    }

    #[test]
    fn only_orders_up_to_one_gib_exist() {
        assert_eq!(Order::new(18), Some(Order::MAX));
        assert_eq!(Order::new(19), None);
        assert_eq!(Order::MAX.up(), None);
        assert_eq!(Order::MAX.frames() * crate::FRAME_SIZE, 1 << 30);
    }

    #[test]
    fn fitting_rounds_down() {
        assert_eq!(Order::fitting(0), None);
        assert_eq!(Order::fitting(1), Some(Order::ZERO));
        assert_eq!(Order::fitting(1023), Some(Order::PAGEBLOCK));
        assert_eq!(Order::fitting(u64::MAX), Some(Order::MAX));
    }
}
