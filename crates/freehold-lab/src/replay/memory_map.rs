//! Every pageblock of an engine at several moments of a trace: what a picture of memory with a
//! slider is drawn from.
//!
//! A moment is three planes (holder, migratetype, free frames) of one number a cell. Between two
//! moments most cells stay as they are, so each plane is written as the cells that changed:
//!
//! ```text
//!   "skip run value skip run value ..."      all decimal, one string a plane and moment
//!
//!   cells before  1 1 1 1 1 1 1 1            pass over `skip` cells, give the next `run` cells `value`;
//!   "2 3 7"       1 1 7 7 7 1 1 1            what comes after the last run stays
//! ```
//!
//! Before the first moment every cell is 0. Any language reads that in five lines, it stays
//! readable in the JSON, and it is small without a packer.
//!
//! A cell is one pageblock up to [`CELLS_MAX`] of them (8 GiB). On a larger machine it stands for
//! as many neighbouring blocks as are needed, a power of two: free frames are their sum, holder and
//! migratetype those that most of them have.

use freehold::Migratetype;
use serde::Serialize;

use super::op::SamplePoint;
use crate::engine::Block;

/// Cells of one moment at most.
pub const CELLS_MAX: usize = 4096;

/// The pageblocks of one engine over time. The names of the fields are those of `--json` and stay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MemoryMap {
    /// Pageblocks of the machine.
    pub blocks: u64,
    /// Pageblocks that one cell stands for.
    pub blocks_per_cell: u64,
    /// Cells of a moment.
    pub cells: u64,
    /// The first frame of the first cell. Cells follow each other without gaps.
    pub start_pfn: u64,
    /// Frames of each cell that exist; a plane as described above, over cells that are all 0.
    pub frames: String,
    /// The moments, on the trace's clock.
    #[serde(serialize_with = "crate::one_line::one_line")]
    pub ts_ns: Vec<u64>,
    /// Who has each cell: 0 the zone, otherwise CPU + 1. A plane a moment.
    pub holder: Vec<String>,
    /// What each cell is meant for, as the kernel numbers them: 0 unmovable, 1 movable, 2
    /// reclaimable, 3 HIGHATOMIC, 4 CMA, 5 isolated.
    pub migratetype: Vec<String>,
    /// Free frames of each cell.
    pub free: Vec<String>,
}

/// Makes a [`MemoryMap`], a moment at a time.
#[derive(Debug)]
pub struct MapRecorder {
    /// Moments wanted, and samples they are chosen from.
    moments: u32,
    samples: u32,
    seen: u32,
    map: MemoryMap,
    last: [Vec<u64>; 3],
}

impl MapRecorder {
    /// A recorder of `moments` moments, spread over `samples` samples. All of them, if there are
    /// fewer.
    pub fn new(moments: u32, samples: u32) -> Self {
        Self {
            moments,
            samples: samples.max(1),
            seen: 0,
            map: MemoryMap::default(),
            last: Default::default(),
        }
    }

    /// Another sample is due: whether this is one of the moments wanted.
    pub fn is_wanted(&mut self) -> bool {
        let share = |n: u32| u64::from(n) * u64::from(self.moments) / u64::from(self.samples);
        let before = share(self.seen);
        self.seen += 1;
        share(self.seen) > before
    }

    /// Notes a moment. The same blocks each time.
    pub fn record(&mut self, point: SamplePoint, blocks: &[Block]) {
        let map = &mut self.map;
        let Some(first) = blocks.first() else { return };
        if map.ts_ns.is_empty() {
            map.blocks = blocks.len() as u64;
            map.blocks_per_cell = blocks.len().div_ceil(CELLS_MAX).next_power_of_two() as u64;
            map.start_pfn = first.start.get();
        }
        let cells: Vec<&[Block]> = blocks.chunks(map.blocks_per_cell as usize).collect();
        if map.ts_ns.is_empty() {
            map.cells = cells.len() as u64;
            let frames: Vec<u64> =
                cells.iter().map(|cell| sum(cell, |block| block.frames)).collect();
            map.frames = encode(&vec![0; frames.len()], &frames);
            self.last = std::array::from_fn(|_| vec![0; frames.len()]);
        }
        let planes: [Vec<u64>; 3] = [
            cells.iter().map(|cell| most(cell, holder_number)).collect(),
            cells
                .iter()
                .map(|cell| most(cell, |block| migratetype_number(block.migratetype)))
                .collect(),
            cells.iter().map(|cell| sum(cell, |block| block.free)).collect(),
        ];
        map.ts_ns.push(point.ts_ns);
        let into = [&mut map.holder, &mut map.migratetype, &mut map.free];
        for ((into, last), plane) in into.into_iter().zip(&self.last).zip(&planes) {
            into.push(encode(last, plane));
        }
        self.last = planes;
    }

    /// What was recorded; nothing, if no moment was or the engine does not tell of its blocks.
    pub fn finish(self) -> Option<MemoryMap> {
        Some(self.map).filter(|map| !map.ts_ns.is_empty())
    }
}

fn holder_number(block: &Block) -> u64 {
    block.holder.map_or(0, |cpu| u64::from(cpu.get()) + 1)
}

fn migratetype_number(migratetype: Migratetype) -> u64 {
    migratetype.index() as u64
}

fn sum(cell: &[Block], of: fn(&Block) -> u16) -> u64 {
    cell.iter().map(|block| u64::from(of(block))).sum()
}

/// The number that most blocks of a cell have; of equally many the least.
fn most(cell: &[Block], of: impl Fn(&Block) -> u64) -> u64 {
    if let [block] = cell {
        return of(block);
    }
    let mut numbers: Vec<u64> = cell.iter().map(of).collect();
    numbers.sort_unstable();
    let runs = numbers.chunk_by(|a, b| a == b);
    // The first of the longest: `max_by_key` would take the last.
    runs.reduce(|best, run| if run.len() > best.len() { run } else { best }).map_or(0, |run| run[0])
}

/// What turns `before` into `now`, as the module's documentation says.
pub fn encode(before: &[u64], now: &[u64]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let (mut at, mut end) = (0, 0);
    while at < now.len() {
        if before[at] == now[at] {
            at += 1;
            continue;
        }
        let value = now[at];
        // Cells that have the value already may as well be given it.
        let run = now[at..].iter().take_while(|other| **other == value).count();
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{} {run} {value}", at - end);
        at += run;
        end = at;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::{CpuId, Pfn};

    fn block(number: u64, holder: Option<u16>, free: u16) -> Block {
        let holder = holder.map(CpuId::new);
        Block {
            start: Pfn::new(number * 512),
            holder,
            migratetype: Migratetype::Movable,
            frames: 512,
            free,
        }
    }

    fn point(ts_ns: u64) -> SamplePoint {
        SamplePoint { ts_ns, live_frames: 0 }
    }

    #[test]
    fn a_plane_is_what_changed() {
        assert_eq!(encode(&[1; 8], &[1, 1, 7, 7, 7, 1, 1, 1]), "2 3 7");
        assert_eq!(encode(&[1, 1, 1, 1], &[1, 1, 1, 1]), "");
        assert_eq!(
            encode(&[0, 5, 0, 0], &[5, 5, 0, 6]),
            "0 2 5 1 1 6",
            "a cell that has the value joins the run"
        );
    }

    #[test]
    fn moments_are_spread_over_the_samples() {
        for (moments, samples, taken) in
            [(1, 200, 1), (7, 200, 7), (200, 200, 200), (300, 200, 200)]
        {
            let mut recorder = MapRecorder::new(moments, samples);
            let wanted: Vec<bool> = (0..samples).map(|_| recorder.is_wanted()).collect();
            assert_eq!(wanted.iter().filter(|wanted| **wanted).count(), taken);
            assert!(wanted[samples as usize - 1], "the last sample is one of them");
        }
    }

    #[test]
    fn a_large_machine_has_cells_of_several_blocks() {
        let mut recorder = MapRecorder::new(1, 1);
        let blocks: Vec<Block> = (0..CELLS_MAX as u64 * 2 + 2)
            .map(|n| block(n, (n % 4 > 0).then_some(1), 100))
            .collect();
        recorder.record(point(5), &blocks);
        let map = recorder.finish().unwrap();
        assert_eq!((map.blocks_per_cell, map.cells), (4, 2049));
        assert_eq!(map.holder[0], "0 2048 2", "three of four are CPU 1's");
        assert_eq!(map.frames, "0 2048 2048 0 1 1024", "the last cell has two blocks");
        assert_eq!(map.free[0], "0 2048 400 0 1 200");
    }

    #[test]
    fn an_engine_that_does_not_tell_has_no_map() {
        let mut recorder = MapRecorder::new(4, 4);
        recorder.record(point(1), &[]);
        assert_eq!(recorder.finish(), None);
    }
}
