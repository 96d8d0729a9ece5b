//! Folios in the address space: freehold-vm's `Vm` over the processor's page tables.

use alloc::vec::Vec;

use freehold_vm::{Frame, IntervalNode, Mapping, PageTable, Space, TABLE_ENTRIES, Vm, Vpn};
use spin::Once;

use super::mmu::Hardware;
use super::space::{SPACE, USER};
use super::zone;

/// Pages of the address space, which one table shows: 2 MiB.
pub(crate) const PAGES: u64 = TABLE_ENTRIES;
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
        let tables = slice_of(1, |_| PageTable::new());
        let vmas = slice_of(64, |_| IntervalNode::new());
        let spaces = Vec::from([Space::new(SPACE, USER, tables, vmas)]).leak();
        Vm::new(Hardware, zone::first(), frames, mappings, spaces)
    })
}

/// A page of the address space, by number.
pub(crate) const fn page(i: u64) -> Vpn {
    Vpn::new(USER.get() + i)
}
