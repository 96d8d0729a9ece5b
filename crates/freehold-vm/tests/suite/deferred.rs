//! Freeing from an interrupt: what it asks of whom, how many flushes come later, and what happens
//! where slots or something else run out. And how often pages are counted.

use crate::common::*;
use freehold_vm::{
    Accounting, DeferredSlot, IntervalNode, Layout, Mmu, RunNode, SoftMmu, SpaceId, Vmalloc,
    VmallocError, Vpn,
};

fn vmalloc(pages_: u64, areas: usize, slots: usize) -> Vmalloc<'static, SoftMmu<1>> {
    Vmalloc::new(
        SoftMmu::with_relax(std::thread::yield_now),
        SpaceId::new(0),
        pages(0, pages_),
        leak(areas, IntervalNode::new),
        leak(4 * areas, RunNode::new),
    )
    .with_deferred(leak(slots, DeferredSlot::new))
}

fn areas<M: Mmu>(vm: &Vmalloc<'_, M>, fh: &impl freehold::Frames, n: u64) -> Vec<Vpn> {
    (0..n).map(|_| vm.vmalloc(fh, Layout::pages(4)).unwrap()).collect()
}

/// The counts of docs/threads/contiguous-free.md.
#[test]
fn three_hundred_areas_freed_in_each_way() {
    let fh = frames(16, 1);
    let freed = |how: &dyn Fn(&Vmalloc<'static, SoftMmu<1>>, &[Vpn])| {
        let vm = vmalloc(6000, 512, 300);
        let starts = areas(&vm, &fh, 300);
        how(&vm, &starts);
        let stats = vm.stats();
        assert_eq!((stats.areas_freed, stats.frames_freed), (300, 1200));
        assert_all_free(&fh);
        (stats.flushes, stats.deferred)
    };
    let one_by_one = freed(&|vm, starts| {
        starts.iter().for_each(|start| vm.vfree(&fh, *start).unwrap());
    });
    let gathered = freed(&|vm, starts| vm.vfree_many(&fh, starts).unwrap());
    let from_interrupts = freed(&|vm, starts| {
        let mem = Counting::new(&fh);
        let before = (vm.stats(), vm.mmu().stats());
        for start in starts {
            vm.vfree_atomic(*start).unwrap();
        }
        assert_eq!((vm.stats(), vm.mmu().stats()), before, "nothing has been touched");
        assert_eq!(vm.vfree_deferred(&mem), Ok(300));
        let (_, singly, ranges) = mem.take();
        assert_eq!(singly, 0, "runs, not frames");
        assert!(ranges >= 300, "{ranges}");
        assert_eq!(vm.vfree_deferred(&mem), Ok(0));
    });
    assert_eq!((one_by_one, gathered, from_interrupts), ((300, 0), (3, 0), (3, 300)));
}

#[test]
fn where_all_slots_are_taken_the_area_stays_its_callers() {
    let fh = frames(16, 1);
    let vm = vmalloc(600, 64, 3);
    let starts = areas(&vm, &fh, 5);
    for start in &starts[..3] {
        vm.vfree_atomic(*start).unwrap();
    }
    assert_eq!(vm.vfree_atomic(starts[3]), Err(VmallocError::NoNodes));
    assert_eq!(vm.find_area(starts[3]).unwrap().len(), 4);
    // What waits is there until it is freed.
    assert_eq!(vm.find_area(starts[0]).unwrap().len(), 4);
    assert_eq!(vm.vfree_deferred(&fh), Ok(3));
    assert_eq!(vm.find_area(starts[0]), None);
    vm.vfree_atomic(starts[3]).unwrap();
    vm.vfree(&fh, starts[4]).unwrap();
    assert_eq!(vm.vfree_deferred(&fh), Ok(1));
    assert_all_free(&fh);
    // Without slots there is nowhere to leave it.
    let none = vmalloc(600, 64, 0);
    let start = areas(&none, &fh, 1)[0];
    assert_eq!(none.vfree_atomic(start), Err(VmallocError::NoNodes));
    none.vfree(&fh, start).unwrap();
}

#[test]
fn what_is_no_area_is_said_later_and_the_rest_is_freed() {
    let fh = frames(16, 1);
    let vm = vmalloc(600, 64, 8);
    let starts = areas(&vm, &fh, 3);
    vm.vfree_atomic(starts[0]).unwrap();
    vm.vfree_atomic(starts[0]).unwrap();
    vm.vfree_atomic(starts[1]).unwrap();
    vm.vfree_atomic(Vpn::new(starts[2].get() + 1)).unwrap();
    let error = vm.vfree_deferred(&fh).unwrap_err();
    assert!(matches!(error, VmallocError::NotAnArea { .. }), "{error}");
    assert_eq!((vm.stats().areas_freed, vm.stats().deferred), (2, 2));
    assert_eq!(vm.vfree_deferred(&fh), Ok(0), "it is not tried again");
    vm.vfree(&fh, starts[2]).unwrap();
    assert_all_free(&fh);
}

#[test]
fn who_runs_out_of_addresses_frees_what_waits() {
    let fh = frames(16, 1);
    // Room for two areas with their guard pages.
    let vm = vmalloc(10, 8, 4);
    for start in areas(&vm, &fh, 2) {
        vm.vfree_atomic(start).unwrap();
    }
    let start = vm.vmalloc(&fh, Layout::pages(9)).unwrap();
    assert_eq!(vm.stats().deferred, 2);
    assert_eq!(vm.vmalloc(&fh, Layout::pages(1)), Err(VmallocError::NoSpace { pages: 2 }));
    vm.vfree(&fh, start).unwrap();
    assert_all_free(&fh);
}

#[test]
fn threads_leave_areas_while_others_free_them() {
    let fh = frames(32, 4);
    let vm = vmalloc(20_000, 256, 16);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let start = vm.vmalloc(&fh, Layout::pages(3)).unwrap();
                    while vm.vfree_atomic(start).is_err() {
                        vm.vfree_deferred(&fh).unwrap();
                    }
                }
            });
        }
    });
    vm.vfree_deferred(&fh).unwrap();
    let stats = vm.stats();
    assert_eq!((stats.areas, stats.areas_freed, stats.deferred), (6000, 6000, 6000));
    assert_all_free(&fh);
}

/// The counts of docs/threads/contiguous-free.md: one area of 512 pages, made and freed.
#[test]
fn pages_are_counted_by_the_run_or_one_by_one() {
    let fh = frames(16, 1);
    let counted = |accounting| {
        let vm = vmalloc(1200, 8, 0);
        vm.set_accounting(accounting);
        let start = vm.vmalloc(&fh, Layout::pages(512)).unwrap();
        vm.vfree(&fh, start).unwrap();
        let stats = vm.stats();
        assert_eq!((stats.frames, stats.frames_freed, stats.frees), (512, 512, 1));
        stats.accounting
    };
    assert_eq!(
        [Accounting::Runs, Accounting::PagesFreed, Accounting::Pages].map(counted),
        [2, 513, 1024]
    );
}
