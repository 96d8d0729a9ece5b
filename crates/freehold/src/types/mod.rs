//! The words of the interface: which frames, how many, of what kind, on which CPU, in which
//! machine, and what went wrong.

use crate::PAGEBLOCK_FRAMES;
use core::fmt;

pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod request;

/// CPUs that there can be: a lease names each in 15 bits, and has two values left for others.
pub(crate) const MAX_CPUS: u16 = (1 << 15) - 2;

/// A CPU, counted from 0.
///
/// A number of its own, because the kernel's designs store `cpu + 1` in places where 0 means
/// "nobody" and mixing the two up is the classic mistake.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct CpuId(u16);

impl CpuId {
    /// The CPU number `cpu`.
    #[inline]
    #[must_use]
    pub const fn new(cpu: u16) -> Self {
        Self(cpu)
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number as an index into a table with one entry a CPU.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.0)
    }
}

/// A memory node (NUMA), counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(u8);

impl NodeId {
    /// The node number `node`.
    #[inline]
    #[must_use]
    pub const fn new(node: u8) -> Self {
        Self(node)
    }

    /// The bare number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

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

/// The kind of allocation that a pageblock serves, so that what cannot move is kept together.
///
/// The numbers are the kernel's (x86-64 with CMA and isolation). The first three are the types a
/// request may name and that per-CPU lists are kept for; the others are states of a pageblock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Migratetype {
    /// Stays where it is until freed: kernel objects, page tables.
    Unmovable = 0,
    /// Can be migrated elsewhere: user memory, page cache.
    Movable = 1,
    /// Cannot be moved but can be dropped under pressure: inode and dentry caches.
    Reclaimable = 2,
    /// Kept back for high-order requests that may not wait.
    HighAtomic = 3,
    /// Lent to movable requests until a device claims it.
    Cma = 4,
    /// Being emptied: nothing may be allocated from it.
    Isolate = 5,
}

impl Migratetype {
    /// Every type, in the order of its number.
    pub const ALL: [Self; 6] = [
        Self::Unmovable,
        Self::Movable,
        Self::Reclaimable,
        Self::HighAtomic,
        Self::Cma,
        Self::Isolate,
    ];

    /// The types that a request may name, for each of which a CPU keeps its own lists.
    pub const PCP: [Self; 3] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// The type of that number, if there is one.
    #[inline]
    #[must_use]
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::ALL.len() { Some(Self::ALL[index]) } else { None }
    }

    /// The number as an index into a table with one entry a type.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether whole pageblocks of this and another such type may merge into a larger chunk.
    ///
    /// True of the three ordinary types only: any other block would lose its purpose.
    #[inline]
    #[must_use]
    pub const fn is_mergeable(self) -> bool {
        (self as u8) < Self::HighAtomic as u8
    }

    /// The types to take from when this one has nothing left, best first; empty if it never takes.
    ///
    /// Linux 6.12 and later, table `fallbacks`.
    #[inline]
    #[must_use]
    pub const fn fallbacks(self) -> &'static [Self] {
        match self {
            Self::Unmovable => &[Self::Reclaimable, Self::Movable],
            Self::Movable => &[Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => &[Self::Unmovable, Self::Movable],
            Self::HighAtomic | Self::Cma | Self::Isolate => &[],
        }
    }

    /// The field's name for it, as `/proc/pagetypeinfo` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Cma => "CMA",
            Self::Isolate => "Isolate",
        }
    }
}

impl fmt::Display for Migratetype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

    #[test]
    fn numbers_match_positions() {
        for (i, mt) in Migratetype::ALL.into_iter().enumerate() {
            assert_eq!(mt.index(), i);
            assert_eq!(Migratetype::from_index(i), Some(mt));
        }
        assert_eq!(Migratetype::from_index(6), None);
    }

    #[test]
    fn only_ordinary_types_merge_and_fall_back() {
        for mt in Migratetype::ALL {
            assert_eq!(mt.is_mergeable(), Migratetype::PCP.contains(&mt));
            assert_eq!(mt.fallbacks().len(), if mt.is_mergeable() { 2 } else { 0 });
            assert!(!mt.fallbacks().contains(&mt));
        }
    }
}
