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
//! frame would break one too, there is no room left elsewhere, and movement ends.

use std::collections::{HashMap, HashSet};

use freehold::{FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};
use serde::Serialize;

use super::books::{Books, Chunk};
use super::moment::moment;
use super::scanners;

/// The share of free memory that is to be whole.
pub(super) const TARGET: f64 = 0.9;
/// Who moves: a kernel thread is on one CPU.
const CPU: u16 = 0;
/// Blocks that an engine is asked for at a time.
const AT_ONCE: usize = 32;

/// What one way of moving came to.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Moved {
    /// The share of free memory that serves order 9 afterwards.
    pub order9: f64,
    /// Whole blocks afterwards: huge pages that can be had.
    pub huge_pages: u64,
    /// Frames moved.
    pub frames: u64,
    /// Looks at blocks and frames that found them.
    pub steps: u64,
}

/// What a machine's memory comes to by movement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Movement {
    /// The share of free memory that serves order 9, and whole blocks, before anything moved.
    pub order9_before: f64,
    pub huge_pages_before: u64,
    /// By the engine's own means, where it has some.
    pub own: Option<Moved>,
    /// By a model of the kernel's two scanners.
    pub scanners: Moved,
    /// Frames to move with the emptiest blocks first, and by rising address.
    pub ideal_frames: u64,
    pub address_frames: u64,
}

/// Frames in use of each block; `None` of one that holds what cannot move.
pub type Layout = Vec<Option<u64>>;
/// What it comes to, and memory before, between and after, where the engine has moved by itself.
pub(super) type Movements = (Movement, Option<[Layout; 3]>);

/// Chunks that can be moved, and where each is.
pub(super) struct Chunks {
    /// Each with the number of the one that it was at first, or was a part of.
    all: Vec<(usize, Chunk)>,
    places: HashMap<Pfn, usize>,
}

impl Chunks {
    pub(super) fn new(all: impl Iterator<Item = Chunk>) -> Self {
        let all: Vec<_> = all.enumerate().collect();
        let places = all.iter().enumerate().map(|(n, (_, chunk))| (chunk.0, n)).collect();
        Self { all, places }
    }

    /// The chunk that starts at a frame.
    pub(super) fn at(&self, pfn: Pfn) -> Option<Chunk> {
        self.places.get(&pfn).map(|&n| self.all[n].1)
    }

    /// Where they are, in the order in which they came; parts have the number of the whole.
    pub(super) fn now(mut self) -> Vec<(usize, Chunk)> {
        self.all.sort_by_key(|&(number, _)| number);
        self.all
    }

    fn moved(&mut self, from: Pfn, to: Pfn) {
        if let Some(n) = self.places.remove(&from) {
            self.places.insert(to, n);
            self.all[n].1.0 = to;
        }
    }

    fn split(&mut self, (start, order): Chunk) {
        let Some(&n) = self.places.get(&start) else { return };
        self.all[n].1.1 = Order::ZERO;
        for frame in start.get() + 1..start.get() + order.frames() {
            let frame = Pfn::new(frame);
            self.places.insert(frame, self.all.len());
            self.all.push((self.all[n].0, (frame, Order::ZERO)));
        }
    }
}

fn layout(books: &Books<'_>) -> Layout {
    let movable = Migratetype::Movable as u8 + 1;
    let of = |block: &[u8]| {
        let moves = block.iter().all(|&used| used == 0 || used == movable);
        moves.then(|| block.iter().filter(|&&used| used != 0).count() as u64)
    };
    books.blocks().map(of).collect()
}

/// Moves, by all ways; the chunks are where the engine's own way has left them.
pub(super) fn run(books: &mut Books<'_>, chunks: &mut Chunks) -> Movements {
    let now = moment(books, 1.0, 0);
    let wanted = Wanted { free: books.managed() - books.live, whole: now.free_blocks };
    let used = layout(books);
    let scanners = scanners::run(books, chunks, wanted);
    let own = own(books, chunks, &used, wanted);
    let movement = Movement {
        order9_before: wanted.share(0),
        huge_pages_before: now.free_blocks,
        own: own.as_ref().map(|of| of.0),
        scanners,
        ideal_frames: now.compact_frames,
        address_frames: now.compact_frames_by_address,
    };
    (movement, own.map(|(_, between)| [used, between, layout(books)]))
}

/// How much is to be whole.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Free frames, which movement does not change.
    pub(super) free: u64,
    /// Whole blocks before anything moves.
    pub(super) whole: u64,
}

impl Wanted {
    /// Blocks to be had beside those that are whole.
    fn blocks(self) -> u64 {
        ((self.free as f64 * TARGET) as u64 / PAGEBLOCK_FRAMES).saturating_sub(self.whole)
    }

    /// Whether so many blocks more are enough.
    pub(super) fn is_reached(self, more: u64) -> bool {
        more >= self.blocks()
    }

    fn share(self, more: u64) -> f64 {
        ((self.whole + more) * PAGEBLOCK_FRAMES) as f64 / self.free.max(1) as f64
    }

    pub(super) fn moved(self, more: u64, frames: u64, steps: u64) -> Moved {
        Moved { order9: self.share(more), huge_pages: self.whole + more, frames, steps }
    }
}

/// By the engine's own search and its own emptying; `None` where it has none.
fn own(
    books: &mut Books<'_>,
    chunks: &mut Chunks,
    used: &[Option<u64>],
    wanted: Wanted,
) -> Option<(Moved, Layout)> {
    let (engine, start) = (books.engine(), books.start());
    let number = |pfn: Pfn| ((pfn.get() - start) / PAGEBLOCK_FRAMES) as usize;
    let mut tried: HashSet<Pfn> = HashSet::new();
    let mut between = None;
    let (mut more, mut frames, mut steps, mut room) = (0, 0, 0, true);
    while room && !wanted.is_reached(more) {
        let mut is_wanted = |pfn| used[number(pfn)].is_some() && !tried.contains(&pfn);
        let (blocks, looks) = engine.emptiest(AT_ONCE, &mut is_wanted)?;
        steps += looks;
        if blocks.is_empty() {
            break;
        }
        for block in blocks {
            if !room || wanted.is_reached(more) {
                break;
            }
            tried.insert(block);
            let mut mover = |run: FrameRange| {
                steps += 1;
                room = move_run(books, chunks, run, &mut frames);
                room
            };
            more += u64::from(engine.evacuate(block, &mut mover) == Some(true));
            if between.is_none() && 2 * more >= wanted.blocks() {
                between = Some(layout(books));
            }
        }
    }
    let between = between.unwrap_or_else(|| layout(books));
    Some((wanted.moved(more, frames, steps), between))
}

/// Moves the chunks of a run; whether there was room for all of them.
fn move_run(books: &mut Books<'_>, chunks: &mut Chunks, run: FrameRange, frames: &mut u64) -> bool {
    let mut at = run.start;
    while at < run.end {
        let Some((old, order)) = chunks.at(at) else { return false };
        let Some(new) = place_for(books, order) else {
            if order == Order::ZERO {
                return false;
            }
            chunks.split((old, order));
            continue;
        };
        books.free(CPU, (old, order));
        chunks.moved(old, new);
        *frames += order.frames();
        at = Pfn::new(at.get() + order.frames());
    }
    true
}

/// A chunk of a block that was not whole.
fn place_for(books: &mut Books<'_>, order: Order) -> Option<Pfn> {
    let new = books.attempt(CPU, order, Migratetype::Movable)?;
    if books.used_in_block(new.0) > order.frames() {
        return Some(new.0);
    }
    books.free(CPU, new);
    None
}
