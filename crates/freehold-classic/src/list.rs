//! Doubly linked lists that run through the frames' own records, as the kernel's do: adding and
//! removing never allocates, and a chunk can be taken from the middle in constant time.

use crate::page::{Frames, NIL};
use crate::primitive::Ordering::Relaxed;

/// A list of chunks, by the index of their first frame.
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
    pub(crate) fn push_front(&mut self, frames: &Frames, frame: u32) {
        let page = frames.page(frame);
        page.prev.store(NIL, Relaxed);
        page.next.store(self.first, Relaxed);
        match self.first {
            NIL => self.last = frame,
            first => frames.page(first).prev.store(frame, Relaxed),
        }
        self.first = frame;
    }

    /// Adds at the back: the last to be taken by an allocation, the first to be drained.
    #[inline]
    pub(crate) fn push_back(&mut self, frames: &Frames, frame: u32) {
        let page = frames.page(frame);
        page.next.store(NIL, Relaxed);
        page.prev.store(self.last, Relaxed);
        match self.last {
            NIL => self.first = frame,
            last => frames.page(last).next.store(frame, Relaxed),
        }
        self.last = frame;
    }

    /// Takes `frame`, which must be on this list, out of it.
    #[inline]
    pub(crate) fn remove(&mut self, frames: &Frames, frame: u32) {
        let page = frames.page(frame);
        let (prev, next) = (page.prev.load(Relaxed), page.next.load(Relaxed));
        match prev {
            NIL => self.first = next,
            prev => frames.page(prev).next.store(next, Relaxed),
        }
        match next {
            NIL => self.last = prev,
            next => frames.page(next).prev.store(prev, Relaxed),
        }
    }

    /// The chunks from front to back.
    pub(crate) fn iter<'a>(&self, frames: &'a Frames) -> impl Iterator<Item = u32> + use<'a> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let frame = (at != NIL).then_some(at)?;
            at = frames.page(frame).next.load(Relaxed);
            Some(frame)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
