//! Somebody who uses real pages at random, by plain loads and stores, and knows of every byte of them what must be there.
//!
//! The model is as plain as can be: for each page either nothing, or what all of its 512 words hold and whether it may be
//! gone (since `madvise_free`, and not written to since then). A page that may be gone is whole, or not mapped. Any other
//! page is whole. Each look compares all 4096 bytes, so that not one lost byte goes unnoticed.
//!
//! A [`HostMmu`]'s page has one place, so what a `fork` does is done the way that leaves nothing shared: by copying into
//! the second address space.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::{Config, FrameRange, Freehold, Order, Pfn, Threads, Watermarks, ZoneConfig};
use freehold_host::freehold_vm::{
    Access, Entry, Fault, Frame, IntervalNode, Mapping, PageTable, Space, SpaceId, TABLE_ENTRIES, Vm, VmError, Vma,
    Vpn, VpnRange,
};
use freehold_host::{HostMmu, Stored};

/// The first frame of every machine.
pub const FIRST: u64 = 512;
pub type Frames = Freehold<'static, Threads>;
pub type Machine = Vm<'static, HostMmu>;

pub const fn space(id: u16) -> SpaceId {
    SpaceId::new(id)
}

pub fn vpn(page: u64) -> Vpn {
    Vpn::new(page)
}

pub fn pages(start: u64, len: u64) -> VpnRange {
    VpnRange::new(vpn(start), len).unwrap()
}

fn leak<T>(n: usize, make: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(make).take(n).collect())
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(test: &str, why: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Two address spaces of `space_pages` pages over `frames` frames, for `cpus` threads; where the kernel has no
/// userfaultfd for us, says so. Leaked, which is fine in a test.
pub fn machine(test: &str, frames: u64, space_pages: u64, cpus: u16) -> Option<(&'static Frames, &'static Machine)> {
    let mmu = match HostMmu::new(2, pages(0, space_pages)) {
        Ok(mmu) => mmu,
        Err(error) => {
            skipped(test, error);
            return None;
        }
    };
    let memory = [FrameRange::new(Pfn::new(FIRST), frames).unwrap()];
    let zone = ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) };
    let fh = Freehold::leaked(&Config::new(cpus, &[zone]), Threads::new(cpus)).unwrap();
    let tables = space_pages.div_ceil(TABLE_ENTRIES) as usize;
    let mut ids = 0..2;
    let spaces = leak(2, || {
        Space::new(
            space(ids.next().unwrap()),
            Vpn::new(0),
            leak(tables, PageTable::new),
            leak(512, IntervalNode::<Vma>::new),
        )
    });
    let vm = Vm::new(mmu, Pfn::new(FIRST), leak(frames as usize, Frame::new), leak(8192, Mapping::new), spaces);
    Some((Box::leak(Box::new(fh)), Box::leak(Box::new(vm))))
}

pub fn assert_all_free(fh: &Frames) {
    fh.drain_all();
    fh.validate().unwrap();
    let stats = fh.zone_stats(0).unwrap();
    assert_eq!(stats.free, stats.managed, "frames lost");
}

pub fn words(vm: &Machine, s: u16, page: u64) -> &[AtomicU64; 512] {
    vm.mmu().words(space(s), vpn(page)).unwrap()
}

/// What all words of a page hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Page {
    value: u64,
    /// One word that was written to since.
    odd: Option<(usize, u64)>,
    may_be_gone: bool,
}

impl Page {
    fn word(&self, i: usize) -> u64 {
        match self.odd {
            Some((at, value)) if at == i => value,
            _ => self.value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32 % 64) ^ i as u64,
        }
    }
}

struct Pin {
    pfn: Pfn,
    s: usize,
    page: u64,
}

pub struct Owner {
    pub vm: &'static Machine,
    fh: &'static Frames,
    /// Pages `first..first + len` of both address spaces are this owner's.
    first: u64,
    pages: [Vec<Option<Page>>; 2],
    access: [Vec<Access>; 2],
    pins: Vec<Pin>,
    rng: u64,
    next: u64,
    /// What has happened, by kind: so that a test can say that everything did.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Owner {
    pub fn new(fh: &'static Frames, vm: &'static Machine, me: u64, first: u64, len: u64) -> Self {
        for id in 0..2 {
            let vma = Vma { access: Access::ReadWrite, droppable: false };
            vm.add_vma(space(id), pages(first, len), vma).unwrap();
        }
        Self {
            vm,
            fh,
            first,
            pages: std::array::from_fn(|_| vec![None; len as usize]),
            access: std::array::from_fn(|_| vec![Access::ReadWrite; len as usize]),
            pins: Vec::new(),
            rng: (me + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            next: me << 48,
            seen: BTreeMap::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        (self.rng >> 11) % below
    }

    fn saw(&mut self, what: &'static str, n: u64) {
        *self.seen.entry(what).or_default() += n;
    }

    fn value(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn len(&self) -> u64 {
        self.pages[0].len() as u64
    }

    fn at(&self, page: u64) -> Vpn {
        vpn(self.first + page)
    }

    /// A random space, and a random range of it: mostly short.
    fn range(&mut self) -> (usize, u64, u64) {
        let most = [1, 4, 16, 40][self.random(4) as usize];
        let n = 1 + self.random(most);
        (self.random(2) as usize, self.random(self.len() - n), n)
    }

    fn words(&self, s: usize, page: u64) -> &'static [AtomicU64; 512] {
        words(self.vm, s as u16, self.first + page)
    }

    fn entry(&self, s: usize, page: u64) -> Entry {
        self.vm.mmu().entry(space(s as u16), self.at(page))
    }

    /// The page is not there at this moment. Waits for a reclaim that is deciding about it; whether it is gone for good.
    fn gone(&mut self, s: usize, page: u64) -> bool {
        match self.vm.pin(self.fh, space(s as u16), self.at(page), false) {
            Ok(pfn) => {
                self.vm.unpin(self.fh, pfn, false).unwrap();
                self.saw("waited for reclaim", 1);
                false
            }
            Err(VmError::Fault(Fault::AccessDenied)) => false,
            Err(VmError::Fault(Fault::NotMapped)) => {
                let place = self.pages[s][page as usize].take();
                if let Some(place) = place {
                    assert!(place.may_be_gone, "page {page} of space {s} is lost: {place:?}");
                    assert!(!self.pins.iter().any(|pin| (pin.s, pin.page) == (s, page)), "pinned, but gone");
                    self.saw("dropped", 1);
                }
                true
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Compares every byte of a page.
    fn check(&mut self, s: usize, page: u64) {
        loop {
            let found: [u64; 512] = self.words(s, page).each_ref().map(|word| word.load(Relaxed));
            // Mapped after the look: what was seen is what the page holds.
            if self.entry(s, page).is_mapped() {
                let place = self.pages[s][page as usize].expect("nothing was mapped there");
                for (i, &word) in found.iter().enumerate() {
                    assert_eq!(word, place.word(i), "word {i} of page {page} of space {s}: {place:?}");
                }
                return;
            }
            if self.gone(s, page) {
                return;
            }
        }
    }

    /// Writes to one word of a page, or to all of them, by plain stores.
    fn write(&mut self, s: usize, page: u64, whole: bool) {
        if self.access[s][page as usize] != Access::ReadWrite {
            return;
        }
        let (value, i) = (self.value(), self.random(512) as usize);
        loop {
            let entry = self.entry(s, page);
            if !entry.is_mapped() {
                if self.gone(s, page) {
                    return;
                }
                continue;
            }
            if !entry.is_writable() {
                match self.vm.write_fault(self.fh, space(s as u16), self.at(page), |_, _| panic!("nothing is shared")) {
                    Ok(_) => self.saw("made writable", 1),
                    Err(VmError::Fault(Fault::NotMapped)) => {}
                    Err(error) => panic!("{error}"),
                }
                continue;
            }
            let old = self.pages[s][page as usize].expect("nothing was mapped there");
            let new = match whole {
                true => Page { value, odd: None, may_be_gone: false },
                // What was written on its own before is written as it was.
                false if old.odd.is_some_and(|(at, _)| at != i) => Page { value, odd: None, may_be_gone: false },
                false => Page { odd: Some((i, value)), may_be_gone: false, ..old },
            };
            let words = self.words(s, page);
            if new.odd.is_some() {
                words[i].store(value, Relaxed);
            } else {
                words.iter().enumerate().for_each(|(i, word)| word.store(new.word(i), Relaxed));
            }
            match self.vm.mmu().stored(space(s as u16), self.at(page)) {
                Stored::Kept => {
                    self.pages[s][page as usize] = Some(new);
                    return self.saw("written", 1);
                }
                Stored::Gone => {
                    assert!(old.may_be_gone, "page {page} of space {s} is lost: {old:?}");
                    self.pages[s][page as usize] = None;
                    return self.saw("written too late", 1);
                }
                Stored::Again => panic!("nobody else advises this page"),
            }
        }
    }

    fn is_free(&self, s: usize, page: u64, n: u64) -> bool {
        let places = page as usize..(page + n) as usize;
        self.pages[s][places.clone()].iter().all(Option::is_none)
            && self.access[s][places].iter().all(|access| *access == Access::ReadWrite)
    }

    fn map_at(&mut self, s: usize, page: u64, order: Order) -> bool {
        match self.vm.map_new(self.fh, space(s as u16), self.at(page), order, Access::ReadWrite) {
            Ok(_) => true,
            Err(VmError::Alloc(_)) => {
                self.saw("no memory", 1);
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn fill(&mut self, s: usize, page: u64, new: Page) {
        self.words(s, page).iter().enumerate().for_each(|(i, word)| word.store(new.word(i), Relaxed));
        self.pages[s][page as usize] = Some(new);
    }

    fn map(&mut self) {
        let s = self.random(2) as usize;
        let order = Order::new([0, 0, 1, 2, 3, 4, 4, 4, 5][self.random(9) as usize]).unwrap();
        let n = order.frames();
        let page = self.random(self.len() - n);
        if self.is_free(s, page, n) && self.map_at(s, page, order) {
            for page in page..page + n {
                let value = self.value();
                self.fill(s, page, Page { value, odd: None, may_be_gone: false });
            }
        }
    }

    /// Copies what is in one space to the same pages of the other one.
    fn fork(&mut self) {
        let (s, page, n) = self.range();
        for page in page..page + n {
            if self.pages[s][page as usize].is_none() || !self.is_free(1 - s, page, 1) {
                continue;
            }
            self.check(s, page);
            let Some(place) = self.pages[s][page as usize] else { continue };
            if !self.map_at(1 - s, page, Order::ZERO) {
                return;
            }
            self.fill(1 - s, page, Page { may_be_gone: false, ..place });
            self.saw("copied", 1);
        }
    }

    fn unmap(&mut self) {
        let (s, page, n) = self.range();
        // What is unmapped must not be pinned, on this machine.
        while let Some(i) = self.pins.iter().position(|p| p.s == s && (page..page + n).contains(&p.page)) {
            self.unpin(i);
        }
        self.vm.unmap(self.fh, space(s as u16), pages(self.first + page, n)).unwrap();
        self.pages[s][page as usize..(page + n) as usize].fill(None);
        self.saw("unmapped", 1);
    }

    fn protect(&mut self) {
        let (s, page, n) = self.range();
        let access = [Access::None, Access::Read, Access::ReadWrite, Access::ReadWrite][self.random(4) as usize];
        match self.vm.protect(space(s as u16), pages(self.first + page, n), access) {
            Ok(()) => self.access[s][page as usize..(page + n) as usize].fill(access),
            Err(VmError::NoNodes) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn madvise_free(&mut self) {
        let (s, page, n) = self.range();
        let done = self.vm.madvise_free(self.fh, space(s as u16), pages(self.first + page, n)).unwrap();
        self.saw("lazyfree", done);
        let places = &mut self.pages[s][page as usize..(page + n) as usize];
        places.iter_mut().flatten().for_each(|place| place.may_be_gone = true);
    }

    fn pin(&mut self) {
        let (s, page) = (self.random(2) as usize, self.random(self.len()));
        if self.pins.len() >= 8 {
            return self.unpin(0);
        }
        match self.vm.pin(self.fh, space(s as u16), self.at(page), false) {
            Ok(pfn) => {
                self.pins.push(Pin { pfn, s, page });
                // From here on it cannot go.
                assert!(self.pages[s][page as usize].is_some());
                self.check(s, page);
                self.saw("pinned", 1);
            }
            Err(VmError::Fault(Fault::NotMapped)) => {
                let _ = self.gone(s, page);
            }
            Err(VmError::Fault(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn unpin(&mut self, i: usize) {
        let Pin { pfn, s, page } = self.pins.swap_remove(i);
        // Before the pin goes: nobody can have taken the page for good.
        self.check(s, page);
        let place = self.pages[s][page as usize].as_mut().expect("pinned, but gone");
        let dirty = self.next % 2 == 0;
        place.may_be_gone &= !dirty;
        self.vm.unpin(self.fh, pfn, dirty).unwrap();
    }

    /// One random step.
    pub fn step(&mut self) {
        let (s, page) = (self.random(2) as usize, self.random(self.len()));
        match self.random(100) {
            0..34 => self.check(s, page),
            34..46 => self.write(s, page, false),
            46..50 => self.write(s, page, true),
            50..68 => self.map(),
            68..71 => self.unmap(),
            71..74 => self.fork(),
            74..79 => self.protect(),
            79..86 => self.madvise_free(),
            86..90 => self.pin(),
            90..93 if !self.pins.is_empty() => {
                let i = self.random(self.pins.len() as u64) as usize;
                self.unpin(i);
            }
            93 => {
                let (s, page, n) = self.range();
                self.vm.clear_soft_dirty(space(s as u16), pages(self.first + page, n)).unwrap();
            }
            94..96 => {
                let (s, page, n) = self.range();
                let range = pages(self.first + page, n);
                let freed = self.vm.madvise_pageout(self.fh, space(s as u16), range).unwrap();
                self.saw("paged out", freed);
            }
            96..98 => {
                let n = 1 + self.random(64);
                let freed = self.vm.reclaim(self.fh, n).unwrap();
                self.saw("reclaimed", freed);
            }
            98 => {
                let split = self.vm.split_deferred(self.fh, 4).unwrap();
                self.saw("split", split);
            }
            _ => {}
        }
    }

    /// Every page.
    pub fn check_all(&mut self) {
        for s in 0..2 {
            for page in 0..self.len() {
                self.check(s, page);
            }
        }
    }

    /// Gives everything back.
    pub fn leave(&mut self) {
        self.check_all();
        while !self.pins.is_empty() {
            self.unpin(0);
        }
        for id in 0..2 {
            self.vm.unmap(self.fh, space(id), pages(self.first, self.len())).unwrap();
            for page in 0..self.len() {
                assert!(!self.entry(id.into(), page).is_mapped());
            }
        }
    }
}
