//! From the firmware's map of memory to what the page allocator gets.
//!
//! The firmware lists pieces that overlap, are out of order and start anywhere; what is RAM is only
//! worth having in whole frames, and some of it is taken already. So, with room for a few dozen
//! pieces and no heap:
//!
//! ```text
//!   firmware   |RAM .......|reserved|RAM .................................|ACPI| hole | RAM
//!   whole frames of RAM, minus everything that is not RAM
//!   minus what is taken: frame 0, the trampoline, the kernel's image
//!   minus what is reserved: tables for the direct map, the allocator's own metadata
//!   = zones    DMA below 16 MiB | DMA32 below 4 GiB | Normal
//! ```
//!
//! Rounding always goes against RAM: a frame of which one byte is not RAM is not handed out.

use freehold::{FRAME_SIZE, FrameRange, PAGEBLOCK_FRAMES, Pfn};

/// What the firmware says about a piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first byte.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
    /// Whether it is RAM that nobody else uses (type 1).
    pub ram: bool,
}

/// Pieces of RAM that the map can hold. QEMU's maps leave two or three, real machines a dozen or
/// two.
pub const MAX_RANGES: usize = 64;

/// The map has more pieces than [`MAX_RANGES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyRanges;

impl core::fmt::Display for TooManyRanges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "the memory map falls into more than {MAX_RANGES} pieces; raise memory_map::MAX_RANGES"
        )
    }
}

impl core::error::Error for TooManyRanges {}

/// RAM that nobody has yet: whole frames, in rising order, with gaps between them.
#[derive(Clone, Debug)]
pub struct MemoryMap {
    ranges: [FrameRange; MAX_RANGES],
    len: usize,
}

impl Default for MemoryMap {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMap {
    /// No RAM at all.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: [FrameRange { start: Pfn::new(0), end: Pfn::new(0) }; MAX_RANGES], len: 0 }
    }

    /// All RAM of a firmware map: every frame that lies in a RAM piece as a whole and touches no
    /// other kind of piece.
    ///
    /// # Errors
    ///
    /// [`TooManyRanges`].
    pub fn from_firmware(
        pieces: impl Iterator<Item = Piece> + Clone,
    ) -> Result<Self, TooManyRanges> {
        let mut map = Self::new();
        for piece in pieces.clone().filter(|piece| piece.ram) {
            let end = piece.start.saturating_add(piece.len) / FRAME_SIZE;
            map.insert(FrameRange {
                start: Pfn::new(piece.start.div_ceil(FRAME_SIZE)),
                end: Pfn::new(end),
            })?;
        }
        for piece in pieces.filter(|piece| !piece.ram && piece.len > 0) {
            map.take_bytes(piece.start, piece.start.saturating_add(piece.len))?;
        }
        Ok(map)
    }

    /// The pieces, in rising order.
    #[must_use]
    pub fn ranges(&self) -> &[FrameRange] {
        &self.ranges[..self.len]
    }

    /// Frames in all pieces.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.ranges().iter().map(FrameRange::len).sum()
    }

    /// The frame behind the last one.
    #[must_use]
    pub fn end(&self) -> Pfn {
        self.ranges().last().map_or(Pfn::new(0), |range| range.end)
    }

    /// Adds frames; those that are there already stay once.
    fn insert(&mut self, range: FrameRange) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut start, mut end) = (range.start, range.end);
        let mut kept = 0;
        let mut at = 0;
        // Pieces that touch the new one become part of it; the others close up.
        for i in 0..self.len {
            let old = self.ranges[i];
            if old.start <= end && start <= old.end {
                (start, end) = (start.min(old.start), end.max(old.end));
            } else {
                self.ranges[kept] = old;
                kept += 1;
                at = if old.end < start { kept } else { at };
            }
        }
        if kept == MAX_RANGES {
            return Err(TooManyRanges);
        }
        self.ranges.copy_within(at..kept, at + 1);
        self.ranges[at] = FrameRange { start, end };
        self.len = kept + 1;
        Ok(())
    }

    /// Takes frames out, those of them that are there.
    ///
    /// # Errors
    ///
    /// [`TooManyRanges`], where a piece would become two.
    pub fn take(&mut self, range: FrameRange) -> Result<(), TooManyRanges> {
        if range.is_empty() {
            return Ok(());
        }
        let mut i = 0;
        while i < self.len {
            let old = self.ranges[i];
            let below = FrameRange { start: old.start, end: old.end.min(range.start) };
            let above = FrameRange { start: old.start.max(range.end), end: old.end };
            match (below.is_empty(), above.is_empty()) {
                (true, true) => {
                    self.ranges.copy_within(i + 1..self.len, i);
                    self.len -= 1;
                    continue;
                }
                (false, false) => {
                    if self.len == MAX_RANGES {
                        return Err(TooManyRanges);
                    }
                    self.ranges.copy_within(i + 1..self.len, i + 2);
                    self.ranges[i + 1] = above;
                    self.ranges[i] = below;
                    self.len += 1;
                    i += 1;
                }
                (false, true) => self.ranges[i] = below,
                (true, false) => self.ranges[i] = above,
            }
            i += 1;
        }
        Ok(())
    }

    /// Takes out every frame that has one of these bytes.
    ///
    /// # Errors
    ///
    /// As [`MemoryMap::take`].
    pub fn take_bytes(&mut self, start: u64, end: u64) -> Result<(), TooManyRanges> {
        self.take(FrameRange {
            start: Pfn::new(start / FRAME_SIZE),
            end: Pfn::new(end.div_ceil(FRAME_SIZE)),
        })
    }

    /// Reserves `frames` neighbouring frames, below `limit`, from the end of the highest piece that
    /// has them: low memory is the scarcer. The caller has them for good. `None` where no piece has
    /// as many.
    pub fn reserve(&mut self, frames: u64, limit: Pfn) -> Option<FrameRange> {
        let found = self.ranges().iter().rev().find_map(|range| {
            let end = range.end.min(limit);
            let start = end.get().checked_sub(frames)?;
            (start >= range.start.get()).then(|| FrameRange { start: Pfn::new(start), end })
        })?;
        // The end of a piece, or of what of it lies below the limit: where that makes two of one
        // and there is no room for it, nothing has been reserved.
        self.take(found).ok()?;
        Some(found)
    }

    /// The pieces of one zone.
    #[must_use]
    pub fn zone(&self, zone: ZoneSpan) -> Self {
        let mut part = Self::new();
        for range in self.ranges() {
            let cut =
                FrameRange { start: range.start.max(zone.start), end: range.end.min(zone.end) };
            if !cut.is_empty() {
                // Not more pieces than there are in `self`.
                part.ranges[part.len] = cut;
                part.len += 1;
            }
        }
        part
    }
}

/// A zone's name and where it may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneSpan {
    /// As Linux calls it.
    pub name: &'static str,
    /// The first frame.
    pub start: Pfn,
    /// The frame after the last.
    pub end: Pfn,
}

/// x86-64's zones: what old devices reach (24 address bits), what 32-bit devices reach, the rest.
pub const ZONES: [ZoneSpan; 3] = [
    ZoneSpan { name: "DMA", start: Pfn::new(0), end: Pfn::new((16 << 20) / FRAME_SIZE) },
    ZoneSpan {
        name: "DMA32",
        start: Pfn::new((16 << 20) / FRAME_SIZE),
        end: Pfn::new((4 << 30) / FRAME_SIZE),
    },
    ZoneSpan { name: "Normal", start: Pfn::new((4 << 30) / FRAME_SIZE), end: Pfn::new(1 << 40) },
];

const _: () = assert!(
    ZONES[0].end.get() % PAGEBLOCK_FRAMES == 0 && ZONES[1].end.get() % PAGEBLOCK_FRAMES == 0
);

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn ram(start: u64, len: u64) -> Piece {
        Piece { start, len, ram: true }
    }

    fn reserved(start: u64, len: u64) -> Piece {
        Piece { start, len, ram: false }
    }

    fn frames(map: &MemoryMap) -> Vec<(u64, u64)> {
        map.ranges().iter().map(|range| (range.start.get(), range.end.get())).collect()
    }

    fn range(start: u64, end: u64) -> FrameRange {
        FrameRange { start: Pfn::new(start), end: Pfn::new(end) }
    }

    #[test]
    fn qemus_map_of_256_mib() {
        let pieces = [
            ram(0, 0x9fc00),
            reserved(0x9fc00, 0x400),
            reserved(0xf0000, 0x10000),
            ram(0x10_0000, 0xfee_0000),
            reserved(0xffe_0000, 0x2_0000),
            reserved(0xfffc_0000, 0x4_0000),
        ];
        let mut map = MemoryMap::from_firmware(pieces.into_iter()).unwrap();
        assert_eq!(frames(&map), [(0, 0x9f), (0x100, 0xffe0)]);
        map.take_bytes(0x20_0000, 0x24_5001).unwrap();
        assert_eq!(frames(&map), [(0, 0x9f), (0x100, 0x200), (0x246, 0xffe0)]);
        assert_eq!(map.reserve(16, Pfn::new(1 << 20)), Some(range(0xffd0, 0xffe0)));
        assert_eq!(map.reserve(0x80, Pfn::new(0x100)), Some(range(0x1f, 0x9f)));
        assert_eq!(map.reserve(1 << 20, Pfn::new(1 << 20)), None);
        let dma = map.zone(ZONES[0]);
        assert_eq!(frames(&dma), [(0, 0x1f), (0x100, 0x200), (0x246, 0x1000)]);
        assert_eq!(frames(&map.zone(ZONES[1])), [(0x1000, 0xffd0)]);
        assert_eq!(map.zone(ZONES[2]).ranges(), []);
        assert_eq!(map.end(), Pfn::new(0xffd0));
    }

    #[test]
    fn a_frame_that_is_not_ram_throughout_is_not_handed_out() {
        // The RAM ends within frame 3, and a reserved byte sits in frame 1.
        let map =
            MemoryMap::from_firmware([ram(1, 0x3800), reserved(0x1fff, 1)].into_iter()).unwrap();
        assert_eq!(frames(&map), [(2, 3)]);
    }

    #[test]
    fn a_map_in_too_many_pieces_is_refused_not_cut_short() {
        let pieces = (0..=MAX_RANGES as u64).map(|i| ram(i * 0x2000, 0x1000));
        assert_eq!(MemoryMap::from_firmware(pieces).map(|_| ()), Err(TooManyRanges));
        let mut map =
            MemoryMap::from_firmware((0..MAX_RANGES as u64).map(|i| ram(i * 0x4000, 0x3000)))
                .unwrap();
        assert_eq!(map.take(range(1, 2)), Err(TooManyRanges));
    }

    proptest! {
        /// Against a set of frames: whatever the firmware says, in whatever order, and whatever is
        /// taken.
        #[test]
        fn a_map_is_the_set_of_its_frames(
            pieces in prop::collection::vec((0u64..0x40_000, 0u64..0x10_000, any::<bool>()), 0..12),
            takes in prop::collection::vec((0u64..70, 0u64..10), 0..6),
            reserves in prop::collection::vec((1u64..8, 0u64..80), 0..4),
        ) {
            let pieces: Vec<Piece> = pieces.into_iter().map(|(start, len, ram)| Piece { start, len, ram }).collect();
            let mut map = MemoryMap::from_firmware(pieces.iter().copied()).unwrap();
            let is = |kind: bool, byte: u64| {
                pieces.iter().any(|p| p.ram == kind && p.start <= byte && byte < p.start + p.len)
            };
            // Bytes stand for all of their frame at the pieces' edges.
            let edges = |frame: u64| {
                let mut bytes = std::vec![frame * FRAME_SIZE, frame * FRAME_SIZE + FRAME_SIZE - 1];
                for p in &pieces {
                    bytes.extend([p.start, p.start + p.len, (p.start + p.len).saturating_sub(1), p.start.saturating_sub(1)]);
                }
                bytes.retain(|byte| byte / FRAME_SIZE == frame);
                bytes
            };
            let mut model: BTreeSet<u64> = (0..80u64)
                .filter(|frame| {
                    // Only a frame within one piece, or pieces that meet on a frame boundary:
                    // rounding is per piece.
                    pieces.iter().any(|p| {
                        p.ram && p.start.div_ceil(FRAME_SIZE) <= *frame && *frame < (p.start + p.len) / FRAME_SIZE
                    }) && edges(*frame).iter().all(|byte| !is(false, *byte))
                })
                .collect();
            prop_assert_eq!(all(&map), model.clone());
            for (start, len) in takes {
                map.take(range(start, start + len)).unwrap();
                (start..start + len).for_each(|frame| { model.remove(&frame); });
                prop_assert_eq!(all(&map), model.clone());
            }
            for (len, limit) in reserves {
                match map.reserve(len, Pfn::new(limit)) {
                    Some(got) => {
                        prop_assert!(got.len() == len && got.end.get() <= limit);
                        for frame in got.start.get()..got.end.get() {
                            prop_assert!(model.remove(&frame));
                        }
                    }
                    None => {
                        let fits = (0..limit.saturating_sub(len - 1)).any(|s| (s..s + len).all(|f| model.contains(&f)));
                        prop_assert!(!fits);
                    }
                }
                prop_assert_eq!(all(&map), model.clone());
            }
            let zones = [ZoneSpan { name: "", start: Pfn::new(0), end: Pfn::new(33) },
                ZoneSpan { name: "", start: Pfn::new(33), end: Pfn::new(100) }];
            prop_assert_eq!(zones.iter().map(|zone| map.zone(*zone).frames()).sum::<u64>(), model.len() as u64);
        }
    }

    fn all(map: &MemoryMap) -> BTreeSet<u64> {
        let mut last = None;
        for range in map.ranges() {
            assert!(!range.is_empty() && last.is_none_or(|end| end < range.start), "{map:?}");
            last = Some(range.end);
        }
        map.ranges().iter().flat_map(|range| range.start.get()..range.end.get()).collect()
    }
}
