//! Reclaim of lazyfree folios: what is counted, and a regression test for each defect that the
//! batched unmapping of Linux has had.

use std::cell::RefCell;

use crate::common::hooked::*;
use crate::common::*;
use freehold::{FreeError, Order, Pfn};
use freehold_vm::{Access, Entry, Fault, FlushKind, Mmu, SoftMmu, UnmapPath, Vm, VmError, Vma};

fn entries(vm: &Vm<'_, impl Mmu>, page: u64, n: u64) -> Vec<Entry> {
    (page..page + n).map(|page| entry(vm, page)).collect()
}

/// A batch ends with the VMA, though the entries behind it agree. Tried: without the bound
/// there is one batch.
#[test]
fn a_batch_ends_with_the_vma() {
    let (fh, vm) = lazyfree_folio(4, 0);
    // Two VMAs that differ in something that entries do not show.
    vm.remove_vma(&fh, SPACE, pages(100, 1)).unwrap();
    let folio = vm.folio_state(entry(&vm, 0).pfn()).unwrap().folio;
    vm.get(folio).unwrap();
    vm.remove_vma(&fh, SPACE, pages(0, 16)).unwrap();
    vm.add_vma(SPACE, pages(0, 6), RW).unwrap();
    vm.add_vma(SPACE, pages(6, 10), Vma { droppable: true, ..RW }).unwrap();
    vm.map(folio, (0, 16), SPACE, vpn(0), Access::ReadWrite).unwrap();
    vm.put(&fh, folio.pfn()).unwrap();
    let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 16));
    assert_eq!(adds(&vm, |soft| [soft.clears], pageout), (Ok(16), [2]));
}

/// CVE-2026-31398: a batch that mixed writable and read-only entries was restored all writable. Here
/// some are read-only in a VMA that may be written to, as after a fork whose child is gone, and the
/// write comes between the first look and the clearing. Fails if `Entry::batches_with` ignores the
/// writable bit. Tried.
#[test]
fn a_write_during_the_walk_restores_each_batch_as_it_was() {
    let (fh, vm) = hooked(4, 0);
    vm.protect(SPACE, pages(4, 4), Access::Read).unwrap();
    vm.protect(SPACE, pages(4, 4), Access::ReadWrite).unwrap();
    vm.clear_soft_dirty(SPACE, pages(12, 4)).unwrap();
    // 0..4 writable; 4..8 read-only; 8..12 writable; 12..16 read-only and not soft-dirty. All but
    // 12..16 become writable.
    for i in 4..6 {
        vm.write_fault(SPACE, vpn(i)).unwrap();
    }
    vm.madvise_free(fh, SPACE, pages(0, 16)).unwrap();
    let before = entries(vm, 0, 16);
    assert!(
        before[4].is_writable() && !before[6].is_writable() && !before[13].has(Entry::SOFT_DIRTY)
    );
    let mut calls = 0;
    MEANWHILE.set(Some(Box::new(move |when| {
        if when == When::BeforeClearing {
            calls += 1;
            // The second batch is 6..8: somebody writes to page 8, which comes after it, ...
            if calls == 2 {
                assert!(entry(vm, 6).is_mapped(), "the first batch ran on too far");
                vm.touch(SPACE, vpn(8), true).unwrap();
                // ... and somebody else pins page 6 and has written to it.
                let pin = vm.pin(fh, SPACE, vpn(6), false).unwrap();
                vm.unpin(fh, pin, true).unwrap();
            }
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 16)), Ok(0));
    MEANWHILE.set(None);
    let after = entries(vm, 0, 16);
    // The first batch was taken before anybody wrote: gone, as it may be.
    assert!(after[..6].iter().all(|entry| *entry == Entry::NONE));
    let software = |entry: Entry| entry.without(Entry::HARDWARE);
    (6..16).for_each(|i| assert_eq!(software(after[i]), software(before[i]), "page {i}"));
    let state = vm.folio_state(after[8].pfn()).unwrap();
    assert!(state.swap_backed && state.dirty && state.deferred && state.maps == 10, "{state:?}");
    assert_eq!((vm.stats().deferred_queued, vm.stats().redirtied), (1, 1));
    // Really partly mapped: the queue's work frees what is not.
    assert_eq!(vm.split_deferred(fh, 10), Ok(1));
    assert_eq!(vm.folio_state(after[8].pfn()).unwrap().order, Order::ZERO);
    assert_eq!(vm.unmap(fh, SPACE, pages(0, 16)), Ok(10));
    assert_all_free(fh);
}

/// Soft-dirty bits come back to their own entries, too. As in the reproducer that the CVE suggests
/// all pages are read-only and half of them are not soft-dirty; a pin comes in the middle. Fails if
/// `Entry::batches_with` ignores the soft-dirty bit: then all come back soft-dirty. Tried.
#[test]
fn restored_entries_keep_their_own_soft_dirty_bit() {
    let (fh, vm) = hooked(4, 0);
    vm.protect(SPACE, pages(0, 16), Access::Read).unwrap();
    vm.protect(SPACE, pages(0, 16), Access::ReadWrite).unwrap();
    vm.clear_soft_dirty(SPACE, pages(8, 8)).unwrap();
    let all = || entries(vm, 0, 16).iter().map(|e| e.without(Entry::HARDWARE)).collect::<Vec<_>>();
    let before = all();
    let pinned: &'static RefCell<Option<Pfn>> = Box::leak(Box::default());
    MEANWHILE.set(Some(Box::new(move |when| {
        if when == When::BeforeClearing && pinned.borrow().is_none() {
            *pinned.borrow_mut() = Some(vm.pin(fh, SPACE, vpn(0), false).unwrap());
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 16)), Ok(0));
    MEANWHILE.set(None);
    assert_eq!(all(), before);
    vm.unpin(fh, pinned.take().unwrap(), false).unwrap();
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 16)), Ok(16));
    assert_all_free(fh);
}

#[test]
fn pinned_folios_are_restored_unchanged() {
    for path in UnmapPath::ALL {
        let (fh, vm) = lazyfree_folio(4, 0);
        vm.set_unmap_path(path);
        vm.touch(SPACE, vpn(3), false).unwrap();
        let before = entries(&vm, 0, 16);
        let pin = vm.pin(&fh, SPACE, vpn(5), true).unwrap();
        let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 16));
        // Nothing to flush where everything is put back.
        assert_eq!(adds(&vm, |soft| [soft.flushes], pageout), (Ok(0), [0]));
        // Of a batch each entry comes back as young as any of them was.
        if path != UnmapPath::PageByPage {
            let merged: Vec<Entry> = before.iter().map(|entry| entry.with(Entry::YOUNG)).collect();
            assert_eq!(entries(&vm, 0, 16), merged, "{path:?}");
        } else {
            assert_eq!(entries(&vm, 0, 16), before);
        }
        assert!(vm.folio_state(pin).unwrap().lazyfree);
        vm.unpin(&fh, pin, false).unwrap();
        assert_eq!(pageout(), Ok(16));
        assert_all_free(&fh);
    }
}

#[test]
fn a_page_written_to_since_brings_its_folio_back() {
    for path in UnmapPath::ALL {
        let (fh, vm) = lazyfree_folio(4, 0);
        vm.set_unmap_path(path);
        // The first page: page by page nothing is gone yet when it is found.
        let pfn = vm.touch(SPACE, vpn(0), true).unwrap();
        assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 16)), Ok(0));
        let state = vm.folio_state(pfn).unwrap();
        assert!(state.swap_backed && !state.lazyfree && state.dirty && state.maps == 16);
        assert_eq!(vm.reclaim(&fh, 100), Ok(0), "not on the list any more");
        // And lazyfree again.
        assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 16)), Ok(16));
        assert_eq!(vm.reclaim(&fh, 100), Ok(16));
        assert_all_free(&fh);
    }
}

#[test]
fn droppable_mappings_are_dropped_though_written_to() {
    let (fh, vm) = machine(SoftMmu::<1>::new(), 16, 1);
    vm.add_vma(SPACE, pages(0, 64), Vma { droppable: true, ..RW }).unwrap();
    vm.map_new(&fh, SPACE, vpn(0), order(4), Access::ReadWrite).unwrap();
    vm.madvise_free(&fh, SPACE, pages(0, 16)).unwrap();
    vm.touch(SPACE, vpn(7), true).unwrap();
    assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 16)), Ok(16));
}

/// Harry Yoo's question in review: PROT_NONE entries sit in no TLB and need no flush, but those
/// beside them do. The batch ends where the bit differs. Fails if `Entry::batches_with` ignores
/// PRESENT and PROT_NONE: then there is one batch, whose first entry says that nothing needs a
/// flush. Tried.
#[test]
fn prot_none_entries_need_no_flush_and_take_none_away_from_others() {
    // In one VMA, as NUMA hinting does it: only the entries differ.
    let (fh, vm) = one_vma(16, 2048);
    let folio = vm.folio_alloc(&fh, order(4)).unwrap();
    vm.map(folio, (0, 4), SPACE, vpn(0), Access::None).unwrap();
    vm.map(folio, (4, 12), SPACE, vpn(4), Access::ReadWrite).unwrap();
    vm.put(&fh, folio.pfn()).unwrap();
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 16)), Ok(16));
    assert_eq!(vm.touch(SPACE, vpn(1), false), Err(VmError::Fault(Fault::AccessDenied)));
    let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 16));
    let counted = adds(&vm, |soft| [soft.clears, soft.flushes, soft.pages_flushed], pageout);
    assert_eq!(counted, (Ok(16), [2, 1, 12]));
    // All of them PROT_NONE: no flush at all.
    let (fh, vm) = lazyfree_folio(4, 0);
    vm.protect(SPACE, pages(0, 16), Access::None).unwrap();
    let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 16));
    assert_eq!(adds(&vm, |soft| [soft.flushes], pageout), (Ok(16), [0]));
}

/// One flush for several folios of several address spaces.
#[test]
fn a_batch_of_folios_of_several_address_spaces_is_flushed_once() {
    let (fh, vm) = machine(SoftMmu::<1>::new(), 16, 3);
    for id in 0..3 {
        vm.add_vma(space(id), pages(0, 512), RW).unwrap();
        for i in 0..10 {
            vm.map_new(&fh, space(id), vpn(i * 32), order(4), Access::ReadWrite).unwrap();
        }
        vm.madvise_free(&fh, space(id), pages(0, 512)).unwrap();
    }
    let reclaim = || vm.reclaim(&fh, u64::MAX);
    let counted = adds(&vm, |soft| [soft.flushes, soft.ranges_flushed], reclaim);
    assert_eq!(counted, (Ok(30 * 16), [1, 30]));
    assert_all_free(&fh);
}

#[test]
fn shared_folios_are_lazyfree_only_where_all_who_show_them_say_so() {
    let (fh, vm) = machine(SoftMmu::<1>::new(), 16, 2);
    vm.add_vma(space(0), pages(0, 64), RW).unwrap();
    vm.add_vma(space(1), pages(0, 64), RW).unwrap();
    let folio = vm.map_new(&fh, space(0), vpn(0), order(4), Access::ReadWrite).unwrap();
    vm.map(folio, (0, 16), space(1), vpn(40), Access::Read).unwrap();
    assert_eq!(vm.folio_state(folio.pfn()).unwrap().maps, 32);
    // The other one has not said so.
    assert_eq!(vm.madvise_free(&fh, space(0), pages(0, 64)), Ok(0));
    vm.unmap(&fh, space(1), pages(40, 16)).unwrap();
    // Lazyfree before it is shared: both may lose it, in one go.
    assert_eq!(vm.madvise_free(&fh, space(0), pages(0, 64)), Ok(16));
    let writable = vm.map(folio, (0, 16), space(1), vpn(10), Access::ReadWrite);
    assert_eq!(writable, Err(VmError::Busy { pfn: folio.pfn() }));
    vm.map(folio, (0, 16), space(1), vpn(10), Access::Read).unwrap();
    let queued = vm.stats().deferred_queued;
    assert_eq!(vm.madvise_pageout(&fh, space(1), pages(0, 64)), Ok(16));
    assert_eq!(vm.stats().deferred_queued, queued);
    assert_all_free(&fh);
}

#[test]
fn part_of_a_folio_is_split_off_to_become_lazyfree() {
    let (fh, vm) = one_vma(16, 64);
    vm.map_new(&fh, SPACE, vpn(0), order(4), Access::ReadWrite).unwrap();
    // Pinned, it cannot be split and stays as it is.
    let pin = vm.pin(&fh, SPACE, vpn(0), true).unwrap();
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 5)), Ok(0));
    vm.unpin(&fh, pin, false).unwrap();
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 5)), Ok(5));
    assert_eq!(vm.stats().split, 1);
    assert_eq!(vm.reclaim(&fh, 100), Ok(5));
    assert_eq!(vm.unmap(&fh, SPACE, pages(0, 64)), Ok(11));
    assert_all_free(&fh);
}

#[test]
fn folios_used_lately_get_a_second_chance() {
    let (fh, vm) = one_vma(16, 64);
    for i in 0..2 {
        vm.map_new(&fh, SPACE, vpn(i * 16), order(4), Access::ReadWrite).unwrap();
    }
    vm.madvise_free(&fh, SPACE, pages(0, 32)).unwrap();
    // The older one is used; so the younger one goes.
    vm.touch(SPACE, vpn(2), false).unwrap();
    assert_eq!(vm.reclaim(&fh, 16), Ok(16));
    assert!(entry(&vm, 2).is_mapped());
    assert_eq!(vm.stats().kept_referenced, 1);
    assert_eq!(vm.reclaim(&fh, 16), Ok(16));
}

/// Reads a page after its folio was reclaimed, as a CPU with a TLB does.
fn read_after_reclaim<M: Mmu>(mmu: M, soft: impl Fn(&M) -> &SoftMmu<1>) -> Result<Pfn, Fault> {
    let (fh, vm) = machine(mmu, 16, 1);
    vm.add_vma(SPACE, pages(0, 64), RW).unwrap();
    vm.map_new(&fh, SPACE, vpn(0), order(4), Access::ReadWrite).unwrap();
    vm.madvise_free(&fh, SPACE, pages(0, 16)).unwrap();
    let space = vm.space(SPACE).unwrap();
    soft(vm.mmu()).access(0, space, vpn(0), false, |_| ()).unwrap();
    assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 16)), Ok(16));
    assert_all_free(&fh);
    soft(vm.mmu()).access(0, space, vpn(0), false, |pfn| pfn)
}

/// The modelled TLB would use a freed frame if a flush were skipped, and does not since none is.
#[test]
fn a_skipped_flush_would_let_a_cpu_use_a_freed_frame() {
    let forgetful = Hooked {
        forgets: |batch| batch.iter().all(|flush| flush.kind == FlushKind::Unmapped),
        ..Hooked::new(SoftMmu::new())
    };
    assert!(read_after_reclaim(forgetful, |mmu| &mmu.inner).is_ok(), "the model cannot tell");
    assert_eq!(read_after_reclaim(SoftMmu::new(), |mmu| mmu), Err(Fault::NotMapped));
}

/// What is mapped while reclaim has not flushed yet must not be hidden by the old translation:
/// whoever maps flushes.
#[test]
fn mapping_over_a_pending_flush_flushes_first() {
    let (fh, vm) = hooked(0, 0);
    vm.map_new(fh, SPACE, vpn(1), Order::ZERO, Access::ReadWrite).unwrap();
    vm.madvise_free(fh, SPACE, pages(1, 1)).unwrap();
    let space = vm.space(SPACE).unwrap();
    let read = || vm.mmu().inner.access(0, space, vpn(0), false, |pfn| pfn);
    let old = read().unwrap();
    let mut done = false;
    MEANWHILE.set(Some(Box::new(move |when| {
        // Page 0 is cleared and waits for its flush; reclaim is about to clear page 1.
        if when == When::BeforeClearing && !space.entry_at(vpn(0)).is_mapped() && !done {
            done = true;
            assert_eq!(read(), Ok(old), "still in the TLB");
            // Page 512's table is not the one that reclaim has locked: any mapping in the space
            // flushes.
            vm.add_vma(SPACE, pages(4000, 8), RW).unwrap();
            vm.map_new(fh, SPACE, vpn(4000), Order::ZERO, Access::ReadWrite).unwrap();
            assert_eq!(read(), Err(Fault::NotMapped));
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 2)), Ok(2));
    MEANWHILE.set(None);
}

/// An entry that no CPU can use sits in no TLB, unless whoever made it so has not flushed yet: then
/// reclaim must flush before it frees the frame. Fails where `Space::needs_flush` looks at the
/// entry only. Tried.
#[test]
fn reclaim_flushes_entries_that_are_just_becoming_prot_none() {
    let (fh, vm) = hooked(4, 0);
    let space = vm.space(SPACE).unwrap();
    vm.mmu().inner.access(0, space, vpn(0), false, |_| ()).unwrap();
    MEANWHILE.set(Some(Box::new(move |when| {
        if when == When::BeforeFlushOfChange {
            // Another CPU reclaims while this one has changed the entries and not flushed.
            assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 16)), Ok(16));
            let read = vm.mmu().inner.access(0, space, vpn(0), false, |pfn| pfn);
            assert_eq!(read, Err(Fault::NotMapped), "a freed frame is still in a TLB");
        }
    })));
    vm.protect(SPACE, pages(0, 16), Access::None).unwrap();
    MEANWHILE.set(None);
    assert_all_free(fh);
}

/// Frames of several folios are freed as one run; one of them that somebody else has freed costs
/// itself only.
#[test]
fn all_but_a_frame_freed_behind_its_folios_back_are_freed() {
    let (fh, vm) = one_vma(16, 2048);
    for page in [0, 16, 32, 48] {
        vm.map_new(&fh, SPACE, vpn(page), order(4), Access::ReadWrite).unwrap();
    }
    let bad = [5, 22, 53].map(|page| entry(&vm, page).pfn());
    bad.iter().for_each(|pfn| fh.here().free(*pfn, Order::ZERO).unwrap());
    let refused = |pfn| Err(VmError::Free(FreeError::DoubleFree { pfn }));
    // Two by reclaim, one by its last reference, one as a part of a split folio that nothing shows.
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 32)), Ok(32));
    assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 32)), refused(bad[0]));
    assert_eq!(vm.unmap(&fh, SPACE, pages(32, 16)), Ok(16));
    vm.unmap(&fh, SPACE, pages(50, 14)).unwrap();
    assert_eq!(vm.split_deferred(&fh, 10), refused(bad[2]));
    vm.unmap(&fh, SPACE, pages(48, 2)).unwrap();
    assert_all_free(&fh);
}

/// Where part of a folio has been unmapped others can be: in the middle of it, and by turns with
/// it.
#[test]
fn folios_in_the_holes_of_another_are_seen() {
    let (fh, vm) = one_vma(16, 2048);
    vm.map_new(&fh, SPACE, vpn(100), order(4), Access::ReadWrite).unwrap();
    for page in [101, 106, 108] {
        vm.unmap(&fh, SPACE, pages(page, 1)).unwrap();
    }
    vm.map_new(&fh, SPACE, vpn(101), Order::ZERO, Access::ReadWrite).unwrap();
    let two = vm.folio_alloc(&fh, order(2)).unwrap();
    for (i, page) in [(0, 106), (2, 108)] {
        vm.map(two, (i, 1), SPACE, vpn(page), Access::ReadWrite).unwrap();
    }
    vm.put(&fh, two.pfn()).unwrap();
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(100, 16)), Ok(16), "each of them once");
    assert_eq!(vm.stats().lazyfree, 3);
    // With the frames that no page shows any more.
    assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(100, 16)), Ok(16 + 1 + 4));
    assert!(entries(&vm, 100, 16).iter().all(|entry| *entry == Entry::NONE));
    assert_all_free(&fh);
}
