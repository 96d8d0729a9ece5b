//! Folios to be reclaimed, on page tables in software with a hook in the middle of what is done to
//! them: where another CPU could be doing something.

use std::cell::RefCell;

use freehold_vm::{Access, Entry, Flush, FlushKind, Mmu, Slots, SoftMmu, SpaceId, Vm};

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

/// Called with what the Mmu is doing.
pub type Hook = Box<dyn FnMut(&'static str)>;

thread_local! {
    /// Called in the middle of what the Mmu is doing: where another CPU could be doing something.
    pub static MEANWHILE: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// The software Mmu, with a hook in the middle of things.
#[derive(Default)]
pub struct Hooked(pub SoftMmu<1>);

fn meanwhile(what: &'static str) {
    let hook = MEANWHILE.with_borrow_mut(Option::take);
    if let Some(mut hook) = hook {
        hook(what);
        MEANWHILE.with_borrow_mut(|place| *place = Some(hook));
    }
}

impl Mmu for Hooked {
    fn flush(&self, batch: &[Flush]) {
        if batch.iter().any(|flush| flush.kind == FlushKind::Changed) {
            meanwhile("about to flush a change");
        }
        self.0.flush(batch);
        if batch.iter().any(|flush| flush.kind == FlushKind::Unmapped) {
            meanwhile("flushed");
        }
    }
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        meanwhile("before clearing");
        self.0.get_and_clear(slots)
    }
}

pub fn hooked(
    order_: u8,
    page: u64,
) -> (&'static freehold::Freehold<'static, freehold::Threads>, &'static Vm<'static, Hooked>) {
    let (fh, vm) = machine(Hooked::default(), 16, 2);
    vm.add_vma(SPACE, pages(0, 2048), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(page), order(order_), Access::ReadWrite).unwrap();
    assert_eq!(
        vm.madvise_free(&fh, SPACE, pages(page, order(order_).frames())),
        Ok(order(order_).frames())
    );
    (Box::leak(Box::new(fh)), Box::leak(Box::new(vm)))
}
