//! Chunks that this CPU has freed lately into words that it does not lease: where to look first for
//! one of that order and type.
//!
//! Only hints: the frames are in their word, visible to everybody, and may be gone. Without them a
//! random free and the next allocation would each lease a word for one frame or run, or look for
//! whole words on the board.
//!
//! Hints are left to any block of the home zone.

use crate::block::Block;
use crate::block::layout::Place;
use crate::block::map::FrameMap;
use crate::primitive::{AtomicU32, Plain};

/// Hints kept of single frames, of the runs of each order and type, and of whole words; the oldest
/// is forgotten. Powers of two.
///
/// More make mixed orders cheaper, and cost contiguity: what is freed is taken again before the
/// board is asked which block fits best. Eight of each order and type take a sixth more
/// instructions for mixed orders. 64 single frames of each type, where now those of another type
/// are forgotten on the way, leave up to 5 % less of free memory in whole blocks after long aging.
/// Few under loom, whose threads have small stacks.
const FRAMES_KEPT: usize = if cfg!(loom) { 4 } else { 64 };
const RUNS_KEPT: usize = if cfg!(loom) { 2 } else { 16 };
const WORDS_KEPT: usize = if cfg!(loom) { 2 } else { 8 };
/// Types that have hints of their own: those that requests name. Others share the last one's.
const TYPES: usize = 3;

/// See the module's documentation. Under the CPU's door.
pub(crate) struct Hints {
    frames: Ring<FRAMES_KEPT>,
    /// Of orders 1 to 5.
    runs: [[Ring<RUNS_KEPT>; 5]; TYPES],
    /// Of orders 6 to 8.
    words: [[Ring<WORDS_KEPT>; 3]; TYPES],
}

/// The newest hints of one kind.
struct Ring<const N: usize> {
    /// Behind the newest hint there are empty entries, or the oldest one.
    entries: [Place; N],
    /// The newest.
    top: AtomicU32,
}

impl<const N: usize> Ring<N> {
    fn new() -> Self {
        Self { entries: core::array::from_fn(|_| Place::none()), top: AtomicU32::new(0) }
    }

    #[inline(always)]
    fn push(&self, block: Block<'_>, offset: u32) {
        let top = self.top.get().wrapping_add(1);
        self.entries[top as usize % N].set(block, offset);
        self.top.set(top);
    }

    #[inline(always)]
    fn pop<'m>(&self, map: &FrameMap<'m>) -> Option<(Block<'m>, u32)> {
        let top = self.top.get();
        let entry = &self.entries[top as usize % N];
        let hint = entry.get(map)?;
        entry.clear();
        self.top.set(top.wrapping_sub(1));
        Some(hint)
    }

    /// Up to the first empty entry: behind that there are no others.
    fn clear(&self) {
        loop {
            let top = self.top.get();
            let entry = &self.entries[top as usize % N];
            if entry.is_none() {
                return;
            }
            entry.clear();
            self.top.set(top.wrapping_sub(1));
        }
    }
}

impl Hints {
    pub(crate) fn new() -> Self {
        Self {
            frames: Ring::new(),
            runs: core::array::from_fn(|_| core::array::from_fn(|_| Ring::new())),
            words: core::array::from_fn(|_| core::array::from_fn(|_| Ring::new())),
        }
    }

    /// A chunk of order 0 to 8 in a block of that type, by its block and its place in the block.
    #[inline(always)]
    pub(crate) fn push(&self, migratetype: usize, order: u32, block: Block<'_>, offset: u32) {
        debug_assert!(order < 9);
        let kind = migratetype.min(TYPES - 1);
        match order as usize {
            0 => self.frames.push(block, offset),
            order @ 1..6 => self.runs[kind][order - 1].push(block, offset),
            order => self.words[kind][(order - 6).min(2)].push(block, offset),
        }
    }

    /// The newest of that order, and of that type where it has its own.
    #[inline(always)]
    pub(crate) fn pop<'m>(
        &self,
        map: &FrameMap<'m>,
        migratetype: usize,
        order: u32,
    ) -> Option<(Block<'m>, u32)> {
        let kind = migratetype.min(TYPES - 1);
        match order as usize {
            0 => self.frames.pop(map),
            order @ 1..6 => self.runs[kind][order - 1].pop(map),
            order => self.words[kind][(order - 6).min(2)].pop(map),
        }
    }

    /// Whether there is one of whole words, of that order and type.
    pub(crate) fn has_any(&self, migratetype: usize, order: u32) -> bool {
        let ring = &self.words[migratetype.min(TYPES - 1)][(order as usize - 6).min(2)];
        !ring.entries[ring.top.get() as usize % WORDS_KEPT].is_none()
    }

    pub(crate) fn clear(&self) {
        self.frames.clear();
        self.runs.iter().flatten().for_each(Ring::clear);
        self.words.iter().flatten().for_each(Ring::clear);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::block::FRAMES;
    use crate::testing::set_up;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn the_newest_come_out_first_and_the_oldest_are_forgotten() {
        let (hints, map) = (Hints::new(), &set_up().map);
        for (order, kept) in
            [(0, FRAMES_KEPT), (1, RUNS_KEPT), (5, RUNS_KEPT), (6, WORDS_KEPT), (8, WORDS_KEPT)]
        {
            assert!(hints.pop(map, 1, order).is_none());
            let kept = kept as u32;
            for n in 0..kept + 10 {
                hints.push(
                    1,
                    order,
                    map.locate_block(u64::from(n / 3)).unwrap(),
                    n % FRAMES as u32,
                );
            }
            let number = |(block, offset): (Block<'_>, u32)| (block.head.number, offset);
            let all: Vec<_> =
                core::iter::from_fn(|| hints.pop(map, 1, order).map(number)).collect();
            let hint = |n: u32| (n / 3, n % FRAMES as u32);
            let expected: Vec<_> = (10..kept + 10).rev().map(hint).collect();
            assert_eq!(all, expected);
        }
    }

    #[test]
    fn each_order_and_type_of_runs_has_its_own() {
        let (hints, map) = (Hints::new(), &set_up().map);
        let all = || (0..TYPES).flat_map(|kind| (1..9).map(move |order| (kind, order)));
        let offset = |kind: usize, order: u32| kind as u32 * 9 + order;
        let last = map.locate_block(63).unwrap();
        all().for_each(|(kind, order)| hints.push(kind, order, last, offset(kind, order)));
        all().for_each(|(kind, order)| {
            let hint = hints.pop(map, kind, order);
            assert!(hint == Some((last, offset(kind, order))));
        });
        all().chain([(0, 0)]).for_each(|(kind, order)| hints.push(kind, order, last, 2));
        hints.clear();
        all()
            .chain([(0, 0)])
            .for_each(|(kind, order)| assert!(hints.pop(map, kind, order).is_none()));
    }
}
