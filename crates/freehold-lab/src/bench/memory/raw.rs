//! What of an arena benchmarks use by numbers and addresses, and not by handles. Unsafe, as
//! `bench::mapping` is.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use freehold_host::freehold_vm::Vpn;
use freehold_host::{Arena, ArenaFrames, Backing, HostAreas};

use crate::bench::mapping::PAGE;

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
        // SAFETY: the arena is of `new`, which lent it only to areas, which free nothing; no handle
        // is made of it in this crate's reach: its frames are known by number only.
        unsafe { self.0.frame_allocator() }
    }
}

/// Writes a byte of a page of an area; one at which nothing is mapped is a `SIGSEGV`, as anywhere.
pub(super) fn write(areas: &HostAreas, at: Vpn) {
    if let Some(page) = areas.pointer(at) {
        // SAFETY: inside the reserved addresses, to which no reference is ever made but these.
        // Relaxed: one byte.
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
