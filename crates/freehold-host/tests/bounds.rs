//! A million random steps on real memory against a model, and threads that use their pages while another one reclaims:
//! not one byte may be lost.

#[path = "common/owner.rs"]
mod owner;

use std::sync::atomic::{AtomicBool, Ordering};

use freehold_host::freehold_vm::UnmapPath;
use owner::{Owner, assert_all_free, machine, pages, space};

/// Fewer frames than pages, so that memory is short now and then.
const FRAMES: u64 = 512;
const PAGES: u64 = 2048;

#[test]
fn a_million_random_steps_lose_not_one_byte() {
    const STEPS: u64 = 1_000_000;
    let Some((fh, vm)) = machine("a_million_random_steps_lose_not_one_byte", FRAMES, PAGES, 1) else { return };
    // Neither end is a page table's, and one lies in between.
    let mut owner = Owner::new(fh, vm, 0, 7, 1500);
    for step in 0..STEPS {
        if step % 50_000 == 0 {
            // Two thirds of the steps batched, the others page by page.
            let path = if step / 50_000 % 3 == 2 { UnmapPath::PageByPage } else { UnmapPath::Batched };
            vm.set_unmap_path(path);
            owner.check_all();
            fh.validate().unwrap();
        }
        owner.step();
    }
    owner.leave();
    assert_all_free(fh);
    // Everything has happened, many times.
    for what in [
        "lazyfree",
        "dropped",
        "reclaimed",
        "paged out",
        "copied",
        "made writable",
        "written",
        "pinned",
        "unmapped",
        "split",
        "no memory",
    ] {
        assert!(owner.seen.get(what).is_some_and(|n| *n > 100), "{what}: {:?}", owner.seen);
    }
    let stats = vm.stats();
    assert!(stats.redirtied > 100 && stats.kept_busy > 100 && stats.batches_restored > 100, "{stats:?}");
    assert_eq!(stats.folios, stats.folios_freed);
    let host = vm.mmu().stats();
    assert!(host.write_faults > 1000 && host.pages_released > 1000 && host.refused_writes == 0, "{host:?}");
}

/// Two threads that write, pin, unmap and protect pages of their own in the same page tables, while a third one takes
/// away whatever it can.
fn beside_reclaim(test: &str, path: UnmapPath) {
    const STEPS: u64 = 60_000;
    let Some((fh, vm)) = machine(test, FRAMES, PAGES, 4) else { return };
    vm.set_unmap_path(path);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owners: Vec<_> = (0..2u64)
            .map(|me| {
                let mut owner = Owner::new(fh, vm, me, 7 + me * 300, 300);
                scope.spawn(move || {
                    for step in 0..STEPS {
                        owner.step();
                        if step % 10_000 == 0 {
                            owner.check_all();
                        }
                    }
                    owner.leave();
                    owner.seen
                })
            })
            .collect();
        let stop = &stop;
        scope.spawn(move || {
            // Relaxed: only says when to stop.
            while !stop.load(Ordering::Relaxed) {
                for id in 0..2 {
                    vm.madvise_pageout(fh, space(id), pages(0, PAGES)).unwrap();
                }
                vm.reclaim(fh, 64).unwrap();
                vm.split_deferred(fh, 16).unwrap();
                std::thread::yield_now();
            }
        });
        // An owner's panic must end the reclaimer, too.
        let ended: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for seen in ended {
            let seen = seen.unwrap();
            for what in ["dropped", "written", "pinned", "unmapped"] {
                assert!(seen.get(what).is_some_and(|n| *n > 10), "{what}: {seen:?}");
            }
        }
    });
    assert_all_free(fh);
    let (stats, host) = (vm.stats(), vm.mmu().stats());
    assert_eq!(stats.folios, stats.folios_freed);
    assert!(stats.reclaimed_folios > 100 && host.write_faults > 100, "{stats:?} {host:?}");
    if path == UnmapPath::Batched {
        assert!(host.release_calls < host.pages_released, "{host:?}");
    }
}

#[test]
fn threads_beside_batched_reclaim_lose_not_one_byte() {
    beside_reclaim("threads_beside_batched_reclaim_lose_not_one_byte", UnmapPath::Batched);
}

#[test]
fn threads_beside_page_by_page_reclaim_lose_not_one_byte() {
    beside_reclaim("threads_beside_page_by_page_reclaim_lose_not_one_byte", UnmapPath::PageByPage);
}
