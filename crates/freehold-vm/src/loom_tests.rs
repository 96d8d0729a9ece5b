//! Every interleaving of reclaim with those who use the folio meanwhile, run by loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p freehold-vm --lib --release loom_`.
//!
//! The models are the real calls on one real folio. Loom explores every schedule with at most
//! [`PREEMPTIONS`] preemptions (`LOOM_MAX_PREEMPTIONS` sets another number) and every value that
//! the orderings permit each load to see. The
//! folio's contents are a cell that loom watches: whoever may use them does, and so does the
//! allocator when it gets the frame back; if nothing orders the two, loom says so.

use std::io::Write as _;
use std::vec::Vec;

use freehold::{AllocError, FrameRange, FreeError, Order, Pfn, Request};
use loom::sync::Arc;
use loom::thread;

use crate::primitive::{AtomicU32, Ordering};
use crate::{
    Access, Entry, Frame, Frames, IntervalNode, Mapping, PageTable, SoftMmu, Space, SpaceId,
    UnmapPath, Vm, VmError, Vma, Vpn, VpnRange,
};

const PREEMPTIONS: usize = 3;
const SPACE: SpaceId = SpaceId::new(0);
const PAGE: Vpn = Vpn::new(1);
const FOLIO: crate::Folio = crate::Folio(Pfn::new(0));

/// So many from [`PAGE`] on.
fn pages(n: u64) -> VpnRange {
    VpnRange::new(PAGE, n).unwrap()
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS));
    builder.max_branches = 100_000;
    let begun = std::time::Instant::now();
    builder.check(f);
    if builder.max_duration.is_some_and(|most| begun.elapsed() >= most) {
        // Past the harness, which keeps what passing tests print; on a line of its own.
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {name} beyond LOOM_MAX_DURATION");
    }
}

/// Two frames, handed out once each.
struct Memory {
    contents: [loom::cell::UnsafeCell<u8>; 2],
    freed: [AtomicU32; 2],
    next: AtomicU32,
}

impl Memory {
    fn use_frame(&self, pfn: Pfn) {
        self.contents[pfn.get() as usize].with_mut(|_| ());
    }
    fn freed(&self) -> [u32; 2] {
        self.freed.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
}

impl Frames for Memory {
    fn alloc(&self, _: Request) -> Result<Pfn, AllocError> {
        Ok(Pfn::new(self.next.fetch_add(1, Ordering::Relaxed).into()))
    }
    fn alloc_bulk(&self, _: Request, _: &mut [Pfn]) -> Result<usize, AllocError> {
        unreachable!("folios are allocated in one piece")
    }
    fn free(&self, _: Pfn, _: Order) -> Result<(), FreeError> {
        unreachable!("folios are freed as ranges")
    }
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        for pfn in range.start.get()..range.end.get() {
            self.use_frame(Pfn::new(pfn));
            assert_eq!(self.freed[pfn as usize].fetch_add(1, Ordering::Relaxed), 0, "freed twice");
        }
        Ok(())
    }
}

/// A lazyfree folio, mapped from [`PAGE`] on.
struct World {
    vm: Vm<'static, SoftMmu<1>>,
    memory: Memory,
    pinned: AtomicU32,
}

fn leak<T>(n: usize, make: impl Fn() -> T) -> &'static mut [T] {
    Vec::leak((0..n).map(|_| make()).collect())
}

impl World {
    fn new(order: u8, path: UnmapPath) -> Arc<Self> {
        let order = Order::new(order).unwrap();
        let (tables, nodes) = (leak(1, PageTable::new), leak(2, IntervalNode::new));
        let spaces = Vec::leak(std::vec![Space::new(SPACE, Vpn::new(0), tables, nodes)]);
        let (frames, mappings) = (leak(2, Frame::new), leak(4, Mapping::new));
        let world = Self {
            vm: Vm::new(SoftMmu::new(), Pfn::new(0), frames, mappings, spaces),
            memory: Memory {
                contents: core::array::from_fn(|_| loom::cell::UnsafeCell::new(0)),
                freed: core::array::from_fn(|_| AtomicU32::new(0)),
                next: AtomicU32::new(0),
            },
            pinned: AtomicU32::new(0),
        };
        let (vm, memory) = (&world.vm, &world.memory);
        let vma = Vma { access: Access::ReadWrite, droppable: false };
        vm.add_vma(SPACE, VpnRange::new(Vpn::new(0), 4).unwrap(), vma).unwrap();
        vm.map_new(memory, SPACE, PAGE, order, Access::ReadWrite).unwrap();
        vm.madvise_free(memory, SPACE, pages(order.frames())).unwrap();
        vm.set_unmap_path(path);
        Arc::new(world)
    }

    fn entry(&self) -> Entry {
        self.vm.space(SPACE).unwrap().entry_at(PAGE)
    }

    /// Once more, when nobody else runs.
    fn reclaims_all(&self) {
        self.reclaim();
        let left = (self.entry(), self.memory.freed()[0]);
        assert_eq!(left, (Entry::NONE, 1), "the folio is stranded");
    }

    fn reclaim(&self) {
        self.vm.reclaim(&self.memory, 1).unwrap();
    }
}

/// Runs these at the same time and waits for both.
fn together(world: &Arc<World>, roles: [fn(&World); 2]) {
    let threads = roles.map(|role| {
        let world = world.clone();
        thread::spawn(move || role(&world))
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Reference against entry: whoever gets a pin keeps the page, with the frame that it got.
///
/// Fails without the fence in `Vm::get_at`, and without the one in `Vm::verdict`: each lets reclaim
/// miss the reference that the pin took while the pin misses that the entry is gone. Tried.
fn pin_against_reclaim(path: UnmapPath) {
    model(move || {
        let world = World::new(0, path);
        let pin = |w: &World| match w.vm.pin(&w.memory, SPACE, PAGE, true) {
            Ok(pfn) => {
                w.memory.use_frame(pfn);
                w.pinned.store(1, Ordering::Relaxed);
            }
            Err(error) => assert!(matches!(error, VmError::Fault(_))),
        };
        together(&world, [pin, World::reclaim]);
        if world.pinned.load(Ordering::Relaxed) == 1 {
            assert!(world.entry().is_present(), "pinned, but the page is gone");
            assert_eq!(world.memory.freed()[0], 0);
            world.vm.unpin(&world.memory, Pfn::new(0), false).unwrap();
        }
        world.reclaims_all();
    });
}

/// A pin ends while reclaim is at work: the frame is freed once, after its last use, whoever sees
/// it off.
///
/// Fails where `Frame::drop_refs` is relaxed. Tried.
#[test]
fn loom_unpin_against_reclaim() {
    model(|| {
        let world = World::new(0, UnmapPath::Batched);
        world.vm.pin(&world.memory, SPACE, PAGE, true).unwrap();
        let unpin = |w: &World| {
            w.memory.use_frame(Pfn::new(0));
            w.vm.unpin(&w.memory, Pfn::new(0), false).unwrap();
        };
        together(&world, [unpin, World::reclaim]);
        world.reclaims_all();
    });
}

#[test]
fn loom_pin_against_batched_reclaim() {
    pin_against_reclaim(UnmapPath::Batched);
}

#[test]
fn loom_pin_against_page_by_page_reclaim() {
    pin_against_reclaim(UnmapPath::PageByPage);
}

/// Dirty against clearing: a write that found the entry is never dropped.
///
/// Fails where `AtomicEntry::take` is a load and a store instead of a swap. Tried.
fn write_against_reclaim(path: UnmapPath) {
    model(move || {
        let world = World::new(0, path);
        let write = |w: &World| {
            if let Ok(pfn) = w.vm.touch(SPACE, PAGE, true) {
                assert_eq!(w.memory.freed()[0], 0);
                assert_eq!(w.entry().pfn(), pfn);
            }
        };
        together(&world, [write, World::reclaim]);
        // Either the write came first and everything is there, or it found nothing.
        let entry = world.entry();
        assert_eq!(entry.is_mapped(), world.memory.freed()[0] == 0);
        if entry.is_mapped() {
            assert!(entry.is_dirty() && world.vm.folio_state(entry.pfn()).unwrap().swap_backed);
        }
    });
}

#[test]
fn loom_write_against_batched_reclaim() {
    write_against_reclaim(UnmapPath::Batched);
}

#[test]
fn loom_write_against_page_by_page_reclaim() {
    write_against_reclaim(UnmapPath::PageByPage);
}

/// What was written through a pin is never dropped, however the pin's end falls.
///
/// Fails where `Vm::verdict` looks at the dirty flag before the references, where its Acquire fence
/// is missing, and where `Vm::unpin` sets the flag after the reference is gone. Tried.
#[test]
fn loom_unpin_dirty_against_reclaim() {
    model(|| {
        let world = World::new(0, UnmapPath::Batched);
        world.vm.pin(&world.memory, SPACE, PAGE, true).unwrap();
        let unpin = |w: &World| w.vm.unpin(&w.memory, Pfn::new(0), true).unwrap();
        together(&world, [unpin, World::reclaim]);
        world.reclaim();
        assert_eq!(world.memory.freed()[0], 0);
        assert!(world.entry().is_mapped());
    });
}

/// Somebody unmaps while reclaim does: the frame is freed once, and nothing remains.
#[test]
fn loom_unmap_against_reclaim() {
    model(|| {
        let world = World::new(1, UnmapPath::Batched);
        let unmap = |w: &World| {
            w.vm.unmap(&w.memory, SPACE, pages(2)).unwrap();
        };
        together(&world, [unmap, World::reclaim]);
        assert_eq!((world.entry(), world.memory.freed()), (Entry::NONE, [1, 1]));
        assert_eq!(world.vm.queued(), (0, 0));
    });
}

/// A folio is split while `unmap` takes pages of it away: every frame is freed once, whoever it
/// belonged to by then, and none stays on a list.
fn unmap_against_split(unmap: fn(&World)) {
    model(move || {
        let world = World::new(1, UnmapPath::Batched);
        let split = |w: &World| {
            // As whoever works on the deferred-split queue: with a reference of its own.
            if w.vm.folio_state(Pfn::new(0)).is_some_and(|state| w.vm.get(state.folio).is_ok()) {
                let _ = w.vm.split(&w.memory, FOLIO);
                w.vm.put(&w.memory, Pfn::new(0)).unwrap();
            }
        };
        together(&world, [unmap, split]);
        world.vm.unmap(&world.memory, SPACE, pages(2)).unwrap();
        assert_eq!((world.entry(), world.memory.freed()), (Entry::NONE, [1, 1]));
        assert_eq!(world.vm.queued(), (0, 0));
    });
}

#[test]
fn loom_unmap_against_split() {
    unmap_against_split(|w| {
        w.vm.unmap(&w.memory, SPACE, pages(2)).unwrap();
    });
}

/// The second piece's last reference may go as soon as there is that piece.
///
/// Fails where `Vm::split_locked` has no reference of its own to a piece while it puts it on the
/// list, as it had not. Tried.
#[test]
fn loom_unmap_of_the_second_page_against_split() {
    unmap_against_split(|w| {
        w.vm.unmap(&w.memory, SPACE, VpnRange::new(Vpn::new(PAGE.get() + 1), 1).unwrap()).unwrap();
    });
}

/// Who has a reference to a folio finds it as large as it stays.
///
/// Fails where `Folios::publish_piece` makes the first piece's references known before its size, as
/// it did. Tried.
#[test]
fn loom_get_against_split() {
    model(|| {
        let world = World::new(1, UnmapPath::Batched);
        world.vm.get(FOLIO).unwrap();
        let look = |w: &World| {
            if w.vm.get(FOLIO).is_ok() {
                let order = || w.vm.folio_state(FOLIO.pfn()).unwrap().order;
                let first = order();
                thread::yield_now();
                assert_eq!(first, order(), "split, though somebody had a reference");
                w.vm.put(&w.memory, FOLIO.pfn()).unwrap();
            }
        };
        let split = |w: &World| {
            let _ = w.vm.split(&w.memory, FOLIO);
        };
        together(&world, [look, split]);
        world.vm.put(&world.memory, FOLIO.pfn()).unwrap();
    });
}

/// Two pins of a page that is gone end at the same moment: the frame is freed after both uses of
/// it, by whoever is last.
///
/// Fails where `Frame::drop_refs` does without its Acquire fence. Tried.
#[test]
fn loom_unpin_against_unpin() {
    model(|| {
        let world = World::new(0, UnmapPath::Batched);
        let (vm, memory) = (&world.vm, &world.memory);
        vm.pin(memory, SPACE, PAGE, true).unwrap();
        vm.pin(memory, SPACE, PAGE, true).unwrap();
        vm.unmap(memory, SPACE, pages(1)).unwrap();
        let use_it = |w: &World| {
            w.memory.use_frame(Pfn::new(0));
            w.vm.unpin(&w.memory, Pfn::new(0), false).unwrap();
        };
        let leave_it = |w: &World| w.vm.unpin(&w.memory, Pfn::new(0), false).unwrap();
        together(&world, [use_it, leave_it]);
        assert_eq!(world.memory.freed()[0], 1);
    });
}

/// A folio is split, which frees a frame that no page shows, while the last who used that frame
/// lets go of it.
///
/// Fails where `Frame::freeze` is relaxed. Tried.
#[test]
fn loom_unpin_against_split() {
    model(|| {
        let world = World::new(1, UnmapPath::Batched);
        let (vm, memory) = (&world.vm, &world.memory);
        let second = Vpn::new(PAGE.get() + 1);
        vm.pin(memory, SPACE, second, true).unwrap();
        vm.unmap(memory, SPACE, VpnRange::new(second, 1).unwrap()).unwrap();
        vm.get(FOLIO).unwrap();
        let unpin = |w: &World| {
            w.memory.use_frame(Pfn::new(1));
            w.vm.unpin(&w.memory, Pfn::new(1), false).unwrap();
        };
        let split = |w: &World| {
            let _ = w.vm.split(&w.memory, FOLIO);
            w.vm.put(&w.memory, Pfn::new(0)).unwrap();
        };
        together(&world, [unpin, split]);
        world.vm.unmap(&world.memory, SPACE, pages(1)).unwrap();
        assert_eq!(world.memory.freed(), [1, 1]);
    });
}

/// Something new is mapped where reclaim has just cleared: no CPU may still see the old frame
/// there.
///
/// Fails where `Vm::flush_now` clears the space's mark before it flushes, and where
/// `Vm::with_table` does not look at the mark. Tried.
#[test]
fn loom_map_against_reclaim() {
    model(|| {
        let world = World::new(0, UnmapPath::Batched);
        let new = world.vm.folio_alloc(&world.memory, Order::ZERO).unwrap();
        let space = world.vm.space(SPACE).unwrap();
        // In the TLB.
        world.vm.mmu().access(0, space, PAGE, false, |_| ()).unwrap();
        let map = |w: &World| {
            let new = crate::Folio(Pfn::new(1));
            match w.vm.map(new, (0, 1), SPACE, PAGE, Access::ReadWrite) {
                Ok(()) => {
                    let space = w.vm.space(SPACE).unwrap();
                    let seen = w.vm.mmu().access(0, space, PAGE, false, |pfn| pfn);
                    assert_eq!(seen, Ok(new.pfn()), "an old translation hides what is mapped now");
                }
                Err(error) => assert_eq!(error, VmError::Occupied { vpn: PAGE }),
            }
        };
        let pageout = |w: &World| {
            w.vm.madvise_pageout(&w.memory, SPACE, pages(1)).unwrap();
        };
        together(&world, [pageout, map]);
        world.vm.put(&world.memory, new.pfn()).unwrap();
    });
}
