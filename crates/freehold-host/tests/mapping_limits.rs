//! Areas at `vm.max_map_count`: an error that names it, and nothing lost.

use std::io::Write;
use std::sync::Arc;

use freehold_host::freehold_vm::{
    Area, IntervalNode, Layout, MapError, RunNode, SpaceId, Vmalloc, VmallocError, Vpn, VpnRange,
};
use freehold_host::{Arena, Backing, HostAreas};

/// Takes mappings until the process may have no more.
fn exhaust() -> Vec<*mut libc::c_void> {
    let mut extra = Vec::with_capacity(1 << 17);
    loop {
        // Neighbours of different rights, which do not become one.
        let rights = if extra.len() % 2 == 0 { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: a new page, used by nobody.
        let page =
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        if page == libc::MAP_FAILED {
            return extra;
        }
        extra.push(page);
        assert!(extra.len() < 1 << 17, "no limit was reached");
    }
}

fn limited<T: std::fmt::Debug>(result: &Result<T, VmallocError>) {
    let Err(VmallocError::Unmap(MapError::Limit { limit }) | VmallocError::Map(MapError::Limit { limit })) = result
    else {
        panic!("{result:?}");
    };
    assert!(limit.contains("vm.max_map_count"), "{limit}");
}

#[test]
fn areas_at_the_limit_of_mappings_lose_nothing() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok());
    if limit.is_none_or(|limit: u64| limit > 100_000) {
        let _ = writeln!(std::io::stderr(), "SKIPPED areas at the limit of mappings: vm.max_map_count is {limit:?}");
        return;
    }
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

    for lazy in [0, 1 << 20] {
        vm.set_lazy_max(lazy);
        let extra = exhaust();
        // A page out of the middle would cut a mapping in two. The kernel may have another way for it; if not, the area is
        // as it was.
        let middle = VpnRange::new(Vpn::new(made[10].get() + 2), 1).unwrap();
        let punched = vm.unmap_part(&frames, made[10], middle);
        if punched.is_err() {
            limited(&punched);
            // SAFETY: still the area's own.
            assert_eq!(unsafe { at(made[10]).add(2 * 4096).read() }, 7);
        }
        limited(&vm.vmalloc(&frames, Layout::pages(3)));
        // Whole areas go all the same: their mappings are theirs alone.
        let some = if lazy == 0 { 20..30 } else { 30..40 };
        made[some].iter().for_each(|&area| vm.vfree(&frames, area).unwrap());
        vm.purge(&frames).unwrap();
        // SAFETY: made above.
        extra.iter().for_each(|&page| unsafe { _ = libc::munmap(page, 4096) });
        vm.unmap_part(&frames, made[10], middle).unwrap();
    }
    vm.set_lazy_max(0);
    assert_eq!(arena.free_frames(), free + 20 * 5 + 1);
    let more = vm.vmalloc(&frames, Layout::pages(9)).unwrap();
    vm.vfree(&frames, more).unwrap();
    for &area in made[..20].iter().chain(&made[40..]) {
        // SAFETY: the area's own, but for the page that was taken out.
        assert!(area == made[10] || unsafe { at(area).add(2 * 4096).read() } == 7);
        vm.vfree(&frames, area).unwrap();
    }
    assert_eq!(arena.free_frames(), arena.stats().frames);
    arena.validate().unwrap();
}
