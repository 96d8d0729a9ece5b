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
//! * Where the pages themselves were recorded ([`recorded`]), free chunks are where they were.
//! * What CPUs' lists held is no free chunk of the zone. It has places among the memory in use,
//!   spread in the same way, of which no two are buddies as far as can be: on a list nothing
//!   merges.

mod apply;
mod holes;
pub mod recorded;

use freehold::{CpuId, FrameRange, Migratetype, Order};

use super::mapper::Injection;
use crate::engines::{ListFill, RecordedZone};

pub use apply::InUse;
use holes::Places;
use recorded::RecordedRegion;

/// The largest order: that of a region.
const LARGEST: usize = Order::LINUX_MAX.index();
const REGION: u64 = Order::LINUX_MAX.frames();

pub type Chunks = [u64; LARGEST + 1];
/// Free chunks of a zone by type ([`Migratetype::PCP`]) and order.
pub type FreeChunks = [Chunks; 3];

/// What is known of a zone's contents when a recording begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    pub free: FreeChunks,
    pub blocks: [u64; 3],
    /// CMA: whole chunks of the largest order.
    pub cma: Option<FrameRange>,
    pub free_cma: Chunks,
    /// The regions themselves by type, where they were recorded page by page and there is no CMA:
    /// what is counted above lies where it was; else places are found for it.
    pub regions: [Vec<RecordedRegion>; 3],
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
        // No page's flags say that it is CMA.
        self.regions = Default::default();
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
    /// Frames recorded as free for which there was no place: their pageblocks were fewer than they
    /// need.
    pub left_out: u64,
    cma: Option<FrameRange>,
    lists: Lists,
}

/// What has a place beside the zone's free chunks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beside {
    pub lists: Lists,
    /// Chunks by order that are in use and that the trace frees: a huge page in use is one piece.
    pub to_free: Chunks,
}

impl Beside {
    /// These lists, and what a trace frees without having allocated it.
    pub fn new(lists: Lists, warm: &[Injection]) -> Self {
        let mut to_free = [0; LARGEST + 1];
        for order in warm.iter().map(|of| of.order.index()).filter(|order| *order > 0) {
            to_free.get_mut(order).into_iter().for_each(|n| *n += 1);
        }
        Self { lists, to_free }
    }
}

/// What the lists of CPUs hold when a recording begins.
pub type Lists = Vec<(CpuId, ListFill)>;

/// Chunks by order and by type of the list.
type ListTable = [[u64; 3]; LARGEST + 1];

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
    holds: Holds,
}

/// What a piece of memory is at the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Free,
    Listed,
    /// In use, and the trace frees it as one chunk.
    ToFree,
    Used,
}

impl Layout {
    /// Finds a place for all of `contents` and for what is beside it in a zone of `frames`, whole
    /// regions.
    ///
    /// Where the blocks of a type have no room for a chunk beside the others, and that is more than
    /// a hundredth of what is free, such chunks are put in as halves: how much is free counts more
    /// than in how many pieces.
    pub fn new(contents: &Contents, beside: &Beside, frames: u64) -> Self {
        let whole = Self::with(contents, beside, frames, contents.cma.is_some());
        if whole.left_out <= whole.free_frames() / 100 {
            return whole;
        }
        // What is free counts more than in which pieces the rest is in use, too.
        let bare = Beside { lists: beside.lists.clone(), ..Beside::default() };
        let others = [beside, &bare].map(|beside| Self::with(contents, beside, frames, true));
        [whole].into_iter().chain(others).min_by_key(|layout| layout.left_out).unwrap_or_default()
    }

    /// `halving`: see [`Places::spread`].
    fn with(contents: &Contents, beside: &Beside, frames: u64, halving: bool) -> Self {
        let lists = &beside.lists;
        let regions = frames / REGION;
        let mut layout = Self { cma: contents.cma, lists: lists.clone(), ..Self::default() };
        let cma = contents.cma.map_or(0, |range| range.len() / REGION);
        let is_recorded = contents.regions.iter().any(|of| !of.is_empty());
        let shares = shares(contents.blocks, cma, regions).map(|(of, regions)| {
            let recorded = contents.regions.get(of.index()).map_or(0, |of| of.len() as u64);
            (of, if is_recorded { recorded } else { regions })
        });
        // What CPUs held lies in CMA as much as in the rest of what is movable.
        let [(_, movable), (_, cma), ..] = shares;
        let table = table(lists);
        let of_cma = |chunks: u64| chunks * cma / (movable + cma).max(1);
        let part = |of: Chunks, is_cma: bool| {
            of.map(|chunks| if is_cma { of_cma(chunks) } else { chunks - of_cma(chunks) })
        };
        let movable_lists = table.map(|of| of[1]);
        let mut homeless = 0;
        let mut kinds = shares.map(|(migratetype, count)| {
            let is_cma = migratetype == Migratetype::Cma;
            let (mut free, listed, to_free) = match migratetype {
                Migratetype::Cma | Migratetype::Movable => (
                    if is_cma { contents.free_cma } else { contents.free[1] },
                    part(movable_lists, is_cma),
                    part(beside.to_free, is_cma),
                ),
                other => {
                    let of = other.index();
                    (contents.free[of], table.map(|list| list[of]), Chunks::default())
                }
            };
            let (whole, mut places) = match contents.regions.get(migratetype.index()) {
                Some(regions) if is_recorded => (0, Places::of(regions, &mut free)),
                _ => {
                    let whole = free[LARGEST].min(count);
                    free[LARGEST] -= whole;
                    (whole, Places::new((count - whole) as usize))
                }
            };
            let left = places.spread(free, listed, to_free, halving);
            layout.left_out += left.free;
            homeless += left.listed;
            (migratetype, places, whole)
        });
        // A list's type is that of the request, not of the block.
        for (_, places, _) in &mut kinds {
            homeless = places.put_listed(0, homeless);
        }
        for (migratetype, places, whole) in kinds.into_iter().rev() {
            let used = places.into_pieces().map(|pieces| Region { migratetype, pieces });
            let whole = (0..whole).map(|_| Region { migratetype, pieces: vec![Piece::region()] });
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
            .filter(|piece| matches!(piece.holds, Holds::Used | Holds::ToFree))
            .map(|piece| 1 << piece.order)
            .sum()
    }

    /// Frames that CPUs' lists begin with.
    pub fn listed_frames(&self) -> u64 {
        self.frames_that(Holds::Listed)
    }

    /// Frames that were recorded on CPUs' lists.
    pub fn recorded_on_lists(&self) -> u64 {
        let frames = |list: &ListFill| list.chunks << list.order.get();
        self.lists.iter().fold(0, |all, (_, list)| all.saturating_add(frames(list)))
    }

    pub fn frames_of(&self, migratetype: Migratetype) -> u64 {
        let of = |region: &&Region| region.migratetype == migratetype;
        self.regions.iter().filter(of).count() as u64 * REGION
    }

    /// Frames free in the zone, those on CPUs' lists apart.
    pub fn free_frames(&self) -> u64 {
        self.frames_that(Holds::Free)
    }

    fn frames_that(&self, holds: Holds) -> u64 {
        let pieces = self.regions.iter().flat_map(|region| &region.pieces);
        pieces.filter(|piece| piece.holds == holds).map(|piece| 1 << piece.order).sum()
    }

    pub fn free_chunks(&self) -> Chunks {
        let mut chunks = [0; LARGEST + 1];
        let pieces = self.regions.iter().flat_map(|region| &region.pieces);
        pieces
            .filter(|piece| piece.holds == Holds::Free)
            .for_each(|piece| chunks[usize::from(piece.order)] += 1);
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
    /// A region that is free as a whole.
    const fn region() -> Self {
        Self { start: 0, order: Order::LINUX_MAX.get(), holds: Holds::Free }
    }

    fn order(self) -> Order {
        Order::new(self.order).unwrap_or(Order::ZERO)
    }
}

/// What CPUs' lists held by zoneinfo, which counts frames: all of it movable single frames, of
/// which most lists consist. Where only a sum is known, each of `cpus` has as much.
pub fn assumed_lists(zone: &RecordedZone, cpus: u16) -> Lists {
    let single =
        |chunks| ListFill { order: Order::ZERO, migratetype: Migratetype::Movable, chunks };
    let sets = zone.pagesets.iter().map(|set| (set.cpu, set.count));
    let all = zone.held.filter(|_| zone.pagesets.is_empty()).unwrap_or(0);
    let of = |cpu: u16| {
        let [from, to] = [cpu, cpu + 1].map(|n| all * u64::from(n) / u64::from(cpus.max(1)));
        (CpuId::new(cpu), to - from)
    };
    let lists = sets.chain((0..cpus).map(of)).filter(|(_, held)| *held > 0);
    lists.map(|(cpu, held)| (cpu, single(held))).collect()
}

fn table(lists: &Lists) -> ListTable {
    let mut table = ListTable::default();
    for (_, list) in lists {
        if let Some(of) = table[list.order.index()].get_mut(list.migratetype.index()) {
            *of += list.chunks;
        }
    }
    table
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
    use freehold_trace::zoneinfo::Zone;

    use super::*;

    /// Free chunks as they would be after merging whatever can be.
    fn merged(layout: &Layout) -> FreeChunks {
        let mut chunks = [[0; LARGEST + 1]; 3];
        for region in &layout.regions {
            let free = region.pieces.iter().filter(|piece| piece.holds == Holds::Free);
            let mut free: Vec<_> = free.map(|piece| (piece.start, piece.order)).collect();
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

    /// Lists of one CPU: orders, types and chunks.
    fn lists(of: &[(u8, usize, u64)]) -> Beside {
        let list = |&(order, of, chunks): &(u8, usize, u64)| ListFill {
            order: Order::new(order).unwrap(),
            migratetype: Migratetype::PCP[of],
            chunks,
        };
        let lists = of.iter().map(|of| (CpuId::new(0), list(of))).collect();
        Beside { lists, ..Beside::default() }
    }

    #[test]
    fn every_recorded_chunk_has_a_place_and_none_can_merge() {
        let mut contents = Contents { blocks: [566, 4130, 424], ..Contents::default() };
        contents.free[0] = [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0];
        contents.free[1] = [0, 0, 1, 0, 1339, 2884, 2089, 1370, 795, 575, 998];
        contents.free[2] = [6375, 1859, 687, 367, 199, 105, 36, 13, 0, 0, 0];
        let layout =
            Layout::new(&contents, &lists(&[(0, 1, 160_000), (3, 0, 50), (9, 1, 40)]), 2_621_440);
        assert_eq!(layout.left_out, 0);
        assert_eq!(merged(&layout), contents.free, "what is on lists is not free in the zone");
        assert_eq!(layout.listed_frames(), 160_000 + 400 + 40 * 512);
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
    fn recorded_regions_keep_their_chunks_and_lists_lie_in_what_is_in_use() {
        let half = "0000ffffffffffff".repeat(8);
        let text = format!("0 2 128 0 0 0 0 {half}\n400 2 512 0 0 0 0 none\n800 2 0 0 0 0 0 all\n");
        let pages = freehold_trace::machine::Pages::parse(&text).unwrap();
        let (start_pfn, spanned) = (Some(Pfn::new(0)), 3 * REGION);
        let zone = Zone { start_pfn, spanned, managed: spanned, ..Zone::default() };
        let blocks = recorded::blocks(&pages, &zone);
        let mut contents = Contents::default();
        contents.free[1] = recorded::chunks(&blocks);
        contents.regions = recorded::by_type(blocks, &contents, 3);
        let layout = Layout::new(&contents, &lists(&[(0, 1, 100), (3, 1, 2)]), 3 * REGION);
        assert_eq!((layout.free_frames(), layout.left_out), (1024 + 16 * 48, 0));
        let mut chunks = [0; LARGEST + 1];
        (chunks[4], chunks[5], chunks[10]) = (16, 16, 1);
        assert_eq!((layout.free_chunks(), layout.listed_frames()), (chunks, 116));
        assert_eq!(merged(&layout)[1], chunks, "nothing has moved beside another");
        let frames = |region: &Region| -> u64 { region.pieces.iter().map(|p| 1 << p.order).sum() };
        assert!(layout.regions.iter().all(|region| frames(region) == REGION));
        // Of what was counted a moment later there may be fewer chunks of an order, and more.
        (contents.free[1][4], contents.free[1][3]) = (10, 4);
        (chunks[4], chunks[3]) = (10, 4);
        let later = Layout::new(&contents, &Beside::default(), 3 * REGION);
        assert_eq!((later.free_chunks(), later.left_out), (chunks, 0));
        contents.set_cma(FrameRange::new(Pfn::new(0), REGION), 3 * REGION);
        contents.regions = Default::default();
        let placed = Layout::new(&contents, &Beside::default(), 3 * REGION);
        assert_eq!(placed.free_frames(), later.free_frames());
    }

    #[test]
    fn with_cma_as_much_is_free_as_without() {
        let mut recorded = Contents { blocks: [566, 4130, 424], ..Contents::default() };
        recorded.free[1] = [0, 0, 1, 0, 1339, 2884, 2089, 1370, 795, 575, 998];
        let (managed, held) = (2_621_440, 98 * REGION);
        let free: u64 =
            recorded.free[1].iter().enumerate().map(|(order, chunks)| chunks << order).sum();
        for regions in [1, 26, 256, 1024, 1536, 1800] {
            let mut contents = recorded.clone();
            contents.set_cma(FrameRange::new(Pfn::new(0), regions * REGION), managed);
            let layout = Layout::new(&contents, &lists(&[(0, 1, held)]), managed);
            let found = (layout.free_frames(), layout.listed_frames(), layout.left_out);
            assert_eq!(found, (free, held, 0), "{regions} regions");
            // And neither kind is fuller than the other by more than what sharing out leaves over.
            let used = (managed - (566 + 424) / 2 * REGION - free - held) * regions / 2065;
            let found = layout.cma_used();
            assert!(found.abs_diff(used) < 6 * REGION, "{regions} regions: {found} of {used}");
        }
    }

    #[test]
    fn what_has_no_place_is_said() {
        let mut contents = Contents { blocks: [0, 2, 0], ..Contents::default() };
        contents.free[1][9] = 2;
        // Two blocks, both free, would be one chunk of order 10: all but a frame of them is free.
        let layout = Layout::new(&contents, &Beside::default(), REGION);
        assert_eq!((layout.free_frames(), layout.left_out), (REGION - 1, 1));
        // More than there is.
        contents.free[1][9] = 4;
        assert_eq!(Layout::new(&contents, &Beside::default(), REGION).left_out, REGION + 1);
    }
}
