//! Which frames a virtual area shows: runs of neighbouring frames, in the order of their pages.
//!
//! ```text
//!   pages   0        64    96  100          a 100-page area: orders 6, 5, 2
//!           |  run   | run |run|
//!   frames  4096..   512.. 77..             each run is one mapping, and one free
//! ```
//!
//! Linux keeps a pointer a page. A run is a node of 24 bytes however long it is, and frames that
//! happen to be neighbours (those of a bulk allocation, mostly) share one as they are added. Nodes
//! come from the caller's slice.

use freehold::{FrameRange, Pfn};

/// "No node".
const NIL: u32 = u32::MAX;

/// A place for one run of frames. The caller hands over a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct RunNode {
    start: u64,
    len: u64,
    next: u32,
}

impl RunNode {
    /// An unused node.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: 0, len: 0, next: NIL }
    }
}

/// A list of runs; its nodes are in a [`RunArena`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    head: u32,
    tail: u32,
    /// Nodes in it.
    count: u32,
}

impl Runs {
    pub(crate) const EMPTY: Self = Self { head: NIL, tail: NIL, count: 0 };

    /// Before the first run.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor { node: self.head, offset: 0 }
    }
}

/// How far a walk over a list has come.
pub(crate) struct Cursor {
    node: u32,
    offset: u64,
}

/// All nodes are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoNode;

/// The nodes of all lists.
pub(crate) struct RunArena<'m> {
    nodes: &'m mut [RunNode],
    free: u32,
    fresh: u32,
}

impl<'m> RunArena<'m> {
    pub(crate) fn new(nodes: &'m mut [RunNode]) -> Self {
        Self { nodes, free: NIL, fresh: 0 }
    }

    fn node(&self, n: u32) -> RunNode {
        self.nodes[n as usize]
    }

    fn take(&mut self, start: u64, len: u64, next: u32) -> Result<u32, NoNode> {
        let n = if self.free != NIL {
            let n = self.free;
            self.free = self.node(n).next;
            n
        } else if (self.fresh as usize) < self.nodes.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return Err(NoNode);
        };
        self.nodes[n as usize] = RunNode { start, len, next };
        Ok(n)
    }

    fn give(&mut self, n: u32) {
        self.nodes[n as usize].next = self.free;
        self.free = n;
    }

    /// Adds frames at the end. O(1).
    pub(crate) fn push(&mut self, runs: &mut Runs, start: Pfn, len: u64) -> Result<(), NoNode> {
        if runs.tail != NIL {
            let last = &mut self.nodes[runs.tail as usize];
            if last.start + last.len == start.get() {
                last.len += len;
                return Ok(());
            }
        }
        let n = self.take(start.get(), len, NIL)?;
        if runs.tail == NIL {
            runs.head = n;
        } else {
            self.nodes[runs.tail as usize].next = n;
        }
        runs.tail = n;
        runs.count += 1;
        Ok(())
    }

    /// Takes the first run off.
    pub(crate) fn pop(&mut self, runs: &mut Runs) -> Option<FrameRange> {
        if runs.head == NIL {
            return None;
        }
        let n = runs.head;
        let node = self.node(n);
        runs.head = node.next;
        runs.count -= 1;
        if runs.head == NIL {
            runs.tail = NIL;
        }
        self.give(n);
        FrameRange::new(Pfn::new(node.start), node.len)
    }

    /// The next run, with the page offset at which it starts.
    pub(crate) fn next(&self, cursor: &mut Cursor) -> Option<(u64, FrameRange)> {
        if cursor.node == NIL {
            return None;
        }
        let node = self.node(cursor.node);
        let at = cursor.offset;
        (cursor.node, cursor.offset) = (node.next, at + node.len);
        Some((at, FrameRange::new(Pfn::new(node.start), node.len)?))
    }

    /// All of them.
    pub(crate) fn iter(&self, runs: &Runs) -> impl Iterator<Item = (u64, FrameRange)> + '_ {
        let mut cursor = runs.cursor();
        core::iter::from_fn(move || self.next(&mut cursor))
    }

    /// Brings the runs into rising order of frames and joins those that touch: the fewest runs
    /// there can be, whatever the order of the pages was. O(runs) where they are in order, O(runs
    /// log runs) otherwise; no memory.
    pub(crate) fn coalesce(&mut self, runs: &mut Runs) {
        if runs.count < 2 {
            // Most areas: one chunk, or several that were neighbours as they came.
            return;
        }
        let mut sorted = true;
        let mut n = runs.head;
        while n != NIL {
            let node = self.node(n);
            sorted &= node.next == NIL || node.start <= self.node(node.next).start;
            n = node.next;
        }
        if !sorted {
            runs.head = self.sort(runs.head, runs.count);
        }
        let mut n = runs.head;
        while n != NIL {
            let node = self.node(n);
            let next = node.next;
            if next != NIL {
                let following = self.node(next);
                if node.start + node.len == following.start {
                    let joined = &mut self.nodes[n as usize];
                    (joined.len, joined.next) = (node.len + following.len, following.next);
                    self.give(next);
                    runs.count -= 1;
                    continue;
                }
            }
            runs.tail = n;
            n = next;
        }
    }

    /// Merge sort of the first `count` nodes of a list; returns the first. Depth log2 of the count.
    fn sort(&mut self, head: u32, count: u32) -> u32 {
        if count <= 1 {
            if head != NIL {
                self.nodes[head as usize].next = NIL;
            }
            return head;
        }
        let half = count / 2;
        let mut second = head;
        for _ in 0..half {
            second = self.node(second).next;
        }
        let mut a = self.sort(head, half);
        let mut b = self.sort(second, count - half);
        let (mut first, mut last) = (NIL, NIL);
        while a != NIL || b != NIL {
            let from_a = b == NIL || (a != NIL && self.node(a).start <= self.node(b).start);
            let n = if from_a { a } else { b };
            let next = self.node(n).next;
            if from_a {
                a = next
            } else {
                b = next
            }
            if last == NIL {
                first = n;
            } else {
                self.nodes[last as usize].next = n;
            }
            last = n;
        }
        first
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn pages(arena: &RunArena<'_>, runs: &Runs, len: usize) -> Vec<Option<u64>> {
        let mut pages = vec![None; len];
        for (at, range) in arena.iter(runs) {
            for i in 0..range.len() {
                pages[(at + i) as usize] = Some(range.start.get() + i);
            }
        }
        pages
    }

    proptest! {
        /// Frames in any order: coalescing leaves the fewest runs, no node is lost.
        #[test]
        fn agrees_with_an_array(
            frames in Just((100..140u64).collect::<Vec<_>>()).prop_shuffle(),
            len in 1usize..40,
        ) {
            let mut nodes = vec![RunNode::new(); 60];
            let mut arena = RunArena::new(&mut nodes);
            let mut runs = Runs::EMPTY;
            // Every third frame keeps its right neighbour, so that there are longer runs, too.
            let pairs = |f: &u64| if f % 3 == 0 { vec![f * 2, f * 2 + 1] } else { vec![f * 2] };
            let frames: Vec<u64> = frames[..len].iter().flat_map(pairs).collect();
            for f in &frames {
                arena.push(&mut runs, Pfn::new(*f), 1).unwrap();
            }
            let model: Vec<Option<u64>> = frames.iter().copied().map(Some).collect();
            prop_assert_eq!(pages(&arena, &runs, model.len()), model);
            let mut left = frames;
            left.sort_unstable();
            let fewest = left.chunk_by(|a, b| b - a == 1).count();
            arena.coalesce(&mut runs);
            let mut got = vec![];
            let mut count = 0;
            while let Some(range) = arena.pop(&mut runs) {
                got.extend(range.start.get()..range.end.get());
                count += 1;
            }
            prop_assert_eq!(got, left);
            prop_assert_eq!(count, fewest);
            prop_assert_eq!(runs, Runs::EMPTY);
            for _ in 0..60 {
                prop_assert!(arena.take(0, 0, NIL).is_ok(), "a node is lost");
            }
        }
    }

    #[test]
    fn the_last_node_is_the_last() {
        let mut nodes = vec![RunNode::new(); 2];
        let mut arena = RunArena::new(&mut nodes);
        let mut runs = Runs::EMPTY;
        arena.push(&mut runs, Pfn::new(5), 1).unwrap();
        arena.push(&mut runs, Pfn::new(6), 1).unwrap();
        arena.push(&mut runs, Pfn::new(9), 1).unwrap();
        assert_eq!(arena.push(&mut runs, Pfn::new(20), 1), Err(NoNode));
        assert_eq!(pages(&arena, &runs, 3), [Some(5), Some(6), Some(9)]);
    }
}
