//! The ways to take a lazyfree folio's entries away, against each other: what each costs by counts,
//! and what of it others see in the middle.

use std::cell::RefCell;

use crate::common::hooked::*;
use crate::common::*;
use freehold_vm::{Access, Entry, Fault, Mmu, SoftMmu, UnmapPath, Vm};
use microbenchmark::What;

/// The proposal's microbenchmark, counted: 128 MiB of 64 KiB folios.
#[allow(dead_code, reason = "an example is a program; its `main` is not called here")]
#[path = "../../examples/lazyfree.rs"]
mod microbenchmark;

#[test]
fn the_microbenchmark_costs_each_way_what_it_says() {
    for (path, queued, batches) in [
        // Linux until 6.14: the work of an entry and of the reverse mapping for each page.
        (UnmapPath::PageByPage, 2048, 32768),
        // As posted: where all of a folio's entries agree they are one.
        (UnmapPath::Whole, 0, 2048),
        (UnmapPath::Batched, 0, 2048),
    ] {
        let (stats, [before, soft], _) = microbenchmark::run(What::Lazyfree, path).unwrap();
        assert_eq!((stats.reclaimed_folios, stats.reclaimed_frames), (2048, 32768));
        assert_eq!(stats.deferred_queued, queued, "{path:?}");
        let clears = soft.clears - before.clears;
        assert_eq!((clears, stats.batches_cleared), (batches, batches), "{path:?}");
        let entries = soft.entries_cleared - before.entries_cleared;
        assert_eq!((entries, stats.rmap_walks), (32768, 2048), "{path:?}");
        // One flush for 128 folios, which are one range where they are neighbours, and one free.
        let (flushes, ranges) =
            (soft.flushes - before.flushes, soft.ranges_flushed - before.ranges_flushed);
        assert_eq!((flushes, stats.reclaim_flushes, ranges), (16, 16, 16), "{path:?}");
        assert!(stats.frees <= 2048 / 4, "{path:?}: {}", stats.frees);
    }
}

/// What the patch as posted leaves to page by page, and Linux 6.16 takes in as many batches as it
/// needs: a folio that lies across a table's end, and one whose entries disagree. In Linux 6.15 the
/// batch reader ran past that end, which David Hildenbrand found; without the bound there in
/// `Vm::take_table` this panics in `Slots::new`. Tried.
#[test]
fn all_or_nothing_goes_page_by_page_where_one_batch_is_not_all() {
    for (path, clears, queued) in [(UnmapPath::Whole, 16, 1), (UnmapPath::Batched, 2, 0)] {
        let cases: [(u64, &[_]); 3] = [
            (512 - 3, &[]),
            (0, &[(4, 12, Access::None)]),
            // In one VMA: as after a fork whose child is gone.
            (0, &[(0, 8, Access::Read), (0, 8, Access::ReadWrite)]),
        ];
        for (at, changes) in cases {
            let (fh, vm) = lazyfree_folio(4, at);
            vm.set_unmap_path(path);
            for &(first, n, access) in changes {
                vm.protect(SPACE, pages(first, n), access).unwrap();
            }
            let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 2048));
            let counted = adds(&vm, |soft| [soft.clears], pageout);
            assert_eq!(counted, (Ok(16), [clears]), "{path:?}, at {at}: {changes:?}");
            assert_eq!(vm.stats().deferred_queued, queued, "{path:?}");
            assert_all_free(&fh);
        }
    }
}

/// How many of the first 16 pages have something mapped.
fn mapped_of(vm: &Vm<'_, impl Mmu>) -> usize {
    (0..16).filter(|page| entry(vm, *page).is_mapped()).count()
}

/// What the proposal is about: whoever works on the deferred-split queue takes a reference in the
/// middle of the unmapping. Returns what was freed, how many pages are still mapped, and how often
/// the queue had something.
fn deferred_split_race(path: UnmapPath) -> (u64, usize, u64) {
    let (fh, vm) = hooked(4, 0);
    vm.set_unmap_path(path);
    let taken: &'static RefCell<Vec<_>> = Box::leak(Box::default());
    MEANWHILE.set(Some(Box::new(move |when| {
        if when == When::Flushed || when == When::BeforeClearing {
            taken.borrow_mut().extend(vm.deferred_take());
        }
    })));
    let freed = vm.madvise_pageout(fh, SPACE, pages(0, 16)).unwrap();
    MEANWHILE.set(None);
    let found = taken.borrow().len() as u64;
    for folio in taken.borrow_mut().drain(..) {
        vm.deferred_split(fh, folio).unwrap();
    }
    let mapped = mapped_of(vm);
    vm.unmap(fh, SPACE, pages(0, 16)).unwrap();
    assert_all_free(fh);
    (freed, mapped, found)
}

/// The deferred-split race. Page by page the queue finds the folio after its first page, takes a
/// reference, and the unmapping stops half-way; batched there is nothing to find. Fails if
/// `Vm::take_table` is made to take one entry at a time and to settle the counts after each. Tried.
#[test]
fn the_deferred_split_queue_never_sees_a_batched_unmapping() {
    let (freed, mapped, found) = deferred_split_race(UnmapPath::PageByPage);
    assert_eq!((freed, found), (0, 1), "the baseline has the race");
    assert!(mapped > 0 && mapped < 16, "half-way: {mapped}");
    for path in [UnmapPath::Whole, UnmapPath::Batched] {
        assert_eq!(deferred_split_race(path), (16, 0, 0), "{path:?}");
    }
}

/// Flushes that wait are made before a folio that stays, partly mapped, is let go: what of it is
/// gone may be freed by a split at once. Fails without `waits` in `Vm::unmap_folio`. Tried.
#[test]
fn a_folio_given_up_half_way_is_flushed_before_it_is_let_go() {
    let (fh, vm) = lazyfree_folio(4, 0);
    vm.set_unmap_path(UnmapPath::PageByPage);
    vm.touch(SPACE, vpn(5), true).unwrap();
    let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 16));
    let counted = adds(&vm, |soft| [soft.flushes, soft.ranges_flushed], pageout);
    assert_eq!(counted, (Ok(0), [1, 1]));
    assert_eq!(mapped_of(&vm), 11);
    vm.unmap(&fh, SPACE, pages(0, 16)).unwrap();
    assert_all_free(&fh);
}

/// In batches a folio that is given up after its first ones is partly mapped too.
#[test]
fn a_folio_given_up_after_its_first_batch_is_flushed_before_it_is_let_go() {
    let (fh, vm) = hooked(4, 0);
    // Two batches: the first half is read-only for the hardware, as after a fork.
    vm.protect(SPACE, pages(0, 8), Access::Read).unwrap();
    vm.protect(SPACE, pages(0, 8), Access::ReadWrite).unwrap();
    let space = vm.space(SPACE).unwrap();
    let read = |page| vm.mmu().inner.access(0, space, vpn(page), false, |pfn| pfn);
    read(0).unwrap();
    let mut calls = 0;
    MEANWHILE.set(Some(Box::new(move |when| {
        calls += i32::from(when == When::BeforeClearing);
        if when == When::BeforeClearing && calls == 2 {
            // Not through the MMU, which would flush: a write that finds the entry.
            vm.touch(SPACE, vpn(9), true).unwrap();
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 16)), Ok(0));
    MEANWHILE.set(None);
    assert_eq!(read(0), Err(Fault::NotMapped), "no CPU reaches what a split may free");
    assert_eq!(vm.split_deferred(fh, 10), Ok(1));
    assert_eq!(vm.unmap(fh, SPACE, pages(0, 16)), Ok(8));
    assert_all_free(fh);
}

/// Whoever takes a reference when all entries are gone already keeps the folio, and when that
/// reference goes, so does the folio. No CPU may have a translation then: reclaim flushes before it
/// lets go.
#[test]
fn a_reference_taken_after_the_last_clearing_keeps_the_folio_and_finds_it_flushed() {
    let (fh, vm) = hooked(9, 0);
    // One entry more than a batch of flushes holds, none beside another: the last one's flush
    // makes the others'. The folio is partly mapped, so the deferred-split queue has it.
    const LAST: u64 = 256;
    assert_eq!(vm.unmap(fh, SPACE, pages(LAST + 1, 511 - LAST)), Ok(511 - LAST));
    for page in (1..LAST).step_by(2) {
        assert_eq!(vm.unmap(fh, SPACE, pages(page, 1)), Ok(1));
    }
    let space = vm.space(SPACE).unwrap();
    let read = |page| vm.mmu().inner.access(0, space, vpn(page), false, |pfn| pfn);
    read(LAST).unwrap();
    let taken: &'static RefCell<Vec<_>> = Box::leak(Box::default());
    MEANWHILE.set(Some(Box::new(move |when| {
        if when == When::Flushed {
            assert!((0..=LAST).all(|page| !space.entry_at(vpn(page)).is_mapped()));
            taken.borrow_mut().extend(vm.deferred_take());
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, SPACE, pages(0, 512)), Ok(0));
    MEANWHILE.set(None);
    assert_eq!(taken.borrow().len(), 1, "at the flush that the last entry caused");
    assert_eq!(read(LAST), Err(Fault::NotMapped));
    for folio in taken.borrow_mut().drain(..) {
        vm.deferred_split(fh, folio).unwrap();
    }
    assert_all_free(fh);
}

/// A folio of 2 MiB, mapped by one entry, lazyfree.
fn pmd_mapped() -> (freehold::Freehold<'static, freehold::Threads>, Vm<'static, SoftMmu>) {
    let (fh, vm) = one_vma(16, 2048);
    vm.set_pmd_mappings(true);
    vm.map_new(&fh, SPACE, vpn(512), order(9), Access::ReadWrite).unwrap();
    assert!((0..512).all(|i| vm.touch(SPACE, vpn(512 + i), true).is_ok()));
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(512, 512)), Ok(512));
    (fh, vm)
}

/// Patch 4 of 4 of the proposal: a folio that one entry maps is given up with that entry. Without
/// it the entry becomes 512, which go page by page.
#[test]
fn a_folio_that_a_pmd_maps_is_taken_in_one_step_or_split_first() {
    for (path, clears, queued) in
        [(UnmapPath::PageByPage, 512, 1), (UnmapPath::Whole, 1, 0), (UnmapPath::Batched, 1, 0)]
    {
        let (fh, vm) = pmd_mapped();
        vm.set_unmap_path(path);
        let pageout = || vm.madvise_pageout(&fh, SPACE, pages(0, 2048));
        let counted = adds(&vm, |soft| [soft.clears, soft.entries_cleared], pageout);
        assert_eq!(counted, (Ok(512), [clears; 2]), "{path:?}");
        assert_eq!(vm.stats().deferred_queued, queued, "{path:?}");
        assert_all_free(&fh);
    }
}

/// One page's use is that of the one entry, and a write since keeps all of the folio, still mapped
/// by one entry.
#[test]
fn a_write_through_a_pmd_brings_the_folio_back_in_one_piece() {
    let (fh, vm) = pmd_mapped();
    let pfn = entry(&vm, 512).pfn();
    assert!(!entry(&vm, 700).is_young() && !entry(&vm, 700).is_dirty());
    assert_eq!(vm.touch(SPACE, vpn(512 + 300), true), Ok(pfn.checked_add(300).unwrap()));
    assert!(entry(&vm, 512).is_dirty() && entry(&vm, 1023).is_dirty());
    assert_eq!(vm.madvise_pageout(&fh, SPACE, pages(0, 2048)), Ok(0));
    assert_eq!((vm.stats().redirtied, vm.stats().batches_restored), (1, 1));
    assert!(entry(&vm, 1023).has(Entry::HUGE) && entry(&vm, 1023).pfn().get() == pfn.get() + 511);
    assert_eq!(vm.unmap(&fh, SPACE, pages(0, 2048)), Ok(512));
    assert_all_free(&fh);
}

/// Whoever changes a part finds 512 entries, each with what the one had.
#[test]
fn a_part_of_what_a_pmd_maps_is_changed_after_a_split() {
    type Change = fn(&freehold::Freehold<'_, freehold::Threads>, &Vm<'_, SoftMmu>);
    let changes: [Change; 4] = [
        |fh, vm| assert_eq!(vm.unmap(fh, SPACE, pages(512 + 8, 1)), Ok(1)),
        |_, vm| vm.protect(SPACE, pages(512 + 8, 1), Access::None).unwrap(),
        |_, vm| vm.clear_soft_dirty(SPACE, pages(512 + 8, 1)).unwrap(),
        |fh, vm| assert_eq!(vm.madvise_free(fh, SPACE, pages(512 + 8, 1)), Ok(1)),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let (fh, vm) = pmd_mapped();
        let pfn = entry(&vm, 512).pfn();
        vm.touch(SPACE, vpn(512 + 30), true).unwrap();
        change(&fh, &vm);
        for page in (0..512).filter(|page| *page != 8) {
            let now = entry(&vm, 512 + page);
            assert!(!now.has(Entry::HUGE) && now.is_dirty() && now.is_writable(), "change {i}");
            assert_eq!(now.pfn().get(), pfn.get() + page, "change {i}");
        }
        let now = entry(&vm, 512 + 8);
        assert!(!now.has(Entry::HUGE));
        assert!(!now.is_present() || !now.is_writable() || !now.is_dirty());
        vm.unmap(&fh, SPACE, pages(0, 2048)).unwrap();
        assert_all_free(&fh);
    }
}

/// Only a whole table is mapped so: not a folio that lies across two, nor a part of one.
#[test]
fn a_pmd_is_for_all_of_its_table() {
    for (at, part) in [(256, (0, 512)), (512, (0, 511)), (513, (1, 511))] {
        let (fh, vm) = one_vma(16, 2048);
        vm.set_pmd_mappings(true);
        let folio = vm.folio_alloc(&fh, order(9)).unwrap();
        vm.map(folio, part, SPACE, vpn(at), Access::Read).unwrap();
        assert!((0..2048).all(|page| !entry(&vm, page).has(Entry::HUGE)));
        vm.unmap(&fh, SPACE, pages(0, 2048)).unwrap();
        vm.put(&fh, folio.pfn()).unwrap();
        assert_all_free(&fh);
    }
}
