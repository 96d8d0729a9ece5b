//! A short list in place: a world is copied at every step of the search, and must not be spread
//! over the heap.

use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

/// Up to `N` of something.
#[derive(Clone, Copy)]
pub struct Few<T, const N: usize> {
    len: u8,
    all: [T; N],
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// None yet; `filler` is what the places not in use hold.
    pub const fn new(filler: T) -> Self {
        Self { len: 0, all: [filler; N] }
    }
    /// So many of the same.
    pub fn of(item: T, n: usize) -> Self {
        assert!(
            n <= N,
            "{n} are more than {N}: the constant beside the field says how many there may be"
        );
        Self { len: n as u8, all: [item; N] }
    }
    /// One more, as the last one.
    pub fn push(&mut self, item: T) {
        let at = usize::from(self.len);
        assert!(
            at < N,
            "there are {N} already: the constant beside the field says how many there may be"
        );
        self.all[at] = item;
        self.len += 1;
    }
    /// The last one.
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(self.all[usize::from(self.len)])
    }
}

impl<T: Copy, const N: usize> Extend<T> for Few<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.all[..usize::from(self.len)]
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[..usize::from(self.len)]
    }
}

impl<T: PartialEq, const N: usize> PartialEq for Few<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for Few<T, N> {}

impl<T: Hash, const N: usize> Hash for Few<T, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: std::fmt::Debug, const N: usize> std::fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
