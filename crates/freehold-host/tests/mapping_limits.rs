//! Everything at `vm.max_map_count`: it works all the same, or is an error that names the limit,
//! and nothing is lost.

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::{RW, child, frames, machine, machine_or_skip, order, pages, read_into, skipped, vpn};
use freehold::{Migratetype, Pfn, SingleCpu};
use freehold_host::freehold_vm::{
    Access, Area, IntervalNode, Layout, MapError, RunNode, SpaceId, Vmalloc, VmallocError, Vpn,
};
use freehold_host::{Arena, Backing, Error, HostAreas, HostVm};

const ID: SpaceId = SpaceId::new(0);

/// One test at a time: the limit is the process's, and a child begins with as many mappings as its
/// parent has.
static ONE: Mutex<()> = Mutex::new(());

/// `None`, and says so, where the limit is so high that reaching it takes too long.
fn limit_or_skip(test: &str) -> Option<MutexGuard<'static, ()>> {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if limit.is_none_or(|limit: u64| limit > 100_000) {
        skipped(test, &format!("vm.max_map_count is {limit:?}"));
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn give_back(extra: Vec<*mut libc::c_void>) {
    // SAFETY: made by `exhaust`, and used by nobody.
    extra.into_iter().for_each(|page| unsafe { _ = libc::munmap(page, 4096) });
}

fn names_the_limit<T>(result: Result<T, Error>) {
    let error = result.err().expect("there is no room for it").to_string();
    assert!(error.contains("vm.max_map_count"), "{error}");
}

/// Takes mappings until the process may have no more.
fn exhaust() -> Vec<*mut libc::c_void> {
    let mut extra = Vec::with_capacity(1 << 17);
    loop {
        // Neighbours of different rights, which do not become one.
        let rights =
            if extra.len() % 2 == 0 { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: a new page, used by nobody.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                rights,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return extra;
        }
        extra.push(page);
        assert!(extra.len() < 1 << 17, "no limit was reached");
    }
}

fn limited<T: std::fmt::Debug>(result: &Result<T, VmallocError>) {
    let Err(
        VmallocError::Unmap(MapError::Limit { limit })
        | VmallocError::Map(MapError::Limit { limit }),
    ) = result
    else {
        panic!("{result:?}");
    };
    assert!(limit.contains("vm.max_map_count"), "{limit}");
}

#[test]
fn areas_at_the_limit_of_mappings_lose_nothing() {
    let Some(_one) = limit_or_skip("areas_at_the_limit_of_mappings_lose_nothing") else { return };
    let arena = Arc::new(Arena::builder(64 << 20).backing(Backing::Memfd).build().unwrap());
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let areas = HostAreas::new(Arc::clone(&arena), 1 << 16).unwrap();
    let range = areas.range();
    let nodes: &'static mut [IntervalNode<Area>] = Vec::leak(vec![IntervalNode::new(); 4096]);
    let runs: &'static mut [RunNode] = Vec::leak(vec![RunNode::new(); 4096]);
    let vm = Vmalloc::new(areas, SpaceId::new(0), range, nodes, runs);
    let made: Vec<Vpn> = (0..64).map(|_| vm.vmalloc(&frames, Layout::pages(5)).unwrap()).collect();
    let free = arena.free_frames();
    let at = |vpn| vm.mmu().pointer(vpn).unwrap();
    // SAFETY: the areas' own pages.
    made.iter().for_each(|&area| unsafe { at(area).add(2 * 4096).write(7) });

    for some in [20..30, 30..40] {
        let extra = exhaust();
        // What is kept for taking pages away may have room for some.
        let mut more = Vec::with_capacity(16);
        let refused = loop {
            match vm.vmalloc(&frames, Layout::pages(3)) {
                Ok(area) => more.push(area),
                refused => break refused,
            }
            assert!(more.len() < 16, "no limit was reached");
        };
        limited(&refused);
        more.into_iter().for_each(|area| vm.vfree(&frames, area).unwrap());
        // Whole areas go all the same: their mappings are theirs alone.
        made[some].iter().for_each(|&area| vm.vfree(&frames, area).unwrap());
        vm.purge(&frames).unwrap();
        give_back(extra);
    }
    assert_eq!(arena.free_frames(), free + 20 * 5);
    let more = vm.vmalloc(&frames, Layout::pages(9)).unwrap();
    vm.vfree(&frames, more).unwrap();
    for &area in made[..20].iter().chain(&made[40..]) {
        // SAFETY: the area's own.
        assert_eq!(unsafe { at(area).add(2 * 4096).read() }, 7);
        vm.vfree(&frames, area).unwrap();
    }
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.validate().unwrap();
}

/// As many areas as the process may have mappings for, and then every call on them.
#[test]
fn areas_up_to_the_limit_go_in_any_order() {
    let Some(_one) = limit_or_skip("areas_up_to_the_limit_go_in_any_order") else { return };
    assert_eq!(child::fork(areas_up_to_the_limit), 0);
}

fn areas_up_to_the_limit() -> bool {
    let arena = Arc::new(Arena::builder(1 << 30).backing(Backing::Memfd).build().unwrap());
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let areas = HostAreas::new(Arc::clone(&arena), 1 << 20).unwrap();
    let range = areas.range();
    let nodes: &'static mut [IntervalNode<Area>] = Vec::leak(vec![IntervalNode::new(); 1 << 17]);
    let runs: &'static mut [RunNode] = Vec::leak(vec![RunNode::new(); 1 << 18]);
    let vm = Vmalloc::new(areas, SpaceId::new(0), range, nodes, runs);
    let mut made: Vec<Vpn> = Vec::with_capacity(1 << 17);
    let refused = loop {
        match vm.vmalloc(&frames, Layout::pages(3)) {
            Ok(area) => made.push(area),
            refused => break refused,
        }
    };
    limited(&refused);
    assert!(made.len() > 10_000, "only {}", made.len());
    let free = arena.free_frames();
    assert_eq!(free + 3 * made.len() as u64, arena.stats().frames, "a failed call kept frames");
    (0..100).for_each(|_| limited(&vm.vmalloc(&frames, Layout::pages(3))));
    assert_eq!(arena.free_frames(), free);
    let at = |area| vm.mmu().pointer(area).unwrap();
    for (i, &area) in made.iter().enumerate().filter(|(i, _)| i % 100 == 0) {
        // SAFETY: the area's own pages.
        unsafe { at(area).write(i as u8) };
        // SAFETY: the area's own pages.
        assert_eq!(unsafe { at(area).read() }, i as u8);
    }
    // What is freed can be had again, also while it waits to be taken away with others.
    vm.vfree(&frames, made.swap_remove(1)).unwrap();
    made.push(vm.vmalloc(&frames, Layout::pages(3)).unwrap());
    made.into_iter().for_each(|area| vm.vfree(&frames, area).unwrap());
    vm.purge(&frames).unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.validate().unwrap();
    true
}

/// A page that is written to without the right to wants a mapping of its own.
#[test]
fn writes_that_are_not_allowed_end_at_the_limit_too() {
    let test = "writes_that_are_not_allowed_end_at_the_limit_too";
    let Some(_one) = limit_or_skip(test) else { return };
    if machine_or_skip(test, 512, 1, 1).is_none() {
        return;
    }
    let status = child::fork(|| {
        let (vm, fh) = (machine(512, 1, 1).unwrap(), frames(512, 1, SingleCpu));
        vm.add_vma(ID, pages(0, 512), RW).unwrap();
        let read_only = [3, 5, 7, 10, 11, 12, 20];
        for page in read_only {
            vm.map_new(&fh, ID, vpn(page), order(0), Access::Read).unwrap();
        }
        let extra = exhaust();
        let refused = |all: &[u64]| {
            let wrong: Vec<_> =
                all.iter().filter(|&&page| read_into(&vm, page) != (-1, libc::EFAULT)).collect();
            assert!(wrong.is_empty(), "written to: {wrong:?}");
        };
        (0..3).for_each(|_| refused(&read_only));
        // The middle one of three neighbours.
        refused(&[10, 11, 12]);
        vm.unmap(&fh, ID, pages(11, 1)).unwrap();
        vm.map_new(&fh, ID, vpn(11), order(0), Access::ReadWrite).unwrap();
        assert_eq!(read_into(&vm, 11).0, 8);
        vm.unmap(&fh, ID, pages(11, 1)).unwrap();
        vm.map_new(&fh, ID, vpn(11), order(0), Access::Read).unwrap();
        refused(&[10, 11, 12]);
        vm.protect(ID, pages(11, 1), Access::ReadWrite).unwrap();
        vm.write_fault(ID, vpn(11)).unwrap();
        assert_eq!(read_into(&vm, 11).0, 8);
        refused(&[10, 12]);
        // Reclaim.
        vm.madvise_free(&fh, ID, pages(11, 1)).unwrap();
        assert_eq!(vm.madvise_pageout(&fh, ID, pages(11, 1)), Ok(1));
        give_back(extra);
        refused(&[3, 5, 7, 10, 12, 20]);
        vm.unmap(&fh, ID, pages(0, 512)).unwrap();
        common::assert_all_free(&fh);
        true
    });
    assert_eq!(status, 0);
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_arena_at_the_limit_goes_on_and_goes() {
    let test = "an_arena_at_the_limit_goes_on_and_goes";
    let Some(_one) = limit_or_skip(test) else { return };
    let status = child::fork(|| {
        // Neighbours, which are one mapping to the kernel.
        let mut arenas: Vec<Arena> =
            (0..3).map(|_| Arena::builder(32 << 20).reserve(64 << 20).build().unwrap()).collect();
        for arena in &arenas {
            arena.frames(8000).unwrap().fill(1);
        }
        let extra = exhaust();
        names_the_limit(Arena::with_size(8 << 20));
        names_the_limit(Arena::builder(8 << 20).backing(Backing::Memfd).build());
        names_the_limit(HostVm::new(8 << 20));
        let arena = &arenas[1];
        let mut some = arena.frames(1000).unwrap();
        some.try_extend(500).unwrap();
        some.populate().unwrap();
        let mut out = [Pfn::new(0); 64];
        assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut out), Ok(64));
        // SAFETY: allocated just now.
        unsafe { arena.free_bulk(&out) }.unwrap();
        assert!(arena.trim().unwrap().bytes > 16 << 20);
        drop(some);
        arena.grow(16 << 20).unwrap();
        arena.shrink(32 << 20).unwrap();
        arena.frames(4000).unwrap().fill(1);
        arena.pass().unwrap();
        arena.validate().unwrap();
        let before = resident_kib();
        drop(arenas.remove(1));
        assert!(resident_kib() + 15_000 < before, "{before} KiB and then {}", resident_kib());
        give_back(extra);
        Arena::with_size(8 << 20).unwrap();
        true
    });
    assert_eq!(status, 0);
}
