//! Machines nobody would build, made up from a number: one to four zones of one to six blocks (now
//! and then seventy), holes of one frame and more, edges anywhere, zones without memory, at the
//! bottom of the number space, around 1 GiB, at its top.

use fastrand::Rng;
use freehold::{Config, FrameRange, NodeId, Pfn, Watermarks, ZoneConfig};

/// A zone that owns what its configuration borrows.
struct Zone {
    node: NodeId,
    span: FrameRange,
    memory: Vec<FrameRange>,
    cma: Vec<FrameRange>,
    spare_sections: u32,
    watermarks: Watermarks,
}

/// See the module's documentation.
pub struct MadeUp {
    zones: Vec<Zone>,
    cpu_nodes: Vec<NodeId>,
    cpus: u16,
    online: u16,
    extra_ranges: u16,
}

fn one_in(random: &mut Rng, n: u64) -> bool {
    random.u64(..n) == 0
}

impl MadeUp {
    pub fn new(seed: u64) -> Self {
        let random = &mut Rng::with_seed(seed);
        let nothing_back = random.u64(..2) == 0;
        let zones = random.u64(..4).max(1);
        let mut block = match random.u64(..6) {
            0 => 0,
            1 => 63,
            2 => 511,
            3 => (1 << 21) + 60,
            4 => (1 << 31) - 300,
            _ => 8,
        };
        let mut made = Vec::new();
        for _ in 0..zones {
            let blocks = if one_in(random, 12) { 70 } else { 1 + random.u64(..6) };
            made.push(Self::zone(random, block, blocks, nothing_back));
            // Zones touch, or there are blocks that belong to none.
            block += blocks + if one_in(random, 2) { 0 } else { random.u64(..5) };
        }
        if one_in(random, 2) {
            made.reverse();
        }
        let cpus = if one_in(random, 8) { 40 } else { 1 + random.u64(..5) as u16 };
        Self {
            zones: made,
            cpu_nodes: (0..random.u64(..5)).map(|_| NodeId::new(random.u64(..3) as u8)).collect(),
            cpus,
            online: if one_in(random, 4) { random.u64(..u64::from(cpus) + 1) as u16 } else { cpus },
            extra_ranges: random.u64(..4) as u16,
        }
    }

    fn zone(random: &mut Rng, block: u64, blocks: u64, nothing_back: bool) -> Zone {
        let (start, end) = (block * 512, (block + blocks) * 512);
        let mut memory = Vec::new();
        let mut at = start;
        while at < end && !one_in(random, 8) {
            // A hole before it, of a frame, of some, or none; an edge of a block, or any.
            at += [0, 1, random.u64(..600), 512][random.u64(..4) as usize];
            let frames = [1, random.u64(..64), random.u64(..1500), 512, 1024, end - start]
                [random.u64(..6) as usize];
            let to =
                if one_in(random, 2) { (at + frames).next_multiple_of(512) } else { at + frames };
            if at < to && to <= end {
                memory.push(FrameRange { start: Pfn::new(at), end: Pfn::new(to) });
                at = to;
            }
        }
        if one_in(random, 3) {
            memory.reverse();
        }
        let mut cma = Vec::new();
        if !nothing_back && one_in(random, 2) {
            let first = block + random.u64(..blocks);
            let last = first + 1 + random.u64(..block + blocks - first);
            cma.push(FrameRange {
                start: Pfn::new(first * 512),
                end: Pfn::new(last.min(block + blocks) * 512),
            });
        }
        let marks = |random: &mut Rng| {
            let min = random.u64(..400);
            Watermarks::Frames {
                min,
                low: min + random.u64(..200),
                high: min + 200 + random.u64(..300),
            }
        };
        Zone {
            node: NodeId::new(random.u64(..3) as u8),
            span: FrameRange { start: Pfn::new(start), end: Pfn::new(end) },
            memory,
            cma,
            spare_sections: random.u64(..3) as u32,
            watermarks: match random.u64(..3) {
                _ if nothing_back => Watermarks::None,
                0 => Watermarks::Kernel,
                1 => Watermarks::None,
                _ => marks(random),
            },
        }
    }

    /// Calls `f` with it.
    pub fn with(&self, f: impl FnOnce(Config<'_>)) {
        let zones: Vec<_> = self
            .zones
            .iter()
            .map(|zone| ZoneConfig {
                node: zone.node,
                span: zone.span,
                memory: &zone.memory,
                cma: &zone.cma,
                spare_sections: zone.spare_sections,
                watermarks: zone.watermarks,
            })
            .collect();
        f(Config {
            cpus: self.cpus,
            online: self.online,
            cpu_nodes: &self.cpu_nodes,
            zones: &zones,
            extra_ranges: self.extra_ranges,
        });
    }
}
