//! Memory as the system gives it, each piece unmapped when it is dropped.
//!
//! Unsafe code of this crate is here, beside it in `heap`, in the benchmark's memory and its other allocators
//! (`bench::backing`, `bench::engines::heap`, `bench::engines::mmap`), and where the soak stops threads (`soak::stops`).
//!
//! Nothing here hands out a reference to the memory itself, so that whatever another thread or the system does to its
//! contents (drops them, zeroes them) breaks no promise of the language. All access is by relaxed atomics of single
//! words, which compile to plain loads and stores.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use freehold_host::freehold_vm::Vpn;
use freehold_host::{Arena, ArenaFrames, Backing, HostAreas};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// A mapping of its own, gone when this is dropped.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range that this value owns; its memory is used by atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory.
    pub(super) fn new(len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE) }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// The same at a multiple of `align`, a power of two: more is mapped and the ends are given up.
    pub(super) fn aligned(len: usize, align: usize) -> Result<Self, Errno> {
        let whole = std::mem::ManuallyDrop::new(Self::new(len + align - PAGE)?);
        let start = whole.base.as_ptr();
        let skip = start.addr().next_multiple_of(align) - start.addr();
        let base = start.wrapping_add(skip);
        for (from, bytes) in [(start, skip), (base.wrapping_add(len), whole.len - skip - len)] {
            if bytes > 0 {
                // SAFETY: mapped just now; nobody knows of these pages, and the rest does not include them.
                unsafe { rustix::mm::munmap(from.cast(), bytes) }?;
            }
        }
        Ok(Self { base: NonNull::new(base).ok_or(Errno::NOMEM)?, len })
    }

    pub(super) fn write(&self, page: usize) {
        assert!(page * PAGE < self.len, "within the mapping");
        // SAFETY: within the mapping, which lives as long as this; atomics are all that uses it. Relaxed: one byte.
        unsafe { self.base.add(page * PAGE).cast::<AtomicU8>().as_ref() }.store(1, Ordering::Relaxed);
    }

    /// Writes every word of so many bytes from the start on, as `memset` would.
    pub(super) fn fill(&self, len: usize) {
        let words = len.min(self.len) / size_of::<AtomicU64>();
        // SAFETY: as above; the base is a page's.
        let words = unsafe { std::slice::from_raw_parts(self.base.cast::<AtomicU64>().as_ptr(), words) };
        // Relaxed: what is in them does not matter.
        words.iter().for_each(|word| word.store(0x0101_0101_0101_0101, Ordering::Relaxed));
    }

    /// Writes a byte in every page of so many bytes from the start on.
    pub(super) fn touch(&self, len: usize) {
        (0..len.min(self.len) / PAGE).for_each(|page| self.write(page));
    }

    /// Advises the system about so many bytes from the start on.
    pub(super) fn advise(&self, len: usize, advice: Advice) -> Result<(), Errno> {
        assert!(len <= self.len, "within the mapping");
        // SAFETY: this value's own memory, whose contents only atomics look at.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), len, advice) }
    }

    /// Makes every second part of `part` bytes a mapping of its own, so that no page is larger than a part. What a
    /// forked child has of them is the difference between them; this process does not fork.
    pub(super) fn cut(&self, part: usize) -> Result<(), Errno> {
        for start in (0..self.len).step_by(2 * part) {
            let base = self.base.as_ptr().wrapping_add(start).cast();
            // SAFETY: this value's own memory; the advice changes nothing in it.
            unsafe { rustix::mm::madvise(base, part.min(self.len - start), Advice::LinuxDontFork) }?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own, to which nothing refers.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// An arena that this benchmark alone uses, as a page allocator by frame numbers.
pub(super) struct Frames(Arc<Arena>);

impl Frames {
    /// An arena of so many bytes, and so many pages of addresses to map its frames at.
    pub(super) fn new(bytes: u64, pages: u64) -> Result<(Self, HostAreas), freehold_host::Error> {
        let arena = Arc::new(Arena::builder(bytes).backing(Backing::Memfd).build()?);
        let areas = HostAreas::new(Arc::clone(&arena), pages)?;
        Ok((Self(arena), areas))
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.0
    }

    pub(super) fn allocator(&self) -> ArenaFrames<'_> {
        // SAFETY: the arena is of `new`, which lent it only to areas, which free nothing; no handle is made of it in this
        // crate's reach: its frames are known by number only.
        unsafe { self.0.frame_allocator() }
    }
}

/// Writes a byte of a page of an area; one at which nothing is mapped is a `SIGSEGV`, as anywhere.
pub(super) fn write(areas: &HostAreas, at: Vpn) {
    if let Some(page) = areas.pointer(at) {
        // SAFETY: inside the reserved addresses, to which no reference is ever made but these. Relaxed: one byte.
        unsafe { page.cast::<AtomicU8>().as_ref() }.store(1, Ordering::Relaxed);
    }
}

pub(super) fn zero(areas: &HostAreas, at: Vpn, pages: u64) {
    let last = areas.pointer(Vpn::new(at.get() + pages.saturating_sub(1)));
    if let (Some(page), Some(_)) = (areas.pointer(at), last) {
        // SAFETY: as above; no other thread knows the area yet.
        unsafe { page.write_bytes(0, pages as usize * PAGE) };
    }
}
