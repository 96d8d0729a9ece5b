//! What a caller wants, and what the allocator may do for it.

use crate::{FrameRange, Migratetype, NodeId, Order, Pfn};

/// A request for one chunk of frames: how much, of which kind, and where it may lie.
///
/// ```
/// use freehold::{AllocFlags, Migratetype, Order, Pfn, Request};
///
/// // 16 KiB below 16 MiB for an old device, from interrupt context.
/// let request = Request::new(Order::new(2).unwrap(), Migratetype::Unmovable)
///     .flags(AllocFlags::NON_BLOCK)
///     .below(Pfn::new(4096));
/// // What another allocator that is `Frames` has to know.
/// assert_eq!(request.order().frames(), 4);
/// assert_eq!(request.within().end, Pfn::new(4096));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    /// Which fast way may serve it: one of the constants below.
    pub(crate) way: u8,
    pub(crate) flags: AllocFlags,
    pub(crate) align: Order,
    pub(crate) from: Pfn,
    pub(crate) below: Pfn,
    pub(crate) node: Option<NodeId>,
}

impl Request {
    /// Any frame of an ordinary block of its type will do.
    pub(crate) const FRAME: u8 = 0;
    /// Any run of order 1 to 8.
    pub(crate) const RUN: u8 = 1;
    /// Any whole block.
    pub(crate) const BLOCK: u8 = 2;
    /// Added to the above: CMA frames will do too, which makes a difference only where there are
    /// any, and for movable requests.
    pub(crate) const OR_CMA: u8 = 4;
    /// None: there is more to it.
    pub(crate) const SLOW: u8 = u8::MAX;

    /// `2^order` frames of that kind, anywhere.
    #[inline(always)]
    #[must_use]
    pub const fn new(order: Order, migratetype: Migratetype) -> Self {
        Self {
            order,
            migratetype,
            way: match order.get() {
                _ if (migratetype as u8) >= Migratetype::PCP.len() as u8 => Self::SLOW,
                0 => Self::FRAME,
                1..=8 => Self::RUN,
                9 => Self::BLOCK,
                _ => Self::SLOW,
            },
            flags: AllocFlags::empty(),
            align: Order::ZERO,
            from: Pfn::new(0),
            below: Pfn::new(u64::MAX),
            node: None,
        }
    }

    /// How far the allocator may go.
    #[inline(always)]
    #[must_use]
    pub const fn flags(mut self, flags: AllocFlags) -> Self {
        if flags.contains(AllocFlags::NO_LOCK) {
            self.way = Self::SLOW;
        } else if self.way != Self::SLOW && flags.contains(AllocFlags::CMA) {
            self.way |= Self::OR_CMA;
        }
        self.flags = flags;
        self
    }

    /// The chunk has to start at a multiple of `2^align` frames, where that is more than its own
    /// order asks for. The frames after it need not be free.
    #[must_use]
    pub const fn align(mut self, align: Order) -> Self {
        self.way = Self::SLOW;
        self.align = align;
        self
    }

    /// Every frame lies below this one.
    #[must_use]
    pub const fn below(mut self, limit: Pfn) -> Self {
        self.way = Self::SLOW;
        self.below = limit;
        self
    }

    /// No frame lies below this one.
    #[must_use]
    pub const fn from(mut self, start: Pfn) -> Self {
        self.way = Self::SLOW;
        self.from = start;
        self
    }

    /// The node to look on first; the CPU's own otherwise. Other nodes follow.
    #[must_use]
    pub const fn node(mut self, node: NodeId) -> Self {
        self.way = Self::SLOW;
        self.node = Some(node);
        self
    }

    /// How much is asked for.
    #[inline(always)]
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// Of which kind.
    #[inline(always)]
    #[must_use]
    pub const fn migratetype(&self) -> Migratetype {
        self.migratetype
    }

    /// What was said with [`flags`](Self::flags); empty by default.
    #[must_use]
    pub const fn allowed(&self) -> AllocFlags {
        self.flags
    }

    /// The chunk starts at a multiple of so many frames: of its own size, or of what was said with
    /// [`align`](Self::align) where that is more.
    #[must_use]
    pub const fn alignment(&self) -> Order {
        if self.align.get() > self.order.get() { self.align } else { self.order }
    }

    /// Where it may lie, by [`from`](Self::from) and [`below`](Self::below); everywhere by default.
    #[must_use]
    pub const fn within(&self) -> FrameRange {
        FrameRange { start: self.from, end: self.below }
    }

    /// Whether frames of CMA blocks will do.
    pub(crate) fn cma(&self) -> bool {
        self.flags.contains(AllocFlags::CMA) && matches!(self.migratetype, Migratetype::Movable)
    }

    /// Whether not any frames will do: limits, an order above 9, or a further alignment.
    pub(crate) fn is_by_place(&self) -> bool {
        self.is_limited() || self.align > self.order || self.order > Order::PAGEBLOCK
    }

    /// Whether only part of the frame number space will do.
    pub(crate) fn is_limited(&self) -> bool {
        self.from.get() != 0 || self.below.get() != u64::MAX
    }
}

bitflags::bitflags! {
    /// How far a request may go, and where it is made. Empty: an ordinary one that may wait.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AllocFlags: u16 {
        /// The caller may not wait (atomic context): a further quarter of the min watermark may be
        /// used, and HIGHATOMIC blocks as a last resort.
        const NON_BLOCK = 1 << 0;
        /// The caller is important (`__GFP_HIGH`): half of the min watermark may be used.
        const MIN_RESERVE = 1 << 1;
        /// A high-order request that may not wait, where memory is short: HIGHATOMIC blocks first,
        /// and of others only by keeping them
        /// ([`Freehold::give_up_reserve`](crate::Freehold::give_up_reserve) ends that).
        const HIGH_ATOMIC = 1 << 2;
        /// The request is the way out of a lack of memory: half of what is left may be used.
        const OOM = 1 << 3;
        /// The caller may have interrupted anything (NMI): nobody is waited for. Such a request
        /// gets all that is in no CPU's hand: near a zone's min mark that is all that is free, once
        /// a request that may wait, or a tick, has noticed.
        const NO_LOCK = 1 << 4;
        /// A pageblock in use for another migratetype does not become one of this request's,
        /// however much of it is free. Frames inside one are taken only where no zone has others.
        const NO_FRAGMENT = 1 << 5;
        /// Frames of CMA pageblocks will do; meaningful for movable requests only.
        const CMA = 1 << 6;
        /// Ignore the watermarks altogether (`PF_MEMALLOC`).
        const NO_WATERMARKS = 1 << 7;
    }
}

impl AllocFlags {
    /// Whether such a request may have frames of HIGHATOMIC blocks, if only as a last resort.
    #[inline(always)]
    pub(crate) const fn may_use_reserve(self) -> bool {
        self.intersects(Self::NON_BLOCK.union(Self::OOM).union(Self::HIGH_ATOMIC))
    }
}
