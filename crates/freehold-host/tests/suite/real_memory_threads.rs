//! Threads that write, write again, pin and unmap their own pages on real memory while
//! another thread reclaims and splits and one more pins everybody's: every word of every page is
//! compared, and not one byte may be lost.
//!
//! What a thread may say of a page of its own that it has advised and then stored to:
//!
//! ```text
//!   stored() says    Kept    all of it is there until the page is advised again
//!                    Gone    reclaim came first: nothing is mapped, and what memory there is
//!                            belongs to nobody
//! ```
//!
//! and of one that it has advised and not stored to: it holds what it held, or it is gone and reads
//! as zero.

use crate::common;
use crate::length::length;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::hooks::{Hooked, MEANWHILE, When};
use common::*;
use fastrand::Rng;
use freehold::{Freehold, Pfn, Threads};
use freehold_host::freehold_vm::{Access, SpaceId, UnmapPath, Vm, VmError, Vpn};
use freehold_host::{HostMmu, Stored};

const ID: SpaceId = SpaceId::new(0);
const FRAMES: u64 = 2048;
const TABLES: u64 = 2;
/// Two workers' pages adjoin within a table, and the second one's cross its end.
const FIRST_PAGE: u64 = 139;
const PAGES: u64 = 300;
const WORKERS: u64 = 2;
/// A quarter of them, and at least until everything has met, where there is no time for all.
const STEPS: u64 = 60_000;
/// On a machine that is busy otherwise it may take longer until everything has met.
const MOST_STEPS: u64 = 20 * STEPS;

type Frames = Freehold<'static, Threads>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Mapped {
        value: u64,
        may_be_gone: bool,
    },
    /// What the memory holds, where that is known.
    Empty(Option<u64>),
}

struct Worker<'a> {
    vm: &'a Machine,
    frames: &'a Frames,
    number: u64,
    pages: Vec<Page>,
    rng: Rng,
    next: u64,
    seen: BTreeMap<&'static str, u64>,
}

impl<'a> Worker<'a> {
    fn new(vm: &'a Machine, frames: &'a Frames, number: u64) -> Self {
        Self {
            vm,
            frames,
            number,
            pages: vec![Page::Empty(Some(0)); PAGES as usize],
            rng: Rng::with_seed(number),
            next: 0,
            seen: BTreeMap::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.rng.u64(..below)
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn start(&self) -> u64 {
        FIRST_PAGE + self.number * PAGES
    }

    fn at(&self, page: u64) -> Vpn {
        vpn(self.start() + page)
    }

    fn value(&mut self, page: u64) -> u64 {
        self.next += 1;
        (self.number + 1) << 60 | page << 40 | self.next
    }

    fn range(&mut self) -> (u64, u64) {
        let most = [1, 16, 48][self.random(3) as usize];
        let n = 1 + self.random(most);
        (self.random(PAGES - n), n)
    }

    /// Compares all of a page. What is compared was read before the look at the entry, which waits
    /// for reclaim. The look is one: a second one may find that reclaim has taken a page which was
    /// written to, and has not put it back yet.
    fn check(&mut self, page: u64) {
        let found = read_stamp(self.vm, ID, self.at(page));
        let stored = self.vm.mmu().stored(ID, self.at(page));
        match (self.pages[page as usize], stored) {
            (Page::Mapped { value, .. }, Stored::Kept | Stored::Again) => {
                assert_eq!(found, Ok(value), "page {page} of worker {}", self.number);
            }
            (Page::Mapped { value, may_be_gone }, Stored::Gone) => {
                assert!(may_be_gone, "page {page} of worker {} is lost, {value:#x}", self.number);
                // While it was read it may have been there in part.
                assert_eq!(read_stamp(self.vm, ID, self.at(page)), Ok(0), "gone, but not zero");
                self.pages[page as usize] = Page::Empty(Some(0));
                self.saw("dropped");
            }
            (Page::Empty(left), Stored::Gone) => {
                if let Some(left) = left {
                    assert_eq!(
                        found,
                        Ok(left),
                        "page {page} of worker {}, where nothing is mapped",
                        self.number
                    );
                }
            }
            (Page::Empty(_), stored) => panic!("{stored:?}: nothing was mapped at page {page}"),
        }
    }

    fn write(&mut self, page: u64) {
        let at = self.at(page);
        let value = self.value(page);
        let Page::Mapped { may_be_gone, .. } = self.pages[page as usize] else {
            return self.check(page);
        };
        stamp(self.vm, ID, at, value);
        match self.vm.mmu().stored(ID, at) {
            Stored::Kept => {
                if may_be_gone {
                    self.saw("written again in time");
                }
                self.pages[page as usize] = Page::Mapped { value, may_be_gone: false };
            }
            Stored::Gone => {
                assert!(may_be_gone, "page {page} of worker {} is lost", self.number);
                // Some of the stamp may have gone with the page and the rest not.
                self.pages[page as usize] = Page::Empty(None);
                self.saw("written too late");
            }
            Stored::Again => {
                panic!("nobody else advises page {page}, but it is clean after a store")
            }
        }
    }

    fn map(&mut self) {
        let order = order([0, 1, 2, 3, 4, 4, 4, 5][self.random(8) as usize]);
        let n = order.frames();
        let page = self.random(PAGES - n);
        for page in page..page + n {
            if matches!(self.pages[page as usize], Page::Mapped { may_be_gone: true, .. }) {
                self.check(page);
            }
        }
        let places = &self.pages[page as usize..(page + n) as usize];
        if places.iter().any(|page| matches!(page, Page::Mapped { .. })) {
            return;
        }
        match self.vm.map_new(self.frames, ID, self.at(page), order, Access::ReadWrite) {
            Ok(_) => {}
            // The pinner or the splitter holds frames still.
            Err(VmError::Alloc(_)) => return self.saw("no memory"),
            Err(error) => panic!("{error}"),
        }
        for page in page..page + n {
            let Page::Empty(left) = self.pages[page as usize] else { unreachable!() };
            if let Some(left) = left {
                assert_eq!(
                    read_stamp(self.vm, ID, self.at(page)),
                    Ok(left),
                    "page {page} of worker {}",
                    self.number
                );
            }
            let value = self.value(page);
            stamp(self.vm, ID, self.at(page), value);
            assert_eq!(self.vm.mmu().stored(ID, self.at(page)), Stored::Kept);
            self.pages[page as usize] = Page::Mapped { value, may_be_gone: false };
        }
        self.saw("mapped");
    }

    fn unmap(&mut self) {
        let (page, n) = self.range();
        self.vm.unmap(self.frames, ID, pages(self.start() + page, n)).unwrap();
        for place in &mut self.pages[page as usize..(page + n) as usize] {
            if matches!(place, Page::Mapped { .. }) {
                *place = Page::Empty(Some(0));
            }
        }
        (page..page + n).for_each(|page| self.check(page));
    }

    fn madvise_free(&mut self) {
        let (page, n) = self.range();
        let done = self.vm.madvise_free(self.frames, ID, pages(self.start() + page, n)).unwrap();
        *self.seen.entry("lazyfree").or_default() += done;
        for place in &mut self.pages[page as usize..(page + n) as usize] {
            if let Page::Mapped { may_be_gone, .. } = place {
                *may_be_gone = true;
            }
        }
        // At once, into reclaim's arms.
        for _ in 0..self.random(4) {
            let page = page + self.random(n);
            self.write(page);
        }
    }

    /// While it is pinned a page stays, advised or not; and what is written meanwhile stays
    /// afterwards.
    fn pin(&mut self) {
        let page = self.random(PAGES);
        let Ok(pfn) = self.vm.pin(self.frames, ID, self.at(page), false) else {
            return self.check(page);
        };
        let Page::Mapped { value, may_be_gone } = self.pages[page as usize] else {
            panic!("pinned page {page}, where nothing is mapped")
        };
        // Pinned: from now on nothing takes it away. Reclaim may still find out about that, and put
        // it back.
        for _ in 0..8 {
            assert_eq!(read_stamp(self.vm, ID, self.at(page)), Ok(value), "pinned page {page}");
            std::thread::yield_now();
        }
        assert_ne!(
            self.vm.mmu().stored(ID, self.at(page)),
            Stored::Gone,
            "page {page} is pinned, and gone"
        );
        if self.random(2) == 0 {
            self.write(page);
            // A word more than the owner knows of would be found.
            let Page::Mapped { may_be_gone: false, .. } = self.pages[page as usize] else {
                panic!("page {page} was pinned, and what was written to it is gone")
            };
            self.saw("written while pinned");
        } else if self.random(2) == 0 {
            // Says so without having done it: that has to be enough.
            self.vm.unpin(self.frames, pfn, true).unwrap();
            self.pages[page as usize] = Page::Mapped { value, may_be_gone: false };
            return;
        } else {
            self.pages[page as usize] = Page::Mapped { value, may_be_gone };
        }
        self.vm.unpin(self.frames, pfn, false).unwrap();
        self.saw("pinned");
    }

    fn step(&mut self) {
        let page = self.random(PAGES);
        match self.random(100) {
            0..40 => self.check(page),
            40..60 => self.write(page),
            60..80 => self.map(),
            80..83 => self.unmap(),
            83..90 => self.madvise_free(),
            _ => self.pin(),
        }
    }

    fn run(&mut self) {
        let steps = length(STEPS / 4, STEPS);
        for step in 0..MOST_STEPS {
            self.step();
            if step % 10_000 == 0 {
                (0..PAGES).for_each(|page| self.check(page));
            }
            let stats = self.vm.stats();
            let met = stats.redirtied > 10 && stats.kept_busy > 10 && stats.reclaimed_folios > 100;
            if step >= steps
                && met
                && self.seen.get("written again in time").is_some_and(|n| *n > 10)
            {
                break;
            }
        }
    }

    /// Nothing else runs any more: compares each page, and what the hardware allows to its entry.
    fn leave(&mut self) {
        let pagemap = File::open("/proc/self/pagemap").ok();
        for page in 0..PAGES {
            self.check(page);
            if let Some(pagemap) = &pagemap {
                self.check_protection(page, pagemap);
            }
        }
        self.vm.unmap(self.frames, ID, pages(self.start(), PAGES)).unwrap();
    }

    /// The rule that everything rests on: a page that can be written to without a fault has a dirty
    /// entry.
    fn check_protection(&mut self, page: u64, pagemap: &File) {
        const PRESENT: u64 = 1 << 63;
        const WRITE_PROTECTED: u64 = 1 << 57;
        let entry = self.vm.mmu().entry(ID, self.at(page));
        if !entry.is_mapped() {
            return;
        }
        let address = self.vm.mmu().pointer(ID, self.at(page)).unwrap().as_ptr().addr() as u64;
        let mut bytes = [0; 8];
        pagemap.read_exact_at(&mut bytes, address / 4096 * 8).unwrap();
        let bits = u64::from_ne_bytes(bytes);
        if bits & PRESENT != 0 && bits & WRITE_PROTECTED == 0 {
            assert!(
                entry.is_dirty(),
                "page {page} of worker {} can be written to: {entry:?}",
                self.number
            );
            self.saw("seen writable");
        } else {
            self.saw("seen protected");
        }
    }
}

fn run(test: &str, path: UnmapPath) {
    let Some(vm) = machine_or_skip(test, FRAMES, 1, TABLES) else { return };
    let fh = allocator(FRAMES, 4, Threads::new(4));
    vm.set_unmap_path(path);
    vm.add_vma(ID, pages(0, TABLES * 512), RW).unwrap();
    let stop = AtomicBool::new(false);
    let (mut seen, mut ended_workers) = (BTreeMap::new(), Vec::new());
    std::thread::scope(|scope| {
        let (vm, fh, stop) = (&vm, &fh, &stop);
        let _stops = Stops(stop);
        scope.spawn(move || {
            let mut n = 0u64;
            while !stop.load(Relaxed) {
                n += 1;
                vm.madvise_pageout(fh, ID, pages(FIRST_PAGE + n * 37 % 500, 100)).unwrap();
                vm.reclaim(fh, 32).unwrap();
                vm.split_deferred(fh, 16).unwrap();
                std::thread::yield_now();
            }
        });
        // Somebody else's pins: they must only ever delay reclaim.
        scope.spawn(move || {
            let mut page = 0;
            while !stop.load(Relaxed) {
                page = (page + 37) % (WORKERS * PAGES);
                if let Ok(pfn) = vm.pin(fh, ID, vpn(FIRST_PAGE + page), false) {
                    std::thread::yield_now();
                    vm.unpin(fh, pfn, false).unwrap();
                }
            }
        });
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut worker = Worker::new(vm, fh, number);
                    worker.run();
                    worker
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stop.store(true, Relaxed);
        for worker in ended {
            ended_workers.push(worker.unwrap());
        }
    });
    for mut worker in ended_workers {
        worker.leave();
        for (what, n) in worker.seen {
            *seen.entry(what).or_insert(0) += n;
        }
    }
    assert_all_free(&fh);
    let (stats, host) = (vm.stats(), vm.mmu().stats());
    for what in
        ["mapped", "lazyfree", "dropped", "written again in time", "pinned", "written while pinned"]
    {
        assert!(seen.get(what).is_some_and(|n| *n > 0), "{what}: {seen:?}");
    }
    assert!(stats.reclaimed_folios > 0 && stats.redirtied > 0 && stats.kept_busy > 0, "{stats:?}");
    assert_eq!(stats.folios, stats.folios_freed);
    assert!(host.write_faults > 0 && host.pages_released > 0, "{host:?}");
    assert_eq!(host.release_refused, 0);
}

#[test]
fn batched_reclaim_beside_threads_that_use_their_pages() {
    run("batched_reclaim_beside_threads_that_use_their_pages", UnmapPath::Batched);
}

#[test]
fn page_by_page_reclaim_beside_threads_that_use_their_pages() {
    run("page_by_page_reclaim_beside_threads_that_use_their_pages", UnmapPath::PageByPage);
}

/// A thread's store comes exactly when reclaim has taken the page's entry and not decided: it
/// waits. Where the folio turns out to be pinned it goes through and stays; where the page goes it
/// comes too late, and says so.
#[test]
fn a_store_in_the_middle_of_reclaim_waits_for_the_decision() {
    for kept in [true, false] {
        let Some(vm) = hooked_or_skip(
            "a_store_in_the_middle_of_reclaim_waits_for_the_decision",
            FRAMES,
            TABLES,
        ) else {
            return;
        };
        let vm: &'static Vm<'static, Hooked<HostMmu>> = Box::leak(Box::new(vm));
        let fh: &'static Frames = Box::leak(Box::new(allocator(FRAMES, 2, Threads::new(2))));
        vm.add_vma(ID, pages(0, TABLES * 512), RW).unwrap();
        vm.map_new(fh, ID, vpn(0), order(4), Access::ReadWrite).unwrap();
        let word = |page| &vm.mmu().inner.words(ID, vpn(page)).unwrap()[100];
        (0..16).for_each(|page| word(page).store(page + 1, Relaxed));
        vm.madvise_free(fh, ID, pages(0, 16)).unwrap();
        let go: &'static AtomicBool = Box::leak(Box::default());
        let done: &'static AtomicBool = Box::leak(Box::default());
        let writer = std::thread::spawn(move || {
            while !go.load(Relaxed) {
                std::thread::yield_now();
            }
            word(5).store(500, Relaxed);
            done.store(true, Relaxed);
            vm.mmu().inner.stored(ID, vpn(5))
        });
        let pinned: &'static Mutex<Option<Pfn>> = Box::leak(Box::default());
        MEANWHILE.set(Some(Box::new(move |when| match when {
            // Who pins after the first look and before the clearing is seen by the second.
            When::BeforeClearing if kept => {
                *pinned.lock().unwrap() = Some(vm.pin(fh, ID, vpn(9), false).unwrap());
            }
            When::Cleared => {
                go.store(true, Relaxed);
                while vm.mmu().inner.stats().waits == 0 && !done.load(Relaxed) {
                    std::thread::yield_now();
                }
                assert!(!done.load(Relaxed), "a page that reclaim has taken was written to");
            }
            _ => {}
        })));
        let freed = vm.madvise_pageout(fh, ID, pages(0, 16)).unwrap();
        MEANWHILE.set(None);
        let stored = writer.join().unwrap();
        assert_eq!(freed, if kept { 0 } else { 16 });
        assert_eq!(stored, if kept { Stored::Kept } else { Stored::Gone });
        for page in 0..16 {
            let expected = if page == 5 {
                500
            } else if kept {
                page + 1
            } else {
                0
            };
            assert_eq!(word(page).load(Relaxed), expected, "page {page}");
        }
        // Counted just after the writer has been let through.
        while vm.mmu().inner.stats().write_faults + vm.mmu().inner.stats().late_writes == 0 {
            std::thread::yield_now();
        }
        let host = vm.mmu().inner.stats();
        assert_eq!(
            (host.waits, host.write_faults, host.late_writes),
            (1, u64::from(kept), u64::from(!kept))
        );
        if let Some(pin) = pinned.lock().unwrap().take() {
            vm.unpin(fh, pin, false).unwrap();
            // Written to: it stays, every page of it.
            assert_eq!(vm.madvise_pageout(fh, ID, pages(0, 16)), Ok(0));
            assert!((0..16).all(|page| page == 5 || word(page).load(Relaxed) == page + 1));
        }
        vm.unmap(fh, ID, pages(0, 16)).unwrap();
        assert_all_free(fh);
    }
}
