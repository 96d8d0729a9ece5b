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

use freehold::{FrameRange, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn};

use super::books::{Books, Chunks};
use super::figure::{Layout, Moved, Movement, Regions, Wanted};
use super::moment::moment;
use super::scanners;

/// Who moves: a kernel thread is on one CPU.
const CPU: u16 = 0;

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

/// Moves, by all ways; the chunks are where the engine's own way has left them.
pub(super) fn run(books: &mut Books<'_>, chunks: &mut Chunks) -> Movements {
    let now = moment(books, 1.0, 0);
    let wanted = Wanted { free: books.managed() - books.live, whole: now.free_blocks };
    let used = layout(books);
    let compacted = scanners::run(books, chunks, wanted);
    let regions = Regions::of(&used, wanted.free);
    let own = own(books, chunks, &used, wanted);
    let (own, layouts) =
        own.map(|(moved, between)| (moved, [used, between, layout(books)])).unzip();
    let movement = Movement {
        order9_before: wanted.share(0),
        huge_pages_before: now.free_blocks,
        huge_pages_most: now.free_beside_movable / PAGEBLOCK_FRAMES,
        own,
        scanners: compacted.target,
        proactive: compacted.proactive,
        requests: compacted.requests,
        defrag: compacted.defrag,
        defrag_requests: compacted.defrag_requests,
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
    let mut between = None;
    let (mut more, mut frames, mut steps, mut stalls) = (0, 0, 0, 0);
    let mut empty = |block: Pfn| {
        if wanted.is_reached(more) {
            return false;
        }
        let mut room = true;
        let mut mover = |run: FrameRange| {
            steps += 1;
            room = move_run(books, chunks, run, &mut frames);
            room
        };
        more += u64::from(engine.evacuate(block, &mut mover) == Some(true));
        stalls += 1;
        if between.is_none() && 2 * more >= wanted.blocks() {
            between = Some(layout(books));
        }
        room
    };
    let looks = engine.emptiest(&mut |pfn| used[number(pfn)].is_some(), &mut empty)?;
    let between = between.unwrap_or_else(|| layout(books));
    let moved = wanted.moved(more, frames, steps + looks);
    Some((Moved { stalls, ..moved }, between))
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
