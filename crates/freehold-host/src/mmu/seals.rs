//! Which pages are read-only for the kernel too: see `seal.rs`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::Error;
use crate::spare::Spare;

/// One bit a page, and how many are set or about to be. Changed under the protection lock.
pub(super) struct Seals {
    bits: Box<[AtomicU64]>,
    pub(super) count: AtomicUsize,
    pub(super) spare: Spare,
}

impl Seals {
    /// For so many pages.
    pub(super) fn new(pages: usize) -> Result<Self, Error> {
        let (mut bits, words) = (Vec::new(), pages.div_ceil(64));
        let no_memory = |_| {
            Error::os("malloc", Errno::NOMEM, words as u64 * 8, "fewer pages, or raise RLIMIT_AS")
        };
        bits.try_reserve_exact(words).map_err(no_memory)?;
        bits.resize_with(words, AtomicU64::default);
        Ok(Self { bits: bits.into_boxed_slice(), count: AtomicUsize::new(0), spare: Spare::new()? })
    }

    /// The first sealed page, and how many follow without a gap.
    pub(super) fn first_run(&self) -> Option<(usize, usize)> {
        // Relaxed: read and written under the lock.
        let (word, bits) = self
            .bits
            .iter()
            .map(|bits| bits.load(Ordering::Relaxed))
            .enumerate()
            .find(|&(_, w)| w != 0)?;
        let first = word * 64 + bits.trailing_zeros() as usize;
        Some((first, self.run(first)))
    }

    pub(super) fn run(&self, first: usize) -> usize {
        (first..self.bits.len() * 64).take_while(|&page| self.is_sealed(page)).count()
    }

    pub(super) fn is_sealed(&self, page: usize) -> bool {
        // Relaxed: read and written under the lock.
        self.bits[page / 64].load(Ordering::Relaxed) & 1 << (page % 64) != 0
    }

    pub(super) fn set(&self, page: usize, sealed: bool) {
        let (word, bit) = (&self.bits[page / 64], 1 << (page % 64));
        // Relaxed: read and written under the lock.
        if sealed {
            word.fetch_or(bit, Ordering::Relaxed)
        } else {
            word.fetch_and(!bit, Ordering::Relaxed)
        };
    }
}
