//! Merging on a CPU's own lists without ownership: Zi Yan's first question to the pcp-buddy
//! proposal.
//!
//! A free chunk's record says that it is on *some* PCP, not on whose. The RFC answers that by
//! ownership: a marked chunk is on its owner's. The other answer is a CPU number in every page's
//! record, for which a kernel would have to find the bits. What that would bring is counted here
//! without it: the heads of all chunks on the lists are gathered first, and a buddy is on the same
//! PCP if it is among them. The steps counted are those of a walk that reads the number instead.
//!
//! Chunks grow up to the largest order that the PCP keeps in a row with the ones below: 3, or with
//! the RFC's lists 9.

use std::collections::HashSet;

use freehold::Migratetype;

use crate::page::{Frames, PAGEBLOCK_ORDER, State};
use crate::pcp::{Layout, PcpInner, next};

impl PcpInner {
    /// Joins buddies that both lie on these lists, whoever owns their block, from the smallest
    /// order up.
    ///
    /// Looks at every entry of every list that can grow.
    pub(crate) fn merge_unowned(&mut self, frames: &Frames, layout: Layout) {
        let lists = &self.lists[..layout.lists()];
        let mut mine: HashSet<u32> = lists.iter().flat_map(|list| list.iter(frames)).collect();
        let grow =
            (0..PAGEBLOCK_ORDER).filter(|&order| layout.keeps(order) && layout.keeps(order + 1));
        for order in grow {
            for migratetype in Migratetype::PCP {
                let index = layout.index(order, migratetype);
                let mut at = self.lists[index].first();
                while let Some(frame) = at {
                    self.counters.merge_steps += 1;
                    self.work += 1;
                    at = next(frames, frame);
                    let buddy = frame ^ (1 << order);
                    if !mine.contains(&buddy) {
                        continue;
                    }
                    let (ours, other) = (frames.state(frame), frames.state(buddy));
                    // A mark says that the whole chunk is its owner's: it is neither lost nor won
                    // by merging.
                    if other.order() != order || other.kind() != ours.kind() {
                        continue;
                    }
                    if at == Some(buddy) {
                        at = next(frames, buddy);
                    }
                    self.remove(frames, index, frame);
                    // Another list than this one where the block changed its type between the two
                    // frees.
                    self.remove(frames, layout.index(order, other.migratetype()), buddy);
                    let state = State::new(ours.kind(), order + 1, migratetype);
                    self.push_back(
                        frames,
                        layout.index(order + 1, migratetype),
                        frame & buddy,
                        state,
                    );
                    mine.remove(&(frame | buddy));
                    self.counters.merges += 1;
                }
            }
        }
    }
}
