//! Real threads that write, pin, unmap and protect pages, each its own, while another one reclaims
//! and splits folios: not one byte may be lost, and no frame may belong to two. The narrow windows
//! between two of them are loom's (`src/loom_tests.rs`).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::actor::{Actor, Checked, Contents};
use crate::common::*;
use freehold_vm::{SoftMmu, UnmapPath};

/// Steps of each actor: a second on a small machine, and [`LONG`] as many in CI.
const STEPS: u64 = 250_000;
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
