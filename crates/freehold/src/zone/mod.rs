//! A zone: memory of one node with its own watermarks, whole blocks, and board of the others.
//!
//! ```text
//! bitmap    wholly free blocks of the three ordinary migratetypes, one bit each: their type means nothing until used
//! board     partly free blocks, by type and largest free run; CMA and HIGHATOMIC blocks, wholly free ones too
//! (nowhere) full blocks, taken ones, isolated ones, and whole ones that a CPU keeps
//! ```
//!
//! There is no lock: bits change atomically, and what CPUs count is summed up where it matters.

use crate::block::Tag;
use crate::primitive::{AtomicU8, Ordering, Relaxed};
use crate::zone::board::Board;
use crate::zone::moving::{OUTSIDE, Outside};
use crate::zone::supply::Supply;
use crate::zone::whole::WholeBitmap;
use crate::{FrameRange, NodeId};
use core::ops::Deref;

pub(crate) mod allowance;
pub(crate) mod board;
pub(crate) mod moving;
pub(crate) mod supply;
pub(crate) mod whole;

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Zone<'m> {
    supply: Supply,
    pub(crate) node: NodeId,
    pub(crate) span: FrameRange,
    /// The number of the block of bit 0 of the bitmap: the span's start rounded down to 1 GiB.
    pub(crate) first_block: u64,
    /// Up to there are the blocks that there were at first; 0 in a zone of less than 2 GiB. What is
    /// added above them later may be taken away again: frames that cannot be moved come from there
    /// last.
    pub(crate) first_end: u64,
    pub(crate) bitmap: WholeBitmap<'m>,
    pub(crate) board: Board<'m>,
    pub(crate) outside: [Outside; OUTSIDE],
}

/// A zone is asked for what it has: its counts, marks and mode.
impl Deref for Zone<'_> {
    type Target = Supply;

    #[inline(always)]
    fn deref(&self) -> &Supply {
        &self.supply
    }
}

impl<'m> Zone<'m> {
    pub(crate) fn new(
        (id, node, span): (u8, NodeId, FrameRange),
        (bitmap, board): (WholeBitmap<'m>, Board<'m>),
        first_end: u64,
    ) -> Self {
        Self {
            supply: Supply { id, ..Supply::default() },
            node,
            span,
            first_block: first_block(span),
            first_end,
            bitmap,
            board,
            outside: Default::default(),
        }
    }

    /// A block's bit.
    pub(crate) fn bit(&self, number: u32) -> u64 {
        u64::from(number) - self.first_block
    }

    /// Makes a whole block anybody's to take; the writes that it took.
    pub(crate) fn insert_whole(&self, number: u32) -> u32 {
        let bit = self.bit(number);
        let writes = self.bitmap.insert((bit / 64) as usize, 1 << (bit % 64));
        // SeqCst: whether somebody watches for it is read next.
        self.whole_blocks.0.fetch_add(1, Ordering::SeqCst);
        writes + 1
    }
}

impl Tag {
    /// The zone that it names; of a block that is none yet, any.
    #[inline(always)]
    pub(crate) fn zone_of<'z, 'm>(self, zones: &'z [Zone<'m>]) -> &'z Zone<'m> {
        zones.get(self.zone()).unwrap_or(&zones[0])
    }
}

/// The first bit of a zone's bitmap: 1 GiB-aligned, so that runs of any order are so there too.
pub(crate) fn first_block(span: FrameRange) -> u64 {
    (span.start.get() >> 18) << 9
}

/// How many bits a zone's bitmap has.
pub(crate) fn bitmap_blocks(span: FrameRange) -> u64 {
    (span.end.get() >> 9) - first_block(span)
}

/// For each node the zones to try, in order; and the node of each CPU.
pub(crate) struct Zonelists<'m> {
    pub(crate) lists: &'m [AtomicU8],
    pub(crate) zones: usize,
    pub(crate) cpu_nodes: &'m [AtomicU8],
}

impl<'m> Zonelists<'m> {
    /// For each node: its own zones, highest first, then those of the next nodes round the ring.
    pub(crate) fn fill(&self, all: &[Zone<'m>]) {
        let (zones, nodes) = (self.zones, self.nodes());
        for node in 0..nodes {
            let list = &self.lists[node * zones..(node + 1) * zones];
            let rank = |z: usize| {
                let distance = (usize::from(all[z].node.get()) + nodes - node) % nodes;
                (distance, u64::MAX - all[z].span.start.get())
            };
            for z in 0..zones {
                let place = (0..zones).filter(|&other| rank(other) < rank(z)).count();
                list[place].set(z as u8);
            }
        }
    }

    fn nodes(&self) -> usize {
        self.lists.len() / self.zones
    }

    /// The zones for requests from that CPU, or of that node, in the order to try them.
    pub(crate) fn of(
        &self,
        cpu: usize,
        node: Option<NodeId>,
    ) -> impl Iterator<Item = usize> + Clone + use<'m> {
        let (zones, nodes) = (self.zones, self.nodes());
        let node = node.map_or(self.cpu_nodes[cpu].get() as usize, |n| n.get() as usize % nodes);
        self.lists[node * zones..(node + 1) * zones].iter().map(|z| z.get() as usize)
    }
}
