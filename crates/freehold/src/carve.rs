//! Cuts the caller's memory into typed slices: the only unsafe code of the crate.
//!
//! ```text
//! | Block ... | CpuState ... | Pcp ... | Zone ... | sections | map words | ... |      each slice aligned to its type
//! ```
//!
//! One function plans the cuts and both [`Freehold::metadata_size`](crate::Freehold::metadata_size) and
//! [`Freehold::new`](crate::Freehold::new) run it, so they cannot disagree.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// The alignment that the start of the metadata is brought to.
pub(crate) const ALIGN: usize = 128;

/// Where the next slice starts; without memory it only counts.
pub(crate) struct Carver<'m> {
    /// The start of the region, aligned to [`ALIGN`], or none where only the size is wanted.
    base: Option<NonNull<u8>>,
    /// Bytes in the region.
    len: usize,
    /// Bytes cut off so far.
    used: usize,
    region: PhantomData<&'m mut [MaybeUninit<u8>]>,
}

impl<'m> Carver<'m> {
    /// Counts bytes only.
    pub(crate) fn measure() -> Self {
        Self { base: None, len: 0, used: 0, region: PhantomData }
    }

    /// Cuts `region`, from its first aligned byte on.
    pub(crate) fn new(region: &'m mut [MaybeUninit<u8>]) -> Self {
        let skip = region.as_ptr().align_offset(ALIGN).min(region.len());
        let region = &mut region[skip..];
        let len = region.len();
        Self { base: NonNull::new(region.as_mut_ptr().cast()), len, used: 0, region: PhantomData }
    }

    /// Bytes cut off so far.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes in the region.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Cuts off a slice of `n` values, each made by `init`. An empty slice where only counting, or where the region is
    /// too small; [`Carver::used`] tells then.
    pub(crate) fn take<T>(&mut self, n: usize, mut init: impl FnMut(usize) -> T) -> &'m [T] {
        const { assert!(align_of::<T>() <= ALIGN) };
        let Some(start) = self.used.checked_next_multiple_of(align_of::<T>()) else { return self.overflow() };
        let Some(end) = n.checked_mul(size_of::<T>()).and_then(|bytes| start.checked_add(bytes)) else {
            return self.overflow();
        };
        self.used = end;
        let Some(base) = self.base else { return &[] };
        if end > self.len {
            return &[];
        }
        // SAFETY: `start..end` lies within the region, which `base` and `len` describe and whose borrow 'm this carver
        // holds exclusively; no other slice covers these bytes, since `used` only grows. `base` is aligned to ALIGN,
        // which `T`'s alignment divides, and so is `start`. Every element is written before the slice is formed. The
        // elements are never dropped, which is safe.
        unsafe {
            let first = base.as_ptr().add(start).cast::<T>();
            for i in 0..n {
                first.add(i).write(init(i));
            }
            core::slice::from_raw_parts(first, n)
        }
    }

    fn overflow<T>(&mut self) -> &'m [T] {
        self.used = usize::MAX / 2;
        &[]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    extern crate std;

    #[test]
    fn slices_are_aligned_disjoint_and_measured_alike() {
        let mut counting = Carver::measure();
        counting.take(3, |i| i as u8);
        counting.take(5, |i| i as u64);
        counting.take(2, |_| [0u32; 3]);
        let mut region = std::vec![MaybeUninit::uninit(); counting.used() + ALIGN];
        let mut carver = Carver::new(&mut region[1..]);
        let a = carver.take(3, |i| i as u8);
        let b = carver.take(5, |i| i as u64 * 7);
        let c = carver.take(2, |i| [i as u32; 3]);
        assert_eq!((a, b, c), (&[0u8, 1, 2][..], &[0u64, 7, 14, 21, 28][..], &[[0u32; 3], [1; 3]][..]));
        assert_eq!(carver.used(), counting.used());
    }

    #[test]
    fn a_region_too_small_yields_nothing() {
        let mut region = [MaybeUninit::uninit(); 40];
        let mut carver = Carver::new(&mut region);
        assert!(carver.take(1000, |i| i as u64).is_empty());
        assert!(carver.take(usize::MAX, |i| i as u64).is_empty());
        assert!(carver.used() > carver.len());
    }
}
