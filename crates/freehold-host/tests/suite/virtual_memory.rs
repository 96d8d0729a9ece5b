//! Virtual memory on real pages: what reclaim gives back, what it must not, and areas that really
//! hold what was written.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold::{Config, FrameRange, Freehold, Order, Pfn, SingleCpu, Watermarks, ZoneConfig};
use freehold_host::freehold_vm::{
    Access, Frame, IntervalNode, Layout, Mapping, PageTable, RunNode, Space, SpaceId,
    TABLE_ENTRIES, UnmapPath, Vm, Vma, Vmalloc, Vpn, VpnRange,
};
use freehold_host::{Arena, Backing, HostAreas, HostMmu};

const FOLIOS: u64 = 64;
const ORDER: Order = Order::new(4).unwrap();
const PAGES: u64 = FOLIOS * ORDER.frames();
const ID: SpaceId = SpaceId::new(0);

fn all() -> VpnRange {
    VpnRange::new(Vpn::new(0), PAGES).unwrap()
}

/// The machine; where the kernel has no userfaultfd for us, says so.
fn machine(test: &str) -> Option<HostMmu> {
    match HostMmu::new(1, all()) {
        Ok(mmu) => Some(mmu),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}

type Frames = Freehold<'static, SingleCpu>;

/// Runs `test` on a `Vm` whose folios are all mapped and hold their page's number, plus one.
fn with_folios(mmu: HostMmu, path: UnmapPath, test: impl FnOnce(&Vm<'_, HostMmu>, &Frames)) {
    let memory = [FrameRange::new(Pfn::new(512), 2 * PAGES).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let frames = Freehold::leaked(&Config::new(1, &[zone]), SingleCpu).unwrap();
    let records: Vec<Frame> = (0..2 * PAGES).map(|_| Frame::new()).collect();
    let mappings: Vec<Mapping> = (0..FOLIOS).map(|_| Mapping::new()).collect();
    let tables: Vec<PageTable> = (0..PAGES / TABLE_ENTRIES).map(|_| PageTable::new()).collect();
    let mut vmas = [IntervalNode::new(); 4];
    let spaces = [Space::new(ID, Vpn::new(0), &tables, &mut vmas)];
    let vm = Vm::new(mmu, Pfn::new(512), &records, &mappings, &spaces);
    vm.set_unmap_path(path);
    vm.add_vma(ID, all(), Vma { access: Access::ReadWrite, droppable: false }).unwrap();
    for folio in 0..FOLIOS {
        vm.map_new(&frames, ID, Vpn::new(folio * ORDER.frames()), ORDER, Access::ReadWrite)
            .unwrap();
    }
    for page in 0..PAGES {
        store(&vm, page, page + 1);
    }
    test(&vm, &frames);
    frames.validate().unwrap();
}

fn store(vm: &Vm<'_, HostMmu>, page: u64, value: u64) {
    // Relaxed: one word; threads are joined before anything is compared.
    vm.mmu().words(ID, Vpn::new(page)).unwrap()[7].store(value, Ordering::Relaxed);
}

fn load(vm: &Vm<'_, HostMmu>, page: u64) -> u64 {
    vm.mmu().words(ID, Vpn::new(page)).unwrap()[7].load(Ordering::Relaxed)
}

#[test]
fn what_was_written_to_again_stays_and_the_rest_goes_in_few_calls() {
    for path in [UnmapPath::PageByPage, UnmapPath::Batched] {
        let Some(mmu) = machine("what_was_written_to_again_stays_and_the_rest_goes_in_few_calls")
        else {
            return;
        };
        with_folios(mmu, path, |vm, frames| {
            assert_eq!(vm.madvise_free(frames, ID, all()).unwrap(), PAGES);
            // Every eighth folio is written to again, in one page, by a plain store.
            let again = |folio: u64| folio % 8 == 0;
            (0..FOLIOS)
                .filter(|&folio| again(folio))
                .for_each(|folio| store(vm, folio * 16 + 3, 1_000_000 + folio));
            let before = vm.mmu().stats();
            assert_eq!(vm.madvise_pageout(frames, ID, all()).unwrap(), PAGES / 8 * 7);
            let batched =
                matches!(path, UnmapPath::Whole | UnmapPath::WholeDeferred | UnmapPath::Batched);
            if batched {
                assert_eq!(
                    vm.mmu().pages_in_memory(ID, all()).unwrap(),
                    PAGES / 8,
                    "what was reclaimed is really gone"
                );
            }
            let calls = vm.mmu().stats().release_calls - before.release_calls;
            match path {
                // Deferring the flush does not gather what is given back.
                UnmapPath::PageByPage | UnmapPath::PageByPageDeferred => {
                    assert!(calls >= PAGES / 8 * 7, "{calls}")
                }
                // Seven neighbouring folios are one range; where vectors are to be had, all ranges
                // are one call.
                UnmapPath::Whole | UnmapPath::WholeDeferred | UnmapPath::Batched => {
                    assert!(calls <= FOLIOS / 8, "{path:?}: {calls}")
                }
            }
            for page in 0..PAGES {
                let (folio, found) = (page / 16, load(vm, page));
                let held = |expected| assert_eq!(found, expected, "{path:?}, page {page}");
                match (again(folio), page % 16) {
                    (false, _) => held(0),
                    (true, 3) => held(1_000_000 + folio),
                    // Nobody wrote to it since, so it may go. Page by page, those before the
                    // written one do; the batched path looks at all entries first and keeps the
                    // folio as it was.
                    (true, _) if batched => held(page + 1),
                    (true, _) => {
                        assert!(found == 0 || found == page + 1, "page {page} holds {found}")
                    }
                }
            }
            assert_eq!(vm.stats().redirtied, FOLIOS / 8);
            if batched {
                assert_eq!(vm.stats().deferred_queued, 0);
            }
        });
    }
}

#[test]
fn a_writer_beside_reclaim_loses_nothing() {
    for round in 0..12u64 {
        let Some(mmu) = machine("a_writer_beside_reclaim_loses_nothing") else { return };
        let path = if round % 4 == 3 { UnmapPath::PageByPage } else { UnmapPath::Batched };
        with_folios(mmu, path, |vm, frames| {
            vm.madvise_free(frames, ID, all()).unwrap();
            let done = AtomicBool::new(false);
            let mut kept = vec![None; PAGES as usize];
            std::thread::scope(|scope| {
                let (kept, done) = (&mut kept, &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(round);
                    for n in 0..400u64 {
                        let page = random.u64(..PAGES);
                        let value = 1 << 40 | round << 20 | n;
                        store(vm, page, value);
                        let entry = vm.mmu().entry(ID, Vpn::new(page));
                        if entry.is_mapped() {
                            // Mapped after the write: reclaim must find it dirty, so the write
                            // stays for good.
                            assert!(
                                entry.is_dirty(),
                                "page {page} was written to without anybody noticing"
                            );
                            kept[page as usize] = Some(value);
                        }
                    }
                    // Relaxed: only says when to stop.
                    done.store(true, Ordering::Relaxed);
                });
                while !done.load(Ordering::Relaxed) {
                    vm.madvise_pageout(frames, ID, all()).unwrap();
                }
            });
            let mut compared = 0;
            for (page, value) in kept.iter().enumerate() {
                if let Some(value) = *value {
                    assert_eq!(load(vm, page as u64), value, "page {page}, round {round}");
                    compared += 1;
                }
            }
            // The rest of a folio that was written to is as it was, too.
            for page in (0..PAGES).filter(|&page| kept[page as usize].is_none()) {
                let first = page / 16 * 16;
                if vm.mmu().entry(ID, Vpn::new(page)).is_mapped()
                    && (first..first + 16).any(|page| kept[page as usize].is_some())
                {
                    assert!(
                        load(vm, page) == page + 1 || load(vm, page) >> 40 == 1,
                        "page {page}, round {round}"
                    );
                }
            }
            assert!(compared > 0 || vm.stats().reclaimed_folios > 0);
        });
    }
}

#[test]
fn areas_hold_what_is_written_and_every_frame_comes_back() {
    let arena = Arc::new(Arena::builder(64 << 20).backing(Backing::Memfd).build().unwrap());
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let free = arena.free_frames();
    let areas = HostAreas::new(Arc::clone(&arena), 1 << 16).unwrap();
    let range = areas.range();
    let (mut nodes, mut runs) = ([IntervalNode::new(); 64], [RunNode::new(); 1024]);
    let vmalloc = Vmalloc::new(areas, SpaceId::new(0), range, &mut nodes, &mut runs);
    for contig in [true, false] {
        vmalloc.set_contig_free(contig);
        let sizes = [1u64, 2, 7, 100, 512, 700];
        let areas: Vec<_> = sizes
            .iter()
            .map(|&pages| vmalloc.vmalloc(&frames, Layout::pages(pages)).unwrap())
            .collect();
        for (i, (&area, pages)) in areas.iter().zip(sizes).enumerate() {
            let at = vmalloc.mmu().pointer(area).unwrap();
            for page in 0..pages as usize {
                // SAFETY: the area has that many pages, and nobody else knows them.
                unsafe { at.add(page * 4096).cast::<u64>().write((i as u64) << 32 | page as u64) };
            }
        }
        for (i, (&area, pages)) in areas.iter().zip(sizes).enumerate() {
            let at = vmalloc.mmu().pointer(area).unwrap();
            for page in 0..pages as usize {
                // SAFETY: the area has that many pages, and nobody else knows them.
                let found = unsafe { at.add(page * 4096).cast::<u64>().read() };
                assert_eq!(found, (i as u64) << 32 | page as u64);
            }
        }
        areas.into_iter().for_each(|area| vmalloc.vfree(&frames, area).unwrap());
        assert_eq!(arena.free_frames(), free, "contiguous free {contig}");
    }
    arena.validate().unwrap();
}
