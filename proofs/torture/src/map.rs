//! Where the machine's memory is: zones and the pieces that each is in.
//!
//! ```text
//! plain     | zone 0                                        | zone 1    |
//! sparse    | 0: ====== =====. .====  | 1: ===== ... |  2: ... |  3: ... |      = memory; blanks are whole sections, dots are within blocks
//! ```

use freehold::{FrameRange, Pfn};

use super::Map;

/// The first frame: not 0, which is a frame as good as any but hides mistakes.
const FIRST: u64 = 1 << 18;
/// The second zone has one frame in so many, but no less than this.
const SECOND: u64 = 8;
const LEAST_SECOND: u64 = 16 << 8;
/// A hole of whole sections, and some blocks beside, so that zones share sections.
const HOLE: u64 = (3 << 15) + 5 * 512;
/// In the block that two pieces share the first one has so many frames, and so many are missing then.
const FIRST_HAS: u64 = 150;
const MISSING: u64 = 200;
/// The least memory of a sparse machine: its last zone has room for CMA in one piece.
const LEAST_SPARSE: u64 = 192 << 8;

/// The memory of one zone.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    /// From its first block to its last.
    pub(super) span: FrameRange,
    pub(super) pieces: Vec<FrameRange>,
}

impl Zone {
    fn new(pieces: Vec<FrameRange>) -> Self {
        let all = |f: fn(&FrameRange) -> u64| pieces.iter().map(f);
        let start = all(|piece| piece.start.get()).min().unwrap_or(0) / 512 * 512;
        let end = all(|piece| piece.end.get()).max().unwrap_or(0).next_multiple_of(512);
        Self { span: FrameRange { start: Pfn::new(start), end: Pfn::new(end) }, pieces }
    }

    /// Frames there are.
    pub(super) fn frames(&self) -> u64 {
        self.pieces.iter().map(FrameRange::len).sum()
    }

    /// Of a piece what is whole blocks.
    pub(super) fn whole(piece: &FrameRange) -> FrameRange {
        let start = piece.start.get().next_multiple_of(512);
        let end = (piece.end.get() / 512 * 512).max(start);
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    }

    /// Blocks all of whose frames exist.
    pub(super) fn blocks(&self) -> u64 {
        self.pieces.iter().map(|piece| Self::whole(piece).len() / 512).sum()
    }
}

/// The zones of a machine of about so many frames.
pub(super) fn zones(map: Map, frames: u64) -> Vec<Zone> {
    let frames = frames.next_multiple_of(512);
    match map {
        Map::Plain => {
            let second = (frames / SECOND).next_multiple_of(512).max(LEAST_SECOND);
            let [start, edge, end] = [0, frames - second, frames].map(|n| Pfn::new(FIRST + n));
            let one = |start, end| Zone::new(vec![FrameRange { start, end }]);
            vec![one(start, edge), one(edge, end)]
        }
        Map::Sparse => {
            let mut at = FIRST;
            let frames = frames.max(LEAST_SPARSE);
            // The first one has half of it: a zone of which a block is more than 1 % keeps no reserve.
            [2, 6, 6, 6].map(|part| sparse(&mut at, frames / part)).into()
        }
    }
}

/// A zone in pieces: behind each second one there is a hole of whole sections, the others share a block
/// with the next.
fn sparse(at: &mut u64, frames: u64) -> Zone {
    const PIECES: u64 = 4;
    let len = (frames / PIECES).next_multiple_of(512);
    let pieces = (0..PIECES).map(|n| {
        let (mut start, mut end) = (*at, *at + len);
        *at = if n % 2 == 0 { end + HOLE } else { end };
        if n == 1 {
            end -= 512 - FIRST_HAS;
        }
        if n == 2 {
            start -= 512 - FIRST_HAS - MISSING;
        }
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    });
    Zone::new(pieces.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_a_sparse_map_have_holes_in_blocks_and_share_sections() {
        let zones = zones(Map::Sparse, 1 << 16);
        assert_eq!(zones.len(), 4);
        let torn = |zone: &Zone| {
            let whole = zone.pieces.iter().map(Zone::whole).map(|range| range.len()).sum::<u64>();
            whole < zone.frames()
        };
        assert!(zones.iter().all(torn));
        let section = |pfn: Pfn| pfn.get() >> 15;
        let shared = |two: &[Zone]| {
            two[0].span.end <= two[1].span.start
                && section(Pfn::new(two[0].span.end.get() - 1)) == section(two[1].span.start)
        };
        assert!(zones.windows(2).all(shared), "{zones:?}");
    }
}
