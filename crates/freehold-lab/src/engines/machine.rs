//! The machine that an engine is built for.

use freehold::{FrameRange, Migratetype, NodeId, Order, Pfn};
use freehold_trace::zoneinfo;

/// Memory, CPUs and, where known, the tuning of the kernel that recorded a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// Frames in the zone.
    pub memory_frames: u64,
    /// The first of them.
    pub start_pfn: Pfn,
    /// CPUs, numbered from 0.
    pub cpus: u16,
    /// Nodes, numbered from 0. Each has a zone with its share of the memory, and its share of the
    /// CPUs.
    pub nodes: u16,
    /// Frames of CMA, the last ones of each zone: whole chunks of the largest order.
    pub cma_frames: u64,
    /// What the recording kernel's zoneinfo says of the zone, for engines that are to reproduce
    /// that kernel. `None`: the engine computes watermarks, batch and high from the size of memory,
    /// as a kernel does at boot.
    pub zone: Option<RecordedZone>,
}

/// Where one node's memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZonePlace {
    /// The node.
    pub node: NodeId,
    /// Its memory.
    pub range: FrameRange,
    /// Which of it is CMA.
    pub cma: Option<FrameRange>,
}

/// A zone as its kernel had it when a recording began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordedZone {
    /// What zoneinfo said of it. It has memory.
    pub info: zoneinfo::Zone,
}

impl RecordedZone {
    /// Its first frame.
    #[must_use]
    pub fn start(&self) -> Pfn {
        self.info.start_pfn.unwrap_or_default()
    }

    /// Whether a frame lies in it, or in one of its holes.
    #[must_use]
    pub fn contains(&self, pfn: Pfn) -> bool {
        pfn >= self.start() && pfn.get() - self.start().get() < self.info.spanned
    }
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
    /// Where a machine's memory starts unless said otherwise: 4 GiB, where zone Normal begins on
    /// x86-64.
    pub const START_PFN: Pfn = Pfn::new(1 << 20);

    /// A machine with `memory_frames`, rounded up to a whole number of the largest chunks (4 MiB),
    /// and `cpus` CPUs.
    #[must_use]
    pub fn new(memory_frames: u64, cpus: u16) -> Self {
        let largest = Order::LINUX_MAX.frames();
        Self {
            memory_frames: memory_frames.max(1).div_ceil(largest).saturating_mul(largest),
            start_pfn: Self::START_PFN,
            cpus: cpus.max(1),
            nodes: 1,
            cma_frames: 0,
            zone: None,
        }
    }

    /// The machine that a model of the recording kernel is to be built for: the zone as it was.
    #[must_use]
    pub fn of_zone(zone: &RecordedZone, cpus: u16) -> Self {
        // A zone with holes spans more than it manages; the model's zone has none. Its start keeps
        // its alignment to the largest chunk, which is all that placement depends on.
        Self {
            start_pfn: zone.info.start_pfn.unwrap_or(Self::START_PFN).align_down(Order::LINUX_MAX),
            cma_frames: zone.info.cma.next_multiple_of(Order::LINUX_MAX.frames()),
            zone: Some(zone.clone()),
            ..Self::new(zone.info.managed, cpus)
        }
    }

    /// The zones, by rising address: one for each node, in whole chunks of the largest order.
    #[must_use]
    pub fn zones(&self) -> Vec<ZonePlace> {
        let (largest, nodes) = (Order::LINUX_MAX.frames(), u64::from(self.nodes.max(1)));
        // The last one has what is left over.
        let border = |n: u64| {
            if n == nodes {
                self.memory_frames
            } else {
                self.memory_frames / largest * n / nodes * largest
            }
        };
        let at = |frames: u64| Pfn::new(self.start_pfn.get().saturating_add(frames));
        let cma = self.cma_frames / nodes / largest * largest;
        (0..nodes)
            .map(|n| {
                let range = FrameRange { start: at(border(n)), end: at(border(n + 1)) };
                let end = range.end.align_down(Order::LINUX_MAX);
                let start = Pfn::new(end.get().saturating_sub(cma)).max(range.start);
                let node = NodeId::new(n as u8);
                ZonePlace { node, range, cma: (start < end).then_some(FrameRange { start, end }) }
            })
            .collect()
    }

    /// All CMA there is.
    #[must_use]
    pub fn cma(&self) -> Vec<FrameRange> {
        self.zones().into_iter().filter_map(|zone| zone.cma).collect()
    }

    /// The position in [`zones`](Self::zones) of the zone whose node a CPU belongs to.
    #[must_use]
    pub fn zone_of_cpu(&self, cpu: u16) -> usize {
        (u32::from(cpu) * u32::from(self.nodes.max(1)) / u32::from(self.cpus.max(1))) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_cpus_are_shared_out_evenly() {
        let machine =
            MachineConfig { nodes: 3, cma_frames: 3 * 2048, ..MachineConfig::new(40 << 10, 8) };
        let zones = machine.zones();
        assert_eq!(
            zones.iter().map(|zone| zone.range.len() >> 10).collect::<Vec<_>>(),
            [13, 13, 14]
        );
        assert_eq!(zones[0].range.start, MachineConfig::START_PFN);
        assert!(zones.windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
        assert!(zones.iter().all(|zone| {
            zone.cma.is_some_and(|cma| cma.len() == 2048 && cma.end == zone.range.end)
        }));
        assert_eq!(
            (0..8).map(|cpu| machine.zone_of_cpu(cpu)).collect::<Vec<_>>(),
            [0, 0, 0, 1, 1, 1, 2, 2]
        );
        let one = MachineConfig { nodes: 1, cma_frames: 0, ..machine };
        assert_eq!(
            (one.zones().len(), one.zones()[0].range.len(), one.cma()),
            (1, 40 << 10, Vec::new())
        );
    }
}
