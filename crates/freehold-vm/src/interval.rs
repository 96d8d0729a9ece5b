//! Disjoint intervals in order: the VMAs of an address space.
//!
//! A sorted slice of the caller's: looking up is a binary search, storing and removing move what
//! lies behind. An address space has few VMAs, and they change rarely.

/// A place for one interval. The caller hands over a slice of them.
#[derive(Clone, Copy, Debug)]
pub struct IntervalNode<T> {
    start: u64,
    end: u64,
    value: Option<T>,
}

impl<T> Default for IntervalNode<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> IntervalNode<T> {
    /// An unused node.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: 0, end: 0, value: None }
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

/// The intervals: the first `len` nodes, by rising addresses.
pub(crate) struct Intervals<'m, T> {
    nodes: &'m mut [IntervalNode<T>],
    len: usize,
}

impl<'m, T: Copy> Intervals<'m, T> {
    pub(crate) fn new(nodes: &'m mut [IntervalNode<T>]) -> Self {
        Self { nodes, len: 0 }
    }

    /// How many more intervals there is room for.
    pub(crate) fn room(&self) -> usize {
        self.nodes.len() - self.len
    }

    /// Where the first interval is that ends after `point`; behind the last where none does.
    fn place(&self, point: u64) -> usize {
        self.nodes[..self.len].partition_point(|node| node.end <= point)
    }

    fn interval(&self, at: usize) -> Option<Interval<T>> {
        let node = self.nodes[..self.len].get(at)?;
        Some(Interval { start: node.start, end: node.end, value: node.value? })
    }

    /// Stores an interval. O(n).
    pub(crate) fn insert(&mut self, start: u64, end: u64, value: T) -> Result<(), InsertError> {
        let at = self.place(start);
        if start >= end || self.interval(at).is_some_and(|next| next.start < end) {
            return Err(InsertError::Overlap);
        }
        if self.room() == 0 {
            return Err(InsertError::NoNode);
        }
        self.nodes.copy_within(at..self.len, at + 1);
        self.nodes[at] = IntervalNode { start, end, value: Some(value) };
        self.len += 1;
        Ok(())
    }

    /// The interval that `point` lies in. O(log n).
    pub(crate) fn get(&self, point: u64) -> Option<Interval<T>> {
        self.next_from(point).filter(|interval| interval.start <= point)
    }

    /// The first interval that ends after `point`. O(log n).
    pub(crate) fn next_from(&self, point: u64) -> Option<Interval<T>> {
        self.interval(self.place(point))
    }

    /// Removes the interval that `point` lies in. O(n).
    pub(crate) fn remove(&mut self, point: u64) -> Option<Interval<T>> {
        let interval = self.get(point)?;
        let at = self.place(point);
        self.nodes.copy_within(at + 1..self.len, at);
        self.len -= 1;
        Some(interval)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;

    /// Against a sorted map, with every answer checked by brute force.
    fn check(intervals: &Intervals<'_, u32>, model: &BTreeMap<u64, (u64, u32)>) {
        for point in 0..130 {
            let expected = model.range(..=point).next_back().filter(|(_, (end, _))| *end > point);
            assert_eq!(
                intervals.get(point).map(|i| (i.start, (i.end, i.value))),
                expected.map(|(s, v)| (*s, *v))
            );
            let next = model.iter().find(|(_, (end, _))| *end > point);
            assert_eq!(intervals.next_from(point).map(|i| i.start), next.map(|(s, _)| *s));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(steps in prop::collection::vec((0u64..128, 1u64..12, any::<bool>()), 1..60)) {
            let mut nodes = vec![IntervalNode::new(); 12];
            let mut intervals = Intervals::new(&mut nodes);
            let mut model = BTreeMap::new();
            for (i, (start, len, insert)) in steps.into_iter().enumerate() {
                if insert {
                    let end = (start + len).min(128);
                    let overlap = model.iter().any(|(s, (e, _))| *s < end && start < *e);
                    let expected = if overlap { Err(InsertError::Overlap) }
                        else if model.len() == 12 { Err(InsertError::NoNode) } else { Ok(()) };
                    prop_assert_eq!(intervals.insert(start, end, i as u32), expected);
                    if expected.is_ok() { model.insert(start, (end, i as u32)); }
                } else {
                    let hit = model.range(..=start).next_back().filter(|(_, (e, _))| *e > start).map(|(s, _)| *s);
                    prop_assert_eq!(intervals.remove(start).map(|i| i.start), hit);
                    hit.map(|s| model.remove(&s));
                }
                prop_assert_eq!(intervals.room(), 12 - model.len());
                check(&intervals, &model);
            }
        }
    }
}
