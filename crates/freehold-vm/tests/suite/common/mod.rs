//! Small machines for the tests.
#![allow(dead_code, unreachable_pub)]

pub mod actor;
pub mod hooked;
pub mod hooks;
pub mod small;

use freehold::{AllocError, FrameRange, FreeError, Freehold, Order, Pfn, Request, Threads};
use freehold_vm::{Frames, Mmu, TABLE_ENTRIES, Vm};
use std::sync::atomic::{AtomicU64, Ordering};

pub use small::*;

/// Frames in a MiB.
pub const MIB: u64 = 256;

/// A page allocator over `mib` MiB. With threads as CPUs, also where there is one: so the allocator
/// is compiled once for all tests.
pub fn frames(mib: u64, cpus: u16) -> Freehold<'static, Threads> {
    allocator(mib * MIB, cpus, Threads::new(cpus))
}

/// Folios over the same memory, with address spaces of so many pages each. No VMAs yet.
pub fn vm<M: Mmu>(
    mmu: M,
    mib: u64,
    spaces: u16,
    space_pages: u64,
    mappings: usize,
) -> Vm<'static, M> {
    folios(mmu, mib * MIB, spaces, space_pages.div_ceil(TABLE_ENTRIES), mappings)
}

/// Counts what a page allocator is asked for.
pub struct Counting<A> {
    pub inner: A,
    pub allocs: AtomicU64,
    pub frees: AtomicU64,
    pub range_frees: AtomicU64,
}

impl<A> Counting<A> {
    pub fn new(inner: A) -> Self {
        Self {
            inner,
            allocs: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            range_frees: AtomicU64::new(0),
        }
    }
    pub fn take(&self) -> (u64, u64, u64) {
        let take = |n: &AtomicU64| n.swap(0, Ordering::Relaxed);
        (take(&self.allocs), take(&self.frees), take(&self.range_frees))
    }
}

impl<A: Frames> Frames for Counting<A> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.allocs.fetch_add(1, Ordering::Relaxed);
        self.inner.alloc(request)
    }
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.allocs.fetch_add(1, Ordering::Relaxed);
        self.inner.alloc_bulk(request, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.frees.fetch_add(1, Ordering::Relaxed);
        self.inner.free(pfn, order)
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.range_frees.fetch_add(1, Ordering::Relaxed);
        self.inner.free_range(range)
    }
}

/// The usual machine: one CPU, `mib` MiB, software Mmu.
pub fn machine<M: Mmu>(
    mmu: M,
    mib: u64,
    spaces: u16,
) -> (Freehold<'static, Threads>, Vm<'static, M>) {
    (frames(mib, 1), vm(mmu, mib, spaces, mib * MIB * 2, (mib * MIB) as usize))
}
