//! The parts of regions that have no contents yet, and free chunks put into them.

use std::collections::VecDeque;

use super::recorded::{RecordedRegion, free_of};
use super::{Chunks, Holds, LARGEST, Piece, REGION};
use freehold::Order;

/// A part of a region that has no contents yet.
#[derive(Clone, Copy)]
struct Hole {
    start: u16,
    order: u8,
    /// Its buddy is a free chunk, so that it cannot become one itself.
    beside_free: bool,
}

impl Hole {
    const fn whole() -> Self {
        // The largest order has no buddy.
        Self { start: 0, order: Order::LINUX_MAX.get(), beside_free: false }
    }
}

/// Regions of one type: what has a place in each, and where there is room.
#[derive(Default)]
pub(super) struct Places {
    holes: Vec<Vec<Hole>>,
    placed: Vec<Vec<Piece>>,
}

/// Frames that found no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Homeless {
    pub(super) free: u64,
    pub(super) listed: u64,
}

/// How a hole for a chunk is found.
type Pick = fn(&[Hole], u8) -> Option<usize>;

impl Places {
    /// So many regions with nothing in them.
    pub(super) fn new(regions: usize) -> Self {
        Self { holes: vec![vec![Hole::whole()]; regions], placed: vec![Vec::new(); regions] }
    }

    /// Regions as they were: so many chunks as `free` has keep their places, and are taken off it.
    pub(super) fn of(regions: &[RecordedRegion], free: &mut Chunks) -> Self {
        let mut places = Self::default();
        for region in regions {
            let (mut holes, mut placed) = (Vec::new(), Vec::new());
            recorded(region, Hole::whole(), free, &mut holes, &mut placed);
            places.holes.push(holes);
            places.placed.push(placed);
        }
        places
    }

    /// Places free chunks, those of CPUs' lists and those that will be freed, the largest first.
    ///
    /// `halving`: a free chunk without a place is two of the order below. CMA makes two kinds of
    /// memory of one, each with fewer regions to choose from, and the frames that are free are to
    /// be as many as without it. A listed chunk without a place is so many single frames.
    pub(super) fn spread(
        &mut self,
        mut free: Chunks,
        mut listed: Chunks,
        to_free: Chunks,
        halving: bool,
    ) -> Homeless {
        // No hole is a region that may be free as a whole.
        let mut left_out = if halving { 0 } else { free[LARGEST] * REGION };
        if halving {
            free[LARGEST - 1] += 2 * free[LARGEST];
        }
        for order in (0..LARGEST as u8).rev() {
            let at = usize::from(order);
            let left = self.put(order, free[at], Holds::Free, best);
            match free.get_mut(at.wrapping_sub(1)).filter(|_| halving) {
                Some(smaller) => *smaller += 2 * left,
                None => left_out += left << order,
            }
            let left = self.put_listed(order, std::mem::take(&mut listed[at]));
            listed[0] += left << order;
            self.put(order, to_free[at], Holds::ToFree, any);
        }
        Homeless { free: left_out, listed: listed[0] }
    }

    /// Places chunks of CPUs' lists: first where the buddy is neither free nor listed, then
    /// anywhere; how many found no place.
    pub(super) fn put_listed(&mut self, order: u8, chunks: u64) -> u64 {
        let left = self.put(order, chunks, Holds::Listed, best);
        self.put(order, left, Holds::Listed, any)
    }

    /// Places chunks, each in the region after the last one that has room; how many found no place.
    fn put(&mut self, order: u8, chunks: u64, holds: Holds, pick: Pick) -> u64 {
        let mut left = chunks;
        let mut turn: VecDeque<usize> = (0..self.holes.len()).collect();
        while let Some(&region) = turn.front().filter(|_| left > 0) {
            let holes = &mut self.holes[region];
            let Some(hole) = pick(holes, order) else {
                turn.pop_front();
                continue;
            };
            turn.rotate_left(1);
            self.placed[region].push(split(holes, hole, order, holds));
            left -= 1;
        }
        left
    }

    /// The pieces of each region; what has no contents is in use.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = Vec<Piece>> {
        self.placed.into_iter().zip(self.holes).map(|(mut pieces, holes)| {
            pieces.extend(holes.iter().map(|hole| Piece {
                start: hole.start,
                order: hole.order,
                holds: Holds::Used,
            }));
            pieces.sort_unstable_by_key(|piece| piece.start);
            pieces
        })
    }
}

/// A part of a region as chunks that were free as a whole, as many as there shall be, and holes.
fn recorded(
    region: &RecordedRegion,
    part: Hole,
    left: &mut Chunks,
    holes: &mut Vec<Hole>,
    placed: &mut Vec<Piece>,
) {
    let Hole { start, order, .. } = part;
    match free_of(region, start, order) {
        free if free == 1 << order && left[usize::from(order)] > 0 => {
            left[usize::from(order)] -= 1;
            placed.push(Piece { start, order, holds: Holds::Free });
        }
        free if free == 0 || free == 1 << order => holes.push(part),
        _ => {
            let half = order - 1;
            for start in [start, start + (1 << half)] {
                let was_free = free_of(region, start ^ 1 << half, half) == 1 << half;
                let part = Hole { start, order: half, beside_free: was_free };
                recorded(region, part, left, holes, placed);
            }
        }
    }
}

/// The smallest hole in which a free chunk of `order` has a buddy that is not free.
fn best(holes: &[Hole], order: u8) -> Option<usize> {
    let fits = |hole: &Hole| hole.order > order || hole.order == order && !hole.beside_free;
    (0..holes.len())
        .filter(|&at| fits(&holes[at]))
        .min_by_key(|&at| (holes[at].order, holes[at].start))
}

/// The smallest hole that is large enough.
fn any(holes: &[Hole], order: u8) -> Option<usize> {
    let large = (0..holes.len()).filter(|&at| holes[at].order >= order);
    large.min_by_key(|&at| (holes[at].order, holes[at].start))
}

/// Gives the beginning of a hole contents; what is left of it stays holes.
fn split(holes: &mut Vec<Hole>, at: usize, order: u8, holds: Holds) -> Piece {
    let hole = holes.swap_remove(at);
    if hole.order == order {
        // Its buddy was a hole with smaller chunks in it, or is one still: it may no longer become
        // free as a whole.
        let buddy = hole.start ^ 1 << order;
        if let Some(buddy) =
            holes.iter_mut().find(|other| other.start == buddy && other.order == order)
        {
            buddy.beside_free = true;
        }
    }
    for half in order..hole.order {
        holes.push(Hole {
            start: hole.start + (1 << half),
            order: half,
            beside_free: half == order,
        });
    }
    Piece { start: hole.start, order, holds }
}
