//! What this CPU has freed last into words that it does not lease: where to look first for a chunk
//! of that order.
//!
//! Only hints: the frames are in their word, visible to everybody, and may be gone. Without them a
//! random free and the next allocation would each lease a word for one frame or run, or look for
//! whole words on the board.
//!
//! They are of blocks of the home zone, of any type: what is of another type is forgotten on the
//! way.

use crate::block::Block;
use crate::block::layout::{Blocks, Place};
use crate::primitive::{AtomicU32, Relaxed};

/// Places kept of each order; the oldest is forgotten. A power of two.
///
/// More make mixed orders cheaper, and cost contiguity: what is freed is taken again before the
/// board is asked which block fits best. Few under loom, whose threads have small stacks.
const KEPT: usize = if cfg!(loom) { 4 } else { 16 };
/// Orders 0 to 8.
const ORDERS: usize = 9;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Recent([Ring; ORDERS]);

/// The newest places of one order.
struct Ring {
    /// Behind the newest there are empty ones, or the oldest.
    places: [Place; KEPT],
    /// The newest.
    top: AtomicU32,
}

impl Recent {
    pub(crate) fn new() -> Self {
        let ring =
            |_| Ring { places: core::array::from_fn(|_| Place::none()), top: AtomicU32::new(0) };
        Self(core::array::from_fn(ring))
    }

    #[inline(always)]
    fn ring(&self, order: u32) -> &Ring {
        debug_assert!((order as usize) < ORDERS);
        &self.0[(order as usize).min(ORDERS - 1)]
    }

    /// A chunk of order 0 to 8 was freed, by its block and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, order: u32, block: Block<'_>, offset: u32) {
        let ring = self.ring(order);
        let top = ring.top.get().wrapping_add(1);
        ring.places[top as usize % KEPT].set(block, offset);
        ring.top.set(top);
    }

    /// The newest of that order.
    #[inline(always)]
    pub(crate) fn pop<'m>(&self, blocks: &Blocks<'m>, order: u32) -> Option<(Block<'m>, u32)> {
        let ring = self.ring(order);
        let top = ring.top.get();
        let place = &ring.places[top as usize % KEPT];
        let newest = place.get(blocks)?;
        place.clear();
        ring.top.set(top.wrapping_sub(1));
        Some(newest)
    }

    /// Whether there is one of that order.
    pub(crate) fn has_any(&self, order: u32) -> bool {
        let ring = self.ring(order);
        !ring.places[ring.top.get() as usize % KEPT].is_none()
    }

    pub(crate) fn clear(&self) {
        self.0.iter().flat_map(|ring| &ring.places).for_each(Place::clear);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::block::FRAMES;
    use crate::tests::testing::set_up;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let (recent, map) = (Recent::new(), &set_up().map);
        for order in 0..9 {
            assert!(recent.pop(&map.blocks, order).is_none());
            let kept = KEPT as u32;
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
        (0..9).for_each(|order| {
            assert!(!recent.has_any(order) && recent.pop(&map.blocks, order).is_none())
        });
    }
}
