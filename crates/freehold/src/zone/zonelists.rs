//! In which order a request tries zones.

use crate::NodeId;
use crate::primitive::{AtomicU8, Relaxed};
use crate::zone::Zone;

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
