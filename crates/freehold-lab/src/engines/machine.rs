//! The machine that an engine is built for.

use freehold::{FrameRange, Migratetype, Order, Pfn};
/// A zone as its kernel had it when a recording began, with memory.
pub use freehold_trace::zoneinfo::Zone as RecordedZone;

/// Memory, CPUs and, where known, the tuning of the kernel that recorded a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    pub memory_frames: u64,
    /// The first of them.
    pub start_pfn: Pfn,
    /// CPUs, numbered from 0.
    pub cpus: u16,
    /// Frames of CMA, the last ones of the zone: whole chunks of the largest order.
    pub cma_frames: u64,
    /// What the recording kernel's zoneinfo says of the zone, for engines that are to reproduce
    /// that kernel. `None`: the engine computes watermarks, batch and high from the size of memory,
    /// as a kernel does at boot.
    pub zone: Option<RecordedZone>,
}

/// The zone of a machine, which has one.
pub const ZONE: usize = 0;

/// Free chunks on one of a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListFill {
    /// How large each chunk is.
    pub order: Order,
    pub migratetype: Migratetype,
    pub chunks: u64,
}

/// What `zone` keeps from requests that a higher zone could serve: nearly all of those that a lower
/// zone serves. Where that is all it has, others alone are served there, of whom nothing is kept.
pub(super) fn lowmem_reserve(zone: &RecordedZone) -> u64 {
    zone.protection.iter().copied().max().filter(|&kept| kept < zone.managed).unwrap_or(0)
}

impl MachineConfig {
    /// Where a machine's memory starts unless said otherwise: 4 GiB, where zone Normal begins on
    /// x86-64.
    pub const START_PFN: Pfn = Pfn::new(1 << 20);

    /// A machine with `memory_frames`, rounded up to a whole number of the largest chunks (4 MiB),
    /// and `cpus` CPUs.
    pub fn new(memory_frames: u64, cpus: u16) -> Self {
        let largest = Order::LINUX_MAX.frames();
        Self {
            memory_frames: memory_frames.max(1).div_ceil(largest).saturating_mul(largest),
            start_pfn: Self::START_PFN,
            cpus: cpus.max(1),
            cma_frames: 0,
            zone: None,
        }
    }

    /// The machine that a model of the recording kernel is to be built for: the zone as it was.
    pub fn of_zone(zone: &RecordedZone, cpus: u16) -> Self {
        // A zone with holes spans more than it manages; the model's zone has none. Its start keeps
        // its alignment to the largest chunk, which is all that placement depends on.
        Self {
            start_pfn: zone.start_pfn.unwrap_or(Self::START_PFN).align_down(Order::LINUX_MAX),
            cma_frames: zone
                .cma
                .min(zone.managed)
                .div_ceil(Order::LINUX_MAX.frames())
                .saturating_mul(Order::LINUX_MAX.frames()),
            zone: Some(zone.clone()),
            ..Self::new(zone.managed, cpus)
        }
    }

    /// Its memory.
    ///
    /// # Errors
    ///
    /// In words, where there is no frame of so high a number.
    pub fn range(&self) -> Result<FrameRange, String> {
        FrameRange::new(self.start_pfn, self.memory_frames)
            .ok_or("the zone is too large".to_owned())
    }

    pub fn cma(&self) -> Vec<FrameRange> {
        let frames = self.cma_frames / Order::LINUX_MAX.frames() * Order::LINUX_MAX.frames();
        let end = Pfn::new(self.start_pfn.get().saturating_add(self.memory_frames));
        let end = end.align_down(Order::LINUX_MAX);
        let start = Pfn::new(end.get().saturating_sub(frames)).max(self.start_pfn);
        (start < end).then_some(FrameRange { start, end }).into_iter().collect()
    }
}
