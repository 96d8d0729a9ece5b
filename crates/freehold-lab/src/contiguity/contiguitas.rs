//! Contiguitas: what cannot move below a border in memory, what can above it, and the border moves.
//!
//! After Zhao et al., "Contiguitas: The Pursuit of Physical Memory Contiguity in Datacenters" (ISCA
//! 2023): its software, by the abstract and by the account that its first author gives (CMU, CSD
//! PhD Blog, 8 October 2024). The paper itself was not to be had.
//!
//! | | as told there | a guess |
//! |---|---|---|
//! | regions | one for each kind, with lists of its own; no request is served by the other one | what cannot move is at the lower end, and has a 16th of memory at first |
//! | place | as far from the border as free memory allows; types of what cannot move are kept apart | the smallest run that fits, by best fit of all runs |
//! | when | a thread, woken by reclaim where a region's free memory is below its low mark | the mark is a zone's of that size; the thread is done before the load goes on |
//! | how far | by the time that was lost for want of memory in each region | by the requests refused there since: a 256th of memory, four times that at most |
//! | out of the way | what can move is migrated; of what cannot nothing, without hardware | a region of what cannot move gives up whole blocks alone, while it keeps twice its mark |
//!
//! **Left out:** frames that come to be unmovable while in use, and the hardware. **Better than
//! told:** no lists of CPUs.

use freehold::{Migratetype, Order, PAGEBLOCK_FRAMES};
use freehold_classic::Watermarks;

use super::bound::State;
use super::runs;

/// What the output says of it.
pub(super) const GUESSES: &str = "contiguitas, of which only what its authors told of the paper was \
    to be had: which end of memory is whose, how large each is at first, how far the border moves \
    at once, and the smallest run first, are guesses";

const UNMOVABLE: usize = 0;
const MOVABLE: usize = 1;
/// Parts of memory: what cannot move has one at first, and what the border moves by.
const FIRST: u32 = 16;
const STEP: u32 = 256;
/// Steps at once, where many requests were refused.
const STEPS: u64 = 4;

/// The border between two regions, and what it has cost.
#[derive(Default)]
pub(super) struct Border {
    /// The first block for what can move.
    pub(super) at: u32,
    /// Of the first frame of each chunk in use its order and 1, else 0.
    orders: Vec<u8>,
    /// Requests refused in each region since the border was looked at.
    refused: [u64; 2],
}

/// A chunk that has moved: its place before and now, and its order.
type Move = (u64, u64, Order);

impl Border {
    pub(super) fn new(blocks: u32) -> Self {
        let orders = vec![0; blocks as usize * PAGEBLOCK_FRAMES as usize];
        Self { at: (blocks / FIRST).max(1), orders, ..Self::default() }
    }

    /// Notes what is at a place: the order of a chunk and 1, or 0. Where nothing moves, nothing is.
    fn note(&mut self, place: u64, what: u8) {
        self.orders.get_mut(place as usize).into_iter().for_each(|of| *of = what);
    }

    pub(super) fn begins(&mut self, place: u64, order: Order) {
        self.note(place, order.get() + 1);
    }

    pub(super) fn ends(&mut self, place: u64) {
        self.note(place, 0);
    }

    /// The frames of a chunk are chunks from now on.
    pub(super) fn splits(&mut self, place: u64, order: Order) {
        (place..place + order.frames()).for_each(|frame| self.note(frame, 1));
    }
}

impl State {
    /// A request in the region of its kind.
    pub(super) fn confined(&mut self, order: Order, migratetype: usize) -> Option<u64> {
        let at = usize::from(migratetype == Migratetype::Movable as usize);
        let place = self.best_fit(at, order, migratetype);
        self.border.refused[at] += u64::from(place.is_none());
        place
    }

    /// What the thread does that reclaim wakes; what has moved by it.
    pub(super) fn rebalance(&mut self) -> Vec<Move> {
        let blocks = self.blocks.len() as u32;
        let sizes = [self.border.at, blocks - self.border.at].map(u64::from);
        let marks = sizes.map(|of| Watermarks::kernel_default(of * PAGEBLOCK_FRAMES, false).low);
        let free = [UNMOVABLE, MOVABLE].map(|at| self.regions[at].free);
        let refused = std::mem::take(&mut self.border.refused);
        let is_low = |at: usize| free[at] < marks[at] || refused[at] > 0;
        let by = |at: usize| (blocks / STEP).max(1) * (1 + refused[at]).min(STEPS) as u32;
        let mut moves = Vec::new();
        if is_low(UNMOVABLE) && (!is_low(MOVABLE) || refused[UNMOVABLE] >= refused[MOVABLE]) {
            // No more than has room elsewhere.
            let room = (free[MOVABLE] / PAGEBLOCK_FRAMES) as u32;
            let end = (self.border.at + by(UNMOVABLE).min(room)).min(blocks - 1);
            let taken: Vec<u32> = (self.border.at..end).collect();
            // Nothing moves into a block that is next.
            taken.iter().for_each(|&block| self.unlist(block));
            let emptied = taken.iter().take_while(|&&block| self.empty(block, &mut moves)).count();
            self.border.at += emptied as u32;
            taken.iter().for_each(|&block| self.relist(block));
        } else if is_low(MOVABLE) {
            let spare = free[UNMOVABLE].saturating_sub(2 * marks[UNMOVABLE]) / PAGEBLOCK_FRAMES;
            for _ in 0..u64::from(by(MOVABLE)).min(spare) {
                let last = self.border.at - 1;
                if last == 0 || runs::free(&self.blocks[last as usize]) < PAGEBLOCK_FRAMES {
                    break;
                }
                self.unlist(last);
                self.border.at = last;
                self.relist(last);
            }
        }
        moves
    }

    /// Moves what is in use in a block that is on no list; whether there was room for all of it.
    fn empty(&mut self, block: u32, moves: &mut Vec<Move>) -> bool {
        let movable = Migratetype::Movable as usize;
        let start = u64::from(block) * PAGEBLOCK_FRAMES;
        let mut at = start;
        while at < start + PAGEBLOCK_FRAMES {
            let Some(order) = self.border.orders[at as usize].checked_sub(1).and_then(Order::new)
            else {
                at += 1;
                continue;
            };
            let mut order = order;
            let mut to = self.best_fit(MOVABLE, order, movable);
            if to.is_none() {
                to = self.best_fit(MOVABLE, Order::ZERO, movable);
                if to.is_some() {
                    self.border.splits(at, order);
                }
                order = Order::ZERO;
            }
            let Some(to) = to else { return false };
            let bits = &mut self.blocks[block as usize];
            runs::covered((at - start) as u32, order).for_each(|(word, mask)| bits[word] |= mask);
            self.border.ends(at);
            moves.push((at, to, order));
            at += order.frames();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use freehold::{CpuId, Pfn};

    use super::super::bound::{Bound, Bounding};
    use super::*;
    use crate::engine::Engine;
    use crate::engines::MachineConfig;
    use crate::trials::simulated::Simulated;

    /// 32 blocks, of which what cannot move has two.
    struct Machine(Bounding, u64);

    impl Machine {
        fn new() -> Self {
            let config = MachineConfig::new(32 * PAGEBLOCK_FRAMES, 1);
            Self(Bounding::new(Bound::Contiguitas, &config), config.start_pfn.get())
        }

        /// The block and the place in it of a chunk.
        fn ask(&self, order: u8, migratetype: Migratetype) -> Option<(u64, u64)> {
            let place = self.0.place(order, migratetype)?;
            Some((place / PAGEBLOCK_FRAMES, place % PAGEBLOCK_FRAMES))
        }

        fn free(&self, block: u64, at: u64, order: u8) {
            let pfn = Pfn::new(self.1 + block * PAGEBLOCK_FRAMES + at);
            self.0.free(CpuId::new(0), pfn, Order::new(order).unwrap()).unwrap();
        }

        /// What has moved, from block to block, and the order of each chunk.
        fn rebalance(&self) -> Vec<(u64, u64, u8)> {
            let block = |pfn: Pfn| (pfn.get() - self.1) / PAGEBLOCK_FRAMES;
            let moves = self.0.rebalance().unwrap();
            self.0.validate().unwrap();
            moves.into_iter().map(|(from, to, of)| (block(from), block(to), of.get())).collect()
        }
    }

    use Migratetype::{Movable, Reclaimable, Unmovable};

    #[test]
    fn each_kind_keeps_to_its_region_away_from_the_border() {
        let machine = Machine::new();
        assert_eq!(machine.ask(0, Unmovable), Some((0, 0)));
        assert_eq!(machine.ask(0, Movable), Some((31, 0)));
        assert_eq!(machine.ask(0, Reclaimable), Some((1, 0)), "types are kept apart");
        assert_eq!(machine.ask(9, Movable), Some((30, 0)));
        assert_eq!(machine.ask(9, Unmovable), None, "29 blocks are free beyond the border");
    }

    /// Memory is full, what can move with chunks up to the border: one of them gets out of the way,
    /// whole or in parts, as there is room. Without room the border stays.
    #[test]
    fn what_is_in_the_borders_way_is_moved() {
        for (room, order) in [(&[(0, 9)][..], 3), (&[(0, 0), (2, 0), (4, 0), (6, 0)], 0), (&[], 4)]
        {
            let machine = Machine::new();
            for order in [9, 9] {
                machine.ask(order, Unmovable).unwrap();
            }
            (3..31).for_each(|_| assert!(machine.ask(9, Movable).is_some()));
            (0..512).for_each(|_| assert!(machine.ask(0, Movable).is_some()));
            assert_eq!(machine.ask(2, Movable), Some((2, 0)));
            let block = if order == 0 { 3 } else { 10 };
            room.iter().for_each(|&(at, order)| machine.free(block, at, order));
            let moved = match order {
                3 => vec![(2, 10, 2)],
                0 => vec![(2, 3, 0); 4],
                _ => Vec::new(),
            };
            assert_eq!(machine.rebalance(), moved);
            assert_eq!(machine.ask(0, Unmovable).is_some(), order != 4, "the border has moved");
        }
    }

    /// What can move wants more: it gets whole blocks at the border, but for twice the low mark.
    #[test]
    fn whole_blocks_at_the_border_go_back() {
        for is_used in [false, true] {
            let machine = Machine::new();
            assert_eq!(machine.ask(9, Unmovable), Some((0, 0)));
            assert_eq!(machine.ask(0, Unmovable).filter(|_| is_used), is_used.then_some((1, 0)));
            machine.free(0, 0, 9);
            if !is_used {
                machine.free(1, 0, 0);
            }
            (0..30).for_each(|_| assert!(machine.ask(9, Movable).is_some()));
            for had in [Some((1, 0)).filter(|_| !is_used), None] {
                assert_eq!(machine.ask(9, Movable), None);
                assert_eq!(machine.rebalance(), []);
                assert_eq!(machine.ask(9, Movable), had, "in use: {is_used}");
            }
        }
    }
}
