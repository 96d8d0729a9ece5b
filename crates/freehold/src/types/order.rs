//! How much is asked for: powers of two.

use core::fmt;

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
