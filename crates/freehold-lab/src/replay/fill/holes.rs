//! The parts of regions that have no contents yet, and free chunks put into them.

use std::collections::VecDeque;

use super::{LARGEST, Piece, REGION};
use freehold::Order;

/// A part of a region that has no contents yet.
#[derive(Clone, Copy)]
pub(super) struct Hole {
    pub(super) start: u16,
    pub(super) order: u8,
    /// Its buddy is a free chunk, so that it cannot become one itself.
    beside_free: bool,
}

impl Hole {
    pub(super) const fn whole() -> Self {
        // The largest order has no buddy.
        Self { start: 0, order: Order::LINUX_MAX.get(), beside_free: false }
    }
}

/// Places free chunks into holes, the largest first, each in the region after the last one; frames
/// that found no place.
///
/// `halving`: a chunk without a place is two of the order below. CMA makes two kinds of memory of
/// one, each with fewer regions to choose from, and the frames that are free are to be as many as
/// without it.
pub(super) fn spread(
    mut chunks: [u64; LARGEST + 1],
    halving: bool,
    holes: &mut [Vec<Hole>],
    placed: &mut [Vec<Piece>],
) -> u64 {
    // No hole is a region that may be free as a whole.
    let mut left_out = if halving { 0 } else { chunks[LARGEST] * REGION };
    if halving {
        chunks[LARGEST - 1] += 2 * chunks[LARGEST];
    }
    for order in (0..LARGEST as u8).rev() {
        // Regions that have room for this order, in turn.
        let mut turn: VecDeque<usize> = (0..holes.len()).collect();
        for left in (0..chunks[usize::from(order)]).rev() {
            let found = loop {
                let Some(&region) = turn.front() else { break None };
                match best(&holes[region], order) {
                    Some(hole) => break Some((region, hole)),
                    None => turn.pop_front(),
                };
            };
            let Some((region, hole)) = found else {
                match chunks.get_mut(usize::from(order).wrapping_sub(1)).filter(|_| halving) {
                    Some(smaller) => *smaller += 2 * (left + 1),
                    None => left_out += (left + 1) << order,
                }
                break;
            };
            turn.rotate_left(1);
            placed[region].push(split(&mut holes[region], hole, order));
        }
    }
    left_out
}

/// The smallest hole in which a free chunk of `order` has a buddy that is not free.
fn best(holes: &[Hole], order: u8) -> Option<usize> {
    let fits = |hole: &Hole| hole.order > order || hole.order == order && !hole.beside_free;
    (0..holes.len())
        .filter(|&at| fits(&holes[at]))
        .min_by_key(|&at| (holes[at].order, holes[at].start))
}

/// Makes the beginning of a hole a free chunk; what is left of it stays holes.
fn split(holes: &mut Vec<Hole>, at: usize, order: u8) -> Piece {
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
    Piece { start: hole.start, order, free: true }
}
