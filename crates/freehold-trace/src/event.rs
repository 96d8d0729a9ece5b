//! One event of a page-allocator trace, whatever format it was read from.

use freehold::{CpuId, Order, Pfn};

/// One event, in the order of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Nanoseconds of the trace's own clock.
    pub ts_ns: u64,
    /// The CPU that ran it.
    pub cpu: CpuId,
    /// The thread it ran for.
    pub pid: u32,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. The names are the kernel's tracepoints (`kmem:mm_page_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `mm_page_alloc`.
    Alloc {
        /// The first frame; `None` where the allocation failed.
        pfn: Option<Pfn>,
        /// How much.
        order: Order,
        /// The requested type: its number, 0 to 2 for the types a request may name.
        migratetype: u8,
        /// The request's GFP flags, in the numbering of the kernel that recorded them (6.18).
        gfp_flags: u32,
    },
    /// `mm_page_free`.
    Free {
        /// The first frame.
        pfn: Pfn,
        /// How much.
        order: Order,
    },
    /// `mm_page_free_batched`: the frame of an earlier `Free` went through a batch of
    /// folios. Not a second free, and without the real order.
    FreeBatched {
        /// The first frame.
        pfn: Pfn,
    },
    /// `mm_page_pcpu_drain`: a chunk went back from a CPU's lists to the zone.
    PcpuDrain {
        /// The first frame.
        pfn: Pfn,
        /// How much.
        order: Order,
        /// The list's type.
        migratetype: u8,
    },
    /// `mm_page_alloc_extfrag`: an allocation took memory of another type.
    Extfrag {
        /// The first frame.
        pfn: Pfn,
        /// How much was asked for.
        order: Order,
        /// The requested type.
        migratetype: u8,
        /// The order of the chunk it was taken from.
        fallback_order: Order,
        /// The type it was taken from.
        fallback_migratetype: u8,
        /// Whether the pageblock changed its type.
        change_ownership: bool,
    },
    /// `mm_page_alloc_zone_locked`: a chunk was taken from the zone under its lock.
    ZoneLocked {
        /// The first frame.
        pfn: Pfn,
        /// How much.
        order: Order,
        /// The list's type.
        migratetype: u8,
        /// Whether the chunk is of an order that CPUs keep lists for.
        percpu_refill: bool,
    },
}
