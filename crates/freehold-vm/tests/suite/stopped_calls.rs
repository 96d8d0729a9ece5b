//! What others do in the middle of a call: each test stops a call at one point and lets somebody
//! else run there, or begin to, where they have to wait for the call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use crate::common::*;
use freehold::{FrameRange, Freehold, Order, Pfn, Threads};
use freehold_vm::{
    Access, Entry, Fault, Flush, MapError, Mmu, Slots, SoftMmu, SpaceId, UnmapPath, Vm, VmError,
    Vpn, VpnRange,
};

/// Where a call is stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Point {
    Load,
    Cleared,
    MapEntries,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Two CPUs in software. Once, at a point, it runs something else.
#[derive(Default)]
struct Stopping {
    soft: SoftMmu<2>,
    hook: Mutex<Option<(Point, Hook)>>,
    waits: AtomicU64,
    /// A page that shows a frame of which there is no record, as a device's memory.
    foreign: Mutex<Option<Vpn>>,
}

impl Stopping {
    fn at(&self, point: Point, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((point, Box::new(hook)));
    }
    fn reached(&self, point: Point) {
        let hook = self.hook.lock().unwrap().take_if(|(at, _)| *at == point);
        if let Some((_, hook)) = hook {
            hook();
        }
    }
    fn is_done(&self) -> bool {
        self.hook.lock().unwrap().is_none()
    }
}

impl Mmu for Stopping {
    fn map(
        &self,
        space: SpaceId,
        at: Vpn,
        frames: FrameRange,
        access: Access,
        leaf: Order,
    ) -> Result<(), MapError> {
        self.soft.map(space, at, frames, access, leaf)
    }
    fn unmap(&self, space: SpaceId, range: VpnRange) {
        self.soft.unmap(space, range);
    }
    fn flush(&self, batch: &[Flush]) {
        self.soft.flush(batch);
    }
    fn relax(&self) {
        self.waits.fetch_add(1, SeqCst);
        std::thread::yield_now();
    }
    fn load(&self, slots: Slots<'_>) -> Entry {
        self.reached(Point::Load);
        if *self.foreign.lock().unwrap() == Some(slots.first()) {
            return Entry::new(Pfn::new(FIRST + 1000 * MIB), Access::Read);
        }
        slots.entries()[0].load()
    }
    fn map_entries(&self, slots: Slots<'_>, first: Entry) -> Result<(), MapError> {
        self.reached(Point::MapEntries);
        self.soft.map_entries(slots, first)
    }
    fn get_and_clear(&self, slots: Slots<'_>) -> Entry {
        let merged = self.soft.get_and_clear(slots);
        self.reached(Point::Cleared);
        merged
    }
}

type World = (&'static Freehold<'static, Threads>, &'static Vm<'static, Stopping>);

const A: SpaceId = SpaceId::new(0);
const B: SpaceId = SpaceId::new(1);

/// Two address spaces of 1024 pages, all to be read and written.
fn world(mappings: usize) -> World {
    let vm = Box::leak(Box::new(vm(Stopping::default(), 4, 2, 1024, mappings)));
    for id in [A, B] {
        vm.add_vma(id, pages(0, 1024), RW).unwrap();
    }
    (Box::leak(Box::new(frames(4, 1))), vm)
}

fn entry(vm: &Vm<'_, Stopping>, id: SpaceId, page: u64) -> Entry {
    vm.space(id).unwrap().entry_at(vpn(page))
}

/// Returns when the other has ended, or waits for a lock.
fn beside<T: Send + 'static>(
    vm: &'static Vm<'static, Stopping>,
    other: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let before = vm.mmu().waits.load(SeqCst);
    let other = std::thread::spawn(other);
    while !other.is_finished() && vm.mmu().waits.load(SeqCst) == before {
        std::thread::yield_now();
    }
    other
}

fn leave((fh, vm): World) {
    assert!(vm.mmu().is_done(), "the call never came to where it was to be stopped");
    for id in [A, B] {
        vm.unmap(fh, id, pages(0, 1024)).unwrap();
    }
    assert_eq!(vm.queued(), (0, 0));
    assert_all_free(fh);
}

#[test]
fn no_page_becomes_writable_after_its_vma_has_become_read_only() {
    let (fh, vm) = world(16);
    vm.map_new(fh, A, vpn(0), Order::ZERO, Access::Read).unwrap();
    // The VMA has been looked at, the entry not yet: who protects the page waits for its table.
    let protect = std::sync::Arc::new(Mutex::new(None));
    let other = protect.clone();
    vm.mmu().at(Point::Load, move || {
        let protect = move || vm.protect(A, pages(0, 1024), Access::Read);
        *other.lock().unwrap() = Some(beside(vm, protect));
    });
    assert_eq!(vm.write_fault(A, vpn(0)), Ok(()));
    assert_eq!(protect.lock().unwrap().take().unwrap().join().unwrap(), Ok(()));
    assert!(entry(vm, A, 0).is_mapped() && !entry(vm, A, 0).is_writable());
    leave((fh, vm));
}

#[test]
fn no_page_appears_where_its_vma_has_gone_or_allows_less() {
    let changes: [(fn(World), VmError); 2] = [
        (
            |(fh, vm)| vm.remove_vma(fh, A, pages(512, 512)).unwrap(),
            VmError::NoVma { vpn: vpn(512) },
        ),
        (
            |(_, vm)| vm.protect(A, pages(512, 512), Access::Read).unwrap(),
            VmError::Fault(Fault::AccessDenied),
        ),
    ];
    for (change, error) in changes {
        let (fh, vm) = world(16);
        let folio = vm.folio_alloc(fh, order(4)).unwrap();
        // The first table is being filled; the second is next.
        vm.mmu().at(Point::MapEntries, move || change((fh, vm)));
        assert_eq!(vm.map(folio, (0, 16), A, vpn(505), Access::ReadWrite), Err(error));
        assert!((500..530).all(|page| entry(vm, A, page) == Entry::NONE));
        vm.put(fh, folio.pfn()).unwrap();
        leave((fh, vm));
    }
}

#[test]
fn what_an_unmap_found_dirty_is_not_reclaimed_elsewhere() {
    for path in [UnmapPath::Batched, UnmapPath::PageByPage] {
        let (fh, vm) = world(16);
        vm.set_unmap_path(path);
        let folio = vm.map_new(fh, A, vpn(0), order(2), Access::ReadWrite).unwrap();
        assert_eq!(vm.madvise_free(fh, A, pages(0, 4)), Ok(4));
        vm.map(folio, (0, 4), B, vpn(0), Access::Read).unwrap();
        vm.touch(A, vpn(2), true).unwrap();
        let reclaim = std::sync::Arc::new(Mutex::new(None));
        let other = reclaim.clone();
        // The entries are gone, and what they said is not noted yet.
        vm.mmu().at(Point::Cleared, move || {
            *other.lock().unwrap() =
                Some(beside(vm, move || vm.madvise_pageout(fh, B, pages(0, 4))));
        });
        assert_eq!(vm.unmap(fh, A, pages(0, 4)), Ok(4));
        let reclaim = reclaim.lock().unwrap().take().unwrap();
        assert_eq!(reclaim.join().unwrap(), Ok(0));
        assert_eq!(vm.madvise_pageout(fh, B, pages(0, 4)), Ok(0));
        assert!(
            (0..4).all(|page| entry(vm, B, page).is_mapped()),
            "{path:?}: what was written is lost"
        );
        leave((fh, vm));
    }
}

#[test]
fn what_pageout_has_reclaimed_goes_home_though_a_page_behind_it_is_refused() {
    let (fh, vm) = world(16);
    for page in [0, 4] {
        vm.map_new(fh, A, vpn(page), order(2), Access::ReadWrite).unwrap();
    }
    assert_eq!(vm.madvise_free(fh, A, pages(0, 4)), Ok(4));
    *vm.mmu().foreign.lock().unwrap() = Some(vpn(4));
    let refused = vm.madvise_pageout(fh, A, pages(0, 8));
    assert_eq!(refused, Err(VmError::NotAFolio { pfn: Pfn::new(FIRST + 1000 * MIB) }));
    *vm.mmu().foreign.lock().unwrap() = None;
    assert_eq!(vm.stats().reclaimed_frames, 4);
    leave((fh, vm));
}
