//! What to ask an arena for.

use freehold::{
    AllocFlags, FrameRange, Migratetype, NodeId, Order, PAGEBLOCK_FRAMES, Pfn, Request,
};

/// A request for `2^order` neighbouring, naturally aligned frames.
///
/// ```
/// use freehold::{Migratetype, Order};
/// use freehold_host::FrameRequest;
///
/// let request = FrameRequest::new(Order::PAGEBLOCK).migratetype(Migratetype::Unmovable);
/// assert_eq!(request.order(), Order::PAGEBLOCK);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct FrameRequest {
    order: Order,
    migratetype: Migratetype,
    flags: AllocFlags,
    align: Order,
    node: Option<NodeId>,
    within: FrameRange,
}

/// Frames of any number.
const ANYWHERE: FrameRange = FrameRange { start: Pfn::new(0), end: Pfn::new(u64::MAX) };

/// What virtual memory asks its page allocator for.
impl From<Request> for FrameRequest {
    fn from(request: Request) -> Self {
        Self {
            order: request.order(),
            migratetype: request.migratetype(),
            flags: request.allowed(),
            align: request.alignment(),
            node: request.preferred_node(),
            within: request.within(),
        }
    }
}

impl FrameRequest {
    /// Movable frames, anywhere. Movable is what nobody holds a physical address of: in user space,
    /// everything.
    #[inline(always)]
    pub const fn new(order: Order) -> Self {
        Self {
            order,
            migratetype: Migratetype::Movable,
            flags: AllocFlags::empty(),
            align: Order::ZERO,
            node: None,
            within: ANYWHERE,
        }
    }

    /// Keeps frames of different lifetimes apart: give what lives long another type than what comes
    /// and goes.
    #[inline(always)]
    pub const fn migratetype(mut self, migratetype: Migratetype) -> Self {
        self.migratetype = migratetype;
        self
    }

    /// How far the allocator may go.
    #[inline(always)]
    pub const fn flags(mut self, flags: AllocFlags) -> Self {
        self.flags = flags;
        self
    }

    /// Starts at a multiple of `2^align` frames, where that is more than the order asks for.
    pub const fn align(mut self, align: Order) -> Self {
        self.align = align;
        self
    }

    /// The node to look on first; by default that of the thread's slot. Nodes are counted from 0 in
    /// the order of
    /// [`Topology::nodes`](crate::Topology::nodes).
    pub const fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// How much is asked for.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The order of the chunk that it is cut from.
    #[inline(always)]
    const fn cut_from(&self) -> Order {
        if self.align.get() > self.order.get() { self.align } else { self.order }
    }

    /// Whether that is a run of several blocks, which are the zones' and not a thread's.
    #[inline(always)]
    pub(crate) const fn is_large(&self) -> bool {
        self.cut_from().get() > Order::PAGEBLOCK.get()
    }

    /// How many blocks such a run has.
    pub(crate) const fn blocks(&self) -> u64 {
        self.cut_from().frames() / PAGEBLOCK_FRAMES
    }

    /// Whether locks may be waited for.
    pub(crate) const fn may_wait(&self) -> bool {
        !self.flags.contains(AllocFlags::NO_LOCK)
    }

    /// As the allocator takes it.
    #[inline(always)]
    pub(crate) const fn request(&self) -> Request {
        let mut request = Request::new(self.order, self.migratetype).flags(self.flags);
        // Anything but the default makes a request that the fast paths do not serve.
        if self.align.get() > self.order.get() {
            request = request.align(self.align);
        }
        if let Some(node) = self.node {
            request = request.node(node);
        }
        if self.within.start.get() != 0 {
            request = request.from(self.within.start);
        }
        if self.within.end.get() != u64::MAX {
            request = request.below(self.within.end);
        }
        request
    }
}
