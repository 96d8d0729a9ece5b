//! vmalloc: against a model that knows every translation and every stale one, and counted exactly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::common::*;
use freehold::{AllocError, FrameRange, FreeError, Migratetype, Order, Pfn, Request};
use freehold_vm::{
    Access, Flush, Frames, IntervalNode, Layout, MapError, Mmu, RunNode, SoftMmu, SpaceId, Vmalloc,
    VmallocError, Vpn, VpnRange,
};
use proptest::prelude::*;

const KERNEL: SpaceId = SpaceId::new(0);

fn vmalloc<M: Mmu>(mmu: M, of: u64, areas: usize, runs: usize) -> Vmalloc<'static, M> {
    let (areas, runs) = (leak(areas, IntervalNode::new), leak(runs, RunNode::new));
    Vmalloc::new(mmu, KERNEL, pages(0, of), areas, runs)
}

/// A machine that knows what is mapped where, what CPUs may still believe, and which frames are
/// free.
#[derive(Default)]
struct World(Mutex<State>);

#[derive(Default)]
struct State {
    mapped: BTreeMap<u64, u64>,
    /// Unmapped but not flushed.
    stale: BTreeMap<u64, u64>,
    calls: Vec<(u64, u64, u8)>,
    /// Orders asked for; failures of orders above this.
    asked: Vec<u8>,
    most: Option<u8>,
    frees: u64,
    /// Mapping fails after so many calls.
    maps_left: Option<u64>,
    /// Single frames are handed out from here, if anything is here.
    singles: Vec<Pfn>,
}

impl Mmu for &World {
    fn map(
        &self,
        _: SpaceId,
        at: Vpn,
        frames: FrameRange,
        _: Access,
        leaf: Order,
    ) -> Result<(), MapError> {
        let mut state = self.0.lock().unwrap();
        if state.maps_left == Some(0) {
            return Err(MapError::NoMemory);
        }
        state.maps_left = state.maps_left.map(|n| n - 1);
        state.calls.push((at.get(), frames.len(), leaf.get()));
        if leaf == Order::PAGEBLOCK {
            assert!(frames.start.is_aligned(leaf));
            assert_eq!((at.get() % 512, frames.len() % 512), (0, 0));
        }
        for i in 0..frames.len() {
            let vpn = at.get() + i;
            assert!(!state.stale.contains_key(&vpn), "mapped over what is not flushed");
            let before = state.mapped.insert(vpn, frames.start.get() + i);
            assert!(before.is_none(), "mapped twice");
        }
        Ok(())
    }
    fn unmap(&self, _: SpaceId, range: VpnRange) {
        let mut state = self.0.lock().unwrap();
        for vpn in range.start.get()..range.end.get() {
            if let Some(pfn) = state.mapped.remove(&vpn) {
                state.stale.insert(vpn, pfn);
            }
        }
    }
    fn flush(&self, batch: &[Flush]) {
        let mut state = self.0.lock().unwrap();
        let flushed = |vpn| batch.iter().any(|flush| flush.range.contains(Vpn::new(vpn)));
        state.stale.retain(|vpn, _| !flushed(*vpn));
    }
}

/// The page allocator of that machine.
struct Guarded<'a, A>(&'a World, A);

impl<A: Frames> Guarded<'_, A> {
    fn check_free(&self, range: FrameRange) {
        let mut state = self.0.0.lock().unwrap();
        state.frees += 1;
        let reachable =
            |map: &BTreeMap<u64, u64>| map.values().any(|pfn| range.contains(Pfn::new(*pfn)));
        assert!(!reachable(&state.mapped), "{range} is freed but mapped");
        assert!(!reachable(&state.stale), "{range} is freed but may be in a TLB");
    }
}

impl<A: Frames> Frames for Guarded<'_, A> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        let mut state = self.0.0.lock().unwrap();
        state.asked.push(request.order().get());
        if state.most.is_some_and(|most| request.order().get() > most) {
            return Err(AllocError::NoMemory { order: request.order() });
        }
        drop(state);
        self.1.alloc(request)
    }
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        let mut state = self.0.0.lock().unwrap();
        if !state.singles.is_empty() {
            let n = out.len().min(state.singles.len());
            out[..n].copy_from_slice(&state.singles[..n]);
            state.singles.drain(..n);
            return Ok(n);
        }
        drop(state);
        self.1.alloc_bulk(request, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.check_free(FrameRange::new(pfn, order.frames()).unwrap());
        self.1.free(pfn, order)
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.check_free(range);
        self.1.free_range(range)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { pages: u64, align: u8, huge: bool },
    Free(usize),
    Most(Option<u8>),
    MapsLeft(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    let pages = prop_oneof![8 => 1u64..20, 3 => 20u64..130, 1 => 500u64..1100];
    prop_oneof![
        8 => (pages, 0u8..8, any::<bool>())
            .prop_map(|(pages, align, huge)| Step::Alloc { pages, align, huge }),
        5 => any::<usize>().prop_map(Step::Free),
        1 => prop::option::of(0u8..10).prop_map(Step::Most),
        1 => prop::option::weighted(0.3, 0u64..6).prop_map(Step::MapsLeft),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn agrees_with_a_model(steps in prop::collection::vec(step(), 1..120)) {
        let world = World::default();
        let fh = frames(12, 1);
        let mem = Guarded(&world, &fh);
        // Few nodes and few pages, so that they run out, too.
        let vm = vmalloc(&world, 6000, 40, 300);
        // Each area: its start, and for each page the frame that it must show.
        let mut areas: Vec<(Vpn, Vec<Option<u64>>)> = Vec::new();
        for step in steps {
            let mapped_before = world.0.lock().unwrap().mapped.clone();
            match step {
                Step::Alloc { pages, align, huge } => {
                    let layout = Layout::pages(pages).align(1 << align).huge(huge);
                    match vm.vmalloc(&mem, layout) {
                        Ok(start) => {
                            prop_assert_eq!(start.get() % (1 << align), 0);
                            let len = vm.find_area(start).unwrap().len();
                            let whole = huge && pages >= 512 && len == pages.next_multiple_of(512);
                            prop_assert!(len == pages || whole);
                            let state = world.0.lock().unwrap();
                            let at = |i| state.mapped.get(&(start.get() + i)).copied();
                            let shown = (0..len).map(at).collect::<Vec<_>>();
                            prop_assert!(shown.iter().all(Option::is_some));
                            let guard = start.get() + len;
                            prop_assert!(!state.mapped.contains_key(&guard), "no guard page");
                            areas.push((start, shown));
                        }
                        // Nothing has changed.
                        Err(_) => prop_assert_eq!(&world.0.lock().unwrap().mapped, &mapped_before),
                    }
                }
                Step::Free(i) if !areas.is_empty() => {
                    let (start, _) = areas.swap_remove(i % areas.len());
                    vm.vfree(&mem, start).unwrap();
                    prop_assert_eq!(vm.vfree(&mem, start), Err(VmallocError::NotAnArea { start }));
                }
                Step::Most(most) => world.0.lock().unwrap().most = most,
                Step::MapsLeft(left) => world.0.lock().unwrap().maps_left = left,
                Step::Free(_) => {}
            }
            let state = world.0.lock().unwrap();
            let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
            for (start, shown) in &areas {
                for (page, pfn) in (start.get()..).zip(shown) {
                    expected.extend(pfn.map(|pfn| (page, pfn)));
                }
            }
            prop_assert_eq!(&state.mapped, &expected);
            let frames = expected.values().collect::<BTreeSet<_>>();
            prop_assert_eq!(frames.len(), expected.len(), "a frame is in two areas");
        }
        for (start, _) in areas {
            vm.vfree(&mem, start).unwrap();
        }
        assert_all_free(&fh);
    }
}

/// Which orders are asked for: the largest that fits what is left, from the largest on.
#[test]
fn allocation_takes_the_largest_orders_first() {
    let table: [(u64, &[u8]); 8] = [
        (1, &[0]),
        (4, &[2]),
        (5, &[2, 0]),
        (16, &[4]),
        (64, &[6]),
        (100, &[6, 5, 2]),
        (256, &[8]),
        (512, &[9]),
    ];
    for (pages, orders) in table {
        let world = World::default();
        let fh = frames(16, 1);
        let vm = vmalloc(&world, 6000, 4, 64);
        let start = vm.vmalloc(&Guarded(&world, &fh), Layout::pages(pages)).unwrap();
        assert_eq!(world.0.lock().unwrap().asked, orders, "{pages} pages");
        vm.vfree(&Guarded(&world, &fh), start).unwrap();
        assert_all_free(&fh);
    }
    // Above order 10 the cap holds.
    let world = World::default();
    let fh = frames(32, 1);
    let vm = vmalloc(&world, 9000, 4, 64);
    vm.vmalloc(&Guarded(&world, &fh), Layout::pages(5000)).unwrap();
    // 5000 = 4 * 1024 + 512 + 256 + 128 + 8.
    assert_eq!(world.0.lock().unwrap().asked, [10, 10, 10, 10, 9, 8, 7, 3]);
}

/// After a failure no order above the cap is asked for again, though memory might have it by then.
#[test]
fn a_failed_order_lowers_the_cap_for_good() {
    let world = World::default();
    let fh = frames(16, 1);
    let vm = vmalloc(&world, 6000, 4, 64);
    world.0.lock().unwrap().most = Some(2);
    vm.vmalloc(&Guarded(&world, &fh), Layout::pages(100)).unwrap();
    let mut expected = vec![6, 5, 4, 3];
    expected.extend([2; 25]);
    assert_eq!(world.0.lock().unwrap().asked, expected);
    assert_eq!((vm.stats().large_allocs, vm.stats().large_failures), (29, 4));
}

/// An area that there are too few frames for takes those there are, and gives them back: both are
/// counted. Fails where only complete areas count as allocated. Tried.
#[test]
fn frames_of_an_area_that_failed_count_as_allocated_and_as_freed() {
    let fh = frames(16, 1);
    let vm = vmalloc(SoftMmu::<1>::new(), 10_000, 4, 64);
    assert!(matches!(vm.vmalloc(&fh, Layout::pages(5000)), Err(VmallocError::Alloc(_))));
    let stats = vm.stats();
    assert_eq!((stats.areas, stats.areas_freed), (0, 0));
    assert!(stats.frames >= 4000 && stats.frames == stats.frames_freed, "{stats:?}");
    assert_all_free(&fh);
}

#[test]
fn vfree_frees_each_run_once() {
    for pages in [1, 4, 16, 64, 256, 512, 1024] {
        let fh = frames(16, 1);
        let vm = vmalloc(SoftMmu::<1>::new(), 6000, 4, 64);
        let start = vm.vmalloc(&fh, Layout::pages(pages)).unwrap();
        vm.vfree(&fh, start).unwrap();
        let (stats, soft) = (vm.stats(), vm.mmu().stats());
        assert_eq!((soft.maps, soft.unmaps, soft.flushes), (1, 1, 1));
        assert_eq!((stats.frames, stats.frames_freed, stats.frees), (pages, pages, 1));
        assert_all_free(&fh);
    }
}

/// The frames of the array are neighbours, but stand in it from the last to the first, or mixed up:
/// one free all the same, though each is a mapping of its own.
#[test]
fn frames_in_any_order_are_freed_as_the_fewest_runs() {
    for mixed in [false, true] {
        let world = World::default();
        let fh = frames(16, 1);
        let first = fh.alloc(freehold::Request::new(order(7), Migratetype::Unmovable)).unwrap();
        {
            let mut state = world.0.lock().unwrap();
            state.most = Some(0);
            let at = |i: u64| if mixed { i * 37 % 128 } else { 127 - i };
            state.singles = (0..128).map(|i| Pfn::new(first.get() + at(i))).collect();
        }
        let vm = vmalloc(&world, 6000, 4, 200);
        let mem = Guarded(&world, &fh);
        let start = vm.vmalloc(&mem, Layout::pages(128)).unwrap();
        assert_eq!(vm.stats().maps, 128);
        vm.vfree(&mem, start).unwrap();
        assert_eq!(world.0.lock().unwrap().frees, 1);
        assert_eq!((vm.stats().frees, vm.stats().flushes), (1, 1));
        assert_all_free(&fh);
    }
}

#[test]
fn huge_mappings_use_pageblocks_and_do_without_where_there_are_none() {
    let world = World::default();
    let fh = frames(16, 1);
    let mem = Guarded(&world, &fh);
    let vm = vmalloc(&world, 8000, 8, 64);
    // Below 2 MiB: as always.
    vm.vmalloc(&mem, Layout::pages(256).huge(true)).unwrap();
    // 600 pages become 1024, which is one chunk of order 10.
    let start = vm.vmalloc(&mem, Layout::pages(600).huge(true)).unwrap();
    assert_eq!(start.get() % 512, 0);
    let last = |world: &World| *world.0.lock().unwrap().calls.last().unwrap();
    assert_eq!(last(&world), (start.get(), 1024, 9));
    vm.vfree(&mem, start).unwrap();
    // No pageblock to be had: smaller chunks, ordinary entries, exactly the pages asked for.
    world.0.lock().unwrap().most = Some(8);
    let start = vm.vmalloc(&mem, Layout::pages(600).huge(true)).unwrap();
    assert_eq!(vm.find_area(start).unwrap().len(), 600);
    assert_eq!(last(&world).2, 0);
    vm.vfree(&mem, start).unwrap();
}

#[test]
fn wrong_requests_are_refused_and_say_why() {
    let fh = frames(4, 1);
    let vm = vmalloc(SoftMmu::<1>::new(), 1000, 2, 8);
    assert_eq!(vm.vmalloc(&fh, Layout::pages(0)), Err(VmallocError::ZeroPages));
    let aligned = vm.vmalloc(&fh, Layout::pages(1).align(3));
    assert_eq!(aligned, Err(VmallocError::BadAlign { align: 3 }));
    for (pages, needed) in [(1000, 1001), (u64::MAX, u64::MAX)] {
        let refused = Err(VmallocError::NoSpace { pages: needed });
        assert_eq!(vm.vmalloc(&fh, Layout::pages(pages)), refused);
    }
    // align_shift of lib/test_vmalloc.c: an alignment that no address has.
    for shift in 20..64 {
        assert!(vm.vmalloc(&fh, Layout::pages(1).align(1 << shift)).is_err());
    }
    let a = vm.vmalloc(&fh, Layout::pages(10)).unwrap();
    let inside = Vpn::new(a.get() + 1);
    assert_eq!(vm.vfree(&fh, inside), Err(VmallocError::NotAnArea { start: inside }));
    vm.vmalloc(&fh, Layout::pages(10)).unwrap();
    assert_eq!(vm.vmalloc(&fh, Layout::pages(1)), Err(VmallocError::NoNodes));
    let b = Vpn::new(a.get() + 11);
    vm.vfree(&fh, a).unwrap();
    vm.vfree(&fh, b).unwrap();
    let more = vm.vmalloc(&fh, Layout::pages(900)).unwrap();
    vm.vfree(&fh, more).unwrap();
    assert_all_free(&fh);
}

/// Threads that allocate and free areas at once: addresses and frames are never given to two.
#[test]
fn threads_never_get_the_same_pages() {
    let fh = frames(32, 4);
    let vm = vmalloc(SoftMmu::<1>::with_relax(std::thread::yield_now), 20_000, 256, 4096);
    let owners: Vec<std::sync::atomic::AtomicU8> =
        std::iter::repeat_with(Default::default).take(32 * 256).collect();
    std::thread::scope(|scope| {
        for me in 1..=3u8 {
            let (fh, vm, owners) = (&fh, &vm, &owners);
            scope.spawn(move || {
                let mark = |start, from, to| {
                    vm.for_each_run(start, |_, run| {
                        for pfn in run.start.get()..run.end.get() {
                            let owner = &owners[(pfn - FIRST) as usize];
                            assert_eq!(owner.swap(to, std::sync::atomic::Ordering::Relaxed), from);
                        }
                    })
                    .unwrap();
                };
                let mut held = std::collections::VecDeque::new();
                for i in 0..4000u64 {
                    let pages = 1 + (i * u64::from(me) * 7919) % 70;
                    if let Ok(start) = vm.vmalloc(fh, Layout::pages(pages)) {
                        mark(start, 0, me);
                        held.push_back(start);
                    }
                    if held.len() > 12 {
                        let start = held.pop_front().unwrap();
                        mark(start, me, 0);
                        vm.vfree(fh, start).unwrap();
                    }
                }
                for start in held {
                    mark(start, me, 0);
                    vm.vfree(fh, start).unwrap();
                }
            });
        }
    });
    assert_all_free(&fh);
}

#[test]
fn addresses_come_back_and_are_given_out_again() {
    let (fh, _) = machine(SoftMmu::<1>::new(), 16, 1);
    // Room for some ten areas, each with its guard page.
    let vm = vmalloc(SoftMmu::<1>::new(), 64, 16, 64);
    for i in 0..100 {
        let start =
            vm.vmalloc(&fh, Layout::pages(4)).unwrap_or_else(|error| panic!("area {i}: {error:?}"));
        vm.vfree(&fh, start).unwrap();
    }
    assert_all_free(&fh);
}

/// One bad frame costs that frame's free, not those of the frames beside it.
#[test]
fn all_but_a_frame_freed_behind_its_areas_back_are_freed() {
    let fh = frames(16, 1);
    let vm = vmalloc(SoftMmu::<1>::new(), 6000, 4, 4);
    let start = vm.vmalloc(&fh, Layout::pages(4)).unwrap();
    let mut bad = Pfn::new(0);
    vm.for_each_run(start, |_, run| bad = Pfn::new(run.start.get() + 2)).unwrap();
    fh.free(bad, Order::ZERO).unwrap();
    let refused = Err(VmallocError::Free(FreeError::DoubleFree { pfn: bad }));
    assert_eq!(vm.vfree(&fh, start), refused);
    assert_all_free(&fh);
}
