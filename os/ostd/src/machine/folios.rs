//! Folios in address spaces: freehold-vm's `Vm` over the processor's page tables.

use alloc::vec::Vec;

use freehold_vm::{
    Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, Vm, Vpn,
};
use spin::Once;

use super::mmu::Hardware;
use super::spaces::{MAX_SPACES, USER};
use super::zone;

/// Tables of an address space: 16 MiB.
const TABLES: u64 = 8;
/// Pages of an address space.
pub(crate) const PAGES: u64 = TABLES * TABLE_ENTRIES;
const MAPPINGS: usize = 4096;

/// Room for `n` values, for good.
fn slice_of<T>(n: usize, init: impl FnMut(usize) -> T) -> &'static mut [T] {
    (0..n).map(init).collect::<Vec<_>>().leak()
}

/// All folios.
pub(crate) fn vm() -> &'static Vm<'static, Hardware> {
    static VM: Once<Vm<'static, Hardware>> = Once::new();
    VM.call_once(|| {
        let frames = slice_of(zone::FRAMES as usize, |_| Frame::new());
        let mappings = slice_of(MAPPINGS, |_| Mapping::new());
        let spaces = slice_of(MAX_SPACES, |i| {
            let tables = slice_of(TABLES as usize, |_| PageTable::new());
            let vmas = slice_of(64, |_| IntervalNode::new());
            Space::new(SpaceId::new(i as u16), USER, tables, vmas)
        });
        Vm::new(Hardware, zone::first(), frames, mappings, spaces)
    })
}

/// A page of an address space, by number.
pub(crate) const fn page(i: u64) -> Vpn {
    Vpn::new(USER.get() + i)
}
