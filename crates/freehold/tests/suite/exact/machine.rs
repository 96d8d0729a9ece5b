//! Machines by seed: zones, the pieces that each is in, CPUs, nodes.

use freehold::{Config, FrameRange, NodeId, Pfn, Watermarks, ZoneConfig};

use crate::exact::platform::{self, Core, Leaked};
use crate::exact::random::Random;

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

/// A machine, and where its memory is.
pub(crate) struct Machine {
    pub(crate) fh: &'static Core,
    pub(crate) zones: Vec<Zone>,
}

/// One to three zones of so many blocks each, some in one section of 64 blocks, some far apart.
fn zones(random: &mut Random, blocks: &[u64]) -> Vec<Zone> {
    let mut at = random.pick(&[0, 1, 7, 63, 64 * 5, (1 << 22) - 200]);
    (0..1 + random.below(3))
        .map(|_| {
            let zone = zone(at, random.pick(blocks), random);
            at = zone.span.end.get() / 512;
            at += if random.percent(60) { 0 } else { random.below(100) };
            zone
        })
        .collect()
}

impl Machine {
    /// A machine of so many CPUs, whose zones have so many blocks, without watermarks. It lives as
    /// long as the program.
    ///
    /// # Errors
    ///
    /// There is no such machine.
    pub(crate) fn new(random: &mut Random, cpus: u16, blocks: &[u64]) -> Result<Self, String> {
        Ok(Self::leaked(random, cpus, blocks)?.0)
    }

    /// As [`new`](Self::new), for a machine that ends before the program does.
    pub(crate) fn leaked(
        random: &mut Random,
        cpus: u16,
        blocks: &[u64],
    ) -> Result<(Self, Leaked), String> {
        let zones = zones(random, blocks);
        let node = |random: &mut Random| NodeId::new(random.below(2) as u8);
        let nodes: Vec<NodeId> = (0..cpus).map(|_| node(random)).collect();
        let configs: Vec<ZoneConfig<'_>> = zones
            .iter()
            .map(|zone| ZoneConfig {
                node: node(random),
                span: zone.span,
                cma: &zone.cma,
                watermarks: Watermarks::None,
                spare_sections: 3,
                ..ZoneConfig::new(&zone.pieces)
            })
            .collect();
        let config = Config { cpu_nodes: &nodes, extra_ranges: 20, ..Config::new(cpus, &configs) };
        let (fh, leaked) =
            platform::leaked(&config, random.percent(50)).map_err(|error| error.to_string())?;
        Ok((Self { fh, zones }, leaked))
    }

    /// From its first frame to its last, holes included.
    pub(crate) fn span(&self) -> FrameRange {
        let last = self.zones.last().map_or(Pfn::new(0), |zone| zone.span.end);
        FrameRange { start: self.zones[0].span.start, end: last }
    }
}
