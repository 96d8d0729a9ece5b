//! What this CPU has freed last into words that it does not lease: where to look first.
//!
//! Only hints: the frames are in their word, visible to everybody, and may be gone. Without them a
//! random free and the next allocation would each lease a word for one frame or run, or look for
//! whole words on the board.
//!
//! They are of blocks of the home zone, of any type: another than is wanted is forgotten.

use crate::block::Block;
use crate::block::layout::{Blocks, Place};
use crate::primitive::{AtomicU32, Relaxed};

/// Places kept of single frames, and of each order from 1 to 8; powers of two.
///
/// More make mixed orders cheaper, and cost contiguity: what is freed is taken again before the
/// board is asked which block fits best. With 16 single frames a step of mixed orders takes a sixth
/// more instructions. Few under loom, whose threads have small stacks.
const FRAMES_KEPT: usize = if cfg!(loom) { 4 } else { 64 };
const RUNS_KEPT: usize = if cfg!(loom) { 2 } else { 16 };
/// Orders 1 to 8.
const ORDERS: usize = 8;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Recent {
    frames: Ring<FRAMES_KEPT>,
    runs: [Ring<RUNS_KEPT>; ORDERS],
}

/// The newest places of one order.
struct Ring<const N: usize> {
    /// Behind the newest there are empty ones, or the oldest.
    places: [Place; N],
    /// The newest.
    top: AtomicU32,
}

impl<const N: usize> Ring<N> {
    fn new() -> Self {
        Self { places: core::array::from_fn(|_| Place::none()), top: AtomicU32::new(0) }
    }

    #[inline(always)]
    fn push(&self, block: Block<'_>, offset: u32) {
        let top = self.top.get().wrapping_add(1);
        self.places[top as usize % N].set(block, offset);
        self.top.set(top);
    }

    #[inline(always)]
    fn pop<'m>(&self, blocks: &Blocks<'m>) -> Option<(Block<'m>, u32)> {
        let top = self.top.get();
        let place = &self.places[top as usize % N];
        let newest = place.get(blocks)?;
        place.clear();
        self.top.set(top.wrapping_sub(1));
        Some(newest)
    }
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { frames: Ring::new(), runs: core::array::from_fn(|_| Ring::new()) }
    }

    #[inline(always)]
    fn runs(&self, order: u32) -> &Ring<RUNS_KEPT> {
        debug_assert!((1..9).contains(&order));
        &self.runs[(order as usize - 1).min(ORDERS - 1)]
    }

    /// A chunk of order 0 to 8 was freed, by its block and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, order: u32, block: Block<'_>, offset: u32) {
        match order {
            0 => self.frames.push(block, offset),
            _ => self.runs(order).push(block, offset),
        }
    }

    /// The newest of that order.
    #[inline(always)]
    pub(crate) fn pop<'m>(&self, blocks: &Blocks<'m>, order: u32) -> Option<(Block<'m>, u32)> {
        match order {
            0 => self.frames.pop(blocks),
            _ => self.runs(order).pop(blocks),
        }
    }

    /// Whether there is a run of that order.
    pub(crate) fn has_run(&self, order: u32) -> bool {
        let ring = self.runs(order);
        !ring.places[ring.top.get() as usize % RUNS_KEPT].is_none()
    }

    pub(crate) fn clear(&self) {
        self.frames.places.iter().for_each(Place::clear);
        self.runs.iter().flat_map(|ring| &ring.places).for_each(Place::clear);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::FRAMES;
    use crate::tests::testing::*;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let (recent, map) = (Recent::new(), &set_up().map);
        for order in 0..9 {
            assert!(recent.pop(&map.blocks, order).is_none());
            let kept = if order == 0 { FRAMES_KEPT } else { RUNS_KEPT } as u32;
            let place = |n: u32| (n / 3, n % FRAMES as u32);
            for n in 0..kept + 10 {
                let (number, offset) = place(n);
                recent.push(order, map.locate_block(number.into()).unwrap(), offset);
            }
            let seen = |(block, offset): (Block<'_>, u32)| (block.head.number, offset);
            let all: Vec<_> =
                core::iter::from_fn(|| recent.pop(&map.blocks, order).map(seen)).collect();
            let expected: Vec<_> = (10..kept + 10).rev().map(place).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn each_order_has_its_own() {
        let (recent, map) = (Recent::new(), &set_up().map);
        let last = map.locate_block(63).unwrap();
        (0..9).for_each(|order| recent.push(order, last, order));
        (0..9).for_each(|order| assert!(recent.pop(&map.blocks, order) == Some((last, order))));
        (0..9).for_each(|order| recent.push(order, last, 2));
        recent.clear();
        (0..9).for_each(|order| assert!(recent.pop(&map.blocks, order).is_none()));
    }
}
