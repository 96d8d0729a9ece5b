//! Where the memory of a machine is: zones, and the pieces that each is in.

use freehold::{FrameRange, Pfn};

use crate::Map;
use crate::random::Random;

/// The first block of a storm's machine: not 0, whose frames are as good as any but hide mistakes.
const FIRST: u64 = 1 << 9;
/// The second of two zones has one block in so many, but no less than this.
const SECOND: u64 = 8;
const LEAST_SECOND: u64 = 8;
const CMA_BLOCKS: u64 = 4;

/// So many frames from `start` on.
pub(crate) fn range(start: u64, frames: u64) -> FrameRange {
    FrameRange { start: Pfn::new(start), end: Pfn::new(start + frames) }
}

/// The memory of one zone.
pub(crate) struct Zone {
    /// From its first block to its last.
    pub(crate) span: FrameRange,
    pub(crate) pieces: Vec<FrameRange>,
    pub(crate) cma: Vec<FrameRange>,
}

impl Zone {
    /// Frames there are.
    pub(crate) fn frames(&self) -> u64 {
        self.pieces.iter().map(FrameRange::len).sum()
    }
}

/// A zone of so many blocks from block `at` on: in pieces, with holes within blocks and between
/// them, and now and then with CMA.
pub(crate) fn zone(at: u64, blocks: u64, random: &mut Random) -> Zone {
    let span = range(at * 512, blocks * 512);
    let ragged = |random: &mut Random| if random.percent(40) { random.below(500) } else { 0 };
    let (mut start, end) = (span.start.get() + ragged(random), span.end.get() - ragged(random));
    let mut pieces = Vec::new();
    while start < end {
        let most = end - start;
        let len = if random.percent(50) {
            most
        } else {
            (1 + random.below(blocks * 200 + 600)).min(most)
        };
        pieces.push(range(start, len));
        start += len;
        if random.percent(70) {
            start += 1 + random.below(1500);
        }
    }
    if pieces.is_empty() {
        pieces.push(range(at * 512, 512));
    }
    let cma = if random.percent(30) && blocks > 3 {
        let first = 1 + random.below(blocks - 2);
        vec![range((at + first) * 512, (1 + random.below(blocks - first)) * 512)]
    } else {
        Vec::new()
    };
    Zone { span, pieces, cma }
}

/// The zones of a storm's machine of about so many frames; of a random one the seed says how many.
///
/// The first is large, since a zone keeps a HIGHATOMIC block only where that is no more than 1 % of
/// it. Of the plain ones the last has CMA blocks, at its end.
pub(crate) fn zones(map: Map, frames: u64, seed: u64) -> Vec<Zone> {
    let mut at = FIRST;
    let mut next = |blocks| {
        let first = at;
        at += blocks;
        first
    };
    if map == Map::Plain {
        let blocks = frames.div_ceil(512);
        let second = (blocks / SECOND).max(LEAST_SECOND);
        let mut all = [blocks - second, second].map(|blocks| {
            let span = range(next(blocks) * 512, blocks * 512);
            Zone { span, pieces: vec![span], cma: Vec::new() }
        });
        let end = all[1].span.end;
        all[1].cma = vec![FrameRange { start: Pfn::new(end.get() - CMA_BLOCKS * 512), end }];
        return all.into();
    }
    let mut random = Random::new(seed);
    let zones = 2 + random.below(3);
    // Neighbours share a section of 64 blocks as often as not.
    (0..zones)
        .map(|_| {
            let blocks = random.pick(&[6, 12, 30, 64, 90]);
            let gap = random.pick(&[0, 0, 5, 100]);
            zone(next(blocks + gap), blocks, &mut random)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_zones_have_holes_in_blocks_and_share_sections() {
        let (mut torn, mut shared, mut cma) = (false, false, false);
        for seed in 0..50 {
            let zones = zones(Map::Random, 0, seed);
            for zone in &zones {
                let within = |piece: &FrameRange| {
                    zone.span.start <= piece.start && piece.end <= zone.span.end
                };
                assert!(zone.frames() > 0 && zone.pieces.iter().all(within), "seed {seed}");
                torn |= zone.pieces.iter().any(|piece| piece.end.get() % 512 != 0);
                cma |= !zone.cma.is_empty();
            }
            for two in zones.windows(2) {
                let (end, start) = (two[0].span.end.get(), two[1].span.start.get());
                assert!(end <= start, "seed {seed}");
                shared |= (end - 1) >> 15 == start >> 15;
            }
        }
        assert!(torn && shared && cma);
    }
}
