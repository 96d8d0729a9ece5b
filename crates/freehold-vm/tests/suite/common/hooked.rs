//! Folios to be reclaimed, on page tables in software, with hooks or without.

use freehold_vm::{Access, SoftMmu, SpaceId, Vm};

pub use super::hooks::{Hooked, MEANWHILE, When};
use super::*;

pub const SPACE: SpaceId = SpaceId::new(0);

/// One VMA over everything, one mapped folio of that order at `page`, written to, then lazyfree.
pub fn lazyfree_folio(
    order_: u8,
    page: u64,
) -> (freehold::Freehold<'static, freehold::Threads>, Vm<'static, SoftMmu>) {
    let (fh, vm) = machine(SoftMmu::new(), 16, 1);
    vm.add_vma(SPACE, pages(0, 2048), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(page), order(order_), Access::ReadWrite).unwrap();
    let n = order(order_).frames();
    for i in 0..n {
        vm.touch(SPACE, vpn(page + i), true).unwrap();
    }
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(page, n)), Ok(n));
    (fh, vm)
}

type Machine<'a> = (&'a freehold::Freehold<'a, freehold::Threads>, &'a Vm<'a, Hooked<SoftMmu>>);

pub fn hooked(order_: u8, page: u64) -> Machine<'static> {
    let (fh, vm) = machine(Hooked::new(SoftMmu::new()), 16, 2);
    vm.add_vma(SPACE, pages(0, 2048), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(page), order(order_), Access::ReadWrite).unwrap();
    assert_eq!(
        vm.madvise_free(&fh, SPACE, pages(page, order(order_).frames())),
        Ok(order(order_).frames())
    );
    (Box::leak(Box::new(fh)), Box::leak(Box::new(vm)))
}
