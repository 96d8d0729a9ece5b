//! Doubly linked lists that run through the frames' own records, or the pageblocks', as the
//! kernel's do: adding and removing never allocates, and a chunk can be taken from the middle in
//! constant time.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::page::NIL;

/// What a list runs through.
pub(crate) trait Links {
    /// The links of one: to the next on its list, and to the one before.
    fn links(&self, index: u32) -> (&AtomicU32, &AtomicU32);
}

/// A list of chunks by the index of their first frame, or of pageblocks by theirs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NIL, last: NIL };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NIL
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    #[inline]
    pub(crate) fn last(&self) -> Option<u32> {
        (self.last != NIL).then_some(self.last)
    }

    /// Adds at the front: the next to be taken by an allocation.
    #[inline]
    pub(crate) fn push_front(&mut self, through: &impl Links, index: u32) {
        let (next, prev) = through.links(index);
        prev.store(NIL, Relaxed);
        next.store(self.first, Relaxed);
        match self.first {
            NIL => self.last = index,
            first => through.links(first).1.store(index, Relaxed),
        }
        self.first = index;
    }

    /// Adds at the back: the last to be taken by an allocation, the first to be drained.
    #[inline]
    pub(crate) fn push_back(&mut self, through: &impl Links, index: u32) {
        let (next, prev) = through.links(index);
        next.store(NIL, Relaxed);
        prev.store(self.last, Relaxed);
        match self.last {
            NIL => self.first = index,
            last => through.links(last).0.store(index, Relaxed),
        }
        self.last = index;
    }

    /// Takes `index`, which must be on this list, out of it.
    #[inline]
    pub(crate) fn remove(&mut self, through: &impl Links, index: u32) {
        let (next, prev) = through.links(index);
        let (next, prev) = (next.load(Relaxed), prev.load(Relaxed));
        match prev {
            NIL => self.first = next,
            prev => through.links(prev).0.store(next, Relaxed),
        }
        match next {
            NIL => self.last = prev,
            next => through.links(next).1.store(prev, Relaxed),
        }
    }

    /// From front to back.
    pub(crate) fn iter<'a, L: Links>(
        &self,
        through: &'a L,
    ) -> impl Iterator<Item = u32> + use<'a, L> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let index = (at != NIL).then_some(at)?;
            at = through.links(index).0.load(Relaxed);
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Frames;

    #[test]
    fn front_back_and_middle() {
        let frames = Frames::new(0, 1024);
        let mut list = List::EMPTY;
        list.push_back(&frames, 2);
        list.push_back(&frames, 3);
        list.push_front(&frames, 1);
        assert_eq!(list.iter(&frames).collect::<Vec<_>>(), [1, 2, 3]);
        list.remove(&frames, 2);
        assert_eq!((list.first(), list.last()), (Some(1), Some(3)));
        list.remove(&frames, 3);
        list.remove(&frames, 1);
        assert!(list.is_empty() && list.last().is_none());
    }
}
