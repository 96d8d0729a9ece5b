//! Each defect that batched unmapping has had in Linux, once more on real pages; and what a forked child must not do.

#[path = "common/child.rs"]
mod child;
#[path = "common/owner.rs"]
mod owner;

use std::sync::atomic::{AtomicBool, Ordering};

use freehold::Order;
use freehold_host::Stored;
use freehold_host::freehold_vm::{Access, Entry, UnmapPath, Vma, WriteFault};
use owner::{Frames, Machine, assert_all_free, machine, pages, space, vpn, words};

const ORDER: Order = Order::new(4).unwrap();

fn value(page: u64, word: u64) -> u64 {
    page << 32 | word << 8 | 1
}

/// One folio of 16 pages, every word of which is written, then advised.
fn lazyfree_folio(test: &str, page: u64) -> Option<(&'static Frames, &'static Machine)> {
    let (fh, vm) = machine(test, 512, 1024, 2)?;
    vm.add_vma(space(0), pages(0, 1024), Vma { access: Access::ReadWrite, droppable: false }).unwrap();
    vm.map_new(fh, space(0), vpn(page), ORDER, Access::ReadWrite).unwrap();
    for page in page..page + 16 {
        words(vm, 0, page).iter().zip(0..).for_each(|(word, i)| word.store(value(page, i), Ordering::Relaxed));
    }
    assert_eq!(vm.madvise_free(fh, space(0), pages(page, 16)), Ok(16));
    Some((fh, vm))
}

fn holds_all(vm: &Machine, page: u64) -> bool {
    words(vm, 0, page).iter().zip(0..).all(|(word, i)| word.load(Ordering::Relaxed) == value(page, i))
}

fn entries(vm: &Machine, page: u64) -> Vec<Entry> {
    (page..page + 16).map(|page| vm.mmu().entry(space(0), vpn(page)).without(Entry::HARDWARE)).collect()
}

/// The batch reader that ran past the page table's end: 13 of the 16 pages lie behind it.
#[test]
fn a_folio_across_a_page_tables_end() {
    let Some((fh, vm)) = lazyfree_folio("a_folio_across_a_page_tables_end", 509) else { return };
    // What lies right behind the folio, and before it, is somebody else's.
    for page in [508, 525] {
        vm.map_new(fh, space(0), vpn(page), Order::ZERO, Access::ReadWrite).unwrap();
        words(vm, 0, page)[0].store(page, Ordering::Relaxed);
    }
    // Written to behind the table's end: all of it stays.
    words(vm, 0, 520)[0].store(value(520, 0), Ordering::Relaxed);
    let before = vm.stats();
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 1024)), Ok(0));
    assert!((509..525).all(|page| holds_all(vm, page)));
    assert_eq!(vm.stats().redirtied - before.redirtied, 1);
    // And now none of it, in a batch for each table, given back with one call for both.
    vm.madvise_free(fh, space(0), pages(509, 16)).unwrap();
    let (before, host) = (vm.stats(), vm.mmu().stats());
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 1024)), Ok(16));
    assert_eq!(vm.stats().batches_cleared - before.batches_cleared, 2);
    let after = vm.mmu().stats();
    assert_eq!((after.pages_released - host.pages_released, after.release_calls - host.release_calls), (16, 1));
    assert_eq!(vm.mmu().pages_in_memory(space(0), pages(509, 16)), Ok(0));
    for page in [508, 525] {
        assert_eq!(words(vm, 0, page)[0].load(Ordering::Relaxed), page);
    }
    assert_eq!(vm.stats().deferred_queued, 0);
    vm.unmap(fh, space(0), pages(0, 1024)).unwrap();
    assert_all_free(fh);
}

/// CVE-2026-31398: entries of mixed write permission and soft-dirtiness, restored. What may not be written to still
/// may not; what may be is written to, and stays.
#[test]
fn restored_pages_keep_their_own_rights() {
    let Some((fh, vm)) = lazyfree_folio("restored_pages_keep_their_own_rights", 32) else { return };
    for page in (33..48).step_by(2) {
        vm.protect(space(0), pages(page, 1), Access::Read).unwrap();
    }
    vm.protect(space(0), pages(32, 16), Access::ReadWrite).unwrap();
    let before = entries(vm, 32);
    assert!(before[0].is_writable() && !before[1].is_writable());
    let pin = vm.pin(fh, space(0), vpn(32), false).unwrap();
    for path in [UnmapPath::Batched, UnmapPath::PageByPage] {
        vm.set_unmap_path(path);
        assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 1024)), Ok(0));
        assert_eq!(entries(vm, 32), before, "{path:?}");
    }
    vm.set_unmap_path(UnmapPath::Batched);
    assert!((32..48).all(|page| holds_all(vm, page)));
    vm.unpin(fh, pin, false).unwrap();
    let fault = vm.write_fault(fh, space(0), vpn(33), |_, _| panic!("nobody shares it")).unwrap();
    assert!(matches!(fault, WriteFault::Reused(_)));
    words(vm, 0, 33)[9].store(5, Ordering::Relaxed);
    words(vm, 0, 34)[9].store(6, Ordering::Relaxed);
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 1024)), Ok(0));
    assert_eq!([33, 34].map(|page| words(vm, 0, page)[9].load(Ordering::Relaxed)), [5, 6]);
    assert!((35..48).all(|page| holds_all(vm, page)));
    assert_eq!(vm.mmu().stats().refused_writes, 0);
    vm.unmap(fh, space(0), pages(0, 1024)).unwrap();
    assert_all_free(fh);
}

/// Entries without access in the middle of a folio: they need no flush, but take none away from their neighbours.
#[test]
fn prot_none_pages_go_with_their_folio_and_stay_with_it() {
    let Some((fh, vm)) = lazyfree_folio("prot_none_pages_go_with_their_folio_and_stay_with_it", 0) else { return };
    // In one VMA, as NUMA hinting does it: only the entries differ.
    vm.unmap(fh, space(0), pages(0, 16)).unwrap();
    let folio = vm.folio_alloc(fh, ORDER).unwrap();
    vm.map(folio, (0, 16), space(0), vpn(0), Access::ReadWrite).unwrap();
    for page in 0..16 {
        words(vm, 0, page).iter().zip(0..).for_each(|(word, i)| word.store(value(page, i), Ordering::Relaxed));
    }
    vm.protect(space(0), pages(0, 4), Access::None).unwrap();
    vm.put(fh, folio.pfn()).unwrap();
    vm.madvise_free(fh, space(0), pages(0, 16)).unwrap();
    words(vm, 0, 9)[0].store(value(9, 0), Ordering::Relaxed);
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 64)), Ok(0));
    assert!((0..16).all(|page| holds_all(vm, page)), "one written page keeps all, those without access, too");
    vm.madvise_free(fh, space(0), pages(0, 16)).unwrap();
    let before = vm.mmu().stats();
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 64)), Ok(16));
    assert_eq!(vm.mmu().stats().pages_released - before.pages_released, 12, "those in no TLB are not flushed");
    assert!((0..16).all(|page| !vm.mmu().entry(space(0), vpn(page)).is_mapped()));
    assert_eq!(vm.mmu().pages_in_memory(space(0), pages(4, 12)), Ok(0));
    assert_all_free(fh);
}

/// Whoever works on the deferred-split queue while folios are unmapped: page by page each folio passes through it;
/// batched there is never anything on it.
#[test]
fn the_deferred_split_queue_beside_reclaim() {
    for path in [UnmapPath::PageByPage, UnmapPath::Batched] {
        let Some((fh, vm)) = machine("the_deferred_split_queue_beside_reclaim", 1024, 1024, 2) else { return };
        vm.set_unmap_path(path);
        vm.add_vma(space(0), pages(0, 1024), Vma { access: Access::ReadWrite, droppable: false }).unwrap();
        for folio in 0..40 {
            vm.map_new(fh, space(0), vpn(folio * 16), ORDER, Access::ReadWrite).unwrap();
        }
        assert_eq!(vm.madvise_free(fh, space(0), pages(0, 1024)), Ok(640));
        let stop = AtomicBool::new(false);
        let (freed, taken) = std::thread::scope(|scope| {
            let splitter = scope.spawn(|| {
                let mut taken = 0;
                // Relaxed: only says when to stop.
                while !stop.load(Ordering::Relaxed) {
                    if let Some(folio) = vm.deferred_take() {
                        taken += 1;
                        vm.deferred_split(fh, folio).unwrap();
                    }
                }
                taken
            });
            let freed = vm.madvise_pageout(fh, space(0), pages(0, 1024)).unwrap();
            stop.store(true, Ordering::Relaxed);
            (freed, splitter.join().unwrap())
        });
        match path {
            UnmapPath::PageByPage => assert!(vm.stats().deferred_queued >= 40, "{:?}", vm.stats()),
            UnmapPath::Batched => assert_eq!((freed, taken, vm.stats().deferred_queued), (640, 0, 0)),
        }
        vm.unmap(fh, space(0), pages(0, 1024)).unwrap();
        assert_all_free(fh);
    }
}

/// A userfaultfd is the parent's wherever it is used: a child that drops its copy of the machine must not end the
/// parent's watch over writes.
#[test]
fn a_forked_child_that_drops_its_machine_costs_the_parent_not_one_byte() {
    let test = "a_forked_child_that_drops_its_machine_costs_the_parent_not_one_byte";
    let Some((fh, vm)) = lazyfree_folio(test, 0) else { return };
    let before = vm.mmu().stats();
    // SAFETY: the child drops its own copy, and leaves by `_exit` without using it again.
    let status = child::fork(|| unsafe {
        // The child's own pages can be written to, advised or not, and nobody hangs.
        words(vm, 0, 1)[0].store(77, Ordering::Relaxed);
        let advised = vm.madvise_free(fh, space(0), pages(0, 16)).is_ok();
        words(vm, 0, 2)[0].store(78, Ordering::Relaxed);
        let kept = vm.madvise_pageout(fh, space(0), pages(0, 16)) == Ok(0);
        let wrote = words(vm, 0, 1)[0].load(Ordering::Relaxed) == 77;
        std::ptr::drop_in_place(std::ptr::from_ref(vm.mmu()).cast_mut());
        advised && kept && wrote
    });
    assert_eq!(status, 0);
    assert_eq!(vm.mmu().stats().write_faults, before.write_faults);
    // The parent's write is still seen.
    words(vm, 0, 5)[0].store(99, Ordering::Relaxed);
    assert_eq!(vm.mmu().stored(space(0), vpn(5)), Stored::Kept, "a write that nobody noticed");
    assert_eq!(vm.madvise_pageout(fh, space(0), pages(0, 16)), Ok(0));
    assert_eq!(words(vm, 0, 5)[0].load(Ordering::Relaxed), 99);
    assert!((0..16).filter(|&page| page != 5).all(|page| holds_all(vm, page)));
    vm.unmap(fh, space(0), pages(0, 64)).unwrap();
    assert_all_free(fh);
}
