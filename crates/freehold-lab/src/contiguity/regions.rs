//! Superpageblocks: memory in regions of 1 GiB, and what cannot move in as few of them as will do.
//!
//! After Rik van Riel's series "1GB superpageblock memory allocation" (linux-mm, RFC; v1 of 45
//! patches is of 30 April 2026, v2 of 40 of 20 May). A region with a block in use for what cannot
//! move is tainted, one with others alone in use clean, and one that is all free is empty.
//!
//! | request | of its own type | whole blocks | then | source |
//! |---|---|---|---|---|
//! | movable | clean regions, the fullest first | of these; of empty ones; of tainted ones, but for 3 % of their blocks | tainted regions, and what is left | v2 12, v1 24 |
//! | other | tainted regions | of these | in more than 8 regions movable blocks of tainted ones, whatever is in use in them | v2 19 and 20, v1 25 |
//! | other, after reclaim | | of empty regions, of clean ones | another type's block of a clean one | v2 20 |
//!
//! **Left out:** the worker that empties movable blocks of tainted regions before they are full (v2
//! 15), evacuation and compaction before a clean region is tainted (v1 24, v2 17). An engine of the
//! lab cannot move what it has handed out. **Better than published:** there are no lists of CPUs,
//! and searches of a list are not bounded to 8. **Guesses:** the fullest of tainted regions comes
//! first, too; within a region the smallest run that fits, the lowest first; "after reclaim" is
//! after so many refusals in a row as the loads reclaim and ask again.

use freehold::{Migratetype, Order};

use super::bound::State;
use super::full::TRIES;
use super::moment::REGION;

/// What the output says of it.
pub(super) const GUESSES: &str = "superpageblocks: that the fullest of tainted regions comes first, \
    the smallest run within a region, and how often a request reclaims first, are guesses";

/// Above so many regions single frames of movable blocks are taken (`SPB_AGGRESSIVE_THRESHOLD`).
const MANY: usize = 8;
/// Whole blocks of a tainted region that movable requests leave (`spb_tainted_reserve()`).
const RESERVE: usize = REGION * 3 / 100;

impl State {
    pub(super) fn steered(&mut self, order: Order, migratetype: usize) -> Option<u64> {
        let mut by_fill: Vec<usize> = (0..self.regions.len()).collect();
        by_fill.sort_by_key(|&at| self.regions[at].free);
        let (tainted, others): (Vec<_>, Vec<_>) =
            by_fill.into_iter().partition(|&at| self.regions[at].unmovable > 0);
        let (empty, clean): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|&at| self.regions[at].free == self.regions[at].frames);
        if migratetype == Migratetype::Movable as usize {
            return self.movable(order, [clean, empty, tainted]);
        }
        self.unmovable(order, migratetype, [tainted, empty, clean])
    }

    fn movable(&mut self, order: Order, [clean, empty, tainted]: [Vec<usize>; 3]) -> Option<u64> {
        let movable = Migratetype::Movable as usize;
        let regions = &self.regions;
        let of = |at: &usize| regions[*at].own(order, movable).or(regions[*at].whole(order));
        let spare = |at: &&usize| regions[**at].whole.len() > RESERVE;
        let own = |at: &usize| regions[*at].own(order, movable);
        let found = clean.iter().chain(&empty).find_map(of);
        let found = found.or_else(|| tainted.iter().find_map(own));
        let found = found.or_else(|| tainted.iter().filter(spare).find_map(of));
        match found.or_else(|| tainted.iter().find_map(of)) {
            Some(block) => self.take(block, order, movable),
            None => tainted.iter().find_map(|&at| self.fall_back(at, order, movable)),
        }
    }

    fn unmovable(
        &mut self,
        order: Order,
        migratetype: usize,
        [tainted, empty, clean]: [Vec<usize>; 3],
    ) -> Option<u64> {
        let regions = &self.regions;
        let packs = regions.len() > MANY;
        let own = tainted.iter().find_map(|&at| regions[at].own(order, migratetype));
        let found = own.or_else(|| tainted.iter().find_map(|&at| regions[at].whole(order)));
        let packed = || tainted.iter().find_map(|&at| regions[at].others(order, migratetype));
        let found = found.or_else(|| packed().filter(|_| packs));
        if let Some(block) = found {
            self.refused = 0;
            return self.take(block, order, migratetype);
        }
        if !tainted.is_empty() && self.refused + 1 < TRIES {
            self.refused += 1;
            return None;
        }
        self.refused = 0;
        match empty.iter().chain(&clean).find_map(|&at| regions[at].whole(order)) {
            Some(block) => self.take(block, order, migratetype),
            None => {
                let all = clean.iter().chain(&tainted);
                all.copied().find_map(|at| self.fall_back(at, order, migratetype))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use freehold::PAGEBLOCK_FRAMES;

    use super::super::bound::{Bound, Bounding};
    use super::*;
    use crate::engines::MachineConfig;

    const REGION_FRAMES: u64 = REGION as u64 * PAGEBLOCK_FRAMES;

    /// Such a machine, in half regions, and how it is asked: the region that a chunk is in.
    fn machine(halves: u64) -> impl Fn(u8, Migratetype) -> Option<u64> {
        let config = MachineConfig::new(halves * REGION_FRAMES / 2, 1);
        let engine = Bounding::new(Bound::Superpageblocks, &config);
        move |order, migratetype| Some(engine.place(order, migratetype)? / REGION_FRAMES)
    }

    /// What cannot move stays in one region, also of two types; what can in another, the fuller.
    #[test]
    fn types_share_a_region_that_movable_ones_avoid() {
        let of = machine(6);
        assert_eq!(of(0, Migratetype::Unmovable), Some(0));
        assert_eq!(of(0, Migratetype::Movable), Some(1));
        assert_eq!(of(3, Migratetype::Reclaimable), Some(0));
        for _ in 1..REGION {
            assert_eq!(of(9, Migratetype::Movable), Some(1), "the fullest clean one");
        }
        for _ in 0..REGION {
            assert_eq!(of(9, Migratetype::Movable), Some(2), "an empty one");
        }
        // Two blocks are in use there, and these come before what is kept back.
        for _ in 0..REGION - 2 {
            assert_eq!(of(9, Migratetype::Movable), Some(0), "and last the tainted one");
        }
        assert_eq!(of(9, Migratetype::Movable), None);
    }

    /// A last region that is no whole GiB is empty as others are: it is no fuller than a clean one.
    #[test]
    fn a_part_of_a_region_is_empty_when_all_of_it_is_free() {
        let of = machine(5);
        assert_eq!(of(0, Migratetype::Unmovable), Some(2), "the smallest empty one");
        assert_eq!(of(0, Migratetype::Movable), Some(0));
    }

    /// A request that would taint a clean region is refused so often as loads reclaim; in many
    /// regions it takes what is free of a tainted one's movable blocks before.
    #[test]
    fn reclaim_comes_before_a_region_is_tainted() {
        let refusals = |ask: &dyn Fn(u8, Migratetype) -> Option<u64>, region: u64| {
            let refused =
                (0..100).map(|_| ask(0, Migratetype::Unmovable)).take_while(Option::is_none);
            let refused = refused.count() as u32;
            assert_eq!(ask(0, Migratetype::Unmovable), Some(region));
            refused
        };
        let ask = machine(4);
        (0..REGION).for_each(|_| assert!(ask(9, Migratetype::Unmovable).is_some()));
        assert_eq!(refusals(&ask, 1), TRIES - 1);
        for (regions, refused) in [(MANY, TRIES - 1), (MANY + 1, 0)] {
            let ask = machine(2 * regions as u64);
            ask(9, Migratetype::Unmovable).unwrap();
            for _ in 0..regions * REGION - 2 {
                ask(9, Migratetype::Movable).unwrap();
            }
            ask(8, Migratetype::Movable).unwrap();
            assert_eq!(refusals(&ask, 0), refused, "{regions} regions");
        }
    }
}
