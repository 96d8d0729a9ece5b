//! A regression test on real memory for each defect that Linux's batched unmapping of lazyfree
//! folios has had (`try_to_unmap_one`, 6.15 to 7.0). The same ones on the software Mmu are
//! `freehold-vm`'s `tests/suite/lazyfree.rs`.
//!
//! A write that must not be allowed ends its process with `SIGSEGV`: those are tried in a forked
//! child, which makes its own machine, since a userfaultfd and its thread do not come along.

use std::sync::atomic::Ordering::Relaxed;

use crate::common::*;
use freehold::{Freehold, Pfn, SingleCpu};
use freehold_host::freehold_vm::{Access, Entry, Folio, SpaceId, TABLE_ENTRIES, UnmapPath, Vm};

const ID: SpaceId = SpaceId::new(0);
const FRAMES: u64 = 2048;
const TABLES: u64 = 3;

type Frames = Freehold<'static, SingleCpu>;

/// One VMA over everything, and nothing mapped. `None`, said aloud, where there is no userfaultfd.
fn empty(test: &str) -> Option<(Frames, Machine)> {
    let vm = machine_or_skip(test, FRAMES, 2, TABLES)?;
    for id in 0..2 {
        vm.add_vma(space(id), pages(0, TABLES * TABLE_ENTRIES), RW).unwrap();
    }
    Some((frames(FRAMES, 1, SingleCpu), vm))
}

/// A folio, mapped and each page stamped with its number plus 1.
fn folio(fh: &Frames, vm: &Machine, order_: u8, page: u64) -> Folio {
    let folio = vm.map_new(fh, ID, vpn(page), order(order_), Access::ReadWrite).unwrap();
    (page..page + order(order_).frames()).for_each(|page| stamp(vm, ID, vpn(page), page + 1));
    folio
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

/// The reader of a batch ran past the end of the page table (fixed in 6.16). The folio's third page
/// is its table's last, and there are others' pages before and behind it.
#[test]
fn a_folio_across_a_page_tables_end_goes_in_two_batches_and_leaves_its_neighbours() {
    let Some((fh, vm)) =
        empty("a_folio_across_a_page_tables_end_goes_in_two_batches_and_leaves_its_neighbours")
    else {
        return;
    };
    let first = TABLE_ENTRIES - 3;
    folio(&fh, &vm, 0, first - 1);
    folio(&fh, &vm, 4, first);
    folio(&fh, &vm, 0, first + 16);
    lazyfree(&fh, &vm, first, 16);
    // Written to behind the table's end: nothing of it may go, before the end neither.
    stamp(&vm, ID, vpn(first + 9), first + 10);
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(first, 16)), Ok(0));
    assert_held(&vm, first - 1..first + 17);
    assert_eq!(
        vm.stats().batches_cleared,
        0,
        "the whole folio is looked at before anything is taken"
    );
    lazyfree(&fh, &vm, first, 16);
    let before = vm.mmu().stats();
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(first, 16)), Ok(16));
    assert_eq!(vm.stats().batches_cleared, 2);
    let after = vm.mmu().stats();
    assert_eq!(
        (after.release_calls - before.release_calls, after.pages_released - before.pages_released),
        (1, 16)
    );
    assert_gone(&vm, first..first + 16);
    assert_held(&vm, [first - 1, first + 16]);
    assert_eq!(vm.stats().deferred_queued, 0);
    vm.unmap(&fh, ID, pages(first - 1, 18)).unwrap();
    assert_all_free(&fh);
}

/// As in the middle, so at the end of the last table of an address space: behind it, in memory, the
/// next space's entries begin. The folio has more pages than fit before the end, and the next space
/// shows frames of its own there.
#[test]
fn a_folio_at_the_end_of_the_last_page_table_leaves_the_next_address_space_alone() {
    let Some((fh, vm)) =
        empty("a_folio_at_the_end_of_the_last_page_table_leaves_the_next_address_space_alone")
    else {
        return;
    };
    let last = TABLES * TABLE_ENTRIES - 3;
    let folio = vm.folio_alloc(&fh, order(4)).unwrap();
    vm.map(folio, (0, 3), ID, vpn(last), Access::ReadWrite).unwrap();
    vm.put(&fh, folio.pfn()).unwrap();
    vm.map_new(&fh, space(1), vpn(0), order(4), Access::ReadWrite).unwrap();
    (0..3).for_each(|i| stamp(&vm, ID, vpn(last + i), last + i + 1));
    (0..16).for_each(|i| stamp(&vm, space(1), vpn(i), 1 << 32 | i));
    let others_are_there = || {
        for i in 0..16 {
            assert_eq!(read_stamp(&vm, space(1), vpn(i)), Ok(1 << 32 | i));
            let entry = vm.mmu().entry(space(1), vpn(i));
            assert!(entry.is_mapped() && entry.is_dirty(), "page {i}");
        }
    };
    lazyfree(&fh, &vm, last, 3);
    others_are_there();
    stamp(&vm, ID, vpn(last + 2), last + 3);
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(last, 3)), Ok(0));
    assert_held(&vm, last..last + 3);
    others_are_there();
    lazyfree(&fh, &vm, last, 3);
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(last, 3)), Ok(16));
    assert_gone(&vm, last..last + 3);
    others_are_there();
    vm.unmap(&fh, space(1), pages(0, 16)).unwrap();
    assert_all_free(&fh);
}

/// A lazyfree folio at 32 whose odd pages are read-only in a VMA that may be written to, as after a
/// fork whose child is gone, and that a pin has kept from reclaim. Returns the entries before and
/// after.
fn restored_mixed(fh: &Frames, vm: &Machine, dirty: bool) -> (Vec<Entry>, Vec<Entry>) {
    folio(fh, vm, 4, 32);
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

/// [`empty`], with the hook.
fn hooked(test: &str) -> Option<(&'static Frames, &'static Vm<'static, Hooked>)> {
    let vm = hooked_or_skip(test, FRAMES, TABLES)?;
    vm.add_vma(ID, pages(0, TABLES * TABLE_ENTRIES), RW).unwrap();
    Some((Box::leak(Box::new(frames(FRAMES, 1, SingleCpu))), Box::leak(Box::new(vm))))
}

/// The CVE by its real way: the write comes in the middle of the walk, when the first batches have
/// been taken already.
#[test]
fn a_write_in_the_middle_of_the_walk_keeps_each_later_page_as_it_was() {
    let Some((fh, vm)) =
        hooked("a_write_in_the_middle_of_the_walk_keeps_each_later_page_as_it_was")
    else {
        return;
    };
    let words = |page: u64| vm.mmu().0.words(ID, vpn(page)).unwrap();
    let entry = |page: u64| vm.mmu().0.entry(ID, vpn(page));
    vm.map_new(fh, ID, vpn(0), order(4), Access::ReadWrite).unwrap();
    (0..16).for_each(|page| words(page)[9].store(page + 1, Relaxed));
    // 0..4 writable, 4..8 read-only, 8..16 writable.
    vm.protect(ID, pages(4, 4), Access::Read).unwrap();
    vm.protect(ID, pages(4, 4), Access::ReadWrite).unwrap();
    assert_eq!(vm.madvise_free(fh, ID, pages(0, 16)), Ok(16));
    let mut calls = 0;
    MEANWHILE.set(Some(Box::new(move |when| {
        calls += u64::from(when == When::BeforeClearing);
        if when == When::BeforeClearing && calls == 2 {
            assert!(!entry(3).is_mapped() && entry(4).is_mapped(), "the first batch is 0..4");
            // Somebody who has page 6 pinned says that they wrote to it; somebody else writes to
            // page 12.
            let pin = vm.pin(fh, ID, vpn(6), false).unwrap();
            vm.unpin(fh, pin, true).unwrap();
            words(12)[9].store(112, Relaxed);
        }
    })));
    assert_eq!(vm.madvise_pageout(fh, ID, pages(0, 16)), Ok(0));
    MEANWHILE.set(None);
    for page in 0..16 {
        let (found, entry) = (words(page)[9].load(Relaxed), entry(page));
        match page {
            // Taken before anybody wrote: gone, as they may be, and really so.
            0..4 => assert_eq!((found, entry), (0, Entry::NONE)),
            4..8 => assert!(
                found == page + 1 && entry.is_present() && !entry.is_writable(),
                "{page}: {entry:?}"
            ),
            12 => assert!(found == 112 && entry.is_writable() && entry.is_dirty(), "{entry:?}"),
            _ => assert!(found == page + 1 && entry.is_writable(), "{page}: {found} {entry:?}"),
        }
    }
    // Partly mapped now, in truth; the queue's work keeps what is mapped.
    assert_eq!(vm.stats().deferred_queued, 1);
    assert_eq!(vm.split_deferred(fh, 10), Ok(1));
    assert!((8..12).all(|page| words(page)[9].load(Relaxed) == page + 1));
    assert_eq!(vm.unmap(fh, ID, pages(0, 16)), Ok(12));
    assert_all_free(fh);
}

/// The thread's benchmark in small: of the folios' real pages nothing is queued, and everything
/// goes in few calls.
#[test]
fn deferred_splits_are_one_a_folio_page_by_page_and_none_batched() {
    for (path, queued) in [(UnmapPath::PageByPage, 64), (UnmapPath::Batched, 0)] {
        let Some((fh, vm)) = empty("deferred_splits_are_one_a_folio_page_by_page_and_none_batched")
        else {
            return;
        };
        vm.set_unmap_path(path);
        (0..64).for_each(|i| _ = folio(&fh, &vm, 4, i * 16));
        lazyfree(&fh, &vm, 0, 1024);
        assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 1024)), Ok(1024));
        assert_eq!(vm.stats().deferred_queued, queued);
        assert_eq!(vm.mmu().stats().release_calls, 1);
        assert_eq!(vm.mmu().pages_in_memory(ID, pages(0, 1024)).unwrap(), 0);
        assert_gone(&vm, 0..1024);
        assert_all_free(&fh);
    }
}

/// A folio of 512 pages in one table, which Linux split before it could be reclaimed (until 6.15):
/// one batch.
#[test]
fn a_folio_of_a_whole_page_table_is_reclaimed_without_a_split() {
    let Some((fh, vm)) = empty("a_folio_of_a_whole_page_table_is_reclaimed_without_a_split") else {
        return;
    };
    folio(&fh, &vm, 9, TABLE_ENTRIES);
    lazyfree(&fh, &vm, TABLE_ENTRIES, 512);
    assert_eq!(vm.madvise_pageout(&fh, ID, pages(TABLE_ENTRIES, 512)), Ok(512));
    assert_gone(&vm, TABLE_ENTRIES..2 * TABLE_ENTRIES);
    let stats = vm.stats();
    assert_eq!((stats.batches_cleared, stats.deferred_queued, stats.split), (1, 0, 0));
    assert_eq!(vm.mmu().stats().release_calls, 1);
    assert_all_free(&fh);
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
