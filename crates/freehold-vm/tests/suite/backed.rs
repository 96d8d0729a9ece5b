//! Folios of swap and of files: what taking their entries away costs by counts, in each way, and what
//! the page cache or the swap, which is the caller, is told.

use std::cell::RefCell;

use crate::common::hooked::SPACE;
use crate::common::*;
use freehold_vm::{
    Access, BATCH, Fault, Folio, Gone, SoftMmu, SoftStats, UnmapPath, VmError, VmStats,
};

type Machine =
    (freehold::Freehold<'static, freehold::Threads>, freehold_vm::Vm<'static, SoftMmu>, Vec<Folio>);

/// So many folios of 64 KiB side by side, mapped and written to, with a reference to each.
fn mapped(folios: u64, file: bool) -> Machine {
    let (fh, vm) = machine(SoftMmu::new(), 160, 2);
    for space_ in 0..2 {
        vm.add_vma(space(space_), pages(0, 2048 * 16), RW).unwrap();
    }
    let make = |i: u64| {
        let folio = vm.folio_alloc(&fh, order(4)).unwrap();
        if file {
            vm.set_file(folio).unwrap();
        }
        vm.map(folio, (0, 16), SPACE, vpn(i * 16), Access::ReadWrite).unwrap();
        folio
    };
    let all: Vec<Folio> = (0..folios).map(make).collect();
    for page in 0..folios * 16 {
        vm.touch(SPACE, vpn(page), true).unwrap();
    }
    (fh, vm, all)
}

/// 128 MiB, written to, unmapped 128 folios at a time, and let go.
fn microbenchmark(path: UnmapPath, file: bool) -> (VmStats, SoftStats, u64) {
    let (fh, vm, folios) = mapped(2048, file);
    vm.set_unmap_path(path);
    let told = RefCell::new((0, 0));
    let before = vm.mmu().stats();
    for folios in folios.chunks(BATCH) {
        let keep = |gone: Gone| {
            let (calls, pages) = *told.borrow();
            told.replace((calls + 1, pages + gone.pages));
        };
        assert_eq!(vm.unmap_backed(folios, keep), Ok(folios.len()));
        folios.iter().for_each(|folio| vm.put(&fh, folio.pfn()).unwrap());
    }
    let (calls, all) = told.into_inner();
    assert_eq!(all, 2048 * 16, "each page once");
    assert_all_free(&fh);
    let (stats, mut soft) = (vm.stats(), vm.mmu().stats());
    soft.flushes -= before.flushes;
    soft.clears -= before.clears;
    (stats, soft, calls)
}

#[test]
fn the_ways_differ_for_swap_and_files_as_they_do_for_lazyfree_folios() {
    // Clears, and as often the swap or the file is told; flushes; folios queued for a split, which
    // those of files never are.
    for (path, clears, flushes, queued) in [
        (UnmapPath::PageByPage, 32_768, 32_768, 2048),
        (UnmapPath::PageByPageDeferred, 32_768, 16, 2048),
        (UnmapPath::Whole, 2048, 2048, 0),
        (UnmapPath::WholeDeferred, 2048, 16, 0),
        (UnmapPath::Batched, 2048, 16, 0),
    ] {
        for file in [false, true] {
            let (stats, soft, told) = microbenchmark(path, file);
            assert_eq!((soft.clears, told), (clears, clears), "{path:?}, file: {file}");
            assert_eq!((soft.flushes, stats.reclaim_flushes), (flushes, flushes), "{path:?}");
            assert_eq!(stats.deferred_queued, if file { 0 } else { queued }, "{path:?}");
            assert_eq!((stats.unmapped_backed, stats.batches_restored), (2048, 0), "{path:?}");
        }
    }
}

/// The folio is dirty if any entry was; whoever notes where the pages are can map them again.
#[test]
fn what_was_written_is_noted_in_the_folio_and_told() {
    let (fh, vm, folios) = mapped(2, false);
    // The second is clean, as after having been written out.
    vm.unmap(&fh, SPACE, pages(16, 16)).unwrap();
    let clean = vm.folio_alloc(&fh, order(4)).unwrap();
    vm.map(clean, (4, 12), SPACE, vpn(20), Access::Read).unwrap();
    let told = RefCell::new(Vec::new());
    let keep = |gone| told.borrow_mut().push(gone);
    assert_eq!(vm.unmap_backed(&[folios[0], clean], keep), Ok(2));
    let told = told.into_inner();
    let facts: Vec<_> = told
        .iter()
        .map(|gone| (gone.folio, gone.space, gone.vpn, gone.first, gone.pages, gone.dirty))
        .collect();
    assert_eq!(
        facts,
        [(folios[0], SPACE, vpn(0), 0, 16, true), (clean, SPACE, vpn(20), 4, 12, false)]
    );
    assert!(vm.folio_state(folios[0].pfn()).unwrap().dirty);
    assert!(!vm.folio_state(clean.pfn()).unwrap().dirty);
    // A fault finds the folio, as in the swap cache.
    vm.map(folios[0], (0, 16), SPACE, vpn(0), Access::ReadWrite).unwrap();
    assert_eq!(vm.touch(SPACE, vpn(3), false), Ok(folios[0].pfn().checked_add(3).unwrap()));
    vm.unmap(&fh, SPACE, pages(0, 16)).unwrap();
    [folios[0], folios[1], clean].iter().for_each(|folio| vm.put(&fh, folio.pfn()).unwrap());
    assert_all_free(&fh);
}

/// All of its places, in whichever address space; and no CPU writes through what it remembers once
/// the call has returned: the contents may be written out then.
#[test]
fn all_places_are_unmapped_and_flushed() {
    for path in UnmapPath::ALL {
        let (fh, vm, folios) = mapped(1, true);
        vm.set_unmap_path(path);
        vm.map(folios[0], (0, 16), space(1), vpn(512 - 5), Access::ReadWrite).unwrap();
        let write = |id: u16, page| {
            vm.mmu().access(0, vm.space(space(id)).unwrap(), vpn(page), true, |pfn| pfn)
        };
        write(0, 3).unwrap();
        write(1, 512 - 4).unwrap();
        assert_eq!(vm.unmap_backed(&folios, |_| ()), Ok(1));
        assert_eq!(write(0, 3), Err(Fault::NotMapped), "{path:?}");
        assert_eq!(write(1, 512 - 4), Err(Fault::NotMapped), "{path:?}");
        let state = vm.folio_state(folios[0].pfn()).unwrap();
        assert_eq!(
            (state.maps, state.references, state.dirty, state.deferred),
            (0, 1, true, false)
        );
        vm.put(&fh, folios[0].pfn()).unwrap();
        assert_all_free(&fh);
    }
}

/// Nothing is put back for a pin, unlike a lazyfree folio: whoever has the page pinned has the
/// folio, and who faults finds it where the caller noted it.
#[test]
fn a_pin_keeps_the_folio_and_not_its_entries() {
    let (fh, vm, folios) = mapped(1, false);
    let pinned = vm.pin(&fh, SPACE, vpn(7), true).unwrap();
    assert_eq!(vm.unmap_backed(&folios, |_| ()), Ok(1));
    vm.put(&fh, folios[0].pfn()).unwrap();
    assert_eq!(vm.folio_state(pinned).unwrap().references, 1);
    vm.unpin(&fh, pinned, true).unwrap();
    assert_all_free(&fh);
}

#[test]
fn locked_and_bad_memory_stays_and_a_name_of_no_folio_is_an_error() {
    let (fh, vm, folios) = mapped(4, false);
    vm.set_mlocked(folios[1], true).unwrap();
    vm.poison(folios[2]).unwrap();
    assert_eq!(vm.unmap_backed(&folios[..3], |_| ()), Ok(1));
    for (i, maps) in [(0, 0), (1, 16), (2, 16), (3, 16)] {
        assert_eq!(vm.folio_state(folios[i].pfn()).unwrap().maps, maps, "folio {i}");
    }
    vm.put(&fh, folios[0].pfn()).unwrap();
    let gone = Err(VmError::NotAFolio { pfn: folios[0].pfn() });
    assert_eq!(vm.unmap_backed(&[folios[3], folios[0]], |_| ()), gone);
    assert_eq!(vm.folio_state(folios[3].pfn()).unwrap().maps, 0, "those before it are done");
}

/// `madvise_free` is about anonymous memory; and a file's folio that is unmapped in part has its
/// rest in the file.
#[test]
fn a_files_folio_is_neither_made_lazyfree_nor_split_later() {
    let (fh, vm, folios) = mapped(2, true);
    assert_eq!(vm.madvise_free(&fh, SPACE, pages(0, 32)), Ok(0));
    vm.unmap(&fh, SPACE, pages(0, 5)).unwrap();
    let state = vm.folio_state(folios[0].pfn()).unwrap();
    assert!(state.file && !state.lazyfree && !state.deferred && state.mapped_pages == 11);
    assert_eq!(vm.queued(), (0, 0));
}
