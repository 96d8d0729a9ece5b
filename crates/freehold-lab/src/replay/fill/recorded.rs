//! Regions as they were when a recording began, page by page, where `NAME.pages.before.txt` or a
//! kpageflags says it.
//!
//! Which type a block has these do not say; pagetypeinfo counts the blocks of each. So those types
//! are given to the regions that hold most of what such blocks are for.

use std::cmp::Reverse;

use freehold::Migratetype;
use freehold_trace::machine::{PageKind, Pages};
use freehold_trace::zoneinfo::Zone;

use super::REGION;

/// Words of a mask of a region's frames.
const WORDS: usize = REGION as usize / 64;

/// What a region held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordedRegion {
    /// Which of its frames were free, the first in the lowest bit of the first word.
    free: [u64; WORDS],
    /// Frames that existed.
    frames: u64,
    /// In use by the slab allocator, and by the kernel otherwise.
    slab: u64,
    unmovable: u64,
}

impl RecordedRegion {
    /// Its free frames.
    pub fn free_frames(&self) -> u64 {
        self.free.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Of the frames from `start` on, as many as `order` says, those that were free.
    pub(super) fn free_of(&self, start: u16, order: u8) -> u64 {
        let (start, frames) = (usize::from(start), 1usize << order);
        if frames >= 64 {
            let words = &self.free[start / 64..(start + frames) / 64];
            return words.iter().map(|word| u64::from(word.count_ones())).sum();
        }
        let bits = self.free[start / 64] >> (start % 64) & ((1 << frames) - 1);
        u64::from(bits.count_ones())
    }
}

/// The regions of a zone that have memory, by rising frame.
pub fn regions(pages: &Pages, zone: &Zone) -> Vec<RecordedRegion> {
    let mut found: Vec<(u64, RecordedRegion)> = Vec::new();
    for (start, block) in pages.of_zone(zone) {
        let number = start / REGION;
        if found.last().is_none_or(|(last, _)| *last != number) {
            found.push((number, RecordedRegion::default()));
        }
        let Some((_, region)) = found.last_mut() else { continue };
        let at = (start % REGION) as usize / 64;
        region.free[at..at + block.free.len()].copy_from_slice(&block.free);
        region.frames += block.pages();
        region.slab += u64::from(block.used[PageKind::Slab as usize]);
        region.unmovable += u64::from(block.used[PageKind::Unmovable as usize]);
    }
    found.into_iter().map(|(_, region)| region).collect()
}

/// Makes as many frames free as were counted, for the pages were read a moment earlier: in turn one
/// frame more, or less, of each word of frames that is partly in use. Where these do not suffice,
/// one word of the others after the other, so that few large chunks are broken.
pub fn settle(regions: &mut [RecordedRegion], counted: u64) {
    let free: u64 = regions.iter().map(RecordedRegion::free_frames).sum();
    let (mut left, is_more) = (free.abs_diff(counted), free < counted);
    let mut flip = |word: &mut u64| {
        let at = if is_more { word.trailing_ones() } else { word.trailing_zeros() };
        let flips = left > 0 && at < 64;
        if flips {
            (*word, left) = (*word ^ (1 << at), left - 1);
        }
        flips
    };
    let mut words: Vec<&mut u64> = regions
        .iter_mut()
        .filter(|region| region.frames == REGION)
        .flat_map(|region| &mut region.free)
        .collect();
    let mut any = true;
    while any {
        any = false;
        for word in words.iter_mut().filter(|word| !matches!(***word, 0 | u64::MAX)) {
            any |= flip(word);
        }
    }
    for word in words {
        while flip(word) {}
    }
}

/// The regions of each type: so many of each as `shares` has.
///
/// A zone with holes has more regions than the frames that it manages fill: those go that have the
/// least, and of them first those of which nothing is free. What lacks is in use.
pub(super) fn by_type(
    regions: &[RecordedRegion],
    shares: &[(Migratetype, u64); 4],
) -> [Vec<RecordedRegion>; 4] {
    let wanted: u64 = shares.iter().map(|(_, count)| count).sum();
    let mut kept: Vec<usize> = (0..regions.len()).collect();
    kept.sort_by_key(|&at| Reverse((regions[at].free_frames() > 0, regions[at].frames)));
    kept.truncate(wanted as usize);
    // Those of the kernel first, and of these slab's first.
    kept.sort_by_key(|&at| (Reverse(regions[at].slab + regions[at].unmovable), at));
    let count = |of: Migratetype| -> usize {
        shares.iter().filter(|(share, _)| *share == of).map(|(_, count)| *count as usize).sum()
    };
    let (reclaimable, unmovable) = (count(Migratetype::Reclaimable), count(Migratetype::Unmovable));
    let mut kernel: Vec<usize> = kept.drain(..(reclaimable + unmovable).min(kept.len())).collect();
    let slab_share = |at: usize| {
        let RecordedRegion { slab, unmovable, .. } = regions[at];
        slab * REGION / (slab + unmovable).max(1)
    };
    kernel.sort_by_key(|&at| (Reverse(slab_share(at)), at));
    let slab: Vec<usize> = kernel.drain(..reclaimable.min(kernel.len())).collect();
    shares.map(|(migratetype, count)| {
        let of = match migratetype {
            Migratetype::Movable => &mut kept,
            Migratetype::Reclaimable => &mut slab.clone(),
            Migratetype::Unmovable => &mut kernel,
            _ => &mut Vec::new(),
        };
        of.sort_unstable();
        let mut all: Vec<RecordedRegion> = of.iter().map(|&at| regions[at]).collect();
        all.resize(count as usize, RecordedRegion::default());
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(spanned: u64) -> Zone {
        let start_pfn = Some(freehold::Pfn::new(1024));
        Zone { start_pfn, spanned, managed: spanned, ..Zone::default() }
    }

    #[test]
    fn as_much_is_free_as_was_counted() {
        for counted in [100, 600, 767, 768, 769, 900, 1600] {
            let mut found = regions(&pages(), &zone(2048));
            settle(&mut found, counted);
            assert_eq!(found.iter().map(RecordedRegion::free_frames).sum::<u64>(), counted);
            let stays = found[1].free_frames() == 512;
            assert_eq!(stays, (600..=900).contains(&counted), "free as a whole: {counted}");
        }
    }

    fn pages() -> Pages {
        // Two regions: one of the kernel, a quarter free; one with a free block beside a used one.
        let quarter = "0000000000000000".repeat(4) + &"00000000ffffffff".repeat(4);
        Pages::parse(&format!(
            "400 2 0 0 0 4 380 {quarter}\n800 1 0 0 0 0 0 all\na00 1 512 0 0 0 0 none\n"
        ))
        .unwrap()
    }

    #[test]
    fn frames_keep_their_places_and_types_go_where_they_fit() {
        let found = regions(&pages(), &zone(2048));
        assert_eq!(found.iter().map(RecordedRegion::free_frames).collect::<Vec<_>>(), [256, 512]);
        let free = |at: usize, start, order| found[at].free_of(start, order);
        let parts = [free(0, 0, 8), free(0, 256, 6), free(0, 256, 5), free(0, 288, 5)];
        assert_eq!(parts, [0, 32, 32, 0]);
        let parts = [free(1, 0, 9), free(1, 512, 9), free(1, 0, 10), free(0, 257, 0)];
        assert_eq!(parts, [512, 0, 512, 1]);
        let shares = |movable, reclaimable, unmovable| {
            let (movable, cma) = ((Migratetype::Movable, movable), (Migratetype::Cma, 0));
            let reclaimable = (Migratetype::Reclaimable, reclaimable);
            [movable, cma, reclaimable, (Migratetype::Unmovable, unmovable)]
        };
        let [movable, _, reclaimable, unmovable] = by_type(&found, &shares(1, 0, 1));
        assert_eq!((movable, unmovable), (vec![found[1]], vec![found[0]]));
        assert!(reclaimable.is_empty());
        // More than there are begin in use; fewer are those with the most memory.
        let more = by_type(&found, &shares(3, 0, 0));
        assert_eq!(more[0], [found[0], found[1], RecordedRegion::default()]);
        let part = regions(&pages(), &zone(1576));
        assert_eq!(by_type(&part, &shares(1, 0, 0))[0], [part[0]]);
    }
}
