//! The layout of the metadata: typed slices in the caller's memory. The only unsafe code of the
//! crate.
//!
//! ```text
//! | CpuState ... | Cursors ... | Group ... | Zone ... | sections | bitmap words | ... | Line ... | Head ... | Links ... |
//!   each slice aligned to its type; all written at once                               | [`Blocks`]: written section by
//!                                                                                       section, on first use
//! ```
//!
//! One function lays it out and both [`Freehold::metadata_size`](crate::Freehold::metadata_size)
//! and
//! [`Freehold::new`](crate::Freehold::new) run it, so they cannot disagree.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::words::{Head, Line, Links};
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The alignment that the start of the metadata is brought to.
pub(crate) const ALIGN: usize = 128;

/// Places one slice of metadata behind the other; without memory it only counts.
pub(crate) struct LayoutBuilder<'m> {
    /// The start of the region, aligned to [`ALIGN`], or none where only the size is wanted.
    base: Option<NonNull<u8>>,
    /// Bytes in the region.
    len: usize,
    /// Bytes laid out so far.
    used: usize,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

impl<'m> LayoutBuilder<'m> {
    /// Counts bytes only.
    pub(crate) fn measure() -> Self {
        Self { base: None, len: 0, used: 0, region: PhantomData }
    }

    /// Lays out `region`, from its first aligned byte on.
    pub(crate) fn new(region: &'m mut [MaybeUninit<u8>]) -> Self {
        let skip = region.as_ptr().align_offset(ALIGN).min(region.len());
        let region = &mut region[skip..];
        let len = region.len();
        Self { base: NonNull::new(region.as_mut_ptr().cast()), len, used: 0, region: PhantomData }
    }

    /// Bytes laid out so far.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes in the region.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Places a slice of `n` values, each made by `init`. An empty slice where only counting, or
    /// where the region is too small; [`LayoutBuilder::used`] tells then.
    pub(crate) fn take<T>(&mut self, n: usize, mut init: impl FnMut(usize) -> T) -> &'m [T] {
        const { assert!(align_of::<T>() <= ALIGN) };
        let Some(start) = self.used.checked_next_multiple_of(align_of::<T>()) else {
            return self.overflow();
        };
        let Some(end) = n.checked_mul(size_of::<T>()).and_then(|bytes| start.checked_add(bytes))
        else {
            return self.overflow();
        };
        self.used = end;
        let Some(base) = self.base else { return &[] };
        if end > self.len {
            return &[];
        }
        // SAFETY: `start..end` lies within the region, which `base` and `len` describe and whose
        // borrow 'm this builder holds exclusively; no other slice covers these bytes, since `used`
        // only grows. `base` is aligned to ALIGN, which `T`'s alignment divides, and so is `start`.
        // Every element is written before the slice is formed. The elements are never dropped,
        // which is safe.
        unsafe {
            let first = base.as_ptr().add(start).cast::<T>();
            for i in 0..n {
                first.add(i).write(init(i));
            }
            core::slice::from_raw_parts(first, n)
        }
    }

    /// The same where there is nothing to make values of, as only the size is wanted.
    pub(crate) fn skip<T>(&mut self, n: usize) -> &'m [T] {
        self.reserve::<T>(n);
        &[]
    }

    /// Places the blocks' metadata, which nobody writes yet.
    pub(crate) fn take_blocks(&mut self, n: usize) -> Blocks<'m> {
        Blocks {
            lines: self.reserve(n),
            heads: self.reserve(n),
            links: self.reserve(n),
            len: n as u32,
            ready: AtomicU32::new(0),
            region: PhantomData,
        }
    }

    /// Leaves room for `n` values and does not write it. Dangling where only counting, or where
    /// there is no room.
    fn reserve<T>(&mut self, n: usize) -> NonNull<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let start = self.used.checked_next_multiple_of(align_of::<T>());
        let end = start.and_then(|start| n.checked_mul(size_of::<T>())?.checked_add(start));
        let (Some(start), Some(end)) = (start, end) else {
            self.used = usize::MAX / 2;
            return NonNull::dangling();
        };
        self.used = end;
        match self.base {
            // SAFETY: `start..end` lies within the region that starts at `base` and is `len` bytes
            // long.
            Some(base) if end <= self.len => unsafe { base.add(start).cast() },
            _ => NonNull::dangling(),
        }
    }

    fn overflow<T>(&mut self) -> &'m [T] {
        self.used = usize::MAX / 2;
        &[]
    }
}

/// A place that names one of the blocks' words: what a lease goes by, without looking the block up
/// again.
pub(crate) struct WordCell<'m>(AtomicPtr<AtomicU64>, PhantomData<&'m AtomicU64>);

impl<'m> WordCell<'m> {
    /// Names that word, whatever lives as long as the metadata.
    pub(crate) fn new(word: &'m AtomicU64) -> Self {
        Self(AtomicPtr::new(core::ptr::from_ref(word).cast_mut()), PhantomData)
    }

    /// Names another word.
    pub(crate) fn set(&self, word: &'m AtomicU64) {
        // Relaxed: under the CPU's door, and every value ever stored is good for 'm.
        self.0.store(core::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
    }

    /// The word.
    #[inline(always)]
    pub(crate) fn get(&self) -> &'m AtomicU64 {
        // SAFETY: only `new` and `set` store here, each time a pointer made from a reference that
        // is valid for 'm; what is behind it is an atomic, so a shared reference is enough for
        // whatever is done with it.
        unsafe { &*self.0.load(Ordering::Relaxed) }
    }
}

/// The metadata of all blocks, set up from the first one on, a section at a time.
pub(crate) struct Blocks<'m> {
    lines: NonNull<Line>,
    heads: NonNull<Head>,
    links: NonNull<Links>,
    len: u32,
    /// Blocks whose metadata has been written. Only grows.
    ready: AtomicU32,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

// SAFETY: it hands out shared references to `Line`, `Head` and `Links` only, which consist of
// atomics, and the memory behind them is borrowed for 'm.
unsafe impl Sync for Blocks<'_> {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Blocks<'_> {}

/// A block whose metadata is set up. Made by [`Blocks`] only, whose `ready` never shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Index(u32);

impl Index {
    #[inline(always)]
    pub(crate) const fn get(self) -> u32 {
        self.0
    }
}

impl<'m> Blocks<'m> {
    /// Blocks there is room for.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Blocks set up.
    pub(crate) fn ready(&self) -> u32 {
        // Acquire: pairs with `set_up`.
        self.ready.load(Ordering::Acquire)
    }

    /// The block of that number, if it is set up.
    #[inline(always)]
    pub(crate) fn index(&self, raw: u32) -> Option<Index> {
        (raw < self.ready()).then_some(Index(raw))
    }

    /// Sets up the next `n` blocks, or none where there is no room; returns the first. One caller
    /// at a time.
    pub(crate) fn set_up(&self, n: u32, number: impl Fn(u32) -> u32) -> Option<u32> {
        let first = self.ready();
        if self.len - first < n {
            return None;
        }
        for i in 0..n {
            let at = (first + i) as usize;
            // SAFETY: `at` is below `len`, for which `take_blocks` reserved room in each of the
            // three; nobody has a reference to what is at or above `ready`, and there is one caller
            // at a time.
            unsafe {
                self.lines.add(at).write(Line::new());
                self.heads.add(at).write(Head::new(number(i)));
                self.links.add(at).write(Links::new());
            }
        }
        // Release: who sees the new bound sees what was written below it.
        self.ready.store(first + n, Ordering::Release);
        Some(first)
    }

    #[inline(always)]
    pub(crate) fn line(&self, index: Index) -> &'m Line {
        // SAFETY: an `Index` is below `ready`, so it was written and is never written as a whole
        // again; the memory is borrowed for 'm.
        unsafe { self.lines.add(index.0 as usize).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn head(&self, index: Index) -> &'m Head {
        // SAFETY: as in `line`.
        unsafe { self.heads.add(index.0 as usize).as_ref() }
    }

    #[inline(always)]
    pub(crate) fn links(&self, index: Index) -> &'m Links {
        // SAFETY: as in `line`.
        unsafe { self.links.add(index.0 as usize).as_ref() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn slices_are_aligned_disjoint_and_measured_alike() {
        let mut counting = LayoutBuilder::measure();
        counting.take(3, |i| i as u8);
        counting.take(5, |i| i as u64);
        counting.take(2, |_| [0u32; 3]);
        let mut region = std::vec![MaybeUninit::uninit(); counting.used() + ALIGN];
        let mut layout = LayoutBuilder::new(&mut region[1..]);
        let a = layout.take(3, |i| i as u8);
        let b = layout.take(5, |i| i as u64 * 7);
        let c = layout.take(2, |i| [i as u32; 3]);
        assert_eq!(
            (a, b, c),
            (&[0u8, 1, 2][..], &[0u64, 7, 14, 21, 28][..], &[[0u32; 3], [1; 3]][..])
        );
        assert_eq!(layout.used(), counting.used());
    }

    #[test]
    fn a_region_too_small_yields_nothing() {
        let mut region = [MaybeUninit::uninit(); 40];
        let mut layout = LayoutBuilder::new(&mut region);
        assert!(layout.take(1000, |i| i as u64).is_empty());
        assert!(layout.take(usize::MAX, |i| i as u64).is_empty());
        assert!(layout.used() > layout.len());
    }
}
