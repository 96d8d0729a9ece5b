//! Lazy purging: how many flushes, what may be reused when, and what happens to those who run out
//! of something.

use std::sync::Mutex;

use crate::common::*;
use fastrand::Rng;
use freehold::{AllocError, FrameRange, FreeError, Migratetype, Order, Pfn, Request};
use freehold_vm::{
    Access, Flush, Frames, IntervalNode, Layout, MapError, Mmu, RunNode, SoftMmu, SpaceId, Vmalloc,
    VmallocError, Vpn, VpnRange,
};

const KERNEL: SpaceId = SpaceId::new(0);

fn vmalloc<M: Mmu>(mmu: M, pages_: u64, areas: usize, runs: usize) -> Vmalloc<'static, M> {
    Vmalloc::new(
        mmu,
        KERNEL,
        pages(0, pages_),
        leak(areas, IntervalNode::new),
        leak(runs, RunNode::new),
    )
}

#[test]
fn one_flush_serves_as_many_frees_as_the_limit_allows() {
    let fh = frames(16, 1);
    let mem = Counting::new(&fh);
    let vm = vmalloc(SoftMmu::<1>::new(), 6000, 200, 400);
    vm.set_lazy_max(100);
    let starts: Vec<_> = (0..51).map(|_| vm.vmalloc(&mem, Layout::pages(4)).unwrap()).collect();
    mem.take();
    // 25 areas of 4 pages are 100 pages, which wait; the 26th makes the purge.
    for (i, &start) in starts.iter().enumerate() {
        vm.vfree(&mem, start).unwrap();
        assert_eq!(vm.vfree(&mem, start), Err(VmallocError::NotAnArea { start }), "freed once");
        let purges = (i as u64 + 1) / 26;
        assert_eq!(
            (vm.stats().purges, vm.stats().flushes, vm.mmu().stats().flushes),
            (purges, purges, purges)
        );
        assert_eq!(vm.stats().unmaps, i as u64 + 1, "unmapped at once");
        assert_eq!(vm.lazy_pages(), (i as u64 + 1) % 26 * 4);
        assert_eq!(vm.stats().frames_freed, purges * 104, "frames wait for the flush");
    }
    assert_eq!(vm.purge(&mem), Ok(100));
    assert_eq!(vm.purge(&mem), Ok(0));
    assert_eq!((vm.stats().purges, vm.stats().flushes), (2, 2));
    // Neighbouring areas, with the guard pages between them, are one range.
    assert_eq!(vm.mmu().stats().ranges_flushed, 2);
    // And their frames, 104 and 100 neighbours, are freed as one run each.
    assert_eq!(mem.take(), (0, 0, 2));
    assert_all_free(&fh);
    // Without it, a flush for each.
    let vm = vmalloc(SoftMmu::<1>::new(), 6000, 200, 400);
    for start in (0..51).map(|_| vm.vmalloc(&fh, Layout::pages(4)).unwrap()).collect::<Vec<_>>() {
        vm.vfree(&fh, start).unwrap();
    }
    assert_eq!((vm.stats().purges, vm.stats().flushes, vm.lazy_pages()), (0, 51, 0));
    assert_all_free(&fh);
}

#[test]
fn more_areas_than_a_batch_take_a_flush_for_each_batch() {
    let fh = frames(16, 1);
    let vm = vmalloc(SoftMmu::<1>::new(), 6000, 400, 400);
    vm.set_lazy_max(u64::MAX);
    for start in (0..300).map(|_| vm.vmalloc(&fh, Layout::pages(2)).unwrap()).collect::<Vec<_>>() {
        vm.vfree(&fh, start).unwrap();
    }
    assert_eq!(vm.purge(&fh), Ok(600));
    assert_eq!((vm.stats().purges, vm.stats().flushes), (1, 3), "128 + 128 + 44");
    assert_all_free(&fh);
}

/// What CPUs may still reach, and what is free.
#[derive(Default)]
struct Tlbs {
    mapped: Mutex<Vec<(u64, u64)>>,
    stale: Mutex<Vec<(u64, u64)>>,
}

impl Mmu for &Tlbs {
    fn map(
        &self,
        _: SpaceId,
        at: Vpn,
        frames: FrameRange,
        _: Access,
        _: Order,
    ) -> Result<(), MapError> {
        for i in 0..frames.len() {
            let (vpn, pfn) = (at.get() + i, frames.start.get() + i);
            let hidden =
                |&(stale_vpn, stale_pfn): &(u64, u64)| stale_vpn == vpn || stale_pfn == pfn;
            assert!(!self.stale.lock().unwrap().iter().any(hidden), "reused before the flush");
            self.mapped.lock().unwrap().push((vpn, pfn));
        }
        Ok(())
    }
    fn unmap(&self, _: SpaceId, range: VpnRange) {
        let mut mapped = self.mapped.lock().unwrap();
        let gone = |place: &(u64, u64)| range.contains(Vpn::new(place.0));
        self.stale.lock().unwrap().extend(mapped.iter().copied().filter(gone));
        mapped.retain(|place| !gone(place));
    }
    fn flush(&self, batch: &[Flush]) {
        let flushed = |vpn| batch.iter().any(|flush| flush.range.contains(Vpn::new(vpn)));
        self.stale.lock().unwrap().retain(|(vpn, _)| !flushed(*vpn));
    }
}

/// The page allocator, which takes no frame back that a CPU may still reach.
struct Unreachable<'a, A>(&'a Tlbs, A);

impl<A: Frames> Frames for Unreachable<'_, A> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.1.alloc(request)
    }
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.1.alloc_bulk(request, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_range(FrameRange::new(pfn, order.frames()).unwrap())
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        let stale =
            self.0.stale.lock().unwrap().iter().any(|(_, pfn)| range.contains(Pfn::new(*pfn)));
        assert!(!stale, "{range} is freed but may be in a TLB");
        self.1.free_range(range)
    }
}

/// Random areas on little memory, few addresses and few nodes: neither an address nor a frame is
/// used again before its flush, and nothing fails for what only waits.
#[test]
fn nothing_is_reused_before_its_flush_and_nothing_fails_for_what_waits() {
    for (lazy_max, space, nodes) in
        [(u64::MAX, 700, 64), (200, 700, 64), (u64::MAX, 6000, 20), (1, 6000, 64)]
    {
        let tlbs = Tlbs::default();
        let memory = frames(2, 1);
        let fh = Unreachable(&tlbs, &memory);
        let vm = vmalloc(&tlbs, space, nodes, 300);
        vm.set_lazy_max(lazy_max);
        let mut held = std::collections::VecDeque::new();
        let mut random = Rng::with_seed(1);
        for _ in 0..3000 {
            // At most 12 areas of at most 24 pages: they always fit beside each other.
            if held.len() < 12 && random.u8(..3) != 0 {
                let layout = Layout::pages(random.u64(1..=24));
                held.push_back(
                    vm.vmalloc(&fh, layout).expect("there is enough once what waits is purged"),
                );
            } else if let Some(start) = held.pop_front() {
                vm.vfree(&fh, start).unwrap();
                assert_eq!(vm.find_area(start), None);
            }
            assert!(vm.lazy_pages() <= lazy_max);
        }
        let before = vm.stats();
        assert!(before.purges > 5 && before.flushes < before.areas_freed, "{before:?}");
        held.into_iter().for_each(|start| vm.vfree(&fh, start).unwrap());
        vm.purge(&fh).unwrap();
        assert!(tlbs.stale.lock().unwrap().is_empty() && tlbs.mapped.lock().unwrap().is_empty());
        let stats = vm.stats();
        assert_eq!((stats.areas, stats.frames), (stats.areas_freed, stats.frames_freed));
        assert_all_free(&memory);
    }
}

/// Purges of several threads at once, each for want of something.
#[test]
fn threads_that_run_out_purge_for_each_other() {
    let fh = frames(2, 4);
    let vm = vmalloc(SoftMmu::<1>::with_relax(std::thread::yield_now), 900, 100, 900);
    vm.set_lazy_max(u64::MAX);
    std::thread::scope(|scope| {
        for me in 0..3u64 {
            let (fh, vm) = (&fh, &vm);
            scope.spawn(move || {
                for i in 0..3000 {
                    let start = vm.vmalloc(fh, Layout::pages(1 + (i * 7 + me) % 60)).unwrap();
                    vm.vfree(fh, start).unwrap();
                }
            });
        }
    });
    vm.purge(&fh).unwrap();
    assert!(vm.stats().purges > 10 && vm.stats().areas_freed == 9000, "{:?}", vm.stats());
    assert_all_free(&fh);
}

/// A hole in the middle of a run needs a node more; the only one there is waits with a freed area.
#[test]
fn taking_a_part_away_purges_for_the_node_it_needs() {
    let fh = frames(16, 1);
    let vm = vmalloc(SoftMmu::<1>::new(), 100, 8, 2);
    vm.set_lazy_max(u64::MAX);
    let kept = vm.vmalloc(&fh, Layout::pages(8)).unwrap();
    let freed = vm.vmalloc(&fh, Layout::pages(8)).unwrap();
    let middle = VpnRange::new(Vpn::new(kept.get() + 3), 2).unwrap();
    assert_eq!(
        vm.unmap_part(&fh, kept, middle),
        Err(VmallocError::NoNodes),
        "no node, and nothing waits"
    );
    vm.vfree(&fh, freed).unwrap();
    assert_eq!(vm.lazy_pages(), 8);
    // A punch takes up to two nodes for the pieces; what waited has one.
    let punched = vm.unmap_part(&fh, kept, middle);
    assert_eq!(vm.lazy_pages(), 0, "purged for want of a node: {punched:?}");
    vm.vfree(&fh, kept).unwrap();
    vm.purge(&fh).unwrap();
    assert_all_free(&fh);
}

/// Whole pageblocks that wait for a purge are purged rather than done without.
#[test]
fn a_huge_area_purges_for_its_block() {
    let fh = frames(16, 1);
    // All blocks but one are in use.
    let block = Request::new(Order::PAGEBLOCK, Migratetype::Unmovable);
    let mut used: Vec<Pfn> = std::iter::from_fn(|| fh.alloc(block).ok()).collect();
    fh.free(used.pop().unwrap(), Order::PAGEBLOCK).unwrap();
    let mut layout = Layout::pages(512);
    layout.huge = true;
    let vm = vmalloc(SoftMmu::<1>::new(), 4096, 8, 600);
    vm.set_lazy_max(u64::MAX);
    let first = vm.vmalloc(&fh, layout).unwrap();
    vm.vfree(&fh, first).unwrap();
    let maps = vm.stats().maps;
    let second = vm.vmalloc(&fh, layout).unwrap();
    assert_eq!((vm.stats().maps - maps, vm.stats().purges), (1, 1), "one mapping of one block");
    vm.vfree(&fh, second).unwrap();
    vm.purge(&fh).unwrap();
    used.into_iter().for_each(|pfn| fh.free(pfn, Order::PAGEBLOCK).unwrap());
    assert_all_free(&fh);
}

/// One bad frame costs that frame's free, not those of the frames beside it, nor of the areas after
/// it.
#[test]
fn all_but_a_frame_freed_behind_its_areas_back_are_freed() {
    for (lazy, contig) in [(0, true), (0, false), (u64::MAX, true), (u64::MAX, false)] {
        let fh = frames(16, 1);
        let vm = vmalloc(SoftMmu::<1>::new(), 6000, 400, 400);
        vm.set_lazy_max(lazy);
        vm.set_contig_free(contig);
        let starts: Vec<_> = (0..300).map(|_| vm.vmalloc(&fh, Layout::pages(4)).unwrap()).collect();
        let mut bad = Vec::new();
        for start in [starts[3], starts[200]] {
            vm.for_each_run(start, |_, run| bad.push(Pfn::new(run.start.get() + 2))).unwrap();
        }
        bad.iter().for_each(|pfn| fh.free(*pfn, Order::ZERO).unwrap());
        let refused =
            Err(VmallocError::Free(FreeError::DoubleFree { pfn: *bad.iter().min().unwrap() }));
        if lazy == 0 {
            assert_eq!(vm.vfree_many(&fh, &starts), refused);
        } else {
            starts.iter().for_each(|start| vm.vfree(&fh, *start).unwrap());
            // The area that was freed last is taken first.
            assert!(
                matches!(vm.purge(&fh), Err(VmallocError::Free(FreeError::DoubleFree { pfn })) if bad.contains(&pfn))
            );
        }
        assert_eq!(vm.lazy_pages(), 0, "areas wait behind one that cannot be freed");
        assert_all_free(&fh);
    }
}
