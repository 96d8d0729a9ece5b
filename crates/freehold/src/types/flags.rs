//! What a request allows the allocator to do.

bitflags::bitflags! {
    /// How far a request may go, and where it is made from. Empty is an ordinary request that may
    /// wait.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AllocFlags: u16 {
        /// The caller may not wait (atomic context): a further quarter of the min watermark may be
        /// used, and HIGHATOMIC blocks as a last resort.
        const NON_BLOCK = 1 << 0;
        /// The caller is important (`__GFP_HIGH`): half of the min watermark may be used.
        const MIN_RESERVE = 1 << 1;
        /// A high-order request that may not wait: HIGHATOMIC blocks first, where memory is short
        /// ([`Freehold::leave_reserve_to_host`](crate::Freehold::leave_reserve_to_host) says when
        /// that is).
        const HIGH_ATOMIC = 1 << 2;
        /// The request is the way out of an out-of-memory condition: half of what is left may be
        /// used.
        const OOM = 1 << 3;
        /// The caller may have interrupted anything (NMI): nobody is waited for. Such a request
        /// gets all that is in no CPU's hand.
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
