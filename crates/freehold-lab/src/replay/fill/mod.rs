//! The state of a zone as it was recorded: which chunks were free, by order and migratetype, and
//! what was in use.
//!
//! `/proc/pagetypeinfo` counts free chunks and pageblocks by type; it does not say where they are.
//! A [`Layout`] gives each a place, the same for every engine:
//!
//! ```text
//!  region (a chunk of the largest order, of one type)   0 ............................................. 1023
//!  wholly free                                           [ free, order 10                               ]
//!  partly in use                                         [free 8  ][used 8   ][free 7][used 7][used 9   ]
//!  in use                                                [ used, order 10                               ]
//! ```
//!
//! * Two buddies are never free both, or they would be one larger chunk: what is recorded as free
//!   in small pieces stays in small pieces until something around it is freed.
//! * Small chunks are spread evenly over the regions of their type that are not wholly free. Where
//!   a kernel's history put them, nobody recorded.

mod apply;
mod holes;

use freehold::{FrameRange, Migratetype, Order};

pub use apply::InUse;
use holes::{Hole, spread};

/// The largest order: that of a region.
const LARGEST: usize = Order::LINUX_MAX.index();
const REGION: u64 = Order::LINUX_MAX.frames();

/// Free chunks of a zone by type ([`Migratetype::PCP`]) and order.
pub type FreeChunks = [[u64; LARGEST + 1]; 3];

/// What is known of a zone's contents when a recording begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub free: FreeChunks,
    /// Pageblocks by type.
    pub blocks: [u64; 3],
    /// Frames that CPUs held.
    pub held: u64,
    /// CMA: whole chunks of the largest order.
    pub cma: Option<FrameRange>,
    /// Free chunks of it.
    pub free_cma: [u64; LARGEST + 1],
}

impl Contents {
    /// The most that can be CMA of a zone of `managed` frames: what is not of another type.
    pub fn most_cma(&self, managed: u64) -> u64 {
        shares(self.blocks, 0, managed / REGION)[0].1 * REGION
    }

    /// Makes a part of what is movable CMA, which is as full as the rest.
    pub fn set_cma(&mut self, range: Option<FrameRange>, managed: u64) {
        let movable = self.most_cma(managed).max(1);
        let cma = range.map_or(0, |range| range.len()).min(movable);
        self.cma = range;
        for (free, cma_free) in
            self.free[Migratetype::Movable.index()].iter_mut().zip(&mut self.free_cma)
        {
            *free += *cma_free;
            *cma_free = (u128::from(*free) * u128::from(cma) / u128::from(movable)) as u64;
            *free -= *cma_free;
        }
    }
}

/// A place for everything: regions in the order in which they are allocated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layout {
    regions: Vec<Region>,
    left_out: u64,
    cma: Option<FrameRange>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Region {
    migratetype: Migratetype,
    /// By rising frame; together the whole region.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    start: u16,
    order: u8,
    free: bool,
}

impl Layout {
    /// Finds a place for all of `contents` in a zone of `frames`, whole regions.
    ///
    /// Where the blocks of a type have no room for a chunk beside the others, and that is more than
    /// a hundredth of what is free, such chunks are put in as halves: how much is free counts more
    /// than in how many pieces.
    pub fn new(contents: &Contents, frames: u64) -> Self {
        let whole = Self::with(contents, frames, contents.cma.is_some());
        if whole.left_out <= whole.free_frames() / 100 {
            return whole;
        }
        let halved = Self::with(contents, frames, true);
        if halved.left_out < whole.left_out { halved } else { whole }
    }

    /// `halving`: see [`spread`].
    fn with(contents: &Contents, frames: u64, halving: bool) -> Self {
        let regions = frames / REGION;
        let (mut free, mut free_cma) = (contents.free, contents.free_cma);
        let mut layout = Self { cma: contents.cma, ..Self::default() };
        let cma = contents.cma.map_or(0, |range| range.len() / REGION);
        let shares = shares(contents.blocks, cma, regions);
        // What CPUs held lies in CMA as much as in the rest of what is movable.
        let [(_, movable), (_, cma), ..] = shares;
        let held = contents.held / REGION;
        let held_cma = held * cma / (movable + cma).max(1);
        free[Migratetype::Movable.index()][LARGEST] += held - held_cma;
        free_cma[LARGEST] += held_cma;
        for (migratetype, count) in shares.into_iter().rev() {
            let chunks =
                if migratetype == Migratetype::Cma { free_cma } else { free[migratetype.index()] };
            let whole = chunks[LARGEST].min(count);
            let mut rest: Vec<Vec<Hole>> = (whole..count).map(|_| vec![Hole::whole()]).collect();
            let mut placed: Vec<Vec<Piece>> = vec![Vec::new(); rest.len()];
            let mut chunks = chunks;
            chunks[LARGEST] -= whole;
            layout.left_out += spread(chunks, halving, &mut rest, &mut placed);
            let used = placed.into_iter().zip(rest).map(|(mut pieces, holes)| {
                pieces.extend(holes.iter().map(|hole| Piece {
                    start: hole.start,
                    order: hole.order,
                    free: false,
                }));
                pieces.sort_unstable_by_key(|piece| piece.start);
                Region { migratetype, pieces }
            });
            let whole =
                (0..whole).map(|_| Region { migratetype, pieces: vec![Piece::region(true)] });
            layout.regions.extend(used.chain(whole));
        }
        layout.mix_cma_in();
        layout
    }

    /// Spreads the CMA regions among the movable ones, so that neither kind is taken first.
    fn mix_cma_in(&mut self) {
        let first = self
            .regions
            .iter()
            .position(|region| region.is_movable())
            .unwrap_or(self.regions.len());
        let (cma, movable): (Vec<_>, Vec<_>) = self
            .regions
            .split_off(first)
            .into_iter()
            .partition(|region| region.migratetype == Migratetype::Cma);
        let (every, of) = (cma.len(), cma.len() + movable.len());
        let (mut cma, mut movable) = (cma.into_iter(), movable.into_iter());
        for n in 0..of {
            let is_cma = (n + 1) * every / of > n * every / of;
            self.regions.extend(if is_cma { cma.next() } else { movable.next() });
        }
    }

    pub fn cma_used(&self) -> u64 {
        let cma = self.regions.iter().filter(|region| region.migratetype == Migratetype::Cma);
        cma.flat_map(|region| &region.pieces)
            .filter(|piece| !piece.free)
            .map(|piece| 1 << piece.order)
            .sum()
    }

    /// Frames of the regions of one type.
    pub fn frames_of(&self, migratetype: Migratetype) -> u64 {
        let of = |region: &&Region| region.migratetype == migratetype;
        self.regions.iter().filter(of).count() as u64 * REGION
    }

    pub fn free_frames(&self) -> u64 {
        let pieces = self.regions.iter().flat_map(|region| &region.pieces);
        pieces.filter(|piece| piece.free).map(|piece| 1 << piece.order).sum()
    }

    /// Frames recorded as free for which there was no place: their pageblocks were fewer than they
    /// need.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub fn free_chunks(&self) -> [u64; LARGEST + 1] {
        let mut chunks = [0; LARGEST + 1];
        let pieces = self.regions.iter().flat_map(|region| &region.pieces);
        pieces.filter(|piece| piece.free).for_each(|piece| chunks[usize::from(piece.order)] += 1);
        chunks
    }
}

impl Region {
    /// Whether what is in it can be moved.
    fn is_movable(&self) -> bool {
        matches!(self.migratetype, Migratetype::Movable | Migratetype::Cma)
    }
}

impl Piece {
    const fn region(free: bool) -> Self {
        Self { start: 0, order: Order::LINUX_MAX.get(), free }
    }

    fn order(self) -> Order {
        Order::new(self.order).unwrap_or(Order::ZERO)
    }
}

/// Regions of each type, in proportion to its pageblocks, and those of CMA; the rest is movable.
fn shares(blocks: [u64; 3], cma: u64, regions: u64) -> [(Migratetype, u64); 4] {
    let per_region = REGION / freehold::PAGEBLOCK_FRAMES;
    let of = |migratetype: Migratetype| blocks[migratetype.index()].div_ceil(per_region);
    let unmovable = of(Migratetype::Unmovable).min(regions);
    let reclaimable = of(Migratetype::Reclaimable).min(regions - unmovable);
    let cma = cma.min(regions - unmovable - reclaimable);
    [
        (Migratetype::Movable, regions - unmovable - reclaimable - cma),
        (Migratetype::Cma, cma),
        (Migratetype::Reclaimable, reclaimable),
        (Migratetype::Unmovable, unmovable),
    ]
}

#[cfg(test)]
mod tests {
    use freehold::Pfn;

    use super::*;

    /// Free chunks as they would be after merging whatever can be.
    fn merged(layout: &Layout) -> FreeChunks {
        let mut chunks = [[0; LARGEST + 1]; 3];
        for region in &layout.regions {
            let mut free: Vec<(u16, u8)> = region
                .pieces
                .iter()
                .filter(|piece| piece.free)
                .map(|piece| (piece.start, piece.order))
                .collect();
            while let Some(at) = (0..free.len()).find(|&at| {
                let (start, order) = free[at];
                order < LARGEST as u8 && free.contains(&(start ^ 1 << order, order))
            }) {
                let (start, order) = free.swap_remove(at);
                free.retain(|chunk| *chunk != (start ^ 1 << order, order));
                free.push((start & !(1 << order), order + 1));
            }
            free.iter().for_each(|&(_, order)| {
                chunks[region.migratetype.index()][usize::from(order)] += 1
            });
        }
        chunks
    }

    #[test]
    fn every_recorded_chunk_has_a_place_and_none_can_merge() {
        let mut contents = Contents { blocks: [566, 4130, 424], held: 8000, ..Contents::default() };
        contents.free[0] = [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0];
        contents.free[1] = [0, 0, 1, 0, 1339, 2884, 2089, 1370, 795, 575, 998];
        contents.free[2] = [6375, 1859, 687, 367, 199, 105, 36, 13, 0, 0, 0];
        let layout = Layout::new(&contents, 2_621_440);
        assert_eq!(layout.left_out(), 0);
        let mut expected = contents.free;
        expected[1][LARGEST] += 8000 / REGION;
        assert_eq!(merged(&layout), expected);
        assert_eq!(layout.regions.len(), 2560);
        for region in &layout.regions {
            let mut at = 0;
            for piece in &region.pieces {
                assert_eq!(piece.start, at, "a gap or an overlap");
                at += 1 << piece.order;
            }
            assert_eq!(u64::from(at), REGION);
        }
    }

    #[test]
    fn with_cma_as_much_is_free_as_without() {
        let mut recorded =
            Contents { blocks: [566, 4130, 424], held: 98 * REGION, ..Contents::default() };
        recorded.free[1] = [0, 0, 1, 0, 1339, 2884, 2089, 1370, 795, 575, 998];
        let managed = 2_621_440;
        let free: u64 =
            recorded.free[1].iter().enumerate().map(|(order, chunks)| chunks << order).sum();
        for regions in [1, 26, 256, 1024, 1536, 1800] {
            let mut contents = recorded.clone();
            contents.set_cma(FrameRange::new(Pfn::new(0), regions * REGION), managed);
            let layout = Layout::new(&contents, managed);
            assert_eq!(
                (layout.free_frames(), layout.left_out()),
                (free + recorded.held, 0),
                "{regions} regions"
            );
            // And neither kind is fuller than the other by more than what sharing out leaves over.
            let used = (managed - (566 + 424) / 2 * REGION - free - recorded.held) * regions / 2065;
            assert!(
                layout.cma_used().abs_diff(used) < 6 * REGION,
                "{regions} regions: {} of {used}",
                layout.cma_used()
            );
        }
    }

    #[test]
    fn what_has_no_place_is_said() {
        let mut contents = Contents { blocks: [0, 2, 0], ..Contents::default() };
        contents.free[1][9] = 2;
        // Two blocks, both free, would be one chunk of order 10: all but a frame of them is free.
        let layout = Layout::new(&contents, REGION);
        assert_eq!((layout.free_frames(), layout.left_out()), (REGION - 1, 1));
        // More than there is.
        contents.free[1][9] = 4;
        assert_eq!(Layout::new(&contents, REGION).left_out(), REGION + 1);
    }
}
