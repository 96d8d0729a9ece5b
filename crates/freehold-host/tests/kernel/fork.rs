//! A machine on real memory in a forked child: the child has a copy of the pages and of the
//! entries, but not the thread that sees writes, and the userfaultfd it inherits is still the
//! parent's.

use crate::common;

use std::sync::atomic::Ordering::Relaxed;

use common::*;
use freehold::SingleCpu;
use freehold_host::freehold_vm::{Access, SpaceId};

const ID: SpaceId = SpaceId::new(0);
const FRAMES: u64 = 512;

#[test]
fn a_child_that_drops_or_uses_its_copy_takes_nothing_from_the_parent() {
    let test = "a_child_that_drops_or_uses_its_copy_takes_nothing_from_the_parent";
    for drops in [true, false] {
        let Some(vm) = machine_or_skip(test, FRAMES, 1, 1) else { return };
        let fh = allocator(FRAMES, 1, SingleCpu);
        vm.add_vma(ID, pages(0, 512), RW).unwrap();
        for folio in 0..4 {
            vm.map_new(&fh, ID, vpn(folio * 16), order(4), Access::ReadWrite).unwrap();
        }
        let word = |page: u64| &vm.mmu().words(ID, vpn(page)).unwrap()[3];
        (0..64).for_each(|page| word(page).store(page + 1, Relaxed));
        assert_eq!(vm.madvise_free(&fh, ID, pages(0, 48)), Ok(48));
        let before = vm.mmu().stats();
        let status = child::fork(|| {
            if drops {
                // SAFETY: the child's copy, which it does not use any more; it leaves without
                // running destructors.
                drop(unsafe { std::ptr::read(&raw const vm) });
                return true;
            }
            // Nothing sees writes here, so nothing may be dropped: what the child has written
            // since, above all.
            word(5).store(77, Relaxed);
            // Not "again", which would be so for ever.
            assert_eq!(vm.mmu().stored(ID, vpn(5)), freehold_host::Stored::Kept);
            assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 64)), Ok(0));
            let _ = vm.madvise_free(&fh, ID, pages(48, 16));
            word(50).store(78, Relaxed);
            assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 64)), Ok(0));
            let expected = |page| match page {
                5 => 77,
                50 => 78,
                page => page + 1,
            };
            (0..64).all(|page| word(page).load(Relaxed) == expected(page))
        });
        assert_eq!(status, 0);
        assert_eq!(
            vm.mmu().stats().write_faults,
            before.write_faults,
            "the parent's pages are as they were"
        );
        // The parent's writes are still seen, so that nothing is lost.
        word(5).store(500, Relaxed);
        assert_eq!(vm.mmu().stored(ID, vpn(5)), freehold_host::Stored::Kept);
        assert_eq!(vm.madvise_pageout(&fh, ID, pages(0, 64)), Ok(32));
        for page in 0..64 {
            let expected = match page {
                5 => 500,
                16..48 => 0,
                page => page + 1,
            };
            assert_eq!(word(page).load(Relaxed), expected, "page {page}");
        }
        vm.unmap(&fh, ID, pages(0, 64)).unwrap();
        assert_all_free(&fh);
    }
}
