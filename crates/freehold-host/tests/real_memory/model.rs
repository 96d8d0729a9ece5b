//! Random steps on real memory against a model, a million in CI: not one byte may be lost, and none
//! may be stale.
//!
//! The model is as plain as can be. Of each page it knows:
//!
//! ```text
//!   mapped        what all its 512 words hold; whether it may be gone: advised since it was last
//!                 written to
//!   not mapped    what its memory holds all the same: zeroes once reclaimed, what it was where it
//!                 could not be used, what somebody wrote there though nothing is mapped
//! ```
//!
//! Whatever takes pages away is followed by a look at every entry: what is gone must have been
//! allowed to go and not be pinned. Now and then every word of every page is compared, and the
//! kernel is asked whether each page that can be written to without a fault has a dirty entry.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::common::*;
use fastrand::Rng;
use freehold::{Freehold, Pfn, SingleCpu};
use freehold_host::Stored;
use freehold_host::freehold_vm::{Access, Fault, UnmapPath, VmError, Vpn};

/// Fewer frames than pages, so that memory is short now and then.
const FRAMES: u64 = 512;
/// Across the ends of two page tables.
const START: u64 = 500;
const PAGES: u64 = 700;
const TABLES: u64 = 3;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Held {
    value: u64,
    pfn: Pfn,
    /// What its own entry says: a page that lost the right gets it back by its own fault only.
    writable: bool,
    may_be_gone: bool,
}

/// What a page's memory holds though nothing is mapped there.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Left {
    value: u64,
    /// Zeroes would do as well: it could not be used when it was taken away.
    or_zero: bool,
}

const ZEROES: Left = Left { value: 0, or_zero: false };

#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Mapped(Held),
    Empty(Left),
}

struct Pin {
    pfn: Pfn,
    write: bool,
    /// Where it is mapped still.
    place: Option<(usize, u64)>,
}

struct Actor {
    vm: Machine,
    frames: Freehold<'static, SingleCpu>,
    pages: [Vec<Page>; 2],
    access: [Vec<Access>; 2],
    pins: Vec<Pin>,
    file: File,
    pagemap: Option<File>,
    rng: Rng,
    next: u64,
    /// What has happened, by kind: so that the test can say that everything did.
    seen: BTreeMap<&'static str, u64>,
}

fn at(page: u64) -> Vpn {
    vpn(START + page)
}

impl Actor {
    fn new(vm: Machine, seed: u64) -> Self {
        for id in 0..2 {
            vm.add_vma(space(id), pages(START, PAGES), RW).unwrap();
        }
        Self {
            vm,
            frames: frames(FRAMES, 1, SingleCpu),
            pages: std::array::from_fn(|_| vec![Page::Empty(ZEROES); PAGES as usize]),
            access: std::array::from_fn(|_| vec![Access::ReadWrite; PAGES as usize]),
            pins: Vec::new(),
            file: rustix::fs::memfd_create("stamps", rustix::fs::MemfdFlags::CLOEXEC)
                .unwrap()
                .into(),
            pagemap: File::open("/proc/self/pagemap").ok(),
            rng: Rng::with_seed(seed),
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

    /// A random range: mostly short.
    fn range(&mut self) -> (u64, u64) {
        let most = [1, 4, 16, 64][self.random(4) as usize];
        let n = 1 + self.random(most);
        (self.random(PAGES - n), n)
    }

    /// A value that nothing was ever stamped with, and that says where it belongs.
    fn value(&mut self, s: usize, page: u64) -> u64 {
        self.next += 1;
        (s as u64 + 1) << 60 | page << 40 | self.next
    }

    fn page(&mut self, s: usize, page: u64) -> &mut Page {
        &mut self.pages[s][page as usize]
    }

    /// Compares all of a page, and its entry, with the model.
    fn check(&mut self, s: usize, page: u64) -> u64 {
        let found = read_stamp(&self.vm, space(s as u16), at(page)).unwrap();
        let entry = self.vm.mmu().entry(space(s as u16), at(page));
        match *self.page(s, page) {
            Page::Mapped(held) => {
                assert_eq!(
                    found, held.value,
                    "page {page} of space {s} holds {found:#x}, not {held:#x?}"
                );
                assert!(entry.is_mapped(), "page {page} of space {s} is not mapped");
                assert_eq!(entry.pfn(), held.pfn);
                let access = self.access[s][page as usize];
                assert_eq!(entry.is_present(), access != Access::None);
                assert_eq!(entry.is_writable(), held.writable, "page {page} of space {s}");
            }
            Page::Empty(left) => {
                let right = found == left.value || left.or_zero && found == 0;
                assert!(
                    right,
                    "page {page} of space {s}, not mapped, holds {found:#x}, not {left:x?}"
                );
                assert!(!entry.is_mapped(), "page {page} of space {s} is mapped");
            }
        }
        found
    }

    /// Makes a page writable as the program's fault handler would; whether it is.
    fn allow_write(&mut self, s: usize, page: u64) -> bool {
        let id = space(s as u16);
        if self.vm.mmu().entry(id, at(page)).is_writable() {
            return true;
        }
        match self.vm.write_fault(id, at(page)) {
            Ok(()) => {
                self.saw("made writable");
                if let Page::Mapped(held) = self.page(s, page) {
                    held.writable = true;
                }
                true
            }
            Err(VmError::Fault(Fault::AccessDenied)) => {
                assert_ne!(self.access[s][page as usize], Access::ReadWrite);
                self.saw("write refused");
                false
            }
            other => panic!("{other:?}"),
        }
    }

    /// Writes all of a page: by stores, or by a system call.
    fn store(&mut self, s: usize, page: u64, value: u64) {
        let id = space(s as u16);
        if self.vm.mmu().sees_system_calls() && self.random(16) == 0 {
            let stamp = stamped(value).map(u64::to_ne_bytes);
            self.file.write_all_at(stamp.as_flattened(), 0).unwrap();
            let to = self.vm.mmu().pointer(id, at(page)).unwrap();
            // SAFETY: all of a page that only this thread uses.
            let read = unsafe { libc::pread(self.file.as_raw_fd(), to.as_ptr().cast(), 4096, 0) };
            assert_eq!(read, 4096, "{}", std::io::Error::last_os_error());
            self.saw("written by a system call");
        } else {
            stamp(&self.vm, id, at(page), value);
        }
    }

    fn write(&mut self, s: usize, page: u64) {
        self.check(s, page);
        let value = self.value(s, page);
        match *self.page(s, page) {
            Page::Empty(_) => {
                // Mostly nobody does.
                if self.random(8) == 0 {
                    self.store(s, page, value);
                    *self.page(s, page) = Page::Empty(Left { value, or_zero: false });
                    assert_eq!(self.vm.mmu().stored(space(s as u16), at(page)), Stored::Gone);
                    self.saw("written where nothing is");
                }
            }
            Page::Mapped(held) => {
                if self.allow_write(s, page) {
                    self.store(s, page, value);
                    if held.may_be_gone {
                        self.saw("written again");
                    }
                    let may_be_gone = false;
                    *self.page(s, page) =
                        Page::Mapped(Held { value, may_be_gone, writable: true, ..held });
                    assert_eq!(self.vm.mmu().stored(space(s as u16), at(page)), Stored::Kept);
                }
            }
        }
    }

    fn map(&mut self) {
        let s = self.random(2) as usize;
        let order = order([0, 0, 1, 2, 3, 4, 4, 4, 5][self.random(9) as usize]);
        let n = order.frames();
        let page = self.random(PAGES - n);
        let places = page as usize..(page + n) as usize;
        let free = self.pages[s][places.clone()].iter().all(|page| matches!(page, Page::Empty(_)));
        if !free || self.access[s][places].iter().any(|access| *access != Access::ReadWrite) {
            return;
        }
        let folio = match self.vm.folio_alloc(&self.frames, order) {
            Ok(folio) => folio,
            Err(VmError::Alloc(_)) => return self.saw("no memory"),
            Err(error) => panic!("{error}"),
        };
        let first = folio.pfn().get();
        let pinned = self.pins.iter().find(|pin| (first..first + n).contains(&pin.pfn.get()));
        assert!(pinned.is_none(), "a pinned frame is given to somebody else");
        let access = if self.random(8) == 0 { Access::Read } else { Access::ReadWrite };
        self.vm.map(folio, (0, n as u32), space(s as u16), at(page), access).unwrap();
        self.vm.put(&self.frames, folio.pfn()).unwrap();
        for i in 0..n {
            // Mapping changes nothing of what is there.
            let Page::Empty(left) = *self.page(s, page + i) else { unreachable!() };
            let found = read_stamp(&self.vm, space(s as u16), at(page + i)).unwrap();
            assert!(
                found == left.value || left.or_zero && found == 0,
                "page {}: {found:#x}, {left:x?}",
                page + i
            );
            let pfn = Pfn::new(first + i);
            let writable = access == Access::ReadWrite;
            let mut held = Held { value: found, pfn, writable, may_be_gone: false };
            if writable {
                held.value = self.value(s, page + i);
                self.store(s, page + i, held.value);
            }
            *self.page(s, page + i) = Page::Mapped(held);
        }
        self.saw("mapped");
    }

    /// Notes that a page was taken away.
    fn gone(&mut self, s: usize, page: u64) {
        if let Page::Mapped(held) = *self.page(s, page) {
            let usable = self.access[s][page as usize] != Access::None;
            let left = if usable { ZEROES } else { Left { value: held.value, or_zero: true } };
            *self.page(s, page) = Page::Empty(left);
        }
    }

    fn unmap(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        self.vm.unmap(&self.frames, space(s as u16), pages(START + page, n)).unwrap();
        (page..page + n).for_each(|page| self.gone(s, page));
        let gone =
            |pin: &Pin| pin.place.is_some_and(|(t, p)| t == s && (page..page + n).contains(&p));
        let mut unmapped = 0;
        for pin in self.pins.iter_mut().filter(|pin| gone(pin)) {
            pin.place = None;
            unmapped += 1;
        }
        *self.seen.entry("unmapped while pinned").or_default() += unmapped;
    }

    fn protect(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        let access = match self.random(12) {
            0 => Access::None,
            1 | 2 => Access::Read,
            _ => Access::ReadWrite,
        };
        let protected = self.vm.protect(space(s as u16), pages(START + page, n), access);
        if protected != Err(VmError::NoNodes) {
            protected.unwrap();
            self.access[s][page as usize..(page + n) as usize].fill(access);
            if access != Access::ReadWrite {
                self.not_writable(s, page, n);
            }
        }
    }

    fn not_writable(&mut self, s: usize, page: u64, n: u64) {
        for page in &mut self.pages[s][page as usize..(page + n) as usize] {
            if let Page::Mapped(held) = page {
                held.writable = false;
            }
        }
    }

    fn clear_soft_dirty(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        self.vm.clear_soft_dirty(space(s as u16), pages(START + page, n)).unwrap();
        self.not_writable(s, page, n);
    }

    fn madvise_free(&mut self) {
        let s = self.random(2) as usize;
        let (page, n) = self.range();
        let done =
            self.vm.madvise_free(&self.frames, space(s as u16), pages(START + page, n)).unwrap();
        *self.seen.entry("lazyfree").or_default() += done;
        for page in &mut self.pages[s][page as usize..(page + n) as usize] {
            if let Page::Mapped(held) = page {
                held.may_be_gone = true;
            }
        }
    }

    fn pin(&mut self) {
        if self.pins.len() >= 8 {
            return self.unpin();
        }
        let (s, page, write) = (self.random(2) as usize, self.random(PAGES), self.random(2) == 0);
        let entry = self.vm.mmu().entry(space(s as u16), at(page));
        let pinned = self.vm.pin(&self.frames, space(s as u16), at(page), write);
        match (*self.page(s, page), self.access[s][page as usize]) {
            (Page::Empty(_), _) => assert_eq!(pinned, Err(VmError::Fault(Fault::NotMapped))),
            (Page::Mapped(_), Access::None) => {
                assert_eq!(pinned, Err(VmError::Fault(Fault::AccessDenied)))
            }
            (Page::Mapped(_), _) if write && !entry.is_writable() => {
                assert_eq!(pinned, Err(VmError::Fault(Fault::WriteProtected)));
            }
            (Page::Mapped(held), _) => {
                assert_eq!(pinned, Ok(held.pfn));
                self.pins.push(Pin { pfn: held.pfn, write, place: Some((s, page)) });
                self.saw("pinned");
            }
        }
    }

    fn unpin(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let i = self.random(self.pins.len() as u64) as usize;
        let pin = self.pins.swap_remove(i);
        if let (Some((s, page)), true) = (pin.place, pin.write) {
            // Who pinned it writes at the last moment, if still allowed.
            if self.vm.mmu().entry(space(s as u16), at(page)).is_writable() && self.random(2) == 0 {
                let value = self.value(s, page);
                self.store(s, page, value);
                if let Page::Mapped(held) = self.page(s, page) {
                    held.value = value;
                }
                self.saw("written while pinned");
            }
            // Said to be written to, it stays.
            if let Page::Mapped(held) = self.page(s, page) {
                held.may_be_gone = false;
            }
        }
        self.vm.unpin(&self.frames, pin.pfn, pin.write).unwrap();
    }

    /// Runs something that takes pages away, and looks at every entry afterwards.
    fn taking(&mut self, what: &'static str, take: impl FnOnce(&Self) -> u64) {
        let pinned: Vec<_> =
            self.pins.iter().map(|pin| self.vm.folio_of(pin.pfn).unwrap()).collect();
        let freed = take(self);
        *self.seen.entry(what).or_default() += freed;
        let mut dropped = 0;
        for s in 0..2 {
            for page in 0..PAGES {
                let Page::Mapped(held) = *self.page(s, page) else { continue };
                if self.vm.mmu().entry(space(s as u16), at(page)).is_mapped() {
                    continue;
                }
                assert!(held.may_be_gone, "page {page} of space {s} is lost: {held:x?}");
                let folio = |(folio, pages): &(freehold_host::freehold_vm::Folio, u64)| {
                    (folio.pfn().get()..folio.pfn().get() + pages).contains(&held.pfn.get())
                };
                assert!(
                    !pinned.iter().any(folio),
                    "page {page} of space {s} is gone, but its folio is pinned"
                );
                self.gone(s, page);
                dropped += 1;
                // What is gone reads as zero, now.
                self.check(s, page);
            }
        }
        *self.seen.entry("dropped").or_default() += dropped;
        assert!(dropped > 0 || freed == 0, "{freed} frames of nobody");
    }

    fn step(&mut self) {
        let (s, page) = (self.random(2) as usize, self.random(PAGES));
        match self.random(100) {
            0..36 => _ = self.check(s, page),
            36..56 => self.write(s, page),
            56..70 => self.map(),
            70..72 => self.unmap(),
            72..76 => self.protect(),
            76..84 => self.madvise_free(),
            84..91 => self.pin(),
            91 => self.unpin(),
            92 => self.clear_soft_dirty(),
            93..95 => {
                let (page, n) = self.range();
                self.taking("paged out", |this| {
                    this.vm
                        .madvise_pageout(&this.frames, space(s as u16), pages(START + page, n))
                        .unwrap()
                });
            }
            95 => {
                let n = 1 + self.random(32);
                self.taking("reclaimed", |this| this.vm.reclaim(&this.frames, n).unwrap());
            }
            96..99 => {
                let split = self.vm.split_deferred(&self.frames, 4).unwrap();
                *self.seen.entry("split").or_default() += split;
            }
            _ => {
                let path = [UnmapPath::PageByPage, UnmapPath::Batched][self.random(2) as usize];
                self.vm.set_unmap_path(path);
            }
        }
    }

    /// Every page.
    fn check_all(&mut self) {
        self.frames.validate().unwrap();
        for s in 0..2 {
            for page in 0..PAGES {
                self.check(s, page);
                self.check_protection(s, page);
            }
        }
    }

    /// The rule that everything rests on: a page that can be written to without a fault has a dirty
    /// entry.
    fn check_protection(&mut self, s: usize, page: u64) {
        const PRESENT: u64 = 1 << 63;
        const WRITE_PROTECTED: u64 = 1 << 57;
        let id = space(s as u16);
        let entry = self.vm.mmu().entry(id, at(page));
        let Some(pagemap) = self.pagemap.as_ref().filter(|_| entry.is_mapped()) else { return };
        let address = self.vm.mmu().pointer(id, at(page)).unwrap().as_ptr().addr() as u64;
        let mut bytes = [0; 8];
        pagemap.read_exact_at(&mut bytes, address / 4096 * 8).unwrap();
        let bits = u64::from_ne_bytes(bytes);
        if bits & PRESENT != 0 && bits & WRITE_PROTECTED == 0 {
            assert!(
                entry.is_writable() && entry.is_dirty(),
                "page {page} of space {s} can be written to: {entry:?}"
            );
            self.saw("seen writable");
        } else {
            self.saw("seen protected");
        }
    }

    /// Gives everything back.
    fn leave(&mut self) {
        self.check_all();
        while !self.pins.is_empty() {
            self.unpin();
        }
        for s in 0..2 {
            self.vm.unmap(&self.frames, space(s as u16), pages(START, PAGES)).unwrap();
            (0..PAGES).for_each(|page| self.gone(s, page));
        }
        self.check_all();
        assert_all_free(&self.frames);
    }
}

#[test]
fn random_steps_on_real_memory_lose_nothing() {
    lose_nothing("random_steps_on_real_memory_lose_nothing", 200_000);
}

#[test]
#[ignore = "long: cargo test -p freehold-host --test real_memory -- --ignored"]
fn a_million_random_steps_on_real_memory_lose_nothing() {
    lose_nothing("a_million_random_steps_on_real_memory_lose_nothing", 1_000_000);
}

/// So many steps, in which everything happens more than once in ten thousand.
fn lose_nothing(test: &str, steps: u64) {
    let Some(vm) = machine_or_skip(test, FRAMES, 2, TABLES) else { return };
    let often = steps / 10_000;
    let mut actor = Actor::new(vm, 0);
    for step in 0..steps {
        actor.step();
        if step % 20_000 == 0 {
            actor.check_all();
        }
    }
    actor.leave();
    // Everything has happened, many times.
    for what in [
        "mapped",
        "no memory",
        "lazyfree",
        "written again",
        "dropped",
        "reclaimed",
        "paged out",
        "made writable",
        "write refused",
        "pinned",
        "written while pinned",
        "unmapped while pinned",
        "written where nothing is",
        "split",
    ] {
        assert!(actor.seen.get(what).is_some_and(|n| *n > often), "{what}: {:?}", actor.seen);
    }
    if actor.pagemap.is_some() {
        assert!(
            actor.seen["seen protected"] > often && actor.seen["seen writable"] > often,
            "{:?}",
            actor.seen
        );
    }
    let (stats, host) = (actor.vm.stats(), actor.vm.mmu().stats());
    assert!(
        stats.redirtied > often && stats.kept_busy > often && stats.batches_restored > often,
        "{stats:?}"
    );
    assert_eq!(stats.folios, stats.folios_freed);
    assert!(host.write_faults > often && host.pages_released > often, "{host:?}");
    // The rarest of all.
    assert!(host.late_writes > 0 || steps < 1_000_000, "{host:?}");
    assert_eq!((host.refused_writes, host.release_refused), (0, 0));
}
