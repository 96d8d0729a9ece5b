//! Memory nodes: what there is, read from the kernel's own texts, and which part of the arena goes
//! where.
//!
//! ```text
//! /sys/devices/system/node/has_memory       "0-1"         nodes that have memory
//! /sys/devices/system/node/node0/cpulist    "0-3,8-11"    CPUs next to a node, which may have none
//! /sys/devices/system/node/node0/meminfo    "Node 0 MemTotal:  65536 kB"
//! ```
//!
//! Each node gets a zone: a share of the arena in proportion to its memory, in whole pageblocks.
//! Nodes without CPUs are left out: memory on a card or behind CXL is slower, or somebody else's.
//! The share is bound to the node by `mbind(2)` before anything is touched; on a machine with one
//! node there is nothing to bind.

use std::path::Path;

/// The nodes that have memory, and the CPUs next to each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    nodes: Vec<(u32, Vec<u32>)>,
    /// KiB of memory of each node; empty where they are not known, and count as equal.
    sizes: Vec<u64>,
}

/// What to do where there is more than one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Numa {
    /// A zone for each node, whose pages come from that node while it has memory and from others
    /// after that. The default, because a program that spills over to another node is slow and one
    /// that is killed is dead. Where the kernel cannot be told (a sandbox forbids it, this process
    /// may not use that node), pages come from wherever it takes them.
    #[default]
    Prefer,
    /// A zone for each node, whose pages come from that node or not at all: for programs that would
    /// rather fail than be slow. What the kernel does when the node is full is up to its overcommit
    /// and out-of-memory settings.
    Bind,
    /// A zone for each node, without telling the kernel: for memory that somebody else places.
    ZonesOnly,
    /// One zone, whatever the machine looks like.
    Ignore,
}

impl Topology {
    /// One node with all CPUs.
    #[must_use]
    pub fn single() -> Self {
        Self { nodes: vec![(0, Vec::new())], sizes: Vec::new() }
    }

    /// This machine; one node where the kernel tells nothing (no NUMA support, no `/sys`).
    #[must_use]
    pub fn detect() -> Self {
        Self::read(Path::new("/sys/devices/system/node"))
    }

    /// As the files under that directory have it: nodes in proportion to their memory, and without
    /// those next to no CPU, unless there are no others.
    fn read(directory: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(directory.join(path)).ok();
        let nodes = text("has_memory").or_else(|| text("online"));
        nodes
            .and_then(|nodes| Self::parse(&nodes, |node| text(&format!("node{node}/cpulist"))))
            .map_or(Self::single(), |all| {
                all.with_cpus().sized(|node| text(&format!("node{node}/meminfo")))
            })
    }

    /// From the text of `has_memory` and that of each node's `cpulist`. `None` where a text is not
    /// as the kernel writes it, or names no node.
    #[must_use]
    pub fn parse(nodes: &str, mut cpulist: impl FnMut(u32) -> Option<String>) -> Option<Self> {
        let nodes = parse_list(nodes)?;
        if nodes.is_empty() {
            return None;
        }
        let nodes = nodes.into_iter().map(|node| Some((node, parse_list(&cpulist(node)?)?)));
        Some(Self { nodes: nodes.collect::<Option<_>>()?, sizes: Vec::new() })
    }

    /// Without nodes that no CPU is next to, unless there are no others.
    fn with_cpus(mut self) -> Self {
        if self.nodes.iter().any(|(_, cpus)| !cpus.is_empty()) {
            self.nodes.retain(|(_, cpus)| !cpus.is_empty());
            self.sizes.clear();
        }
        self
    }

    /// With shares in proportion to the nodes' memory, from the text of each node's `meminfo`;
    /// equal ones where one of them does not tell.
    fn sized(mut self, mut meminfo: impl FnMut(u32) -> Option<String>) -> Self {
        let mut total = |node: u32| {
            let text = meminfo(node)?;
            let line = text.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
            line.split_whitespace().next()?.parse::<u64>().ok().filter(|&size| size > 0)
        };
        let sizes: Option<Vec<u64>> = self.nodes.iter().map(|(node, _)| total(*node)).collect();
        self.sizes = sizes.unwrap_or_default();
        self
    }

    /// How many nodes have memory.
    #[must_use]
    pub fn node_count(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// The kernel's number of each node, and the CPUs next to it.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.nodes.iter().map(|(node, cpus)| (*node, cpus.as_slice()))
    }

    /// For each CPU of the machine the index of its node; CPUs next to no memory count as the first
    /// node's.
    pub(crate) fn node_of_each_cpu(&self) -> Vec<u16> {
        let cpus =
            self.nodes.iter().flat_map(|(_, cpus)| cpus).max().map_or(0, |&cpu| cpu as usize + 1);
        let mut nodes = vec![0; cpus];
        for (index, (_, cpus)) in self.nodes.iter().enumerate() {
            for &cpu in cpus {
                nodes[cpu as usize] = index as u16;
            }
        }
        nodes
    }

    /// This machine with at most that many nodes.
    pub(crate) fn at_most(mut self, nodes: usize) -> Self {
        self.nodes.truncate(nodes.max(1));
        self.sizes.truncate(nodes.max(1));
        self
    }

    /// So many blocks, at least one for each node, divided among them in proportion to their
    /// memory; what is left over by rounding goes to the first ones.
    pub(crate) fn divide(&self, blocks: u64) -> Vec<u64> {
        let nodes = self.nodes.len() as u64;
        let size = |node: usize| u128::from(self.sizes.get(node).copied().unwrap_or(1));
        let all: u128 = (0..self.nodes.len()).map(size).sum();
        let spare = u128::from(blocks.saturating_sub(nodes));
        let mut shares: Vec<u64> = (0..self.nodes.len())
            .map(|node| 1 + (spare * size(node) / all.max(1)) as u64)
            .collect();
        // Fewer than there are nodes: each share was rounded down by less than one.
        let left = blocks.saturating_sub(shares.iter().sum());
        shares.iter_mut().take(left as usize).for_each(|share| *share += 1);
        shares
    }
}

/// Numbers in the kernel's list format: `0-3,8,10-11`. The empty text is the empty list.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// Far above any machine; so that a broken text cannot ask for all of memory.
    const MOST: u32 = 1 << 16;
    let text = text.trim();
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Some(numbers);
    }
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with two sockets of 8 cores and 16 threads, one node each, as its kernel writes it.
    fn two(node: u32) -> Option<String> {
        Some(["0-7,16-23\n", "8-15,24-31\n"].get(node as usize)?.to_string())
    }

    /// A four-socket machine whose node 1 has no memory fitted, and whose node 4 has memory only
    /// (no CPU next to it).
    fn four(node: u32) -> Option<String> {
        Some(["0-5\n", "6-11\n", "12-17\n", "18-23\n", "\n"].get(node as usize)?.to_string())
    }

    #[test]
    fn a_two_node_machine_as_recorded() {
        let machine = Topology::parse("0-1\n", two).unwrap();
        assert_eq!(machine.node_count(), 2);
        let of = machine.node_of_each_cpu();
        assert_eq!(of.len(), 32);
        assert_eq!(
            (of[0], of[7], of[8], of[15], of[16], of[23], of[24], of[31]),
            (0, 0, 1, 1, 0, 0, 1, 1)
        );
        assert_eq!(machine.divide(7), [4, 3]);
    }

    #[test]
    fn a_four_node_machine_with_a_node_without_memory_and_one_without_cpus() {
        let machine = Topology::parse("0,2-4\n", four).unwrap();
        assert_eq!(machine.nodes().map(|(node, _)| node).collect::<Vec<_>>(), [0, 2, 3, 4]);
        let of = machine.node_of_each_cpu();
        assert_eq!((of[0], of[12], of[18]), (0, 1, 2));
        // Node 1's CPUs have no memory of their own: they start at the first node's.
        assert_eq!(of[6], 0);
        assert_eq!(machine.divide(10), [3, 3, 2, 2]);
        assert_eq!(machine.at_most(2).divide(10), [5, 5]);
    }

    /// Two sockets of which one has a quarter of the memory, and memory of four cards that no CPU
    /// is next to.
    #[test]
    fn shares_are_by_memory_and_nodes_without_cpus_are_left_out() {
        let directory = std::env::temp_dir().join(format!("freehold-nodes-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = directory.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("has_memory", "0-2,10,18,26\n");
        for (node, cpus, kib) in [
            (0, "0-71", 750),
            (1, "72-143", 250),
            (2, "", 96),
            (10, "", 96),
            (18, "", 96),
            (26, "", 96),
        ] {
            write(&format!("node{node}/cpulist"), &format!("{cpus}\n"));
            let memory = format!("\nNode {node} MemTotal:   {kib} kB\nNode {node} MemFree: 1 kB\n");
            write(&format!("node{node}/meminfo"), &memory);
        }
        let machine = Topology::read(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(machine.nodes().map(|(node, _)| node).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(machine.divide(1002), [751, 251]);
        assert_eq!(machine.divide(2), [1, 1]);
        assert_eq!(machine.divide(1000).iter().sum::<u64>(), 1000);
        assert_eq!(machine.sized(|_| None).divide(1000), [500, 500]);
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        for text in ["", "\n", "a", "0-", "3-1", "0,,1", "0-4294967295", "-1"] {
            assert_eq!(Topology::parse(text, two), None, "{text:?}");
        }
        assert_eq!(Topology::parse("0-2", two), None, "no list of CPUs for node 2");
        assert_eq!(parse_list("0-1,4\n"), Some(vec![0, 1, 4]));
        assert_eq!(Topology::read(Path::new("/nonexistent")), Topology::single());
    }
}
