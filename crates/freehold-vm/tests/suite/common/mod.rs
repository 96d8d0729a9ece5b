//! Small machines for the tests.
#![allow(dead_code, unreachable_pub)]

pub mod actor;
pub mod hooked;
pub mod hooks;
pub mod small;

use freehold::{Freehold, Threads};
use freehold_vm::{Mmu, TABLE_ENTRIES, Vm};

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

/// The usual machine: one CPU, `mib` MiB, software Mmu.
pub fn machine<M: Mmu>(
    mmu: M,
    mib: u64,
    spaces: u16,
) -> (Freehold<'static, Threads>, Vm<'static, M>) {
    (frames(mib, 1), vm(mmu, mib, spaces, mib * MIB * 2, (mib * MIB) as usize))
}
