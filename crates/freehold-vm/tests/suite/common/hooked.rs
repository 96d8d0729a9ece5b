//! Folios to be reclaimed, on page tables in software, with hooks or without.

use freehold_vm::{Access, Entry, Mmu, SoftMmu, SoftStats, SpaceId, Vm};

pub use super::hooks::{Hooked, MEANWHILE, When};
use super::*;

type Frames = freehold::Freehold<'static, freehold::Threads>;

pub const SPACE: SpaceId = SpaceId::new(0);

pub fn entry(vm: &Vm<'_, impl Mmu>, page: u64) -> Entry {
    vm.space(SPACE).unwrap().entry_at(vpn(page))
}

/// One VMA over everything, one mapped folio of that order at `page`, written to, then lazyfree.
fn lazyfree_on<M: Mmu>(mmu: M, order_: u8, page: u64) -> (Frames, Vm<'static, M>) {
    let (fh, vm) = machine(mmu, 16, 2);
    vm.add_vma(SPACE, pages(0, 2048), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(page), order(order_), Access::ReadWrite).unwrap();
    let n = order(order_).frames();
    for i in 0..n {
        vm.touch(SPACE, vpn(page + i), true).unwrap();
    }
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(page, n)), Ok(n));
    (fh, vm)
}

/// A machine of one address space, with a VMA over its first pages.
pub fn one_vma(mib: u64, n: u64) -> (Frames, Vm<'static, SoftMmu>) {
    let (fh, vm) = machine(SoftMmu::new(), mib, 1);
    vm.add_vma(SPACE, pages(0, n), RW).unwrap();
    (fh, vm)
}

/// What a call returns, and what it adds to these counts of the Mmu.
pub fn adds<T, const N: usize>(
    vm: &Vm<'_, SoftMmu>,
    counts: fn(SoftStats) -> [u64; N],
    call: impl FnOnce() -> T,
) -> (T, [u64; N]) {
    let before = counts(vm.mmu().stats());
    let result = call();
    let after = counts(vm.mmu().stats());
    (result, std::array::from_fn(|i| after[i] - before[i]))
}

pub fn lazyfree_folio(order_: u8, page: u64) -> (Frames, Vm<'static, SoftMmu>) {
    lazyfree_on(SoftMmu::new(), order_, page)
}

type Machine<'a> = (&'a Frames, &'a Vm<'a, Hooked<SoftMmu>>);

pub fn hooked(order_: u8, page: u64) -> Machine<'static> {
    let (fh, vm) = lazyfree_on(Hooked::new(SoftMmu::new()), order_, page);
    (Box::leak(Box::new(fh)), Box::leak(Box::new(vm)))
}
