//! What memory is like at one moment of a load that fills it, by the books alone.

use freehold::{Migratetype, Order, PAGEBLOCK_FRAMES};

use super::books::Books;
use super::figure::{ByOrder, Moment, Wanted};
use super::runs::{self, Block, ORDERS};

/// Blocks of a region: 1 GiB, the largest page that processors have.
pub(super) const REGION: usize = 512;

/// Walks all frames.
pub(super) fn moment(books: &Books<'_>, at: f64, reclaimed: u64) -> Moment {
    let movable = Migratetype::Movable as u8 + 1;
    let (mut by_order, mut free, mut beside_movable) = ([0u64; ORDERS], 0, 0);
    let (mut unmovable_blocks, mut regions) = (0, Vec::new());
    // Frames in use of the blocks that compaction could empty.
    let mut to_move: Vec<u64> = Vec::new();
    for (number, frames) in books.blocks().enumerate() {
        let bits = bits(frames);
        let block_free = runs::free(&bits);
        free += block_free;
        (0..ORDERS).for_each(|k| by_order[k] += runs::of_order(&bits, k).0 << k);
        if frames.iter().all(|&used| used == 0 || used == movable) {
            beside_movable += block_free;
            to_move.extend(Some(PAGEBLOCK_FRAMES - block_free).filter(|&used| used > 0));
        } else {
            unmovable_blocks += 1;
            regions.push(number / REGION);
        }
    }
    regions.dedup();
    let of_free = |frames: u64| frames as f64 / free.max(1) as f64;
    let free_blocks = by_order[ORDERS - 1] / PAGEBLOCK_FRAMES;
    let wanted = Wanted { free, whole: free_blocks }.blocks();
    let wanted = to_move.len().min(wanted as usize);
    let compact_frames_by_address = to_move[..wanted].iter().sum();
    to_move.sort_unstable();
    Moment {
        at,
        used_percent: books.used_percent(),
        contiguity: ByOrder::by(|order: Order| of_free(by_order[order.index()..].iter().sum())),
        movable_share: of_free(beside_movable),
        free_beside_movable: beside_movable,
        free_blocks,
        unmovable_blocks,
        unmovable_regions: regions.len() as u64,
        reclaimed,
        compact_frames: to_move[..wanted].iter().sum(),
        compact_frames_by_address,
    }
}

/// A bit for each free frame.
fn bits(frames: &[u8]) -> Block {
    let mut block = Block::default();
    for (word, frames) in block.iter_mut().zip(frames.chunks(64)) {
        let free = frames.iter().enumerate().filter(|&(_, &used)| used == 0);
        *word = free.fold(0, |word, (at, _)| word | 1 << at);
    }
    block
}
