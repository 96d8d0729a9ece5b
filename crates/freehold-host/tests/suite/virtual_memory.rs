//! What reclaim gives back of real pages, and in how many calls. That nothing is lost beside
//! writers is `real_memory_threads.rs`'.

use std::sync::atomic::Ordering::Relaxed;

use freehold::{Freehold, SingleCpu};
use freehold_host::freehold_vm::{Access, SpaceId, UnmapPath};

use crate::common::*;

const FOLIOS: u64 = 64;
const PAGES: u64 = FOLIOS * 16;
const ID: SpaceId = SpaceId::new(0);

/// Folios that are all mapped, each page with its number, plus one, in it.
fn with_folios(test: &str, path: UnmapPath) -> Option<(Machine, Freehold<'static, SingleCpu>)> {
    let vm = machine_or_skip(test, PAGES, 1, PAGES / 512)?;
    let frames = allocator(PAGES, 1, SingleCpu);
    vm.set_unmap_path(path);
    vm.add_vma(ID, pages(0, PAGES), RW).unwrap();
    for folio in 0..FOLIOS {
        vm.map_new(&frames, ID, vpn(folio * 16), order(4), Access::ReadWrite).unwrap();
    }
    (0..PAGES).for_each(|page| store(&vm, page, page + 1));
    Some((vm, frames))
}

// Relaxed: one thread.
fn store(vm: &Machine, page: u64, value: u64) {
    vm.mmu().words(ID, vpn(page)).unwrap()[7].store(value, Relaxed);
}

fn load(vm: &Machine, page: u64) -> u64 {
    vm.mmu().words(ID, vpn(page)).unwrap()[7].load(Relaxed)
}

/// How many of the pages the kernel has in memory.
fn in_memory(vm: &Machine) -> u64 {
    let first = vm.mmu().pointer(ID, vpn(0)).unwrap().as_ptr();
    let mut each = vec![0u8; PAGES as usize];
    // SAFETY: the machine's pages, and a byte for each of them.
    let asked = unsafe { libc::mincore(first.cast(), each.len() * 4096, each.as_mut_ptr()) };
    assert_eq!(asked, 0);
    each.iter().map(|byte| u64::from(byte & 1)).sum()
}

#[test]
fn what_was_written_to_again_stays_and_the_rest_goes_in_few_calls() {
    for path in [UnmapPath::PageByPage, UnmapPath::Batched] {
        let test = "what_was_written_to_again_stays_and_the_rest_goes_in_few_calls";
        let Some((vm, frames)) = with_folios(test, path) else { return };
        let batched = path == UnmapPath::Batched;
        let all = pages(0, PAGES);
        assert_eq!(vm.madvise_free(&frames, ID, all), Ok(PAGES));
        // Every eighth folio is written to again, in one page, by a plain store.
        (0..FOLIOS).step_by(8).for_each(|folio| store(&vm, folio * 16 + 3, 1_000_000 + folio));
        let before = vm.mmu().stats();
        assert_eq!(vm.madvise_pageout(&frames, ID, all), Ok(PAGES / 8 * 7));
        let calls = vm.mmu().stats().release_calls - before.release_calls;
        let left = in_memory(&vm);
        // Page by page, those before the one that was written to go, too.
        assert!(left <= PAGES / 8, "what was reclaimed is really gone: {left} left");
        if batched {
            assert_eq!(left, PAGES / 8, "and no page of a folio that stays");
            // Seven neighbouring folios are one range; where vectors are to be had, all ranges are
            // one call.
            assert!(calls <= FOLIOS / 8, "{calls}");
            assert_eq!(vm.stats().deferred_queued, 0);
        }
        for page in 0..PAGES {
            let (folio, found) = (page / 16, load(&vm, page));
            let held = |expected| assert_eq!(found, expected, "{path:?}, page {page}");
            match (folio % 8, page % 16) {
                (1.., _) => held(0),
                (0, 3) => held(1_000_000 + folio),
                // Nobody wrote to it since, so it may go. Page by page, those before the written
                // one do; the batched path looks at all entries first and keeps the folio as it
                // was.
                (0, _) if batched => held(page + 1),
                (0, _) => assert!(found == 0 || found == page + 1, "page {page} holds {found}"),
            }
        }
        assert_eq!(vm.stats().redirtied, FOLIOS / 8);
        frames.validate().unwrap();
    }
}
