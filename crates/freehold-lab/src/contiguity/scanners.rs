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
//! It is run with five ends:
//!
//! | | begins | ends |
//! |---|---|---|
//! | to a target | | 90 % of what is free is whole |
//! | kcompactd by itself | the score is above the high mark (`should_proactive_compact_node()`) | it is at the low one (`__compact_finished()`) |
//! | by requests | no block is whole, and the request is not deferred (`compaction_deferred()`) | one is |
//! | kcompactd with `vm.defrag_mode` | it is woken, and whole blocks are not above the zone's high mark (`NR_FREE_PAGES_BLOCKS` in `compaction_suit_allocation_order()`) | they are (`__compact_finished()`) |
//! | by requests with `vm.defrag_mode` | as by requests; each that finds no whole block wakes kswapd with the order of a block or its own, the larger (`wake_all_kswapds()`), and kswapd kcompactd when it sleeps | as both |
//!
//! All end where the scanners meet. Whoever begins goes on where the one before ended, and after
//! the scanners have met anew; kcompactd, too, is deferred after that. `vm.compaction_proactiveness`
//! is 20, as it comes; the high mark is that of a machine with huge pages.
//!
//! Left out: skip hints and the fast search by free lists, which change how many frames are looked
//! at; the asynchronous try before a request's own; reclaim, by kswapd or before a request
//! compacts, and with it that none of them compacts where little is free
//! (`compaction_suitable()`); of `defrag_mode` that types are not mixed (`ALLOC_NOFRAGMENT`). A
//! guess: kcompactd has done its work when the next request comes.

use freehold::{Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use freehold_classic::Watermarks;

use super::books::{Books, Chunks};
use super::figure::{Moved, Wanted};

const BLOCK: usize = PAGEBLOCK_FRAMES as usize;
const MOVABLE: u8 = Migratetype::Movable as u8 + 1;
/// A free chunk on the free scanner's lists.
const ISOLATED: u8 = u8::MAX;
const PROACTIVENESS: u64 = 20;

struct Scan {
    /// As the books have them.
    frames: Vec<u8>,
    /// Of the first frame of a chunk that can move, its order.
    orders: Vec<u8>,
    /// Free chunks that wait, by order.
    lists: [Vec<usize>; Order::PAGEBLOCK.get() as usize],
    /// The block that the migrate scanner looks at next.
    next: usize,
    /// The block that the free scanner looks at next is below this one.
    free_end: usize,
    /// Blocks that nobody uses any of.
    whole: Vec<usize>,
    moved: u64,
    steps: u64,
}

/// What the kernel's compaction comes to with each end; the two by requests after the other three:
/// what those were given is not free.
pub(super) fn run(books: &Books<'_>, chunks: &Chunks, wanted: Wanted) -> [Moved; 5] {
    let target = to_an_end(books, chunks, wanted, |more| wanted.is_reached(more));
    let score = |more| score(wanted.free, wanted.whole + more);
    // Of one zone, weighted as `fragmentation_score_node()` does.
    let node = score(0) * books.managed() / (books.managed() + 1);
    let [low, high] = marks(PROACTIVENESS);
    let proactive = to_an_end(books, chunks, wanted, |more| node <= high || score(more) <= low);
    let high = Watermarks::kernel_default(books.managed(), true).high;
    let defrag = to_an_end(books, chunks, wanted, |more| is_above(high, wanted.whole + more));
    let by_requests = |high| {
        let mut scan = Scan::new(books, chunks);
        let asked = scan.requests(wanted.free / PAGEBLOCK_FRAMES, high);
        Moved {
            order9: (asked.had * PAGEBLOCK_FRAMES) as f64 / wanted.free.max(1) as f64,
            huge_pages: asked.had,
            frames: scan.moved,
            steps: scan.steps,
            stalls: asked.stalls,
            deferred: asked.deferred,
            beside: 0,
        }
    };
    [target, proactive, defrag, by_requests(None), by_requests(Some(high))]
}

/// `is_done` of the blocks made whole.
fn to_an_end(
    books: &Books<'_>,
    chunks: &Chunks,
    wanted: Wanted,
    is_done: impl Fn(u64) -> bool,
) -> Moved {
    let mut scan = Scan::new(books, chunks);
    let before = scan.whole.len();
    let more = |scan: &Scan| (scan.whole.len() - before) as u64;
    scan.compact(|scan| is_done(more(scan)));
    wanted.moved(more(&scan), scan.moved, scan.steps)
}

/// The percentage of what is free that is not whole: `extfrag_for_order()`.
fn score(free: u64, whole: u64) -> u64 {
    (free - whole * PAGEBLOCK_FRAMES) * 100 / free.max(1)
}

/// Where proactive compaction ends, and above what it begins: `fragmentation_score_wmark()`.
fn marks(proactiveness: u64) -> [u64; 2] {
    let low = 100 - proactiveness;
    [low, (low + 10.min(low / 2)).min(100)]
}

/// Whether whole blocks are above a mark by themselves: `__zone_watermark_ok()` for order 9.
fn is_above(mark: u64, whole: u64) -> bool {
    whole * PAGEBLOCK_FRAMES > mark + (PAGEBLOCK_FRAMES - 1)
}

/// How many requests of the one order that is asked for are refused after a compaction that came to
/// nothing: `defer_compaction()`, `compaction_deferred()`.
#[derive(Default)]
struct Deferral {
    considered: u64,
    shift: u32,
}

/// What requests came to: those that got a huge page, that compacted, and that were deferred.
#[derive(Default, PartialEq, Debug)]
struct Asked {
    had: u64,
    stalls: u64,
    deferred: u64,
}

impl Deferral {
    /// `COMPACT_MAX_DEFER_SHIFT`.
    const MOST: u32 = 6;

    fn defer(&mut self) {
        *self = Self { considered: 0, shift: (self.shift + 1).min(Self::MOST) };
    }

    /// Of one more request.
    fn is_deferred(&mut self) -> bool {
        let limit = 1 << self.shift;
        self.considered = (self.considered + 1).min(limit);
        self.considered < limit
    }
}

impl Scan {
    fn new(books: &Books<'_>, chunks: &Chunks) -> Self {
        let frames = books.blocks().flatten().copied().collect::<Vec<u8>>();
        let order = |at| chunks.at(Pfn::new(books.start + at)).map_or(0, |of| of.1.get());
        let orders = (0..frames.len() as u64).map(order).collect();
        Self::of_frames(frames, orders)
    }

    fn of_frames(frames: Vec<u8>, orders: Vec<u8>) -> Self {
        let blocks = frames.len() / BLOCK;
        let (lists, whole) = Default::default();
        let mut scan =
            Self { frames, orders, lists, next: 0, free_end: blocks, whole, moved: 0, steps: 0 };
        scan.whole = (0..blocks).filter(|&block| scan.is_whole(block)).collect();
        scan
    }

    fn of(&self, block: usize) -> &[u8] {
        &self.frames[block * BLOCK..][..BLOCK]
    }

    fn is_whole(&self, block: usize) -> bool {
        self.of(block).iter().all(|&frame| frame == 0)
    }

    /// Goes on until it is done, which it says, or the scanners meet.
    fn compact(&mut self, is_done: impl Fn(&Self) -> bool) -> bool {
        while !is_done(self) {
            let block = self.next;
            let was_whole = block < self.free_end && self.is_whole(block);
            if block >= self.free_end || self.migrate(block).is_none() {
                return false;
            }
            self.next += 1;
            if !was_whole && self.is_whole(block) {
                self.whole.push(block);
            }
        }
        true
    }

    /// So many requests for huge pages, one after the other; with kcompactd's mark kept in
    /// `vm.defrag_mode`, for which it was woken before.
    fn requests(&mut self, asked: u64, high: Option<u64>) -> Asked {
        let (mut sum, mut deferral) = (Asked::default(), Deferral::default());
        let mut is_woken = high;
        for _ in 0..asked {
            if let Some(high) = is_woken.take().filter(|&high| !is_above(high, self.count()))
                && !deferral.is_deferred()
            {
                self.begin(&mut deferral, |scan| is_above(high, scan.count()));
            }
            if self.whole.is_empty() {
                is_woken = high;
                if deferral.is_deferred() {
                    sum.deferred += 1;
                    continue;
                }
                sum.stalls += 1;
                self.begin(&mut deferral, |scan| !scan.whole.is_empty());
            }
            if let Some(block) = self.whole.pop() {
                self.frames[block * BLOCK..][..BLOCK].fill(MOVABLE);
                self.orders[block * BLOCK] = Order::PAGEBLOCK.get();
                (sum.had, deferral) = (sum.had + 1, Deferral::default());
            }
        }
        sum
    }

    fn count(&self) -> u64 {
        self.whole.len() as u64
    }

    /// One compaction. If the scanners meet the next begins anew, and those that follow are
    /// deferred.
    fn begin(&mut self, deferral: &mut Deferral, is_done: impl Fn(&Self) -> bool) {
        let met = !self.compact(is_done);
        self.release();
        if met {
            (self.next, self.free_end) = (0, self.frames.len() / BLOCK);
            deferral.defer();
        }
    }

    /// What waits is free again, and the free scanner goes back to the highest of it
    /// (`release_freepages()`).
    fn release(&mut self) {
        for (order, list) in self.lists.iter_mut().enumerate() {
            for at in list.drain(..) {
                self.frames[at..at + (1 << order)].fill(0);
                self.free_end = self.free_end.max(at / BLOCK + 1);
            }
        }
    }

    /// Moves what can be moved of a block; `None` where the scanners have met.
    fn migrate(&mut self, block: usize) -> Option<()> {
        let (mut at, end) = (block * BLOCK, (block + 1) * BLOCK);
        while at < end {
            self.steps += 1;
            if self.frames[at] != MOVABLE {
                at += if self.frames[at] == 0 { 1 << self.free_order(at) } else { 1 };
                continue;
            }
            let order = Order::new(self.orders[at]).unwrap_or(Order::ZERO);
            let whole = order.frames() as usize;
            if order < Order::PAGEBLOCK {
                let place = self.place(order, block);
                let order = if place.is_some() { order } else { Order::ZERO };
                let len = order.frames() as usize;
                for part in (at..at + whole).step_by(len) {
                    let to = place.or_else(|| self.place(order, block))?;
                    self.frames[to..to + len].fill(MOVABLE);
                    self.frames[part..part + len].fill(0);
                    self.orders[part] = 0;
                    self.orders[to] = order.get();
                    self.moved += order.frames();
                }
            }
            at += whole;
        }
        Some(())
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

    fn scan(frames: Vec<u8>, chunks: &[(usize, u8)]) -> Scan {
        let mut orders = vec![0; frames.len()];
        chunks.iter().for_each(|&(at, order)| orders[at] = order);
        Scan::of_frames(frames, orders)
    }

    /// Four blocks: one to be emptied, one of what cannot move, one with room, a whole one.
    #[test]
    fn chunks_move_from_the_lowest_block_to_the_highest_that_has_room() {
        let mut frames = vec![0; 4 * BLOCK];
        frames[8..12].fill(MOVABLE);
        frames[BLOCK] = Migratetype::Unmovable as u8 + 1;
        frames[2 * BLOCK..3 * BLOCK - 8].fill(MOVABLE);
        let mut scan = scan(frames, &[(8, 2)]);
        assert!(scan.migrate(0).is_some() && scan.moved == 4);
        assert!(scan.is_whole(0) && scan.is_whole(3) && scan.free_end == 2);
        let place = 3 * BLOCK - 8;
        assert_eq!(
            scan.of(2)[BLOCK - 8..],
            [MOVABLE, MOVABLE, MOVABLE, MOVABLE, 255, 255, 255, 255]
        );
        assert_eq!((scan.lists[2].as_slice(), scan.orders[place]), ([place + 4].as_slice(), 2));
        // Two runs and a chunk of the first block, 505 frames of the third.
        assert!((500..520).contains(&scan.steps), "{}", scan.steps);
        scan.release();
        assert_eq!((scan.of(2)[BLOCK - 1], scan.free_end), (0, 3));
        assert!(scan.migrate(2).is_none(), "the scanners have met");
    }

    /// The only block with room has none for eight frames in a row.
    #[test]
    fn a_chunk_that_fits_nowhere_is_split() {
        let mut frames = vec![0; 2 * BLOCK];
        frames[0..8].fill(MOVABLE);
        frames[BLOCK..].fill(MOVABLE);
        (0..16).for_each(|n| frames[BLOCK + 8 * n] = 0);
        let mut scan = scan(frames, &[(0, 3)]);
        assert!(scan.migrate(0).is_some() && scan.moved == 8);
        assert!(scan.is_whole(0) && scan.lists[0].len() == 8);
        assert!(scan.orders.iter().all(|&order| order == 0));
    }

    /// By hand from `mm/compaction.c` and `mm/vmstat.c` of Linux 7.1.
    #[test]
    fn proactive_compaction_begins_above_one_mark_and_ends_at_the_other() {
        assert_eq!([0, 20, 85, 100].map(marks), [[100, 100], [80, 90], [15, 22], [0, 0]]);
        // Of ten blocks' worth none, one, ten whole; of nothing; 999 of 1,000 is 99.
        let of = |free, whole| score(free * PAGEBLOCK_FRAMES, whole);
        assert_eq!([of(10, 0), of(10, 1), of(10, 10), of(0, 0), of(1000, 1)], [100, 90, 0, 0, 99]);
    }

    #[test]
    fn a_failed_compaction_defers_twice_as_many_requests_up_to_63() {
        let mut deferral = Deferral::default();
        assert!(!deferral.is_deferred());
        for refused in [1, 3, 7, 15, 31, 63, 63] {
            deferral.defer();
            assert_eq!((0..200).take_while(|_| deferral.is_deferred()).count(), refused);
            assert!(!deferral.is_deferred(), "the requests that follow are looked at");
        }
    }

    /// A whole block, one that can be emptied into the last, and two without room for another.
    #[test]
    fn requests_take_what_is_whole_then_compact_then_are_deferred() {
        let mut frames = vec![0; 4 * BLOCK];
        frames[BLOCK..BLOCK + 200].fill(MOVABLE);
        frames[2 * BLOCK..3 * BLOCK].fill(Migratetype::Unmovable as u8 + 1);
        frames[3 * BLOCK..4 * BLOCK - 200].fill(MOVABLE);
        let mut scan = scan(frames, &[]);
        // The third fails, and one behind it is not looked at, nor 3 behind the next failure.
        let asked = Asked { had: 2, stalls: 3, deferred: 4 };
        assert_eq!((scan.requests(8, None), scan.moved), (asked, 200));
    }

    /// Six blocks that can be emptied into the last six, of which four are above the mark.
    #[test]
    fn kcompactd_works_until_whole_blocks_are_above_the_mark() {
        let high = 3 * PAGEBLOCK_FRAMES;
        assert_eq!([3, 4, 5].map(|whole| is_above(high, whole)), [false, true, true]);
        assert!(!is_above(high + 1, 4), "all but one frame of a block does not count");
        let of = |high| {
            let mut frames = vec![0; 12 * BLOCK];
            for block in 0..12 {
                let used = if block < 6 { 10 } else { BLOCK - 10 };
                frames[block * BLOCK..][..used].fill(MOVABLE);
            }
            let mut scan = scan(frames, &[]);
            (scan.requests(6, high), scan.moved)
        };
        let [had, deferred] = [6, 0];
        assert_eq!(of(None), (Asked { had, stalls: 6, deferred }, 60));
        // Four were there; the fifth stalls, and wakes kcompactd, which leaves the sixth whole.
        assert_eq!(of(Some(high)), (Asked { had, stalls: 1, deferred }, 60));
    }
}
