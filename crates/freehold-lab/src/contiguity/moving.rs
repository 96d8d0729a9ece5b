//! Movement: when a load is over and memory full, blocks are emptied until 90 % of what is free is
//! whole.
//!
//! ```text
//!  own         the engine says which block next, and empties it: freehold
//!  scanners    the kernel's compaction on the same layout, by a model: see `scanners`
//!  ideal       the emptiest blocks first: frames to move, if each finds a place elsewhere
//!  address     the same by rising address, in the way in which kcompactd comes by them
//! ```
//!
//! A moved chunk goes where an ordinary movable request of its order goes. If that would break a
//! whole block, it is split into frames, as the kernel does with a folio (`migrate_pages()`). If a
//! frame would break one too, frames go beside what cannot move, as movable requests do that find
//! nothing else. Where there is no room either, movement ends. Eight blocks are taken out of use
//! together, as in Linux: else a chunk moves into a block that is emptied next, and moves again.

use freehold::{FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

use super::books::{Books, Chunks};
use super::figure::{Layout, Left, Moved, Movement, Regions, Wanted};
use super::moment::moment;
use super::scanners;
use crate::trials::simulated::Mover;

/// Who moves: a kernel thread is on one CPU.
const CPU: u16 = 0;

/// Blocks that are emptied together.
const TOGETHER: usize = 8;
/// Whose blocks have room: another type's are asked last.
const PLACES: [Migratetype; 3] =
    [Migratetype::Movable, Migratetype::Reclaimable, Migratetype::Unmovable];

/// What it comes to, and memory before, between and after, where the engine has moved by itself.
pub(super) type Movements = (Movement, Option<[Layout; 3]>);

fn layout(books: &Books<'_>) -> Layout {
    let movable = Migratetype::Movable as u8 + 1;
    let of = |block: &[u8]| {
        let moves = block.iter().all(|&used| used == 0 || used == movable);
        moves.then(|| block.iter().filter(|&&used| used != 0).count() as u64)
    };
    books.blocks().map(of).collect()
}

impl Left {
    fn of(books: &Books<'_>) -> Self {
        let mut left = Self { in_hand: books.engine.memory().pcp_frames, ..Self::default() };
        for (block, used) in books.blocks().zip(layout(books)) {
            match (block.iter().filter(|&&used| used == 0).count() as u64, used) {
                (0 | PAGEBLOCK_FRAMES, _) => {}
                (free, None) => left.beside_unmovable += free,
                (free, Some(_)) => left.beside_movable += free,
            }
            left.blocks_unmovable += u64::from(used.is_none());
        }
        left
    }
}

/// Moves, by all ways; the chunks are where the engine's own way has left them.
pub(super) fn run(books: &mut Books<'_>, chunks: &mut Chunks) -> Movements {
    let now = moment(books, 1.0, 0);
    let wanted = Wanted { free: books.managed() - books.live, whole: now.free_blocks };
    let used = layout(books);
    let [scanners, proactive, defrag, requests, defrag_requests] =
        scanners::run(books, chunks, wanted);
    let regions = Regions::of(&used, wanted.free);
    let movable = used.iter().flatten().count() as u64;
    let own = own(books, chunks, &used, wanted);
    let (own, layouts) =
        own.map(|(moved, between)| (moved, [used, between, layout(books)])).unzip();
    let movement = Movement {
        order9_before: wanted.share(0),
        huge_pages_before: now.free_blocks,
        huge_pages_most: now.free_beside_movable / PAGEBLOCK_FRAMES,
        huge_pages_ideal: (wanted.free / PAGEBLOCK_FRAMES).min(movable),
        left: own.as_ref().map(|_| Left::of(books)),
        own,
        scanners,
        proactive,
        requests,
        defrag,
        defrag_requests,
        ideal_frames: now.compact_frames,
        address_frames: now.compact_frames_by_address,
        regions,
        regions_after: layouts.as_ref().map(|[.., after]| Regions::of(after, wanted.free)),
    };
    (movement, layouts)
}

/// By the engine's own search and its own emptying; `None` where it has none.
fn own(
    books: &mut Books<'_>,
    chunks: &mut Chunks,
    used: &[Option<u64>],
    wanted: Wanted,
) -> Option<(Moved, Layout)> {
    let (engine, start) = (books.engine, books.start);
    // What CPUs have in hand looks as if it were in use.
    engine.drain_all();
    let number = |pfn: Pfn| ((pfn.get() - start) / PAGEBLOCK_FRAMES) as usize;
    let (between, together, moved) = Default::default();
    let mut moving = Moving { books, chunks, wanted, more: 0, place: 0, between, together, moved };
    let looks = engine.emptiest(&mut |pfn| used[number(pfn)].is_some(), &mut |block| {
        moving.together.push(block);
        moving.together.len() < TOGETHER && moving.is_wanted() || moving.empty()
    })?;
    moving.empty();
    let Moving { books, between, more, moved: Moved { frames, steps, stalls, beside, .. }, .. } =
        moving;
    let between = between.unwrap_or_else(|| layout(books));
    Some((Moved { stalls, beside, ..wanted.moved(more, frames, steps + looks) }, between))
}

struct Moving<'m, 'e> {
    books: &'m mut Books<'e>,
    chunks: &'m mut Chunks,
    wanted: Wanted,
    /// Blocks made whole.
    more: u64,
    /// Where there is still room: an index of [`PLACES`].
    place: usize,
    between: Option<Layout>,
    /// Blocks to be emptied next.
    together: Vec<Pfn>,
    moved: Moved,
}

impl Mover for Moving<'_, '_> {
    fn move_used(&mut self, used: FrameRange) -> bool {
        self.moved.steps += 1;
        let mut at = used.start;
        while at < used.end {
            let Some((old, order)) = self.chunks.at(at) else { return false };
            let Some(new) = self.room(order) else {
                if order == Order::ZERO {
                    return false;
                }
                self.chunks.split((old, order));
                continue;
            };
            self.books.free(CPU, (old, order));
            self.chunks.moved(old, new);
            self.moved.frames += order.frames();
            self.moved.beside += if self.place > 0 { order.frames() } else { 0 };
            at = Pfn::new(at.get() + order.frames());
        }
        true
    }

    fn ended(&mut self, is_whole: bool) -> bool {
        self.more += u64::from(is_whole);
        self.moved.stalls += 1;
        if self.between.is_none() && 2 * self.more >= self.wanted.blocks() {
            self.between = Some(layout(self.books));
        }
        is_whole
    }
}

impl Moving<'_, '_> {
    /// Whether more blocks are wanted than are to be emptied next.
    fn is_wanted(&self) -> bool {
        !self.wanted.is_reached(self.more + self.together.len() as u64)
    }

    /// Empties them; whether it may go on.
    fn empty(&mut self) -> bool {
        let (mut blocks, ended) = (std::mem::take(&mut self.together), self.moved.stalls);
        let wanted = self.wanted.blocks().saturating_sub(self.more);
        blocks.truncate(wanted as usize);
        let more = self.more;
        self.books.engine.evacuate(&blocks, self);
        // One that was refused is left out, where there was no room all ends.
        self.more - more == self.moved.stalls - ended && self.is_wanted()
    }

    /// A chunk of a block that was not whole.
    fn room(&mut self, order: Order) -> Option<Pfn> {
        while let Some(&place) = PLACES.get(self.place) {
            let new = self.books.attempt_at(place, CPU, order, Migratetype::Movable);
            if let Some(new) = new {
                if self.books.used_in_block(new.0) > order.frames() {
                    return Some(new.0);
                }
                self.books.free(CPU, new);
            }
            if order > Order::ZERO {
                return None;
            }
            // For a single frame there is no room any more, nor will there be.
            self.place += 1;
        }
        None
    }
}
