//! Somebody who uses memory at random, and knows of every page what must be in it.
//!
//! The model has for each virtual page either nothing, or a value and whether it may be gone (since
//! `madvise_free`, and not written to since then): such a page holds its value or is not mapped,
//! any other one holds its value. Each frame has two words that hold a value and its complement;
//! accesses go through modelled TLBs, so that a flush that was forgotten shows, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use fastrand::Rng;
use freehold::{AllocError, FrameRange, FreeError, Order, Pfn, Request};
use freehold_vm::{Access, Frames, Vm, Vpn};
use freehold_vm::{Entry, Fault, SoftMmu, UnmapPath, VmError};

pub type Machine = Vm<'static, SoftMmu<4>>;

/// A page allocator that does not take frames back that a CPU could still reach.
pub struct Checked<'a, A>(pub A, pub &'a Machine);

impl<A: Frames> Frames for Checked<'_, A> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.0.alloc(request)
    }
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.0.alloc_bulk(request, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_range(FrameRange::new(pfn, order.frames()).unwrap())
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        assert!(!self.1.mmu().caches(range), "{range} is freed, but in a TLB");
        self.0.free_range(range)
    }
}

/// What the frames hold.
pub struct Contents(&'static [[AtomicU64; 2]]);

impl Contents {
    pub fn new(mib: u64) -> Self {
        Self(leak((mib * MIB) as usize, Default::default))
    }
    fn frame(&self, pfn: Pfn) -> &[AtomicU64; 2] {
        &self.0[(pfn.get() - FIRST) as usize]
    }
    fn write(&self, pfn: Pfn, value: u64) {
        self.frame(pfn)[0].store(value, Relaxed);
        self.frame(pfn)[1].store(!value, Relaxed);
    }
    fn read(&self, pfn: Pfn) -> u64 {
        let [value, complement] = self.frame(pfn).each_ref().map(|word| word.load(Relaxed));
        assert_eq!(value, !complement, "torn: somebody else writes to {pfn}");
        value
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    value: u64,
    may_be_gone: bool,
}

struct Pin {
    pfn: Pfn,
    value: u64,
    written: bool,
}

pub struct Actor<'a, A> {
    pub vm: &'a Machine,
    pub frames: A,
    pub contents: &'a Contents,
    /// Which modelled CPU.
    pub cpu: usize,
    /// Pages `first..first + len` of two address spaces are this actor's.
    first: u64,
    pages: [Vec<Option<Page>>; 2],
    access: [Vec<Access>; 2],
    pins: Vec<Pin>,
    rng: Rng,
    next: u64,
    /// What has happened, by kind: so that a test can say that everything did.
    pub seen: std::collections::BTreeMap<&'static str, u64>,
}

impl<'a, A: Frames> Actor<'a, A> {
    pub fn new(
        vm: &'a Machine,
        frames: A,
        contents: &'a Contents,
        cpu: usize,
        first: u64,
        len: u64,
    ) -> Self {
        for id in 0..2 {
            vm.add_vma(space(id), pages(first, len), RW).unwrap();
        }
        Self {
            vm,
            frames,
            contents,
            cpu,
            first,
            pages: std::array::from_fn(|_| vec![None; len as usize]),
            access: std::array::from_fn(|_| vec![Access::ReadWrite; len as usize]),
            pins: Vec::new(),
            rng: Rng::with_seed(cpu as u64),
            next: (cpu as u64) << 48,
            seen: Default::default(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.rng.u64(..below)
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn at(&self, page: u64) -> Vpn {
        vpn(self.first + page)
    }

    /// A random range: mostly short.
    fn range(&mut self) -> (u64, u64) {
        let len = self.pages[0].len() as u64;
        let most = [1, 4, 16, 64][self.random(4) as usize];
        let n = 1 + self.random(most);
        (self.random(len - n), n)
    }

    fn value(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A fault is only right where the model allows it.
    fn faulted(&mut self, s: usize, page: u64, write: bool, fault: Fault) {
        let place = &mut self.pages[s][page as usize];
        match fault {
            Fault::NotMapped => {
                let may_go = place.is_none_or(|p| p.may_be_gone);
                assert!(may_go, "a page is lost: {place:?} at {page} of space {s}");
                if place.take().is_some() {
                    self.saw("dropped");
                }
            }
            Fault::AccessDenied => assert_eq!(self.access[s][page as usize], Access::None),
            Fault::WriteProtected if write => self.write_fault(s, page),
            fault => panic!("{fault:?}"),
        }
    }

    fn write_fault(&mut self, s: usize, page: u64) {
        let at = self.at(page);
        match self.vm.write_fault(space(s as u16), at) {
            Ok(()) => {
                self.saw("made writable");
                self.written(s, page);
            }
            Err(VmError::Fault(Fault::NotMapped)) => self.faulted(s, page, false, Fault::NotMapped),
            Err(VmError::Fault(Fault::AccessDenied)) => {
                assert_ne!(self.access[s][page as usize], Access::ReadWrite);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Resolving a write fault counts as a write of what is there.
    fn written(&mut self, s: usize, page: u64) {
        if let Some(place) = &mut self.pages[s][page as usize] {
            place.may_be_gone = false;
        }
    }

    fn touch(&mut self, s: usize, page: u64, write: bool) {
        let value = if write { Some(self.value()) } else { None };
        let at = self.at(page);
        let found = self.vm.space(space(s as u16)).unwrap();
        loop {
            let contents = self.contents;
            let accessed = self.vm.mmu().access(self.cpu, found, at, write, |pfn| {
                let old = contents.read(pfn);
                if let Some(value) = value {
                    contents.write(pfn, value);
                }
                (pfn, old)
            });
            match accessed {
                Ok((pfn, old)) => {
                    let place =
                        self.pages[s][page as usize].as_mut().expect("nothing was mapped there");
                    assert_eq!(old, place.value, "page {page} of space {s} holds something else");
                    assert_ne!(self.access[s][page as usize], Access::None);
                    if let Some(value) = value {
                        assert_eq!(self.access[s][page as usize], Access::ReadWrite);
                        *place = Page { value, may_be_gone: false };
                        let pins = self.pins.iter_mut().filter(|pin| pin.pfn == pfn);
                        pins.for_each(|pin| pin.value = value);
                    }
                    return;
                }
                Err(_) => match self.vm.touch(space(s as u16), at, write) {
                    // Reclaim has put it back.
                    Ok(_) => self.saw("waited for reclaim"),
                    Err(VmError::Fault(now)) => return self.faulted(s, page, write, now),
                    Err(error) => panic!("{error}"),
                },
            }
        }
    }

    fn map(&mut self) {
        let s = self.random(2) as usize;
        let order = order([0, 0, 1, 2, 3, 4, 4, 4, 5][self.random(9) as usize]);
        let n = order.frames();
        let page = self.random(self.pages[s].len() as u64 - n);
        let places = page as usize..(page + n) as usize;
        let free = self.pages[s][places.clone()].iter().all(Option::is_none);
        if !free || self.access[s][places].iter().any(|access| *access != Access::ReadWrite) {
            return;
        }
        // Filled before anybody can see it.
        let folio = match self.vm.folio_alloc(&self.frames, order) {
            Ok(folio) => folio,
            Err(VmError::Alloc(_)) => return self.saw("no memory"),
            Err(error) => panic!("{error}"),
        };
        for i in 0..n {
            let value = self.value();
            self.contents.write(Pfn::new(folio.pfn().get() + i), value);
            self.pages[s][(page + i) as usize] = Some(Page { value, may_be_gone: false });
        }
        let at = self.at(page);
        self.vm.map(folio, (0, n as u32), space(s as u16), at, Access::ReadWrite).unwrap();
        self.vm.put(&self.frames, folio.pfn()).unwrap();
    }

    fn unmap(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        self.vm.unmap(&self.frames, space(s as u16), pages(self.first + page, n)).unwrap();
        self.pages[s][page as usize..(page + n) as usize].fill(None);
    }

    fn protect(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        let access = [Access::None, Access::Read, Access::ReadWrite, Access::ReadWrite]
            [self.random(4) as usize];
        let protected = self.vm.protect(space(s as u16), pages(self.first + page, n), access);
        if protected != Err(VmError::NoNodes) {
            protected.unwrap();
            self.access[s][page as usize..(page + n) as usize].fill(access);
        }
    }

    fn madvise_free(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        let range = pages(self.first + page, n);
        if self.vm.madvise_free(&self.frames, space(s as u16), range).unwrap() > 0 {
            self.saw("lazyfree");
        }
        for place in self.pages[s][page as usize..(page + n) as usize].iter_mut().flatten() {
            place.may_be_gone = true;
        }
    }

    fn pin(&mut self) {
        let (s, page) = (self.random(2) as usize, self.random(self.pages[0].len() as u64));
        let write = self.random(2) == 0;
        let at = self.at(page);
        if self.pins.len() >= 8 {
            return self.unpin();
        }
        match self.vm.pin(&self.frames, space(s as u16), at, write) {
            Ok(pfn) => {
                let place = self.pages[s][page as usize].expect("nothing was mapped there");
                assert_eq!(self.contents.read(pfn), place.value);
                let mut pin = Pin { pfn, value: place.value, written: false };
                if write {
                    pin.value = self.value();
                    pin.written = true;
                    self.contents.write(pfn, pin.value);
                    let kept = Page { value: pin.value, may_be_gone: false };
                    self.pages[s][page as usize] = Some(kept);
                    let others = self.pins.iter_mut().filter(|other| other.pfn == pfn);
                    others.for_each(|other| other.value = pin.value);
                    self.saw("written through a pin");
                }
                self.pins.push(pin);
            }
            Err(VmError::Fault(Fault::NotMapped)) => self.faulted(s, page, false, Fault::NotMapped),
            Err(VmError::Fault(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn unpin(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let i = self.random(self.pins.len() as u64) as usize;
        let pin = self.pins.swap_remove(i);
        let value = self.contents.read(pin.pfn);
        assert_eq!(value, pin.value, "a pinned frame was given to somebody else");
        self.vm.unpin(&self.frames, pin.pfn, pin.written).unwrap();
    }

    /// One random step.
    pub fn step(&mut self) {
        let (s, page) = (self.random(2) as usize, self.random(self.pages[0].len() as u64));
        match self.random(100) {
            0..30 => self.touch(s, page, false),
            30..50 => self.touch(s, page, true),
            50..74 => self.map(),
            74..77 => self.unmap(),
            77..82 => self.protect(),
            82..87 => self.madvise_free(),
            87..90 => self.pin(),
            90..93 => self.unpin(),
            93 => self.soft_dirty(),
            94..96 => self.pageout(),
            96 => self.reclaim(),
            97..99 => {
                let split = self.vm.split_deferred(&self.frames, 4).unwrap();
                *self.seen.entry("split").or_default() += split;
            }
            _ => {
                let path = UnmapPath::ALL[self.random(UnmapPath::ALL.len() as u64) as usize];
                self.vm.set_unmap_path(path);
            }
        }
    }

    fn soft_dirty(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        self.vm.clear_soft_dirty(space(s as u16), pages(self.first + page, n)).unwrap();
    }

    fn pageout(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        let range = pages(self.first + page, n);
        let freed = self.vm.madvise_pageout(&self.frames, space(s as u16), range).unwrap();
        *self.seen.entry("paged out").or_default() += freed;
    }

    pub fn reclaim(&mut self) {
        let n = 1 + self.random(64);
        let freed = self.vm.reclaim(&self.frames, n).unwrap();
        *self.seen.entry("reclaimed").or_default() += freed;
    }

    /// Every page.
    pub fn check_all(&mut self) {
        for s in 0..2 {
            for page in 0..self.pages[s].len() as u64 {
                if self.access[s][page as usize] != Access::None {
                    self.touch(s, page, false);
                }
            }
        }
    }

    /// Gives everything back.
    pub fn leave(&mut self) {
        self.check_all();
        while !self.pins.is_empty() {
            self.unpin();
        }
        let len = self.pages[0].len() as u64;
        for id in 0..2 {
            self.vm.unmap(&self.frames, space(id), pages(self.first, len)).unwrap();
            for page in 0..len {
                assert_eq!(self.vm.space(space(id)).unwrap().entry_at(self.at(page)), Entry::NONE);
            }
        }
    }
}
