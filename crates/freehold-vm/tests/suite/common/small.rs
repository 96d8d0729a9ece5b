//! Parts of small machines.

use freehold::{Config, FrameRange, Freehold, Order, Pfn, Platform, Watermarks, ZoneConfig};
use freehold_vm::{
    Access, Frame, IntervalNode, Mapping, Mmu, PageTable, Space, SpaceId, Vm, Vma, Vpn, VpnRange,
};

/// The first frame of every machine.
pub const FIRST: u64 = 512;
/// The first page of every address space: the start of a page table.
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

/// A page allocator over so many frames, nothing held back. Leaked, which is fine in a test.
pub fn allocator<P: Platform>(count: u64, cpus: u16, platform: P) -> Freehold<'static, P> {
    let memory = [FrameRange::new(Pfn::new(FIRST), count).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    Freehold::leaked(&Config::new(cpus, &[zone]), platform).unwrap()
}

pub fn assert_all_free<P: Platform>(frames: &Freehold<'_, P>) {
    frames.drain_all();
    frames.validate().unwrap();
    let stats = frames.zone_stats(0).unwrap();
    assert_eq!(stats.free, stats.managed, "frames lost");
}

/// Folios of so many frames, in address spaces of so many page tables each. No VMAs yet.
pub fn folios<M: Mmu>(
    mmu: M,
    frames: u64,
    spaces: u16,
    tables: u64,
    mappings: usize,
) -> Vm<'static, M> {
    let mut ids = 0..spaces;
    let spaces = leak(spaces.into(), || {
        Space::new(
            space(ids.next().unwrap()),
            Vpn::new(BASE),
            leak(tables as usize, PageTable::new),
            leak(256, IntervalNode::<Vma>::new),
        )
    });
    Vm::new(
        mmu,
        Pfn::new(FIRST),
        leak(frames as usize, Frame::new),
        leak(mappings, Mapping::new),
        spaces,
    )
}
