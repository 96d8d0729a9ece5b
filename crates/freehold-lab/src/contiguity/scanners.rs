//! The kernel's compaction (`mm/compaction.c`) on a copy of memory: two scanners that come towards
//! each other.
//!
//! ```text
//!  lowest block                                                          highest block
//!  migrate scanner ->   frames in use   ......   free frames   <- free scanner
//! ```
//!
//! The migrate scanner goes through every block from the lowest on and moves each chunk that can
//! move, whether its block becomes whole by that or not. Huge pages stay. The free scanner takes
//! the free chunks of blocks from the highest down, but of no whole block and of none that holds
//! what cannot move. Free chunks that it has and does not need yet wait in lists by order. Where
//! none of them has room for a chunk, and the next block has not either, the chunk is split into
//! frames (`compaction_alloc()`, `migrate_pages()`). The end is the target, which is looked for
//! after each block, or where the scanners meet.
//!
//! Left out: skip hints and the fast search by free lists, which change how many frames are looked
//! at; deferral and the wake-ups of kcompactd, which say when to begin; the score at which its
//! proactiveness stops, for which the target stands.

use freehold::{Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

use super::books::{Books, Chunks};
use super::figure::{Moved, Wanted};

const BLOCK: usize = PAGEBLOCK_FRAMES as usize;
const MOVABLE: u8 = Migratetype::Movable as u8 + 1;
/// A free chunk on the free scanner's lists.
const ISOLATED: u8 = u8::MAX;

struct Scan {
    /// As the books have them.
    frames: Vec<u8>,
    /// Free chunks that wait, by order.
    lists: [Vec<usize>; Order::PAGEBLOCK.get() as usize],
    /// The block that the free scanner looks at next is below this one.
    free_end: usize,
    steps: u64,
}

/// Runs it to the target, if that can be had.
pub(super) fn run(books: &Books<'_>, chunks: &Chunks, wanted: Wanted) -> Moved {
    let frames = books.blocks().flatten().copied().collect::<Vec<u8>>();
    let blocks = frames.len() / BLOCK;
    let mut scan = Scan { frames, lists: Default::default(), free_end: blocks, steps: 0 };
    let (mut more, mut moved) = (0, 0);
    for block in 0..blocks {
        if block >= scan.free_end || wanted.is_reached(more) {
            break;
        }
        let was_whole = scan.is_whole(block);
        let Some(frames) = scan.migrate(block, chunks, books.start) else { break };
        moved += frames;
        more += u64::from(!was_whole && scan.is_whole(block));
    }
    wanted.moved(more, moved, scan.steps)
}

impl Scan {
    fn of(&self, block: usize) -> &[u8] {
        &self.frames[block * BLOCK..][..BLOCK]
    }

    fn is_whole(&self, block: usize) -> bool {
        self.of(block).iter().all(|&frame| frame == 0)
    }

    /// Moves what can be moved of a block; the frames, or `None` where the scanners have met.
    fn migrate(&mut self, block: usize, chunks: &Chunks, start: u64) -> Option<u64> {
        let (mut at, end) = (block * BLOCK, (block + 1) * BLOCK);
        let mut moved = 0;
        while at < end {
            self.steps += 1;
            if self.frames[at] != MOVABLE {
                at += if self.frames[at] == 0 { 1 << self.free_order(at) } else { 1 };
                continue;
            }
            let order = chunks.at(Pfn::new(start + at as u64)).map_or(Order::ZERO, |of| of.1);
            let whole = order.frames() as usize;
            if order < Order::PAGEBLOCK {
                let place = self.place(order, block);
                let order = if place.is_some() { order } else { Order::ZERO };
                let len = order.frames() as usize;
                for part in (at..at + whole).step_by(len) {
                    let to = place.or_else(|| self.place(order, block))?;
                    self.frames[to..to + len].fill(MOVABLE);
                    self.frames[part..part + len].fill(0);
                    moved += order.frames();
                }
            }
            at += whole;
        }
        Some(moved)
    }

    /// The order of the free buddy at a frame, as the lists of a buddy allocator have it.
    fn free_order(&self, at: usize) -> u32 {
        let fits = |&order: &u32| {
            at.is_multiple_of(1 << order)
                && self.frames[at..(at + (1 << order)).min(self.frames.len())]
                    .iter()
                    .all(|&frame| frame == 0)
        };
        (0..=u32::from(Order::PAGEBLOCK.get())).rev().find(fits).unwrap_or(0)
    }

    /// Where a chunk goes: out of the smallest free one that waits and has room. For one of several
    /// frames the free scanner goes one block further.
    fn place(&mut self, order: Order, migrating: usize) -> Option<usize> {
        let mut blocks = 0;
        loop {
            let fits = (order.index()..self.lists.len()).find(|&k| !self.lists[k].is_empty());
            if let Some(from) = fits {
                let at = self.lists[from].pop()?;
                // The upper halves wait on.
                (order.index()..from).for_each(|k| self.lists[k].push(at + (1 << k)));
                return Some(at);
            }
            if blocks > 0 && order > Order::ZERO {
                return None;
            }
            blocks += usize::from(self.isolate_free(migrating)?);
        }
    }

    /// The free scanner's next block; whether it has free frames.
    fn isolate_free(&mut self, migrating: usize) -> Option<bool> {
        let block = self.free_end - 1;
        if block <= migrating {
            return None;
        }
        self.free_end = block;
        self.steps += 1;
        let movable = self.of(block).iter().all(|&frame| frame == 0 || frame == MOVABLE);
        if !movable || self.is_whole(block) {
            return Some(false);
        }
        let (mut at, mut some) = (block * BLOCK, false);
        while at < (block + 1) * BLOCK {
            self.steps += 1;
            let order = if self.frames[at] == 0 { self.free_order(at) } else { 0 };
            if self.frames[at] == 0 {
                self.frames[at..at + (1 << order)].fill(ISOLATED);
                self.lists[order as usize].push(at);
                some = true;
            }
            at += 1 << order;
        }
        Some(some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four blocks: one to be emptied, one of what cannot move, one with room, a whole one.
    #[test]
    fn chunks_move_from_the_lowest_block_to_the_highest_that_has_room() {
        let mut frames = vec![0; 4 * BLOCK];
        frames[8..12].fill(MOVABLE);
        frames[BLOCK] = Migratetype::Unmovable as u8 + 1;
        frames[2 * BLOCK..3 * BLOCK - 8].fill(MOVABLE);
        let order = Order::new(2).unwrap();
        let chunks = Chunks::new(std::iter::once((Pfn::new(1008), order)));
        let mut scan = Scan { frames, lists: Default::default(), free_end: 4, steps: 0 };
        assert_eq!(scan.migrate(0, &chunks, 1000), Some(4));
        assert!(scan.is_whole(0) && scan.is_whole(3) && scan.free_end == 2);
        let place = 3 * BLOCK - 8;
        assert_eq!(
            scan.of(2)[BLOCK - 8..],
            [MOVABLE, MOVABLE, MOVABLE, MOVABLE, 255, 255, 255, 255]
        );
        assert_eq!(scan.lists[2], [place + 4]);
        // Two runs and a chunk of the first block, 505 frames of the third.
        assert!((500..520).contains(&scan.steps), "{}", scan.steps);
        assert_eq!(scan.migrate(2, &chunks, 1000), None, "the scanners have met");
    }

    /// The only block with room has none for eight frames in a row.
    #[test]
    fn a_chunk_that_fits_nowhere_is_split() {
        let mut frames = vec![0; 2 * BLOCK];
        frames[0..8].fill(MOVABLE);
        frames[BLOCK..].fill(MOVABLE);
        (0..16).for_each(|n| frames[BLOCK + 8 * n] = 0);
        let chunks = Chunks::new(std::iter::once((Pfn::new(0), Order::new(3).unwrap())));
        let mut scan = Scan { frames, lists: Default::default(), free_end: 2, steps: 0 };
        assert_eq!(scan.migrate(0, &chunks, 0), Some(8));
        assert!(scan.is_whole(0));
        assert_eq!(scan.lists[0].len(), 8);
    }
}
