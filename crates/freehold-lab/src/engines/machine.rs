//! The machine that an engine is built for.

use freehold::{Migratetype, NodeId, Order, Pfn};

/// Memory, CPUs and, where known, the tuning of the kernel that recorded a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// Frames in the zone.
    pub memory_frames: u64,
    /// The first of them.
    pub start_pfn: Pfn,
    /// CPUs, numbered from 0.
    pub cpus: u16,
    /// The node that the memory belongs to.
    pub node: NodeId,
    /// What the recording kernel's zoneinfo says of the zone, for engines that are to reproduce that kernel. `None`:
    /// the engine computes watermarks, batch and high from the size of memory, as a kernel does at boot.
    pub zone: Option<ZoneTuning>,
}

/// A zone as its kernel had it tuned when a recording began. Frames, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ZoneTuning {
    /// The zone's name.
    pub name: String,
    /// Frames free.
    pub free: u64,
    /// Watermark min.
    pub min: u64,
    /// Watermark low.
    pub low: u64,
    /// Watermark high.
    pub high: u64,
    /// Frames managed.
    pub managed: u64,
    /// Frames of CMA.
    pub cma: u64,
    /// The per-CPU lists, one a CPU.
    pub pagesets: Vec<PagesetTuning>,
}

/// A CPU's lists as they were when a recording began. Frames, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PagesetTuning {
    /// The CPU.
    pub cpu: u16,
    /// Frames in the lists.
    pub count: u64,
    /// Frames at which the lists are drained, as tuned at that moment.
    pub high: u64,
    /// Frames moved at once.
    pub batch: u64,
    /// The least that `high` is tuned to; equal to `high_max` where tuning is off.
    pub high_min: u64,
    /// The most.
    pub high_max: u64,
    /// What the lists hold, together at most `count` frames; the chunks of an entry go behind those of entries before.
    pub lists: Vec<ListFill>,
}

/// Free chunks on one of a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListFill {
    /// How large each chunk is.
    pub order: Order,
    /// The list's type.
    pub migratetype: Migratetype,
    /// How many chunks.
    pub chunks: u64,
}

impl MachineConfig {
    /// Where a machine's memory starts unless said otherwise: 4 GiB, where zone Normal begins on x86-64.
    pub const START_PFN: Pfn = Pfn::new(1 << 20);

    /// A machine with `memory_frames`, rounded up to a whole number of the largest chunks (4 MiB), and `cpus` CPUs.
    #[must_use]
    pub fn new(memory_frames: u64, cpus: u16) -> Self {
        let largest = Order::LINUX_MAX.frames();
        Self {
            memory_frames: memory_frames.max(1).div_ceil(largest).saturating_mul(largest),
            start_pfn: Self::START_PFN,
            cpus: cpus.max(1),
            node: NodeId::default(),
            zone: None,
        }
    }
}
