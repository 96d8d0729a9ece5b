//! Machines, and both engines on them.

use freehold::{Config, FrameRange, Freehold, Pfn, Watermarks, ZoneConfig};
use freehold_classic::{Classic, Design};
use freehold_lab::trials::threads::InitialThread;

use super::{BASE, CPUS};

/// A machine that both can have: zones start and end at pageblocks, holes are where they are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub name: &'static str,
    /// First frame and frames of each zone, from [`BASE`] on.
    pub zones: &'static [(u64, u64)],
    /// Where there is no memory; the same.
    pub holes: &'static [(u64, u64)],
    /// The min watermark of every zone; low and high are twice and three times that.
    pub min: u64,
}

pub const SHAPES: [Shape; 5] = [
    Shape { name: "CPUs hold blocks", zones: &[(0, 48 * 512)], holes: &[], min: 0 },
    Shape { name: "small, CPUs hold none", zones: &[(0, 6 * 512)], holes: &[], min: 0 },
    Shape { name: "two zones", zones: &[(0, 8 * 512), (16 * 512, 34 * 512)], holes: &[], min: 0 },
    Shape {
        name: "holes",
        zones: &[(0, 40 * 512)],
        holes: &[(0, 100), (1500, 57), (5 * 512 + 500, 1024), (40 * 512 - 9, 9)],
        min: 0,
    },
    Shape { name: "watermarks", zones: &[(0, 40 * 512)], holes: &[], min: 300 },
];

pub fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

impl Shape {
    pub fn spans(&self) -> Vec<FrameRange> {
        self.zones.iter().map(|&(start, frames)| range(BASE + start, frames)).collect()
    }

    /// Pieces of memory of one zone.
    pub fn memory(&self, span: FrameRange) -> Vec<FrameRange> {
        let mut pieces = Vec::new();
        let mut at = span.start.get();
        for &(start, frames) in self.holes {
            let start = BASE + start;
            if start > at {
                pieces.push(range(at, start - at));
            }
            at = start + frames;
        }
        if at < span.end.get() {
            pieces.push(range(at, span.end.get() - at));
        }
        pieces
    }

    pub fn freehold(&self) -> Freehold<'static, InitialThread> {
        let spans = self.spans();
        let memory: Vec<_> = spans.iter().map(|&span| self.memory(span)).collect();
        let watermarks = match self.min {
            0 => Watermarks::None,
            min => Watermarks::Frames { min, low: 2 * min, high: 3 * min },
        };
        let zones: Vec<_> = spans
            .iter()
            .zip(&memory)
            .map(|(&span, memory)| ZoneConfig { span, watermarks, ..ZoneConfig::new(memory) })
            .collect();
        Freehold::leaked(&Config::new(CPUS, &zones), InitialThread).unwrap()
    }

    pub fn classic(&self, design: &str) -> Classic {
        let zones = self.spans().into_iter().map(|span| {
            let mut zone = freehold_classic::ZoneConfig::new("zone", span.start, span.len());
            zone.holes =
                self.holes.iter().map(|&(start, frames)| range(BASE + start, frames)).collect();
            let min = self.min;
            zone.watermarks =
                Some(freehold_classic::Watermarks { min, low: 2 * min, high: 3 * min });
            zone
        });
        let design = Design::parse(design).unwrap();
        let zones = zones.collect();
        Classic::new(freehold_classic::Config {
            design,
            cpus: CPUS,
            cpu_nodes: Vec::new(),
            zones,
            huge_pages: true,
            cache_slice: 256,
        })
        .unwrap()
    }
}
