//! Real threads that write, pin, unmap and protect pages, each its own, while another one reclaims
//! and splits folios: not one byte may be lost, and no frame may belong to two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::actor::{Actor, Checked, Contents};
use crate::common::*;
use freehold::Pfn;
use freehold_vm::{Access, Fault, SoftMmu, UnmapPath, VmError};

/// Steps of each actor, and rounds of each writer: a second on a small machine, and [`LONG`] as
/// many in CI.
const STEPS: u64 = 250_000;
const ROUNDS: u64 = 25_000;
const LONG: u64 = 6;
const PATHS: [UnmapPath; 2] = [UnmapPath::Batched, UnmapPath::PageByPage];

fn run(path: UnmapPath, steps: u64) {
    const MIB_OF_MEMORY: u64 = 4;
    let fh = frames(MIB_OF_MEMORY, 4);
    let vm = vm(SoftMmu::with_relax(std::thread::yield_now), MIB_OF_MEMORY, 2, 2048, 8192);
    vm.set_unmap_path(path);
    let contents = Contents::new(MIB_OF_MEMORY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Pages of both actors share page tables: 7..507 and 507..1007 of tables of 512.
        let actors: Vec<_> = (0..2)
            .map(|cpu| {
                let mut actor =
                    Actor::new(&vm, Checked(&fh, &vm), &contents, cpu, 7 + cpu as u64 * 500, 500);
                actor.fixed_path = true;
                scope.spawn(move || {
                    for step in 0..steps {
                        actor.step();
                        if step % 50_000 == 0 {
                            actor.check_all();
                        }
                    }
                    actor.leave();
                })
            })
            .collect();
        scope.spawn(|| {
            let fh = Checked(&fh, &vm);
            while !stop.load(Ordering::Relaxed) {
                for id in 0..2 {
                    vm.madvise_pageout(&fh, space(id), pages(0, 1024)).unwrap();
                }
                vm.reclaim(&fh, 64).unwrap();
                vm.split_deferred(&fh, 16).unwrap();
                std::thread::yield_now();
            }
        });
        // A panic of an actor must end the reclaimer, too.
        let ended: Vec<_> = actors.into_iter().map(|actor| actor.join()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|result| result.unwrap());
    });
    assert_all_free(&fh);
    let stats = vm.stats();
    assert_eq!(stats.folios, stats.folios_freed);
    assert!(stats.reclaimed_folios > 100 && stats.redirtied > 0 && stats.split > 0, "{stats:?}");
}

#[test]
fn batched_reclaim_beside_threads_that_use_their_pages() {
    run(UnmapPath::Batched, STEPS);
}

#[test]
fn page_by_page_reclaim_beside_threads_that_use_their_pages() {
    run(UnmapPath::PageByPage, STEPS);
}

#[test]
#[ignore = "half a minute; CI runs it"]
fn every_path_beside_threads_that_use_their_pages_for_long() {
    PATHS.into_iter().for_each(|path| run(path, LONG * STEPS));
}

/// The narrow window: one thread makes folios lazyfree and writes to them at once, another one pins
/// their pages, a third one does nothing but take them away. Every frame holds the number of its
/// page and of the write.
// The threads share what is set up before them.
#[allow(clippy::too_many_lines)]
fn hammer(path: UnmapPath, rounds: u64) {
    const FOLIOS: u64 = 8;
    const PAGES: u64 = FOLIOS * 16;
    let fh = frames(2, 4);
    let vm = vm(SoftMmu::<4>::with_relax(std::thread::yield_now), 2, 2, 1024, 2048);
    vm.set_unmap_path(path);
    let id = space(0);
    // The fifth folio lies across a page table's end.
    let first = 512 - 4 * 16 - 5;
    vm.add_vma(id, pages(first, PAGES), RW).unwrap();
    let contents: Vec<AtomicU64> =
        std::iter::repeat_with(Default::default).take(2 * MIB as usize).collect();
    let word = |pfn: Pfn| &contents[(pfn.get() - FIRST) as usize];
    let stop = AtomicBool::new(false);
    let mut gone = 0;
    std::thread::scope(|scope| {
        let pinner = scope.spawn(|| {
            let mut pins = 0u64;
            let mut page = 0;
            while !stop.load(Ordering::Relaxed) {
                page = (page + 37) % PAGES;
                if let Ok(pfn) = vm.pin(&Checked(&fh, &vm), id, vpn(first + page), false) {
                    for _ in 0..20 {
                        let value = word(pfn).load(Ordering::Relaxed);
                        assert_eq!(value >> 40, page, "a pinned frame is somebody else's");
                    }
                    vm.unpin(&Checked(&fh, &vm), pfn, false).unwrap();
                    pins += 1;
                }
            }
            pins
        });
        let reclaimer = scope.spawn(|| {
            let fh = Checked(&fh, &vm);
            while !stop.load(Ordering::Relaxed) {
                vm.madvise_pageout(&fh, id, pages(first, PAGES)).unwrap();
                vm.split_deferred(&fh, 4).unwrap();
            }
        });
        let writer = scope.spawn(|| {
            let fh = Checked(&fh, &vm);
            // What each page holds, and whether it may be gone.
            let mut model: Vec<Option<(u64, bool)>> = vec![None; PAGES as usize];
            let mut gone = 0;
            for round in 0..20 * LONG * ROUNDS {
                // A machine that is busy otherwise may take longer to let the three meet.
                if round >= rounds && gone > 0 && vm.stats().redirtied > 0 {
                    break;
                }
                let folio = round * 5 % FOLIOS;
                let start = folio * 16;
                let all = start as usize..start as usize + 16;
                if model[all.clone()].iter().filter(|page| page.is_none()).count() > 8 {
                    vm.unmap(&fh, id, pages(first + start, 16)).unwrap();
                    let new = vm.folio_alloc(&fh, order(4)).unwrap();
                    for i in 0..16 {
                        let value = (start + i) << 40 | round;
                        word(Pfn::new(new.pfn().get() + i)).store(value, Ordering::Relaxed);
                        model[(start + i) as usize] = Some((value, false));
                    }
                    vm.map(new, (0, 16), id, vpn(first + start), Access::ReadWrite).unwrap();
                    vm.put(&fh, new.pfn()).unwrap();
                }
                vm.madvise_free(&fh, id, pages(first + start, 16)).unwrap();
                model[all].iter_mut().flatten().for_each(|page| page.1 = true);
                for k in 0..6 {
                    let page = start + (round + k * 7) % 16;
                    let write = k % 2 == 0;
                    let value = page << 40 | round << 3 | k;
                    let found = vm.space(id).unwrap();
                    loop {
                        let old = vm.mmu().access(0, found, vpn(first + page), write, |pfn| {
                            if write {
                                word(pfn).swap(value, Ordering::Relaxed)
                            } else {
                                word(pfn).load(Ordering::Relaxed)
                            }
                        });
                        let place = &mut model[page as usize];
                        match old {
                            Ok(old) => {
                                assert_eq!(
                                    Some(old),
                                    place.map(|page| page.0),
                                    "page {page} holds something else"
                                );
                                if write {
                                    *place = Some((value, false));
                                }
                                break;
                            }
                            Err(Fault::NotMapped) => match vm.touch(id, vpn(first + page), write) {
                                // Reclaim has put it back.
                                Ok(_) => {}
                                Err(VmError::Fault(Fault::NotMapped)) => {
                                    assert!(
                                        place.is_none_or(|page| page.1),
                                        "page {page} is lost: {place:?}"
                                    );
                                    gone += u64::from(place.take().is_some());
                                    break;
                                }
                                Err(error) => panic!("{error}"),
                            },
                            Err(fault) => panic!("{fault}"),
                        }
                    }
                }
            }
            vm.unmap(&fh, id, pages(first, PAGES)).unwrap();
            gone
        });
        let written = writer.join();
        stop.store(true, Ordering::Relaxed);
        reclaimer.join().unwrap();
        let pins = pinner.join().unwrap();
        gone = written.unwrap();
        assert!(pins > 0);
    });
    assert_all_free(&fh);
    let stats = vm.stats();
    assert!(stats.reclaimed_folios > 0 && stats.redirtied > 0 && gone > 0, "{stats:?}");
}

#[test]
fn batched_reclaim_hammers_pages_that_are_written_to_and_pinned() {
    hammer(UnmapPath::Batched, ROUNDS);
}

#[test]
fn page_by_page_reclaim_hammers_pages_that_are_written_to_and_pinned() {
    hammer(UnmapPath::PageByPage, ROUNDS);
}

#[test]
#[ignore = "half a minute; CI runs it"]
fn every_path_hammers_pages_that_are_written_to_and_pinned_for_long() {
    PATHS.into_iter().for_each(|path| hammer(path, LONG * ROUNDS));
}
