//! What others do in the middle of a call: each test stops a call at one point and lets somebody
//! else run there, or begin to, where they have to wait for the call.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

use crate::common::*;
use freehold::{AllocError, FrameRange, FreeError, Freehold, Order, Pfn, Request, Threads};
use freehold_vm::{
    Access, Entry, Fault, Flush, Frames, MapError, Mmu, Slots, SoftMmu, SpaceId, UnmapPath, Vm,
    VmError, Vpn, VpnRange, WriteFault,
};

/// Where a call is stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Point {
    Load,
    ClearBits,
    Cleared,
    MapEntries,
    BeforeFlush,
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
        self.reached(Point::BeforeFlush);
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
    fn clear_bits(&self, slots: Slots<'_>, bits: Entry) -> Entry {
        self.reached(Point::ClearBits);
        self.soft.clear_bits(slots, bits)
    }
}

/// A page allocator that runs something else before it hands out the next frames, or takes some.
struct Slow(&'static Freehold<'static, Threads>, Mutex<Option<Hook>>);

impl Frames for Slow {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        let hook = self.1.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Frames::alloc(&self.0, request)
    }
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        Frames::alloc_bulk(&self.0, request, out)
    }
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        Frames::free(&self.0, pfn, order)
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        let hook = self.1.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        Frames::free_range(&self.0, range)
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

/// A folio in both spaces from page 0 on, written to in `A` and shared then.
fn shared(order_of: u8, mappings: usize) -> World {
    let (fh, vm) = world(mappings);
    vm.map_new(fh, A, vpn(0), order(order_of), Access::ReadWrite).unwrap();
    vm.touch(A, vpn(0), true).unwrap();
    vm.share(fh, A, pages(0, 1 << order_of), B, vpn(0)).unwrap();
    (fh, vm)
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
fn two_write_faults_on_one_page_make_one_copy() {
    let (fh, vm) = shared(0, 16);
    let old = entry(vm, A, 0).pfn();
    let (mut first, mut copies) = (None, Vec::new());
    let second = vm.write_fault(fh, A, vpn(0), |from, to| {
        copies.push((from, to));
        // After what this one has copied.
        first = Some(beside(vm, move || {
            let first = vm.write_fault(fh, A, vpn(0), |_, _| ());
            (first, vm.touch(A, vpn(0), true))
        }));
    });
    let (first, written) = first.unwrap().join().unwrap();
    assert_eq!(copies, [(old, entry(vm, A, 0).pfn())]);
    assert_eq!(second, Ok(WriteFault::Copied(copies[0].1)));
    assert_eq!(first, Ok(WriteFault::Spurious));
    assert_eq!(
        written,
        Ok(copies[0].1),
        "what was written went to a frame that the page does not show"
    );
    assert_eq!(entry(vm, B, 0).pfn(), old);
    leave((fh, vm));
}

#[test]
fn a_page_that_is_unmapped_while_it_is_copied_stays_so() {
    let (fh, vm) = shared(0, 16);
    let mut unmapping = None;
    let fault = vm.write_fault(fh, A, vpn(0), |_, _| {
        // It has to wait for the folio, but not before it has taken the entry.
        unmapping = Some(beside(vm, move || vm.unmap(fh, A, pages(0, 1))));
    });
    assert_eq!(fault, Ok(WriteFault::Spurious));
    assert_eq!(unmapping.unwrap().join().unwrap(), Ok(1));
    assert_eq!(entry(vm, A, 0), Entry::NONE);
    leave((fh, vm));
}

#[test]
fn a_page_that_is_being_exchanged_is_not_gone() {
    let (fh, vm) = shared(0, 16);
    let found = std::sync::Arc::new(Mutex::new(Vec::new()));
    let others = found.clone();
    // The old entry has been taken.
    vm.mmu().at(Point::BeforeFlush, move || {
        assert_eq!(entry(vm, A, 0), Entry::NONE);
        others.lock().unwrap().push(beside(vm, move || vm.touch(A, vpn(0), false)));
        others.lock().unwrap().push(beside(vm, move || vm.pin(fh, A, vpn(0), true)));
        let settled = move || vm.settled(A, vpn(0)).map(|entry| entry.pfn());
        others.lock().unwrap().push(beside(vm, settled));
    });
    let fault = vm.write_fault(fh, A, vpn(0), |_, _| ());
    let Ok(WriteFault::Copied(copy)) = fault else { panic!("{fault:?}") };
    for found in found.lock().unwrap().drain(..) {
        assert_eq!(found.join().unwrap(), Ok(copy));
    }
    vm.unpin(fh, copy, true).unwrap();
    leave((fh, vm));
}

#[test]
fn a_write_fault_that_cannot_be_resolved_leaves_the_page() {
    // One record for each space, and each of them for two pages.
    let (fh, vm) = shared(1, 2);
    let old = entry(vm, A, 0);
    assert_eq!(vm.write_fault(fh, A, vpn(0), |_, _| ()), Err(VmError::NoNodes));
    assert_eq!(entry(vm, A, 0), old);
    leave((fh, vm));

    let (fh, vm) = shared(1, 16);
    let old = entry(vm, A, 0);
    let protect = move || vm.protect(A, pages(0, 1), Access::Read).unwrap();
    let slow = Slow(fh, Mutex::new(Some(Box::new(protect))));
    let denied = Err(VmError::Fault(Fault::AccessDenied));
    assert_eq!(vm.write_fault(&slow, A, vpn(0), |_, _| panic!("for nothing")), denied);
    assert_eq!(entry(vm, A, 0), old);
    // Once more, after it was copied.
    vm.protect(A, pages(0, 1), Access::ReadWrite).unwrap();
    let protect = |_, _| vm.protect(A, pages(0, 1), Access::Read).unwrap();
    assert_eq!(vm.write_fault(fh, A, vpn(0), protect), denied);
    assert_eq!(entry(vm, A, 0), old);
    assert_eq!(vm.folio_state(old.pfn()).map(|state| (state.references, state.maps)), Some((4, 4)));
    leave((fh, vm));
}

#[test]
fn no_page_becomes_writable_after_its_vma_has_become_read_only() {
    let (fh, vm) = world(16);
    vm.map_new(fh, A, vpn(0), Order::ZERO, Access::Read).unwrap();
    // The VMA has been looked at, the entry not yet.
    vm.mmu().at(Point::Load, move || vm.protect(A, pages(0, 1024), Access::Read).unwrap());
    let denied = Err(VmError::Fault(Fault::AccessDenied));
    assert_eq!(vm.write_fault(fh, A, vpn(0), |_, _| ()), denied);
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
fn a_folio_that_is_pinned_while_it_is_being_shared_is_not() {
    let (fh, vm) = world(16);
    let folio = vm.map_new(fh, A, vpn(0), order(2), Access::ReadWrite).unwrap();
    // The references have been counted; the entries can be written through as yet.
    vm.mmu().at(Point::ClearBits, move || assert!(vm.pin(fh, A, vpn(1), true).is_ok()));
    assert_eq!(vm.share(fh, A, pages(0, 4), B, vpn(0)), Err(VmError::Busy { pfn: folio.pfn() }));
    for page in 0..4 {
        assert!(entry(vm, A, page).is_writable(), "as it was");
        assert_eq!(entry(vm, B, page), Entry::NONE);
    }
    vm.unpin(fh, entry(vm, A, 1).pfn(), true).unwrap();
    vm.share(fh, A, pages(0, 4), B, vpn(0)).unwrap();
    leave((fh, vm));
}

#[test]
fn nobody_goes_on_writing_to_what_is_being_copied() {
    let change: [fn(World); 2] = [
        |(fh, vm)| vm.share(fh, A, pages(0, 1), B, vpn(8)).unwrap(),
        |(_, vm)| vm.clear_soft_dirty(A, pages(0, 1)).unwrap(),
    ];
    for change in change {
        let (fh, vm) = world(16);
        // In both spaces, so that it is copied; writable in the first.
        let folio = vm.map_new(fh, A, vpn(0), Order::ZERO, Access::ReadWrite).unwrap();
        vm.map(folio, (0, 1), B, vpn(0), Access::Read).unwrap();
        let write =
            move |cpu| vm.mmu().soft.access(cpu, vm.space(A).unwrap(), vpn(0), true, |pfn| pfn);
        assert_eq!(write(1), Ok(folio.pfn()));
        // Write-protected, but CPU 1 has not been told.
        vm.mmu().at(Point::BeforeFlush, move || {
            let mut written = None;
            let fault = vm.write_fault(fh, A, vpn(0), |_, _| written = Some(write(1)));
            assert!(matches!(fault, Ok(WriteFault::Copied(_))), "{fault:?}");
            assert_eq!(
                written,
                Some(Err(Fault::WriteProtected)),
                "written to the old frame after it was copied"
            );
        });
        change((fh, vm));
        leave((fh, vm));
    }
}

#[test]
fn what_an_unmap_found_dirty_is_not_reclaimed_elsewhere() {
    for path in [UnmapPath::Batched, UnmapPath::PageByPage, UnmapPath::PageByPageDeferred] {
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

/// A call that says that a folio is bad tells of the folio as it is when the call comes back: whole
/// before a split, and its first frame after one.
#[test]
fn a_folio_that_is_poisoned_while_it_is_split_is_not_handed_back() {
    let (fh, vm) = world(16);
    let folio = vm.map_new(fh, A, vpn(0), order(3), Access::ReadWrite).unwrap();
    // The last four are shown by nothing, so that splitting frees them.
    vm.unmap(fh, A, pages(4, 4)).unwrap();
    assert_eq!(vm.deferred_take(), Some(folio));
    let poisoning = std::sync::Arc::new(Mutex::new(None));
    let other = poisoning.clone();
    let hook: Hook = Box::new(move || {
        let poison = move || {
            vm.poison(folio).unwrap();
            vm.folio_state(folio.pfn()).unwrap().order
        };
        *other.lock().unwrap() = Some(beside(vm, poison));
    });
    let slow = Slow(fh, Mutex::new(Some(hook)));
    assert_eq!(vm.deferred_split(&slow, folio), Ok(true));
    let poisoned = poisoning.lock().unwrap().take().unwrap().join().unwrap();
    vm.unmap(fh, A, pages(0, 1024)).unwrap();
    fh.drain_all();
    let stats = fh.zone_stats(0).unwrap();
    assert_eq!(stats.managed - stats.free, poisoned.frames(), "never to be used again");
}
