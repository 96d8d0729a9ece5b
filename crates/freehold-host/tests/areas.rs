//! vmalloc on real memory: what is written stays, what is gone faults, and nothing else changes.

#[path = "common/child.rs"]
mod child;

use std::sync::Arc;

use child::faults;
use freehold_host::freehold_vm::{IntervalNode, Layout, RunNode, SpaceId, Vmalloc, Vpn, VpnRange};
use freehold_host::{Arena, Backing, HostAreas};

const MIB: u64 = 1 << 20;
type Areas = Vmalloc<'static, HostAreas>;

fn areas(mib: u64, pages: u64) -> (Arc<Arena>, Areas) {
    let arena = Arc::new(Arena::builder(mib * MIB).backing(Backing::Memfd).build().unwrap());
    let areas = HostAreas::new(Arc::clone(&arena), pages).unwrap();
    let range = areas.range();
    let (nodes, runs) = (vec![IntervalNode::new(); 256].leak(), vec![RunNode::new(); 8192].leak());
    (arena, Vmalloc::new(areas, SpaceId::new(0), range, nodes, runs))
}

fn byte(vmalloc: &Areas, area: Vpn, page: u64) -> *mut u8 {
    vmalloc.mmu().pointer(Vpn::new(area.get() + page)).unwrap().as_ptr()
}

/// One word for each page, and its complement at the page's end.
fn stamp(vmalloc: &Areas, area: Vpn, page: u64, value: u64) {
    let at = byte(vmalloc, area, page).cast::<u64>();
    // SAFETY: the page is mapped, and this thread's.
    unsafe {
        at.write(value);
        at.add(511).write(!value);
    }
}

fn is_stamped(vmalloc: &Areas, area: Vpn, page: u64, value: u64) -> bool {
    let at = byte(vmalloc, area, page).cast::<u64>();
    // SAFETY: as above.
    unsafe { at.read() == value && at.add(511).read() == !value }
}

fn all_free(arena: &Arena) {
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames, "frames lost");
}

#[test]
fn guard_pages_and_freed_areas_fault_and_neighbours_survive() {
    let (arena, vmalloc) = areas(64, 1 << 14);
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let [a, b, c] = [3, 5, 7].map(|pages| vmalloc.vmalloc(&frames, Layout::pages(pages)).unwrap());
    assert_eq!((b.get() - a.get(), c.get() - b.get()), (4, 6), "neighbours, with a guard page between them");
    for (area, pages) in [(a, 3), (b, 5), (c, 7)] {
        (0..pages).for_each(|page| stamp(&vmalloc, area, page, area.get() + page));
        assert!(!faults(byte(&vmalloc, area, pages - 1), true), "the last page is there");
        assert!(faults(byte(&vmalloc, area, pages), false), "the guard page can be read");
    }
    vmalloc.vfree(&frames, b).unwrap();
    for page in 0..6 {
        assert!(faults(byte(&vmalloc, b, page), false), "page {page} of a freed area can be read");
    }
    assert!((0..3).all(|page| is_stamped(&vmalloc, a, page, a.get() + page)));
    assert!((0..7).all(|page| is_stamped(&vmalloc, c, page, c.get() + page)));
    [a, c].into_iter().for_each(|area| vmalloc.vfree(&frames, area).unwrap());
    all_free(&arena);
}

#[test]
fn part_of_an_area_goes_and_the_rest_stays() {
    let (arena, vmalloc) = areas(64, 1 << 14);
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let free = arena.free_frames();
    let area = vmalloc.vmalloc(&frames, Layout::pages(100)).unwrap();
    (0..100).for_each(|page| stamp(&vmalloc, area, page, page));
    let range = VpnRange { start: Vpn::new(area.get() + 20), end: Vpn::new(area.get() + 70) };
    vmalloc.unmap_part(&frames, area, range).unwrap();
    assert_eq!(arena.free_frames(), free - 50);
    for page in [20, 45, 69] {
        assert!(faults(byte(&vmalloc, area, page), false), "page {page}");
    }
    assert!((0..20).chain(70..100).all(|page| is_stamped(&vmalloc, area, page, page)));
    vmalloc.vfree(&frames, area).unwrap();
    all_free(&arena);
}

/// Between the free and the purge a stale access finds the area's own frames, which nobody else has; after it, nothing.
#[test]
fn lazily_freed_areas_share_no_frame_until_they_are_purged_in_one_call() {
    let (arena, vmalloc) = areas(64, 1 << 14);
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let free = arena.free_frames();
    vmalloc.set_lazy_max(1000);
    let old: Vec<_> = (0..20).map(|_| vmalloc.vmalloc(&frames, Layout::pages(10)).unwrap()).collect();
    for &area in &old {
        (0..10).for_each(|page| stamp(&vmalloc, area, page, area.get() + page));
        vmalloc.vfree(&frames, area).unwrap();
    }
    assert_eq!((vmalloc.mmu().stats().unmaps, arena.free_frames()), (0, free - 200));
    let new: Vec<_> = (0..20).map(|_| vmalloc.vmalloc(&frames, Layout::pages(10)).unwrap()).collect();
    for &area in &new {
        (0..10).for_each(|page| stamp(&vmalloc, area, page, !area.get()));
    }
    for &area in &old {
        assert!((0..10).all(|page| is_stamped(&vmalloc, area, page, area.get() + page)), "its frames are somebody's");
    }
    assert_eq!(vmalloc.purge(&frames), Ok(200));
    assert_eq!(vmalloc.mmu().stats().unmaps, 1, "twenty neighbouring areas are one system call");
    for &area in &old {
        assert!(faults(byte(&vmalloc, area, 3), false));
    }
    for area in new {
        assert!((0..10).all(|page| is_stamped(&vmalloc, area, page, !area.get())));
        vmalloc.vfree(&frames, area).unwrap();
    }
    vmalloc.purge(&frames).unwrap();
    all_free(&arena);
}

#[test]
fn huge_areas_are_aligned_and_hold_what_is_written() {
    let (arena, vmalloc) = areas(64, 1 << 14);
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let area = vmalloc.vmalloc(&frames, Layout::pages(700).huge(true)).unwrap();
    assert_eq!((area.get() % 512, vmalloc.find_area(area).unwrap().len()), (0, 1024));
    let stats = vmalloc.mmu().stats();
    assert!(stats.huge_maps + stats.huge_refused == stats.maps && stats.maps > 0, "{stats:?}");
    (0..1024).for_each(|page| stamp(&vmalloc, area, page, page));
    assert!((0..1024).all(|page| is_stamped(&vmalloc, area, page, page)));
    assert!(faults(byte(&vmalloc, area, 1024), false));
    vmalloc.vfree(&frames, area).unwrap();
    assert!(faults(byte(&vmalloc, area, 600), false));
    all_free(&arena);
}

struct Live {
    start: Vpn,
    /// What each page holds, where it is not unmapped.
    pages: Vec<Option<u64>>,
}

/// Random sizes and alignments, freed in any order, partly, many at once and lazily: every page of every area holds
/// what was written there, after each step.
#[test]
fn random_areas_agree_with_a_model() {
    let (arena, vmalloc) = areas(8, 1 << 13);
    // SAFETY: nobody else uses this arena.
    let frames = unsafe { arena.frame_allocator() };
    let mut live: Vec<Live> = Vec::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let (mut value, mut failed, mut parts) = (0, 0, 0);
    for step in 0..6000 {
        match next(20) {
            0..9 => {
                let most = [4, 40, 300, 700][next(4) as usize];
                let (pages, align) = (1 + next(most), 1 << next(8));
                let layout = Layout::pages(pages).align(align).huge(next(2) == 0);
                let Ok(start) = vmalloc.vmalloc(&frames, layout) else {
                    failed += 1;
                    continue;
                };
                assert_eq!(start.get() % align, 0);
                let len = vmalloc.find_area(start).unwrap().len();
                let pages = (0..len).map(|page| {
                    value += 1;
                    stamp(&vmalloc, start, page, value);
                    Some(value)
                });
                live.push(Live { start, pages: pages.collect() });
            }
            9..15 if !live.is_empty() => {
                let area = live.swap_remove(next(live.len() as u64) as usize);
                vmalloc.vfree(&frames, area.start).unwrap();
            }
            15 => {
                let n = live.len().min(3);
                let starts: Vec<_> = live.drain(..n).map(|area| area.start).collect();
                vmalloc.vfree_many(&frames, &starts).unwrap();
            }
            16 | 17 if !live.is_empty() => {
                let i = next(live.len() as u64) as usize;
                let len = live[i].pages.len() as u64;
                let from = next(len);
                let to = from + 1 + next(len - from);
                let start = live[i].start;
                let range = VpnRange { start: Vpn::new(start.get() + from), end: Vpn::new(start.get() + to) };
                vmalloc.unmap_part(&frames, start, range).unwrap();
                live[i].pages[from as usize..to as usize].fill(None);
                parts += 1;
            }
            18 => vmalloc.set_lazy_max([0, 64, 1 << 20][next(3) as usize]),
            19 => drop(vmalloc.purge(&frames).unwrap()),
            _ => {}
        }
        // All of one area, and in the end of all.
        if !live.is_empty() {
            let area = &live[next(live.len() as u64) as usize];
            for (page, value) in area.pages.iter().enumerate() {
                let held = |value| is_stamped(&vmalloc, area.start, page as u64, value);
                assert!(value.is_none_or(held), "step {step}: page {page} of the area at {}", area.start);
            }
        }
    }
    assert!(failed > 50 && parts > 100, "{failed} {parts}");
    for area in live {
        for (page, value) in area.pages.iter().enumerate() {
            assert!(value.is_none_or(|value| is_stamped(&vmalloc, area.start, page as u64, value)));
        }
        vmalloc.vfree(&frames, area.start).unwrap();
    }
    vmalloc.purge(&frames).unwrap();
    all_free(&arena);
    let stats = vmalloc.stats();
    assert_eq!((stats.areas, stats.frames), (stats.areas_freed, stats.frames_freed));
    assert!(stats.flushes < stats.areas_freed);
}
