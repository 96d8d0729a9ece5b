//! Regions as they were when a recording began, page by page, where `NAME.pages.before.txt` or a
//! kpageflags says it.
//!
//! Which type a block has these do not say; pagetypeinfo counts blocks and free chunks of each. So
//! a type is drawn for each block:
//!
//! ```text
//!  with free frames   where its chunks make up what is free of a type, and what is in use belongs
//!  in use             the kernel's first: unmovable or reclaimable; then page cache, until there
//!                     are as many such blocks as were counted (a block device's is unmovable)
//!  without memory     movable, as the kernel makes all blocks when it boots
//! ```

use std::cmp::Reverse;

use freehold::Migratetype;
use freehold_trace::machine::{PageBlock, PageKind, Pages};
use freehold_trace::zoneinfo::Zone;

use super::{Chunks, Contents, LARGEST, REGION};

const FRAMES: u64 = freehold::PAGEBLOCK_FRAMES;
/// Words of a mask of a block's frames.
const WORDS: usize = FRAMES as usize / 64;
/// Types of blocks, by their places in [`Migratetype::PCP`].
const UNMOVABLE: usize = Migratetype::Unmovable.index();
const MOVABLE: usize = Migratetype::Movable.index();
const RECLAIMABLE: usize = Migratetype::Reclaimable.index();

/// Which frames of a region were free, its blocks one behind the other; of a block, the first in
/// the lowest bit of the first word.
pub type RecordedRegion = [[u64; WORDS]; 2];

/// Of a region's frames from `start` on, as many as `order` says, those that were free.
pub(super) fn free_of(region: &RecordedRegion, start: u16, order: u8) -> u64 {
    let (start, frames, words) = (usize::from(start), 1usize << order, region.as_flattened());
    if frames >= 64 {
        let words = &words[start / 64..(start + frames) / 64];
        return words.iter().map(|word| u64::from(word.count_ones())).sum();
    }
    let bits = words[start / 64] >> (start % 64) & ((1 << frames) - 1);
    u64::from(bits.count_ones())
}

/// Frames in free chunks by order, then frames in all.
type Sizes = [i64; LARGEST + 2];

#[derive(Clone, Default)]
pub struct Block {
    start: u64,
    free: [u64; WORDS],
    sizes: Sizes,
    used: [u16; PageKind::ALL.len()],
}

impl Block {
    fn new(start: u64, block: &PageBlock) -> Self {
        let mut sizes = Sizes::default();
        count(&[block.free, [0; WORDS]], 0, LARGEST as u8 - 1, &mut sizes);
        sizes[LARGEST + 1] = FRAMES as i64;
        Self { start, free: block.free, sizes, used: block.used }
    }

    fn region(&self) -> u64 {
        self.start / REGION
    }

    pub fn free_frames(&self) -> u64 {
        self.sizes[..=LARGEST].iter().sum::<i64>() as u64
    }

    fn used(&self, kinds: &[PageKind]) -> u64 {
        kinds.iter().map(|kind| u64::from(self.used[*kind as usize])).sum()
    }

    /// Frames of the kernel.
    fn kernel(&self) -> u64 {
        self.used(&[PageKind::Slab, PageKind::Unmovable])
    }

    /// Frames in use that a block of that type is not for.
    fn misfits(&self, of: usize) -> u64 {
        match of {
            MOVABLE => self.kernel(),
            UNMOVABLE => self.used(&[PageKind::Anon]),
            _ => self.used(&[PageKind::Anon, PageKind::File, PageKind::Unmovable]),
        }
    }
}

/// Frames in free chunks of a part of a region.
fn count(region: &RecordedRegion, start: u16, order: u8, sizes: &mut Sizes) {
    match free_of(region, start, order) {
        0 => {}
        free if free == 1 << order => sizes[usize::from(order)] += 1 << order,
        _ => {
            count(region, start, order - 1, sizes);
            count(region, start + (1 << (order - 1)), order - 1, sizes);
        }
    }
}

/// The blocks of a zone that have memory, by rising frame.
pub fn blocks(pages: &Pages, zone: &Zone) -> Vec<Block> {
    let block = |(start, block): &(u64, PageBlock)| Block::new(*start, block);
    let mut blocks: Vec<Block> = pages.of_zone(zone).iter().map(block).collect();
    let is_free = |block: &Block| block.free_frames() == FRAMES;
    for region in blocks.chunk_by_mut(|one, other| one.region() == other.region()) {
        if region.len() == 2 && region.iter().all(is_free) {
            region.iter_mut().for_each(|block| block.sizes.swap(LARGEST - 1, LARGEST));
        }
    }
    blocks
}

/// The free chunks of all of them.
pub fn chunks(blocks: &[Block]) -> Chunks {
    let frames = |order| blocks.iter().map(|block| block.sizes[order] as u64).sum::<u64>();
    std::array::from_fn(|order| frames(order) >> order)
}

/// A type for each block.
struct Draw<'a> {
    blocks: &'a [Block],
    of: Vec<usize>,
    /// How much more each type has been given than was counted of it.
    types: [Sizes; 3],
}

impl Draw<'_> {
    /// Gives a block another type; by how many frames more the types are off then.
    fn give(&mut self, at: usize, to: usize) -> i64 {
        let (block, from) = (&self.blocks[at], std::mem::replace(&mut self.of[at], to));
        let off = |types: &[Sizes; 3]| -> i64 {
            let of = |sizes: &Sizes| {
                sizes[..=LARGEST].iter().map(|off| off.abs()).sum::<i64>()
                    + sizes[LARGEST + 1].max(0)
            };
            types.iter().map(of).sum()
        };
        let before = off(&self.types);
        for (n, size) in block.sizes.iter().enumerate() {
            self.types[from][n] -= size;
            self.types[to][n] += size;
        }
        off(&self.types) - before + block.misfits(to) as i64 - block.misfits(from) as i64
    }

    /// Gives types to blocks with free frames, until no other would be better.
    fn fit(&mut self) {
        // Each change leaves fewer frames off, and the last ones change little.
        for _ in 0..16 {
            let before = self.of.clone();
            for at in (0..self.blocks.len()).filter(|&at| self.blocks[at].free_frames() > 0) {
                for to in 0..self.types.len() {
                    let from = self.of[at];
                    if self.give(at, to) >= 0 {
                        self.give(at, from);
                    }
                }
            }
            if self.of == before {
                break;
            }
        }
    }

    /// Gives types to blocks in use: those of the kernel first, and of these slab's first.
    fn fill(&mut self) {
        let blocks = self.blocks;
        let mut left: Vec<usize> =
            (0..blocks.len()).filter(|&at| blocks[at].free_frames() == 0).collect();
        left.sort_by_key(|&at| Reverse(blocks[at].kernel()));
        let lacks = |of: usize| (-self.types[of][LARGEST + 1]).max(0) as usize / FRAMES as usize;
        let (reclaimable, unmovable) = (lacks(RECLAIMABLE), lacks(UNMOVABLE));
        left.truncate(reclaimable + unmovable);
        left.sort_by_key(|&at| {
            let slab = blocks[at].used(&[PageKind::Slab]) * FRAMES;
            Reverse(slab / blocks[at].kernel().max(1))
        });
        for (n, &at) in left.iter().enumerate() {
            self.of[at] = if n < reclaimable { RECLAIMABLE } else { UNMOVABLE };
        }
    }
}

/// Draws the type of each block, and puts the blocks into so many regions, of each type.
///
/// Blocks with less memory than usual make more of them than the zone's frames fill: as many that
/// are in use are left out. What lacks is in use.
pub fn by_type(
    mut blocks: Vec<Block>,
    counted: &Contents,
    regions: u64,
) -> [Vec<RecordedRegion>; 3] {
    let regions = regions as usize;
    let in_use = || Block { start: u64::MAX, ..Block::default() };
    blocks.resize_with(blocks.len().max(2 * regions), in_use);
    let [unmovable, _, reclaimable] = counted.blocks;
    let movable = (blocks.len() as u64).saturating_sub(unmovable + reclaimable);
    let wanted = [unmovable, movable, reclaimable].map(|blocks| blocks * FRAMES);
    let mut types: [Sizes; 3] = std::array::from_fn(|of| {
        let chunks = |order: usize| counted.free[of].get(order).map(|chunks| chunks << order);
        std::array::from_fn(|order| -(chunks(order).unwrap_or(wanted[of]) as i64))
    });
    // All begin movable, those in use uncounted.
    for block in blocks.iter().filter(|block| block.free_frames() > 0) {
        types[MOVABLE].iter_mut().zip(block.sizes).for_each(|(sum, size)| *sum += size);
    }
    let mut draw = Draw { blocks: &blocks, of: vec![MOVABLE; blocks.len()], types };
    draw.fit();
    draw.fill();
    let mut kept: Vec<(usize, &Block)> = draw.of.into_iter().zip(&blocks).collect();
    kept.sort_by_key(|(_, block)| Reverse((block.free_frames() > 0, block.used(&PageKind::ALL))));
    kept.truncate(2 * regions);
    kept.sort_by_key(|(_, block)| block.start);
    paired(&kept)
}

/// Blocks of those types as regions. Halves of a region that differ are put beside others of their
/// type, the fullest beside the emptiest: two that are free would be one chunk.
fn paired(blocks: &[(usize, &Block)]) -> [Vec<RecordedRegion>; 3] {
    let mut found: [Vec<RecordedRegion>; 3] = Default::default();
    let mut singles: [Vec<&Block>; 3] = Default::default();
    for &(of, block) in blocks {
        match singles[of].pop_if(|last| last.region() == block.region()) {
            Some(last) => found[of].push([last.free, block.free]),
            None => singles[of].push(block),
        }
    }
    let mut left = Vec::new();
    for (of, singles) in singles.iter_mut().enumerate() {
        singles.sort_by_key(|block| block.free_frames());
        if singles.len() % 2 == 1 {
            left.push((of, singles.remove(0)));
        }
        let (full, free) = singles.split_at(singles.len() / 2);
        let pairs = full.iter().zip(free.iter().rev());
        found[of].extend(pairs.map(|(one, other)| [one.free, other.free]));
    }
    left.sort_by_key(|(of, block)| (Reverse(block.free_frames()), found[*of].len()));
    if let [(of, one), (_, other)] = left[..] {
        found[of].push([one.free, other.free]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(spanned: u64) -> Zone {
        let start_pfn = Some(freehold::Pfn::new(1024));
        Zone { start_pfn, spanned, managed: spanned, ..Zone::default() }
    }

    fn pages() -> Pages {
        // Two regions: one of the kernel, a quarter free; one with a free block beside a used one.
        let quarter = "0000000000000000".repeat(4) + &"00000000ffffffff".repeat(4);
        Pages::parse(&format!(
            "400 2 0 0 0 4 380 {quarter}\n800 1 0 0 0 0 0 all\na00 1 512 0 0 0 0 none\n"
        ))
        .unwrap()
    }

    /// Frames free in each region by type, of so many regions.
    fn drawn(
        found: Vec<Block>,
        blocks: [u64; 3],
        free: [&[u64]; 3],
        regions: u64,
    ) -> [Vec<u64>; 3] {
        let mut counted = Contents { blocks, ..Contents::default() };
        for (of, orders) in counted.free.iter_mut().zip(free) {
            orders.iter().for_each(|order| of[*order as usize] += 1);
        }
        by_type(found, &counted, regions)
            .map(|of| of.iter().map(|region| free_of(region, 0, LARGEST as u8)).collect())
    }

    #[test]
    fn frames_keep_their_places() {
        let found = blocks(&pages(), &zone(2048));
        assert_eq!(found.iter().map(Block::free_frames).collect::<Vec<_>>(), [128, 128, 512, 0]);
        let mut all = Chunks::default();
        (all[5], all[9]) = (8, 1);
        assert_eq!(chunks(&found), all);
        let mask = [found[0].free; 2];
        let free = |start, order| free_of(&mask, start, order);
        assert_eq!([free(0, 8), free(256, 6), free(256, 5), free(288, 5)], [0, 32, 32, 0]);
        assert_eq!([free(0, 9), free(512, 9), free(0, 10), free(257, 0)], [128, 128, 256, 1]);
        // More than there are begin in use; of fewer those go that are in use.
        let free = [&[5; 8][..], &[9], &[]];
        assert_eq!(drawn(found.clone(), [2, 2, 0], free, 3), [vec![256], vec![512, 0], vec![]]);
        assert_eq!(drawn(found[..3].to_vec(), [2, 1, 0], free, 1), [vec![256], vec![], vec![]]);
    }

    /// Page cache of a device is unmovable, and in what it holds such a block is like any other.
    #[test]
    fn blocks_and_free_chunks_of_each_type_are_as_many_as_counted() {
        let [all, none] = ["ffffffffffffffff", "0000000000000000"].map(|word| word.repeat(2));
        let half = format!("{all}{all}{none}{none}");
        let pages = Pages::parse(&format!(
            "400 2 0 0 512 0 0 none\n800 1 0 256 0 0 0 {all}{none}{all}{none}\n\
             a00 1 0 0 256 0 0 {half}\nc00 1 0 0 0 6 250 {half}\ne00 1 0 0 512 0 0 none\n\
             1000 1 0 0 0 500 12 none\n1200 1 0 0 0 4 508 none\n"
        ));
        let found = blocks(&pages.unwrap(), &zone(4096));
        let free = [&[8, 8][..], &[7, 7], &[]];
        let drawn = drawn(found, [5, 2, 1], free, 4);
        assert_eq!(drawn, [vec![0, 512], vec![256], vec![0]]);
    }
}
