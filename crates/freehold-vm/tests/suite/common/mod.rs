//! Small machines for the tests.
#![allow(dead_code, unreachable_pub)]

pub mod actor;
pub mod hooked;

use freehold::{
    AllocError, Config, FrameRange, FreeError, Freehold, Order, Pfn, Request, Threads, Watermarks,
    ZoneConfig,
};
use freehold_vm::{
    Access, Frame, Frames, IntervalNode, Mapping, Mmu, PageTable, Space, SpaceId, TABLE_ENTRIES,
    Vm, Vma, Vpn, VpnRange,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames in a MiB.
pub const MIB: u64 = 256;
/// The first frame of every machine.
pub const FIRST: u64 = 512;
/// The first page of every address space.
pub const BASE: u64 = 512 * 16;

pub const RW: Vma = Vma { access: Access::ReadWrite, droppable: false };

pub fn order(order: u8) -> Order {
    Order::new(order).unwrap()
}

pub fn pages(start: u64, len: u64) -> VpnRange {
    VpnRange::new(Vpn::new(BASE + start), len).unwrap()
}

pub fn vpn(page: u64) -> Vpn {
    Vpn::new(BASE + page)
}

pub fn space(id: u16) -> SpaceId {
    SpaceId::new(id)
}

pub fn leak<T>(n: usize, make: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(make).take(n).collect())
}

/// A page allocator over `mib` MiB, nothing held back. Leaked, which is fine in a test.
/// With threads as CPUs, also where there is one: so the allocator is compiled once for all tests.
pub fn frames(mib: u64, cpus: u16) -> Freehold<'static, Threads> {
    let memory = [FrameRange::new(Pfn::new(FIRST), mib * MIB).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    Freehold::leaked(&Config::new(cpus, &[zone]), Threads::new(cpus)).unwrap()
}

/// Folios over the same memory, with address spaces of so many pages each. No VMAs yet.
pub fn vm<M: Mmu>(
    mmu: M,
    mib: u64,
    spaces: u16,
    space_pages: u64,
    mappings: usize,
) -> Vm<'static, M> {
    let tables = space_pages.div_ceil(TABLE_ENTRIES) as usize;
    let mut ids = 0..spaces;
    let spaces = leak(spaces.into(), || {
        Space::new(
            space(ids.next().unwrap()),
            Vpn::new(BASE),
            leak(tables, PageTable::new),
            leak(256, IntervalNode::<Vma>::new),
        )
    });
    Vm::new(
        mmu,
        Pfn::new(FIRST),
        leak((mib * MIB) as usize, Frame::new),
        leak(mappings, Mapping::new),
        spaces,
    )
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

pub fn assert_all_free(fh: &Freehold<'_, Threads>) {
    fh.drain_all();
    fh.validate().unwrap();
    let stats = fh.zone_stats(0).unwrap();
    assert_eq!(stats.free, stats.managed, "frames lost");
}

/// The usual machine: one CPU, `mib` MiB, software Mmu.
pub fn machine<M: Mmu>(
    mmu: M,
    mib: u64,
    spaces: u16,
) -> (Freehold<'static, Threads>, Vm<'static, M>) {
    (frames(mib, 1), vm(mmu, mib, spaces, mib * MIB * 2, (mib * MIB) as usize))
}
