//! Freeing into a block that somebody else holds, and getting those frees home.
//!
//! ```text
//! freer                                        holder, under its lock
//!   old = fetch_or(remote[w], mask)              pop the block from the inbox
//!   old == 0 and swap(queued, 1) was 0:          not mine any more: push it on its holder's inbox, still queued
//!       push on the inbox of block.holder        swap(queued, 0)  -- first, so that later frees queue it again
//!                                                swap(remote[w], 0) for each non-zero word, OR into free
//! ```
//!
//! Why a freer that found bits in the word may leave: whoever set the first of them since the last collection queues
//! the block *after* setting it, and the collector takes the word after that in the word's own order of modification,
//! so it takes the rider's bits too or leaves them all to the next queueing.
//! Why a freer that found the block queued may leave: the collector's swap of the flag comes later in the flag's order
//! of modification, reads this freer's (or a later) swap, and so sees its bits.

use crate::block::{Block, WORDS};
use crate::holder::Holder;
use crate::inbox::Inbox;

/// Where each holder's inbox is.
pub(crate) trait Inboxes {
    /// The inbox of the block's holder; `None` where nobody holds it.
    fn inbox(&self, block: &Block, holder: Holder) -> Option<&Inbox>;
    /// Called in every turn of a wait.
    fn relax(&self);
}

/// Frees the frames of `mask` into a block that the caller does not hold. Returns those that were free already.
///
/// Lock-free; one atomic read-modify-write, three for the first free of a word since the last collection.
#[inline]
pub(crate) fn publish(blocks: &[Block], inboxes: &impl Inboxes, index: u32, word: usize, mask: u64) -> u64 {
    let block = &blocks[index as usize];
    let old = block.or_remote(word, mask);
    if old == 0 && block.claim_queue() {
        post(blocks, inboxes, index);
    }
    old & mask
}

/// The same for several words of one block: queues it once. Returns the first word and frames that were free already.
pub(crate) fn publish_run(
    blocks: &[Block],
    inboxes: &impl Inboxes,
    index: u32,
    spans: impl Iterator<Item = (usize, u64)>,
) -> Option<(usize, u64)> {
    let block = &blocks[index as usize];
    let mut first = false;
    let mut lost = None;
    for (word, mask) in spans {
        let old = block.or_remote(word, mask);
        first |= old == 0;
        if old & mask != 0 && lost.is_none() {
            lost = Some((word, old & mask));
        }
    }
    if first && block.claim_queue() {
        post(blocks, inboxes, index);
    }
    lost
}

/// Puts a block whose `queued` flag the caller has claimed into its holder's inbox, whoever that is by now.
pub(crate) fn post(blocks: &[Block], inboxes: &impl Inboxes, index: u32) {
    let block = &blocks[index as usize];
    loop {
        let Some(inbox) = inboxes.inbox(block, block.holder()) else {
            // The memory was removed while somebody freed into it: nothing to bring home.
            block.unqueue();
            return;
        };
        if inbox.push(blocks, index) {
            return;
        }
        // Closed: its CPU has gone offline and, before closing, given the block to another holder.
        inboxes.relax();
    }
}

/// The first half of collecting a block from an inbox: `true` where it is `me`'s and is to be [`absorb`]ed now.
/// Otherwise it has been sent on to its present holder.
pub(crate) fn accept(blocks: &[Block], inboxes: &impl Inboxes, me: Holder, index: u32) -> bool {
    let block = &blocks[index as usize];
    if block.holder() != me {
        post(blocks, inboxes, index);
        return false;
    }
    block.unqueue();
    true
}

/// What collecting one block brought.
#[derive(Default)]
pub(crate) struct Absorbed {
    /// Frames that are free now and were not before.
    pub(crate) frames: u32,
    /// Words with something in them: steps of work.
    pub(crate) words: u32,
    /// Bit w set: word w had something in it.
    pub(crate) touched: u8,
    /// Frames found free both here and there: a double free that the calls could not see.
    pub(crate) doubles: [u64; WORDS],
}

/// Takes what others freed in a block into its `free` words. Under its holder's lock.
pub(crate) fn absorb(block: &Block) -> Absorbed {
    let mut absorbed = Absorbed::default();
    for w in 0..WORDS {
        let bits = block.take_remote(w);
        if bits == 0 {
            continue;
        }
        let free = block.free_word(w);
        block.give(w, bits);
        absorbed.frames += (bits & !free).count_ones();
        absorbed.words += 1;
        absorbed.touched |= 1 << w;
        absorbed.doubles[w] = bits & free;
    }
    absorbed
}

/// Whether others have freed frames in the block that are not collected, as far as a glance can tell.
pub(crate) fn has_remote(block: &Block) -> bool {
    block.is_queued() || (0..WORDS).any(|w| block.remote_word(w) != 0)
}
