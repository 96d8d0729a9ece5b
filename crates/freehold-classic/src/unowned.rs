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

use crate::page::{Frames, PAGEBLOCK_ORDER};
use crate::pcp::{Layout, PcpInner};

impl PcpInner {
    /// Joins buddies that both lie on these lists, whoever owns their block, from the smallest
    /// order up.
    ///
    /// Looks at every entry of every list that can grow.
    pub(crate) fn merge_unowned(&mut self, frames: &Frames, layout: Layout) {
        let lists = &self.lists[..layout.lists()];
        // Of two chunks that are joined the upper one's head is nobody's buddy afterwards, so that
        // it may stay here.
        let mine: HashSet<u32> = lists.iter().flat_map(|list| list.iter(frames)).collect();
        let grow =
            (0..PAGEBLOCK_ORDER).filter(|&order| layout.keeps(order) && layout.keeps(order + 1));
        self.merge_where(frames, layout, grow, |buddy| mine.contains(&buddy));
    }
}
