//! What reclaim puts back has the rights it had, on real mappings: a write that must not be allowed
//! ends its process with `SIGSEGV`. Those are tried in a forked child, which makes its own machine,
//! since a userfaultfd and its thread do not come along.
//!
//! The other defects that Linux's batched unmapping has had are tried on the software Mmu, by
//! `freehold-vm`'s `tests/suite/lazyfree.rs`.

use crate::common::*;
use crate::fork::ONE_AT_A_TIME;
use freehold::{Freehold, Pfn, SingleCpu};
use freehold_host::freehold_vm::{Access, Entry, SpaceId, TABLE_ENTRIES};

const ID: SpaceId = SpaceId::new(0);
const FRAMES: u64 = 512;

type Frames = Freehold<'static, SingleCpu>;

/// One VMA over everything, and nothing mapped. `None`, said aloud, where there is no userfaultfd.
fn empty(test: &str) -> Option<(Frames, Machine)> {
    let vm = machine_or_skip(test, FRAMES, 1, 1)?;
    vm.add_vma(ID, pages(0, TABLE_ENTRIES), RW).unwrap();
    Some((allocator(FRAMES, 1, SingleCpu), vm))
}

fn lazyfree(fh: &Frames, vm: &Machine, page: u64, n: u64) {
    assert_eq!(vm.madvise_free(fh, ID, pages(page, n)), Ok(n));
}

fn entries(vm: &Machine, page: u64, n: u64) -> Vec<Entry> {
    (page..page + n).map(|page| vm.mmu().entry(ID, vpn(page)).without(Entry::HARDWARE)).collect()
}

fn assert_held(vm: &Machine, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        assert_eq!(read_stamp(vm, ID, vpn(page)), Ok(page + 1), "page {page}");
        assert!(vm.mmu().entry(ID, vpn(page)).is_mapped(), "page {page}");
    }
}

fn assert_gone(vm: &Machine, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        assert_eq!(read_stamp(vm, ID, vpn(page)), Ok(0), "page {page}");
        assert!(!vm.mmu().entry(ID, vpn(page)).is_mapped(), "page {page}");
    }
}

/// A lazyfree folio at 32 whose odd pages are read-only in a VMA that may be written to, as after a
/// fork whose child is gone, and that a pin has kept from reclaim. Returns the entries before and
/// after.
fn restored_mixed(fh: &Frames, vm: &Machine, dirty: bool) -> (Vec<Entry>, Vec<Entry>) {
    vm.map_new(fh, ID, vpn(32), order(4), Access::ReadWrite).unwrap();
    (32..48).for_each(|page| stamp(vm, ID, vpn(page), page + 1));
    lazyfree(fh, vm, 32, 16);
    for page in (33..48).step_by(2) {
        vm.protect(ID, pages(page, 1), Access::Read).unwrap();
    }
    vm.protect(ID, pages(32, 16), Access::ReadWrite).unwrap();
    let before = entries(vm, 32, 16);
    let pinned = vm.pin(fh, ID, vpn(35), false).unwrap();
    if dirty {
        vm.unpin(fh, pinned, true).unwrap();
    }
    assert_eq!(vm.madvise_pageout(fh, ID, pages(32, 16)), Ok(0));
    assert_eq!(vm.folio_state(pinned).unwrap().swap_backed, dirty);
    (before, entries(vm, 32, 16))
}

/// CVE-2026-31398: a batch that mixed writable and read-only entries was restored all writable.
/// What the entries say is compared, and what the memory allows is tried.
#[test]
fn restored_entries_keep_their_own_write_permission() {
    let _one = ONE_AT_A_TIME.lock();
    for dirty in [false, true] {
        let Some((fh, vm)) = empty("restored_entries_keep_their_own_write_permission") else {
            return;
        };
        let (before, after) = restored_mixed(&fh, &vm, dirty);
        assert_eq!(after, before);
        assert!(!after[1].is_writable() && after[2].is_writable());
        assert_held(&vm, 32..48);
        let write_in_a_child = |page: u64| {
            try_in_a_child(|trying| {
                let (fh, vm) = empty("in a child").unwrap();
                restored_mixed(&fh, &vm, dirty);
                trying.now();
                stamp(&vm, ID, vpn(page), 7);
                assert_eq!(read_stamp(&vm, ID, vpn(page)), Ok(7));
            })
        };
        assert_eq!(write_in_a_child(33), Ended::Signal(libc::SIGSEGV));
        assert_eq!(write_in_a_child(47), Ended::Signal(libc::SIGSEGV));
        assert_eq!(write_in_a_child(34), Ended::Survived);
    }
}

/// A lazyfree folio at 0 whose first four pages are PROT_NONE in a VMA that is not, as NUMA hinting
/// makes them.
fn with_prot_none(fh: &Frames, vm: &Machine) -> Pfn {
    let folio = vm.folio_alloc(fh, order(4)).unwrap();
    vm.map(folio, (0, 4), ID, vpn(0), Access::None).unwrap();
    vm.map(folio, (4, 12), ID, vpn(4), Access::ReadWrite).unwrap();
    vm.put(fh, folio.pfn()).unwrap();
    (4..16).for_each(|page| stamp(vm, ID, vpn(page), page + 1));
    lazyfree(fh, vm, 0, 16);
    folio.pfn()
}

/// PROT_NONE entries: a batch ends where they begin; put back they are PROT_NONE still; and they
/// keep writes out.
#[test]
fn prot_none_entries_are_restored_as_such_and_keep_writes_out() {
    let _one = ONE_AT_A_TIME.lock();
    let Some((fh, vm)) = empty("prot_none_entries_are_restored_as_such_and_keep_writes_out") else {
        return;
    };
    with_prot_none(&fh, &vm);
    let before = entries(&vm, 0, 16);
    let pin = vm.pin(&fh, ID, vpn(9), false).unwrap();
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 16)), Ok(0));
    assert_eq!(entries(&vm, 0, 16), before);
    assert_held(&vm, 4..16);
    vm.unpin(&fh, pin, false).unwrap();
    let (batches, pages_released) = (vm.stats().batches_cleared, vm.mmu().stats().pages_released);
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 16)), Ok(16));
    assert_eq!(vm.stats().batches_cleared - batches, 2);
    // What could not be used was never there.
    assert_eq!(vm.mmu().stats().pages_released - pages_released, 12);
    assert_gone(&vm, 0..16);
    assert_all_free(&fh);
    let write_in_a_child = |page: u64, restored: bool| {
        try_in_a_child(|trying| {
            let (fh, vm) = empty("in a child").unwrap();
            let head = with_prot_none(&fh, &vm);
            if restored {
                let pin = vm.pin(&fh, ID, vpn(9), false).unwrap();
                assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 16)), Ok(0));
                vm.unpin(&fh, pin, false).unwrap();
            }
            assert!(vm.folio_state(head).unwrap().lazyfree);
            trying.now();
            stamp(&vm, ID, vpn(page), 7);
        })
    };
    for restored in [false, true] {
        assert_eq!(write_in_a_child(0, restored), Ended::Signal(libc::SIGSEGV));
        assert_eq!(write_in_a_child(3, restored), Ended::Signal(libc::SIGSEGV));
        assert_eq!(write_in_a_child(4, restored), Ended::Survived);
    }
}
