//! The machines that the model is run on: plain, and every odd shape that a memory map can have.

use freehold::{FrameRange, PAGEBLOCK_FRAMES as BLOCK, Pfn};
use freehold_classic::{Config, Design, ZoneConfig};

/// CPUs of every machine here.
pub(crate) const CPUS: u16 = 4;

/// How many shapes there are.
pub(crate) const SHAPES: usize = 8;

fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange::new(Pfn::new(start), frames).unwrap()
}

fn zone(name: &str, start: u64, frames: u64) -> ZoneConfig {
    ZoneConfig::new(name, Pfn::new(start), frames)
}

/// Machine number `shape` with `design`.
///
/// ```text
///   0  16 whole blocks                      4  zones of 1, 100 and 700 frames
///   1  starts and ends inside a block       5  CMA, and a gap between two zones
///   2  two zones that meet inside a block   6  large enough for a HIGHATOMIC reserve
///   3  holes: in a block, over two, at      7  from frame 0 on, no huge pages, watermarks of 0
///      the start and at the end
/// ```
pub(crate) fn machine(design: Design, shape: usize) -> Config {
    let base = 0x10_0000;
    let mut huge_pages = true;
    let mut cache_slice = 256;
    let zones = match shape {
        0 => vec![zone("Normal", base, 16 * BLOCK)],
        1 => vec![zone("Normal", base + 0x123, 12 * BLOCK + 77)],
        2 => {
            let mut low = zone("DMA32", 0x1003, 5 * BLOCK + 21);
            low.lowmem_reserve = 100;
            let end = low.range.end.get();
            vec![low, zone("Normal", end, 7 * BLOCK + 13)]
        }
        3 => {
            let mut holey = zone("Normal", base, 14 * BLOCK);
            holey.holes = vec![
                range(base, 3),
                range(base + 2 * BLOCK + 100, 57),
                range(base + 4 * BLOCK + 500, 2 * BLOCK),
                range(base + 14 * BLOCK - 9, 9),
            ];
            vec![holey]
        }
        4 => vec![
            zone("DMA", 0x777, 1),
            zone("DMA32", 0x1000 - 33, 100),
            zone("Normal", base + 5, 700),
        ],
        5 => {
            let mut low = zone("DMA32", 0x8000, 6 * BLOCK);
            low.cma = vec![range(0x8000 + 2 * BLOCK, BLOCK)];
            let mut normal = zone("Normal", base + 17, 10 * BLOCK);
            normal.cma = vec![range(base + 3 * BLOCK, 2 * BLOCK), range(base + 8 * BLOCK, BLOCK)];
            vec![low, normal]
        }
        6 => {
            cache_slice = 8;
            vec![zone("Normal", base, 104 * BLOCK)]
        }
        _ => {
            huge_pages = false;
            let mut first = zone("Normal", 0, 9 * BLOCK + 1);
            first.watermarks = Some(freehold_classic::Watermarks { min: 0, low: 0, high: 0 });
            vec![first]
        }
    };
    Config { design, cpus: CPUS, cpu_nodes: Vec::new(), zones, huge_pages, cache_slice }
}
