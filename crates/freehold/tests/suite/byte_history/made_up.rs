//! Machines nobody would build, made up from a number: one to four zones of one to six blocks (now
//! and then seventy), holes of one frame and more, edges anywhere, zones without memory, at the
//! bottom of the number space, around 1 GiB, at its top.

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

/// Random numbers (Vigna's splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl MadeUp {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let nothing_back = random.below(2) == 0;
        let zones = random.below(4).max(1);
        let mut block = match random.below(6) {
            0 => 0,
            1 => 63,
            2 => 511,
            3 => (1 << 21) + 60,
            4 => (1 << 31) - 300,
            _ => 8,
        };
        let mut made = Vec::new();
        for _ in 0..zones {
            let blocks = if random.one_in(12) { 70 } else { 1 + random.below(6) };
            made.push(Self::zone(&mut random, block, blocks, nothing_back));
            // Zones touch, or there are blocks that belong to none.
            block += blocks + if random.one_in(2) { 0 } else { random.below(5) };
        }
        if random.one_in(2) {
            made.reverse();
        }
        let cpus = if random.one_in(8) { 40 } else { 1 + random.below(5) as u16 };
        Self {
            zones: made,
            cpu_nodes: (0..random.below(5)).map(|_| NodeId::new(random.below(3) as u8)).collect(),
            cpus,
            online: if random.one_in(4) { random.below(u64::from(cpus) + 1) as u16 } else { cpus },
            extra_ranges: random.below(4) as u16,
        }
    }

    fn zone(random: &mut Random, block: u64, blocks: u64, nothing_back: bool) -> Zone {
        let (start, end) = (block * 512, (block + blocks) * 512);
        let mut memory = Vec::new();
        let mut at = start;
        while at < end && !random.one_in(8) {
            // A hole before it, of a frame, of some, or none; an edge of a block, or any.
            at += [0, 1, random.below(600), 512][random.below(4) as usize];
            let frames = [1, random.below(64), random.below(1500), 512, 1024, end - start]
                [random.below(6) as usize];
            let to =
                if random.one_in(2) { (at + frames).next_multiple_of(512) } else { at + frames };
            if at < to && to <= end {
                memory.push(FrameRange { start: Pfn::new(at), end: Pfn::new(to) });
                at = to;
            }
        }
        if random.one_in(3) {
            memory.reverse();
        }
        let mut cma = Vec::new();
        if !nothing_back && random.one_in(2) {
            let first = block + random.below(blocks);
            let last = first + 1 + random.below(block + blocks - first);
            cma.push(FrameRange {
                start: Pfn::new(first * 512),
                end: Pfn::new(last.min(block + blocks) * 512),
            });
        }
        let marks = |random: &mut Random| {
            let min = random.below(400);
            Watermarks::Frames {
                min,
                low: min + random.below(200),
                high: min + 200 + random.below(300),
            }
        };
        Zone {
            node: NodeId::new(random.below(3) as u8),
            span: FrameRange { start: Pfn::new(start), end: Pfn::new(end) },
            memory,
            cma,
            spare_sections: random.below(3) as u32,
            watermarks: match random.below(3) {
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
