//! Disjoint intervals in order: the virtual areas of vmalloc, the VMAs of an address space.
//!
//! A treap (a binary search tree by where an interval starts, a heap by a fixed pseudo-random
//! number of its node) in the caller's nodes, which are named by index. Every node also knows, of
//! the subtree below it, where its intervals start and end and the **largest gap** between two of
//! them, so that the lowest gap of a size is found without looking into subtrees that have none.
//! (Linux keeps the gaps themselves in a second tree. Here freeing an area merges gaps by being a
//! removal.)
//!
//! ```text
//!        [40,50)  covers 10..90, largest gap 20..40 = 20
//!        /     \
//!   [10,20)   [60,90)
//! ```
//!
//! Expected depth is O(log n), whatever the order of insertion: no caller chooses nodes. Recursion
//! goes as deep.

/// "No node".
const NIL: u32 = u32::MAX;

/// A place for one interval. The caller hands over a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct IntervalNode<T> {
    start: u64,
    end: u64,
    left: u32,
    right: u32,
    /// Where the subtree's first interval starts.
    first: u64,
    /// Where its last one ends.
    last: u64,
    /// The largest gap between two neighbours in it.
    gap: u64,
    value: Option<T>,
}

impl<T> IntervalNode<T> {
    /// An unused node.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: 0, end: 0, left: NIL, right: NIL, first: 0, last: 0, gap: 0, value: None }
    }
}

/// What is stored for an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interval<T> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) value: T,
}

/// Why an interval was not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertError {
    /// All nodes are in use.
    NoNode,
    /// It is empty, or overlaps one that is stored.
    Overlap,
}

/// The intervals.
pub(crate) struct IntervalTree<'m, T> {
    nodes: &'m mut [IntervalNode<T>],
    root: u32,
    /// Nodes freed, linked by `left`.
    free: u32,
    /// Nodes from here on have never been used.
    fresh: u32,
}

/// A node's place in the heap order: the finaliser of MurmurHash3, a bijection of the index.
fn priority(node: u32) -> u32 {
    let mut h = node ^ 0x9e37_79b9;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

impl<'m, T: Copy> IntervalTree<'m, T> {
    pub(crate) fn new(nodes: &'m mut [IntervalNode<T>]) -> Self {
        Self { nodes, root: NIL, free: NIL, fresh: 0 }
    }

    fn node(&self, n: u32) -> &IntervalNode<T> {
        &self.nodes[n as usize]
    }

    fn node_mut(&mut self, n: u32) -> &mut IntervalNode<T> {
        &mut self.nodes[n as usize]
    }

    /// How many more intervals there is room for.
    pub(crate) fn room(&self) -> usize {
        let mut room = self.nodes.len() - self.fresh as usize;
        let mut n = self.free;
        // Callers need to know about a handful.
        while n != NIL && room < 4 {
            room += 1;
            n = self.node(n).left;
        }
        room
    }

    fn update(&mut self, n: u32) {
        let node = *self.node(n);
        let (mut first, mut last, mut gap) = (node.start, node.end, 0);
        if node.left != NIL {
            let left = self.node(node.left);
            gap = left.gap.max(node.start - left.last);
            first = left.first;
        }
        if node.right != NIL {
            let right = self.node(node.right);
            gap = gap.max(right.gap).max(right.first - node.end);
            last = right.last;
        }
        let node = self.node_mut(n);
        (node.first, node.last, node.gap) = (first, last, gap);
    }

    /// Cuts a subtree into what starts below `key` and the rest.
    fn split(&mut self, n: u32, key: u64) -> (u32, u32) {
        if n == NIL {
            return (NIL, NIL);
        }
        if self.node(n).start < key {
            let (low, high) = self.split(self.node(n).right, key);
            self.node_mut(n).right = low;
            self.update(n);
            (n, high)
        } else {
            let (low, high) = self.split(self.node(n).left, key);
            self.node_mut(n).left = high;
            self.update(n);
            (low, n)
        }
    }

    /// Joins two subtrees, all of `a` lying below all of `b`.
    fn join(&mut self, a: u32, b: u32) -> u32 {
        if a == NIL || b == NIL {
            return if a == NIL { b } else { a };
        }
        if priority(a) > priority(b) {
            let right = self.join(self.node(a).right, b);
            self.node_mut(a).right = right;
            self.update(a);
            a
        } else {
            let left = self.join(a, self.node(b).left);
            self.node_mut(b).left = left;
            self.update(b);
            b
        }
    }

    /// Stores an interval. Expected O(log n).
    pub(crate) fn insert(&mut self, start: u64, end: u64, value: T) -> Result<(), InsertError> {
        if start >= end || self.next_from(start).is_some_and(|next| next.start < end) {
            return Err(InsertError::Overlap);
        }
        let new = if self.free != NIL {
            let n = self.free;
            self.free = self.node(n).left;
            n
        } else if (self.fresh as usize) < self.nodes.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return Err(InsertError::NoNode);
        };
        *self.node_mut(new) = IntervalNode {
            start,
            end,
            left: NIL,
            right: NIL,
            first: start,
            last: end,
            gap: 0,
            value: Some(value),
        };
        let (low, high) = self.split(self.root, start);
        let low = self.join(low, new);
        self.root = self.join(low, high);
        Ok(())
    }

    fn find(&self, point: u64) -> u32 {
        let mut n = self.root;
        while n != NIL {
            let node = self.node(n);
            if point < node.start {
                n = node.left;
            } else if point < node.end {
                return n;
            } else {
                n = node.right;
            }
        }
        NIL
    }

    fn interval(&self, n: u32) -> Option<Interval<T>> {
        if n == NIL {
            return None;
        }
        let node = self.node(n);
        Some(Interval { start: node.start, end: node.end, value: node.value? })
    }

    /// The interval that `point` lies in. Expected O(log n).
    pub(crate) fn get(&self, point: u64) -> Option<Interval<T>> {
        self.interval(self.find(point))
    }

    /// The value of the interval that `point` lies in. Expected O(log n).
    pub(crate) fn get_mut(&mut self, point: u64) -> Option<&mut T> {
        let n = self.find(point);
        if n == NIL { None } else { self.node_mut(n).value.as_mut() }
    }

    /// The first interval that ends after `point`. Expected O(log n).
    pub(crate) fn next_from(&self, point: u64) -> Option<Interval<T>> {
        let (mut n, mut best) = (self.root, NIL);
        while n != NIL {
            let node = self.node(n);
            if node.end > point {
                best = n;
                n = node.left;
            } else {
                n = node.right;
            }
        }
        self.interval(best)
    }

    /// Removes the interval that `point` lies in. Expected O(log n).
    pub(crate) fn remove(&mut self, point: u64) -> Option<Interval<T>> {
        let n = self.find(point);
        let interval = self.interval(n)?;
        let (low, rest) = self.split(self.root, interval.start);
        let (_, high) = self.split(rest, interval.start + 1);
        self.root = self.join(low, high);
        let free = self.free;
        let node = self.node_mut(n);
        node.value = None;
        node.left = free;
        self.free = n;
        Some(interval)
    }

    /// The lowest place in `from..to` for an interval of `size` that starts at a multiple of
    /// `align`, a power of two.
    ///
    /// Expected O(log n) where the first gap of that size will do, as it always does without
    /// alignment; each gap that is large enough but does not hold an aligned start costs another
    /// descent.
    pub(crate) fn find_gap(&self, from: u64, to: u64, size: u64, align: u64) -> Option<u64> {
        self.find_gap_below(self.root, from, to, size, align)
    }

    fn find_gap_below(&self, n: u32, from: u64, to: u64, size: u64, align: u64) -> Option<u64> {
        if to < from || to - from < size {
            return None;
        }
        if n == NIL {
            let start = from.checked_next_multiple_of(align)?;
            return (start.checked_add(size)? <= to).then_some(start);
        }
        let node = self.node(n);
        // The gaps inside, the one before the first interval and the one behind the last.
        let largest =
            node.gap.max(node.first.saturating_sub(from)).max(to.saturating_sub(node.last));
        if largest < size {
            return None;
        }
        self.find_gap_below(node.left, from, to.min(node.start), size, align)
            .or_else(|| self.find_gap_below(node.right, from.max(node.end), to, size, align))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    /// Against a sorted map, with every answer checked by brute force.
    fn check(tree: &IntervalTree<'_, u32>, model: &BTreeMap<u64, (u64, u32)>) {
        for point in 0..130 {
            let expected = model.range(..=point).next_back().filter(|(_, (end, _))| *end > point);
            assert_eq!(
                tree.get(point).map(|i| (i.start, (i.end, i.value))),
                expected.map(|(s, v)| (*s, *v))
            );
            let next = model.iter().find(|(_, (end, _))| *end > point);
            assert_eq!(tree.next_from(point).map(|i| i.start), next.map(|(s, _)| *s));
        }
        for (size, align) in [(1, 1), (3, 1), (7, 2), (5, 8), (16, 16), (1, 64)] {
            let fits = |s: u64| {
                s % align == 0
                    && s + size <= 128
                    && model.iter().all(|(start, (end, _))| s + size <= *start || *end <= s)
            };
            assert_eq!(
                tree.find_gap(4, 128, size, align),
                (4..128).find(|s| fits(*s)),
                "{size} {align}"
            );
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0u64..128, 1u64..12, any::<bool>()), 1..60)
        ) {
            let mut nodes = vec![IntervalNode::new(); 12];
            let mut tree = IntervalTree::new(&mut nodes);
            let mut model = BTreeMap::new();
            for (i, (start, len, insert)) in steps.into_iter().enumerate() {
                if insert {
                    let end = (start + len).min(128);
                    let overlap = model.iter().any(|(s, (e, _))| *s < end && start < *e);
                    let expected = if overlap { Err(InsertError::Overlap) }
                        else if model.len() == 12 { Err(InsertError::NoNode) } else { Ok(()) };
                    prop_assert_eq!(tree.insert(start, end, i as u32), expected);
                    if expected.is_ok() { model.insert(start, (end, i as u32)); }
                } else {
                    let last = model.range(..=start).next_back();
                    let hit = last.filter(|(_, (e, _))| *e > start).map(|(s, _)| *s);
                    prop_assert_eq!(tree.remove(start).map(|i| i.start), hit);
                    hit.map(|s| model.remove(&s));
                }
                prop_assert_eq!(tree.room().min(4), (12 - model.len()).min(4));
                check(&tree, &model);
            }
        }
    }

    #[test]
    fn a_tree_built_in_order_is_not_a_list() {
        fn depth(tree: &IntervalTree<'_, ()>, n: u32) -> u32 {
            if n == NIL {
                0
            } else {
                1 + depth(tree, tree.node(n).left).max(depth(tree, tree.node(n).right))
            }
        }
        let mut nodes: Vec<_> = (0..65536).map(|_| IntervalNode::new()).collect();
        let mut tree = IntervalTree::new(&mut nodes);
        for i in 0..65536 {
            tree.insert(i * 3, i * 3 + 2, ()).unwrap();
        }
        assert!(depth(&tree, tree.root) < 48, "{}", depth(&tree, tree.root));
        assert_eq!(tree.find_gap(0, u64::MAX, 2, 1), Some(65536 * 3 - 1));
        assert_eq!(tree.find_gap(0, u64::MAX, 1, 1), Some(2));
    }
}
