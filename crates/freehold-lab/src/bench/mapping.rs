//! Memory as the system gives it, each piece unmapped when it is dropped.
//!
//! Unsafe code of this crate is here and in its other allocators (`engines::heap`,
//! `engines::llfree`, `memory::heap`).
//!
//! Nothing here hands out a reference to the memory itself, so that whatever another thread or the
//! system does to its contents (drops them, zeroes them) breaks no promise of the language. All
//! access is by relaxed atomics of single words, which compile to plain loads and stores.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// A mapping of its own, gone when this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that this value owns; its memory is used by atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "most of it is for a Linux process's memory")
)]
impl Mapping {
    /// Zeroed private memory.
    pub(super) fn new(len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE)
        }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// A mapping at a multiple of `align`, a power of two: more is mapped and the ends are given
    /// up.
    pub(super) fn aligned(len: usize, align: usize) -> Result<Self, Errno> {
        let whole = std::mem::ManuallyDrop::new(Self::new(len + align - PAGE)?);
        let start = whole.base.as_ptr();
        let skip = start.addr().next_multiple_of(align) - start.addr();
        let base = start.wrapping_add(skip);
        for (from, bytes) in [(start, skip), (base.wrapping_add(len), whole.len - skip - len)] {
            if bytes > 0 {
                // SAFETY: mapped just now; nobody knows of these pages, and the rest does not
                // include them.
                unsafe { rustix::mm::munmap(from.cast(), bytes) }?;
            }
        }
        Ok(Self { base: NonNull::new(base).ok_or(Errno::NOMEM)?, len })
    }

    pub(super) fn write(&self, page: usize) {
        assert!(page * PAGE < self.len, "within the mapping");
        // SAFETY: within the mapping, which lives as long as this; atomics are all that uses it, or
        // who has the base knows better. Relaxed: one byte.
        unsafe { self.base.add(page * PAGE).cast::<AtomicU8>().as_ref() }
            .store(1, Ordering::Relaxed);
    }

    /// Writes a byte in every page of so many bytes from the start on.
    pub(super) fn touch(&self, len: usize) {
        (0..len.min(self.len) / PAGE).for_each(|page| self.write(page));
    }

    /// Advises the system about so many bytes from the start on.
    pub(super) fn advise(&self, len: usize, advice: Advice) -> Result<(), Errno> {
        assert!(len <= self.len, "within the mapping");
        // SAFETY: this value's own memory, to whose contents no reference is made.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), len, advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own, to which nothing refers.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
