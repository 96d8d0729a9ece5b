//! Address spaces and mappings: what is refused, what is undone, what is counted.

use crate::common::hooked::*;
use crate::common::*;
use freehold::{Order, Pfn};
use freehold_vm::{
    Access, Entry, Fault, Folio, Frame, IntervalNode, MapError, Mapping, Mmu, PageTable, SoftMmu,
    Space, Vm, VmError, Vma, Vpn, VpnRange,
};

#[test]
fn the_records_are_as_small_as_the_documentation_says() {
    assert_eq!(size_of::<Frame>(), 44);
    assert_eq!(size_of::<Mapping>(), 80);
}

fn nothing_is_mapped<M: Mmu>(vm: &Vm<'_, M>, folio: Folio, except: Option<u64>) {
    for page in 0..1024 {
        assert_eq!(entry(vm, page).is_mapped(), except == Some(page), "page {page}");
    }
    let state = vm.folio_state(folio.pfn()).unwrap();
    let counts = (state.references, state.maps, state.mapped_pages, state.deferred);
    assert_eq!(counts, (1, 0, 0, false));
}

#[test]
fn a_mapping_that_fails_half_way_is_undone() {
    // The second page table is refused.
    let refusing =
        Hooked { refuses: |first| first >= vpn(512), ..Hooked::new(SoftMmu::<1>::new()) };
    let (fh, vm) = machine(refusing, 8, 1);
    vm.add_vma(SPACE, pages(0, 1024), RW).unwrap();
    let folio = vm.folio_alloc(&fh, order(4)).unwrap();
    let mapped = vm.map(folio, (0, 16), SPACE, vpn(505), Access::ReadWrite);
    assert_eq!(mapped, Err(VmError::Map(MapError::Host(12))));
    nothing_is_mapped(&vm, folio, None);
    vm.put(&fh, folio.pfn()).unwrap();
    assert_all_free(&fh);

    // Once more, where the second table has something already.
    let (fh, vm) = one_vma(8, 1024);
    vm.map_new(&fh, SPACE, vpn(515), Order::ZERO, Access::ReadWrite).unwrap();
    let folio = vm.folio_alloc(&fh, order(4)).unwrap();
    let mapped = vm.map(folio, (0, 16), SPACE, vpn(505), Access::ReadWrite);
    assert_eq!(mapped, Err(VmError::Occupied { vpn: vpn(515) }));
    nothing_is_mapped(&vm, folio, Some(515));
    // One call for each page table.
    vm.unmap(&fh, SPACE, pages(515, 1)).unwrap();
    let map = || vm.map(folio, (0, 16), SPACE, vpn(505), Access::ReadWrite);
    assert_eq!(adds(&vm, |soft| [soft.entry_maps], map), (Ok(()), [2]));
    vm.put(&fh, folio.pfn()).unwrap();
    // One flush, though two tables.
    let unmap = || vm.unmap(&fh, SPACE, pages(0, 1024));
    let counted = adds(&vm, |soft| [soft.flushes, soft.ranges_flushed], unmap);
    assert_eq!(counted, (Ok(16), [1, 1]));
    assert_all_free(&fh);
}

#[test]
fn wrong_calls_are_refused_and_say_why() {
    let (fh, vm) = machine(SoftMmu::<1>::new(), 4, 1);
    let far = VpnRange::new(Vpn::new(0), 4).unwrap();
    assert_eq!(vm.add_vma(space(7), pages(0, 1), RW), Err(VmError::NoSpace { space: space(7) }));
    assert_eq!(vm.add_vma(SPACE, far, RW), Err(VmError::OutOfSpace { range: far }));
    assert_eq!(vm.unmap(&fh, SPACE, pages(5, 0)), Err(VmError::OutOfSpace { range: pages(5, 0) }));
    vm.add_vma(SPACE, pages(0, 100), Vma { access: Access::Read, ..RW }).unwrap();
    let overlap = vm.add_vma(SPACE, pages(99, 3), RW);
    assert_eq!(overlap, Err(VmError::VmaOverlap { range: pages(99, 3) }));
    assert_eq!(vm.folio_alloc(&fh, order(10)), Err(VmError::OrderTooLarge { order: order(10) }));
    let folio = vm.folio_alloc(&fh, order(2)).unwrap();
    let map = |part, page, access| vm.map(folio, part, SPACE, vpn(page), access);
    assert_eq!(map((0, 4), 0, Access::ReadWrite), Err(VmError::Fault(Fault::AccessDenied)));
    assert_eq!(map((2, 4), 0, Access::Read), Err(VmError::OutOfFolio { pages: 4 }));
    assert_eq!(map((0, 4), 98, Access::Read), Err(VmError::NoVma { vpn: vpn(100) }));
    assert_eq!(vm.touch(SPACE, vpn(0), false), Err(VmError::Fault(Fault::NotMapped)));
    assert_eq!(vm.touch(SPACE, Vpn::new(1), false), Err(VmError::Fault(Fault::OutOfSpace)));
    assert_eq!(vm.pin(&fh, SPACE, vpn(3), false), Err(VmError::Fault(Fault::NotMapped)));
    map((0, 4), 0, Access::Read).unwrap();
    assert_eq!(vm.write_fault(SPACE, vpn(0)), Err(VmError::Fault(Fault::AccessDenied)));
    assert_eq!(vm.pin(&fh, SPACE, vpn(0), true), Err(VmError::Fault(Fault::WriteProtected)));
    assert_eq!(vm.split(&fh, folio), Ok(()), "the caller's reference and the mappings' only");
    // One frame cannot be split.
    assert_eq!(vm.split(&fh, folio), Err(VmError::Busy { pfn: folio.pfn() }));
    vm.put(&fh, folio.pfn()).unwrap();
    vm.unmap(&fh, SPACE, pages(0, 100)).unwrap();
    assert_eq!(vm.put(&fh, folio.pfn()), Err(VmError::NotAFolio { pfn: folio.pfn() }));
    assert_eq!(vm.put(&fh, Pfn::new(1)), Err(VmError::NotAFolio { pfn: Pfn::new(1) }));
    assert_all_free(&fh);
}

#[test]
fn mappings_run_out_without_anything_being_lost() {
    let fh = frames(4, 1);
    let vm = vm(SoftMmu::<1>::new(), 4, 1, 1024, 4);
    vm.add_vma(SPACE, pages(0, 512), RW).unwrap();
    for page in [0, 16, 32, 40] {
        vm.map_new(&fh, SPACE, vpn(page), order(2), Access::ReadWrite).unwrap();
    }
    assert_eq!(vm.map_new(&fh, SPACE, vpn(48), order(2), Access::ReadWrite), Err(VmError::NoNodes));
    // Splitting would take a record for each entry: the folio stays whole, and stays queued.
    assert_eq!(vm.unmap(&fh, SPACE, pages(1, 1)), Ok(1));
    assert_eq!((vm.stats().deferred_queued, vm.split_deferred(&fh, 10)), (1, Ok(0)));
    assert_eq!(vm.queued(), (0, 1));
    vm.unmap(&fh, SPACE, pages(16, 32)).unwrap();
    assert_eq!(vm.split_deferred(&fh, 10), Ok(1));
    assert_eq!(vm.stats().deferred_split, 1);
    vm.unmap(&fh, SPACE, pages(0, 512)).unwrap();
    assert_all_free(&fh);
}

#[test]
fn writing_to_write_protected_pages_makes_them_writable_and_marks_them() {
    let (fh, vm) = one_vma(4, 64);
    vm.map_new(&fh, SPACE, vpn(0), order(2), Access::ReadWrite).unwrap();
    vm.clear_soft_dirty(SPACE, pages(0, 4)).unwrap();
    let entry = |page| entry(&vm, page);
    assert!(!entry(1).has(Entry::SOFT_DIRTY) && !entry(1).is_writable());
    for _ in 0..2 {
        assert_eq!(vm.write_fault(SPACE, vpn(1)), Ok(()));
        assert!(entry(1).has(Entry::SOFT_DIRTY.with(Entry::DIRTY).with(Entry::WRITABLE)));
    }
    assert!(!entry(2).is_writable());
    assert_eq!(vm.write_fault(SPACE, vpn(4)), Err(VmError::Fault(Fault::NotMapped)));
    vm.protect(SPACE, pages(0, 4), Access::Read).unwrap();
    assert_eq!(vm.write_fault(SPACE, vpn(1)), Err(VmError::Fault(Fault::AccessDenied)));
    vm.unmap(&fh, SPACE, pages(0, 64)).unwrap();
    assert_all_free(&fh);
}

/// 512 pages at a place that no table starts at: two tables, one flush, one frame run.
#[test]
fn the_largest_folio_across_two_tables() {
    let (fh, vm) = one_vma(8, 1024);
    vm.map_new(&fh, SPACE, vpn(100), order(9), Access::ReadWrite).unwrap();
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 1024)), Ok(512));
    let counted = adds(&vm, |soft| [soft.clears, soft.flushes], || vm.reclaim(&fh, 1));
    assert_eq!(counted, (Ok(512), [2, 1]));
    assert_eq!((vm.stats().frees, vm.stats().deferred_queued), (1, 0));
    assert_all_free(&fh);
}

/// VMAs of which all nodes are in use can be taken away and changed as far as none has to be split.
#[test]
fn vmas_need_nodes_for_what_is_split_only() {
    let read = Vma { access: Access::Read, ..RW };
    let fh = frames(4, 1);
    let space =
        Space::new(SPACE, Vpn::new(BASE), leak(2, PageTable::new), leak(3, IntervalNode::new));
    let (records, mappings) = (leak(1024, Frame::new), leak(4, Mapping::new));
    let vm =
        Vm::new(SoftMmu::<1>::new(), Pfn::new(FIRST), records, mappings, Vec::leak(vec![space]));
    for start in [0, 100, 200] {
        vm.add_vma(SPACE, pages(start, 50), RW).unwrap();
    }
    let folio = vm.folio_alloc(&fh, Order::ZERO).unwrap();
    let access = |page| match vm.map(folio, (0, 1), SPACE, vpn(page), Access::ReadWrite) {
        Ok(()) => vm.unmap(&fh, SPACE, pages(page, 1)).map(|_| Access::ReadWrite).ok(),
        Err(VmError::NoVma { .. }) => None,
        Err(VmError::Fault(Fault::AccessDenied)) => Some(Access::Read),
        Err(error) => panic!("{error}"),
    };
    vm.protect(SPACE, pages(100, 50), Access::Read).unwrap();
    vm.protect(SPACE, pages(90, 160), Access::Read).unwrap();
    assert_eq!(
        [0, 100, 249].map(access),
        [Some(Access::ReadWrite), Some(Access::Read), Some(Access::Read)]
    );
    // As it is already: nothing to split.
    vm.protect(SPACE, pages(110, 10), Access::Read).unwrap();
    assert_eq!(vm.protect(SPACE, pages(110, 10), Access::ReadWrite), Err(VmError::NoNodes));
    assert_eq!(vm.remove_vma(&fh, SPACE, pages(110, 10)), Err(VmError::NoNodes));
    assert_eq!([109, 110, 120].map(access), [Some(Access::Read); 3]);
    // The start of one, the end of another.
    vm.remove_vma(&fh, SPACE, pages(140, 70)).unwrap();
    vm.remove_vma(&fh, SPACE, pages(0, 50)).unwrap();
    assert_eq!(
        [0, 139, 140, 209, 210].map(access),
        [None, Some(Access::Read), None, None, Some(Access::Read)]
    );
    vm.remove_vma(&fh, SPACE, pages(110, 10)).unwrap();
    assert_eq!(vm.add_vma(SPACE, pages(300, 1), read), Err(VmError::NoNodes));
    vm.remove_vma(&fh, SPACE, pages(0, 1000)).unwrap();
    for start in [0, 100, 200] {
        vm.add_vma(SPACE, pages(start, 50), RW).unwrap();
    }
}

/// Reclaim takes entries away and puts them back; a handler that looks in between must not believe
/// that they are gone.
#[test]
fn a_fault_handler_does_not_see_the_middle_of_reclaim() {
    let (fh, vm) = one_vma(8, 1024);
    vm.map_new(&fh, SPACE, vpn(32), order(5), Access::ReadWrite).unwrap();
    // A pin keeps the folio, however often reclaim takes its entries away to find that out.
    let pin = vm.pin(&fh, SPACE, vpn(40), true).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2_000 {
                vm.madvise_free(&fh, SPACE, pages(0, 64)).unwrap();
                assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 64)), Ok(0));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(vm.settled(SPACE, vpn(63)).unwrap().is_present());
        }
    });
    vm.unpin(&fh, pin, false).unwrap();
    assert_eq!(vm.settled(SPACE, vpn(64)), Ok(Entry::NONE));
    assert!(matches!(vm.settled(SPACE, vpn(1 << 20)), Err(VmError::OutOfSpace { .. })));
    assert_eq!(vm.unmap(&fh, SPACE, pages(0, 1024)), Ok(32));
    assert_all_free(&fh);
}
