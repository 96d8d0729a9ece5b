//! Virtual areas of real memory: what is in them is what was written, at random sizes and
//! alignments against a model; and what is not theirs cannot be used: after `vfree`, on the guard
//! page, where part of an area was unmapped.
//!
//! Whether a page can be used is asked in two ways: of the kernel, which answers `EFAULT` to a
//! system call that would read or write there (cheap, so after every step); and by really doing it,
//! in a forked child.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::common::*;
use fastrand::Rng;
use freehold::Pfn;
use freehold_host::freehold_vm::{
    Access, Frames, IntervalNode, Layout, RunNode, SpaceId, Vmalloc, VmallocError, Vpn,
};
use freehold_host::{Arena, Backing, HostAreas};

const STEPS: u64 = 25_000;
/// 8,192 frames: memory is short now and then, and so are addresses, in pages.
const BYTES: u64 = 32 << 20;
const ADDRESSES: u64 = 12 << 10;
const WORDS: usize = 512;

fn plus(at: Vpn, pages: u64) -> Vpn {
    Vpn::new(at.get() + pages)
}

struct World {
    arena: Arc<Arena>,
    areas: Vmalloc<'static, HostAreas>,
    file: File,
}

impl World {
    fn new() -> Self {
        let arena = Arc::new(Arena::builder(BYTES).backing(Backing::Memfd).build().unwrap());
        let areas = HostAreas::new(Arc::clone(&arena), ADDRESSES).unwrap();
        let range = areas.range();
        let (nodes, runs) =
            (vec![IntervalNode::new(); 512].leak(), vec![RunNode::new(); 1 << 15].leak());
        Self {
            arena,
            areas: Vmalloc::new(areas, SpaceId::new(0), range, nodes, runs),
            file: rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)
                .unwrap()
                .into(),
        }
    }

    fn frames(&self) -> impl Frames {
        // SAFETY: nobody else uses this arena.
        unsafe { self.arena.frame_allocator() }
    }

    fn pointer(&self, at: Vpn) -> *mut u64 {
        self.areas.mmu().pointer(at).unwrap().as_ptr().cast()
    }

    /// Stamps three words of a page: its first, its last, and one that depends on the value.
    fn stamp(&self, at: Vpn, value: u64) {
        let page = self.pointer(at);
        for (i, value) in Self::words(value) {
            // SAFETY: the page is an area's of this test, which says that it can be written to, and
            // one thread's.
            unsafe { page.add(i).write_volatile(value) }
        }
    }

    fn words(value: u64) -> [(usize, u64); 3] {
        [(0, value), (1 + value as usize % (WORDS - 2), !value), (WORDS - 1, value.rotate_left(32))]
    }

    fn check(&self, at: Vpn, value: u64) {
        for (i, value) in Self::words(value) {
            // SAFETY: as in `stamp`.
            let found = unsafe { self.pointer(at).add(i).read_volatile() };
            assert_eq!(found, value, "word {i} of {at}");
        }
    }

    /// Whether the kernel would read there for us.
    fn readable(&self, at: Vpn) -> bool {
        // SAFETY: the kernel looks at that page, or refuses.
        unsafe { libc::pwrite(self.file.as_raw_fd(), self.pointer(at).cast(), 8, 0) == 8 }
    }

    /// Whether the kernel would write there for us; what is there stays.
    fn writable(&self, at: Vpn) -> bool {
        // SAFETY: the kernel writes what was there just before to a page that only this thread
        // uses, or refuses.
        self.readable(at)
            && unsafe { libc::pread(self.file.as_raw_fd(), self.pointer(at).cast(), 8, 0) == 8 }
    }

    fn assert_all_free(&self) {
        self.arena.validate().unwrap();
        assert_eq!(self.arena.free_frames(), self.arena.stats().frames, "frames lost");
    }
}

/// A page that has something behind it or not.
struct Area {
    guard: bool,
    access: Access,
    /// What each page is stamped with; `None` where it was unmapped.
    pages: Vec<Option<u64>>,
}

struct Model {
    world: World,
    live: BTreeMap<u64, Area>,
    rng: Rng,
    next: u64,
    seen: BTreeMap<&'static str, u64>,
}

impl Model {
    fn random(&mut self, below: u64) -> u64 {
        self.rng.u64(..below)
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn value(&mut self) -> u64 {
        self.next += 1;
        self.next << 20 | 0xf_4ee1
    }

    fn any(&mut self) -> Option<u64> {
        let n = self.live.len() as u64;
        if n == 0 {
            return None;
        }
        let i = self.random(n) as usize;
        self.live.keys().nth(i).copied()
    }

    /// The area's place is right, and nobody else's.
    fn check_place(&self, start: u64, len: u64) {
        let all = self.world.areas.mmu().range();
        assert!(all.start.get() <= start && start + len <= all.end.get());
        let before = self.live.range(..start).next_back();
        if let Some((&at, area)) = before {
            assert!(
                at + area.pages.len() as u64 + u64::from(area.guard) <= start,
                "over the area at {at:#x}"
            );
        }
        if let Some((&at, _)) = self.live.range(start..).next() {
            assert!(start + len <= at, "over the area at {at:#x}");
        }
    }

    fn vmalloc(&mut self) {
        let pages = match self.random(64) {
            0..2 => 512 + self.random(700),
            2..8 => 1 + self.random(300),
            8..40 => 1 + self.random(40),
            _ => 1 + self.random(4),
        };
        let access = if self.random(8) == 0 { Access::Read } else { Access::ReadWrite };
        let align = 1 << [0, 0, 0, 1, 3, 6, 9][self.random(7) as usize];
        let huge = self.random(if pages < 512 { 4 } else { 2 }) == 0;
        let guard = self.random(8) > 0;
        let layout = Layout { guard, access, ..Layout::pages(pages).align(align).huge(huge) };
        let made = self.world.areas.vmalloc(&self.world.frames(), layout);
        let start = match made {
            Ok(start) => start,
            Err(VmallocError::Alloc(_)) => return self.saw("no memory"),
            Err(VmallocError::NoSpace { .. } | VmallocError::NoNodes) => {
                return self.saw("no space");
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(start.get() % align, 0, "aligned to {align}");
        let range = self.world.areas.find_area(start).unwrap();
        let len = range.len();
        assert!(
            len == pages || huge && pages >= 512 && len == pages.next_multiple_of(512),
            "{len} for {pages}"
        );
        self.check_place(start.get(), len + u64::from(guard));
        let mut stamps = vec![None; len as usize];
        // By the frames' own addresses for every third area and where it is read-only: the area
        // must show the same.
        let by_frames = access == Access::Read || self.random(3) == 0;
        let mut places = vec![Pfn::new(0); len as usize];
        let placed = self.world.areas.for_each_run(start, |at, run| {
            for i in 0..run.len() {
                places[(at.get() - start.get() + i) as usize] = Pfn::new(run.start.get() + i);
            }
        });
        placed.unwrap();
        for (i, stamp) in stamps.iter_mut().enumerate() {
            let value = self.value();
            *stamp = Some(value);
            if by_frames {
                self.stamp_frame(places[i], value);
            } else {
                self.world.stamp(plus(start, i as u64), value);
            }
        }
        self.saw(if huge && len >= 512 { "huge" } else { "made" });
        self.live.insert(start.get(), Area { guard, access, pages: stamps });
        self.check_area(start.get());
    }

    fn stamp_frame(&self, pfn: Pfn, value: u64) {
        let frame: *mut u64 = self.world.arena.pointer(pfn).unwrap().as_ptr().cast();
        for (i, value) in World::words(value) {
            // SAFETY: a frame that belongs to this test.
            unsafe { frame.add(i).write_volatile(value) }
        }
    }

    /// All stamps, both edges, and what may be done.
    fn check_area(&mut self, start: u64) {
        let area = &self.live[&start];
        for (i, stamp) in area.pages.iter().enumerate() {
            let at = Vpn::new(start + i as u64);
            match stamp {
                Some(value) => self.world.check(at, *value),
                None if i % 8 == 0 => assert!(!self.world.readable(at), "{at} was unmapped"),
                None => {}
            }
        }
        let some = self.next as usize % area.pages.len();
        if area.pages[some].is_some() {
            let at = Vpn::new(start + some as u64);
            assert!(self.world.readable(at));
            assert_eq!(self.world.writable(at), area.access == Access::ReadWrite);
        }
        let end = Vpn::new(start + area.pages.len() as u64);
        if area.guard {
            assert!(!self.world.readable(end), "the guard page of the area at {start:#x}");
        }
    }

    fn free(&mut self, start: u64) {
        self.check_area(start);
        let area = self.live.remove(&start).unwrap();
        let (frames, at) = (self.world.frames(), Vpn::new(start));
        let last = Vpn::new(start + area.pages.len() as u64 - 1);
        if last > at {
            assert_eq!(
                self.world.areas.vfree(&frames, last),
                Err(VmallocError::NotAnArea { start: last })
            );
        }
        self.world.areas.vfree(&frames, at).unwrap();
        assert_eq!(self.world.areas.vfree(&frames, at), Err(VmallocError::NotAnArea { start: at }));
        self.check_freed(at, area.pages.len() as u64);
    }

    /// Each page of a small area, and some of a large one, the first and the last among them.
    fn check_freed(&self, start: Vpn, len: u64) {
        for i in (0..len).step_by(1 + len as usize / 16).chain([len - 1]) {
            assert!(
                !self.world.readable(plus(start, i)),
                "page {i} of a freed area at {start} can be read"
            );
        }
    }

    fn free_many(&mut self) {
        let mut starts = Vec::new();
        for _ in 0..self.random(20) {
            let Some(start) = self.any() else { break };
            self.check_area(start);
            let area = self.live.remove(&start).unwrap();
            starts.push((Vpn::new(start), area.pages.len() as u64));
        }
        let all: Vec<_> = starts.iter().map(|(start, _)| *start).collect();
        self.world.areas.vfree_many(&self.world.frames(), &all).unwrap();
        for (start, len) in starts {
            self.check_freed(start, len);
            self.saw("freed together");
        }
    }

    fn step(&mut self, growing: bool) {
        match self.random(100) {
            0..35 => self.vmalloc(),
            35..60 if growing => self.vmalloc(),
            35..80 => {
                if let Some(start) = self.any() {
                    self.free(start);
                }
            }
            80..82 => self.free_many(),
            82..98 => {
                if let Some(start) = self.any() {
                    self.check_area(start);
                }
            }
            98 => {
                let on = self.random(2) == 0;
                self.world.areas.set_contig_free(on);
            }
            // What is free goes back to the system; what is mapped somewhere is not free.
            _ => _ = self.world.arena.trim().unwrap(),
        }
    }
}

#[test]
fn random_areas_hold_what_was_written_and_nothing_else_can_be_used() {
    let mut model = Model {
        world: World::new(),
        live: BTreeMap::new(),
        rng: Rng::with_seed(0),
        next: 0,
        seen: BTreeMap::new(),
    };
    for step in 0..STEPS {
        // Up to where there is no more, and down to little.
        model.step(step / 1_000 % 2 == 0);
        if step % 4_000 == 0 {
            let all: Vec<_> = model.live.keys().copied().collect();
            all.into_iter().for_each(|start| model.check_area(start));
            model.world.arena.validate().unwrap();
        }
    }
    let all: Vec<_> = model.live.keys().copied().collect();
    all.into_iter().for_each(|start| model.free(start));
    model.world.assert_all_free();
    for what in ["made", "huge", "freed together", "no memory", "no space"] {
        assert!(model.seen.get(what).is_some_and(|n| *n > 20), "{what}: {:?}", model.seen);
    }
    let (stats, host) = (model.world.areas.stats(), model.world.areas.mmu().stats());
    assert_eq!((stats.areas, stats.frames), (stats.areas_freed, stats.frames_freed));
    assert_eq!(stats.maps, host.maps, "one system call a run");
    assert!(host.huge_maps + host.huge_refused > 10, "{host:?}");
}

#[test]
fn areas_of_several_threads_hold_what_each_has_written() {
    let world = World::new();
    std::thread::scope(|scope| {
        for thread in 1..4u64 {
            let world = &world;
            scope.spawn(move || {
                let mut random = Rng::with_seed(thread);
                let mut live = Vec::new();
                for n in 0..3_000u64 {
                    if live.len() < 12 && random.bool() {
                        let pages = random.u64(1..=70);
                        let start =
                            world.areas.vmalloc(&world.frames(), Layout::pages(pages)).unwrap();
                        (0..pages)
                            .for_each(|i| world.stamp(plus(start, i), thread << 60 | n << 20 | i));
                        live.push((start, pages, n));
                    } else if !live.is_empty() {
                        let (start, pages, n) = live.swap_remove(random.usize(..live.len()));
                        (0..pages)
                            .for_each(|i| world.check(plus(start, i), thread << 60 | n << 20 | i));
                        world.areas.vfree(&world.frames(), start).unwrap();
                    }
                }
                for (start, pages, n) in live {
                    (0..pages)
                        .for_each(|i| world.check(plus(start, i), thread << 60 | n << 20 | i));
                    world.areas.vfree(&world.frames(), start).unwrap();
                }
            });
        }
    });
    world.assert_all_free();
}

/// Areas A, B and C of so many pages each, one behind the other, stamped.
fn three(world: &World, layout: Layout) -> [Vpn; 3] {
    let areas = std::array::from_fn(|_| world.areas.vmalloc(&world.frames(), layout).unwrap());
    for (n, area) in areas.iter().enumerate() {
        (0..layout.pages).for_each(|i| world.stamp(plus(*area, i), (n as u64 + 1) << 32 | i));
    }
    areas
}

fn check_three(world: &World, areas: [Vpn; 3], pages: u64, but: usize) {
    for (n, area) in areas.iter().enumerate().filter(|(n, _)| *n != but) {
        (0..pages).for_each(|i| world.check(plus(*area, i), (n as u64 + 1) << 32 | i));
    }
}

/// Sets three areas up in a child, does something, and touches a page.
fn touch_in_a_child(
    layout: Layout,
    prepare: impl Fn(&World, [Vpn; 3]),
    page: impl Fn([Vpn; 3]) -> Vpn,
    write: bool,
) -> Ended {
    try_in_a_child(|trying| {
        let world = World::new();
        let areas = three(&world, layout);
        prepare(&world, areas);
        check_three(&world, areas, layout.pages, 1);
        let place = world.pointer(page(areas));
        trying.now();
        // SAFETY: where nothing is mapped this ends the child, which is what it is for.
        unsafe {
            match write {
                true => place.write_volatile(1),
                false => _ = place.read_volatile(),
            }
        }
        check_three(&world, areas, layout.pages, 1);
    })
}

#[test]
fn what_is_not_an_areas_cannot_be_touched_and_its_neighbours_survive() {
    const FAULT: Ended = Ended::Signal(libc::SIGSEGV);
    for (huge, pages) in [(false, 1), (false, 100), (true, 512), (true, 1024)] {
        let layout = Layout::pages(pages).huge(huge);
        let nothing = |_: &World, _: [Vpn; 3]| {};
        let free =
            |world: &World, areas: [Vpn; 3]| world.areas.vfree(&world.frames(), areas[1]).unwrap();
        for write in [false, true] {
            let touch = |prepare: &dyn Fn(&World, [Vpn; 3]), page: &dyn Fn([Vpn; 3]) -> Vpn| {
                touch_in_a_child(layout, prepare, page, write)
            };
            assert_eq!(touch(&nothing, &|areas| areas[1]), Ended::Survived);
            assert_eq!(touch(&nothing, &|areas| plus(areas[1], pages - 1)), Ended::Survived);
            assert_eq!(touch(&nothing, &|areas| plus(areas[0], pages)), FAULT, "A's guard page");
            assert_eq!(touch(&nothing, &|areas| plus(areas[2], pages)), FAULT, "C's guard page");
            assert_eq!(touch(&free, &|areas| areas[1]), FAULT, "B's first page, freed");
            assert_eq!(
                touch(&free, &|areas| plus(areas[1], pages - 1)),
                FAULT,
                "B's last page, freed"
            );
        }
    }
}

#[test]
fn a_read_only_area_shows_its_frames_and_cannot_be_written_to() {
    let world = World::new();
    let layout = Layout { access: Access::Read, ..Layout::pages(7) };
    let start = world.areas.vmalloc(&world.frames(), layout).unwrap();
    assert!((0..7).all(|i| world.readable(plus(start, i)) && !world.writable(plus(start, i))));
    world.areas.vfree(&world.frames(), start).unwrap();
    world.assert_all_free();
    let ended = try_in_a_child(|trying| {
        let world = World::new();
        let start = world.areas.vmalloc(&world.frames(), layout).unwrap();
        // SAFETY: a page of the area, which may be read.
        unsafe { world.pointer(start).read_volatile() };
        trying.now();
        // SAFETY: ends the child.
        unsafe { world.pointer(start).write_volatile(1) };
    });
    assert_eq!(ended, Ended::Signal(libc::SIGSEGV));
}

/// The frames are shared memory, and the parent's.
#[test]
fn a_forked_child_has_no_areas() {
    let world = World::new();
    let start = world.areas.vmalloc(&world.frames(), Layout::pages(700)).unwrap();
    (0..700).for_each(|i| world.stamp(plus(start, i), i));
    let touched = try_in_a_child(|trying| {
        trying.now();
        // SAFETY: ends the child.
        unsafe { world.pointer(plus(start, 5)).write_volatile(1) };
    });
    assert_eq!(touched, Ended::Signal(libc::SIGSEGV));
    // What the child has put there since stays.
    let kept = try_in_a_child(|trying| {
        let (place, flags) = (
            world.pointer(start),
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
        );
        // SAFETY: a hole of the child's address space.
        let page = unsafe {
            libc::mmap(place.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_eq!(page, place.cast());
        trying.now();
        // SAFETY: the page made just now.
        unsafe { place.write(7) };
        assert!(world.areas.vfree(&world.frames(), start).is_err());
        assert!(world.areas.vmalloc(&world.frames(), Layout::pages(1)).is_err());
        // SAFETY: the child's copy, which it does not use any more; it leaves without running
        // destructors.
        drop(unsafe { std::ptr::read(world.areas.mmu()) });
        // SAFETY: the child's copy, which it does not use any more; it leaves without running
        // destructors.
        assert_eq!(unsafe { place.read() }, 7);
    });
    assert_eq!(kept, Ended::Survived);
    (0..700).for_each(|i| world.check(plus(start, i), i));
    world.areas.vfree(&world.frames(), start).unwrap();
    world.assert_all_free();
}
