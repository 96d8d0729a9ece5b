//! Attempts at breaking it: threads that end with frames in use, limits of the process, machines made
//! and dropped.

use crate::common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

use common::{all_are, child, skipped, space};
use freehold_host::freehold::Order;
use freehold_host::freehold_vm::{
    Access, Frame, IntervalNode, MapError, Mapping, PageTable, Space, TABLE_ENTRIES, Vm, VmError,
    Vma, Vpn, VpnRange,
};
use freehold_host::{Arena, Backing, Error, Frames, HostAreas, HostMmu, HostVm};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const MIB: u64 = 1 << 20;

fn vpn(page: u64) -> Vpn {
    Vpn::new(page)
}

fn pages(start: u64, len: u64) -> VpnRange {
    VpnRange::new(vpn(start), len).unwrap()
}

fn all_free(arena: &Arena) {
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames, "frames lost");
}

/// Threads end with their frames still in use, beside more threads than there are slots; the frames
/// outlive the threads, their contents with them, and the arena goes with the last of them.
#[test]
fn frames_outlive_their_threads_and_keep_their_arena() {
    let arena = Arc::new(Arena::builder(64 * MIB).slots(2).shared_slots(1).build().unwrap());
    let weak = Arc::downgrade(&arena);
    let together = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8u8)
        .map(|me| {
            let (arena, together) = (Arc::clone(&arena), Arc::clone(&together));
            std::thread::spawn(move || {
                let mut kept: Vec<_> =
                    (1..20).map(|n| Frames::new(Arc::clone(&arena), n * 7).unwrap()).collect();
                together.wait();
                kept.iter_mut().for_each(|frames| frames.fill(me + 1));
                kept.drain(..9);
                kept
            })
        })
        .collect();
    let kept: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(
        (arena.stats().slots_taken, arena.stats().threads_sharing),
        (0, 0),
        "slots are given back"
    );
    let in_use: u64 = kept.iter().flatten().map(Frames::frame_count).sum();
    assert_eq!(arena.free_frames(), arena.stats().frames - in_use);
    drop(arena);
    for (me, frames) in (1..).zip(&kept) {
        assert!(frames.iter().all(|frames| all_are(frames, me)), "thread {me}");
    }
    let mut kept: Vec<_> = kept.into_iter().flatten().collect();
    let last = kept.pop();
    // The others go on a thread that never used the arena otherwise.
    std::thread::spawn(move || drop(kept)).join().unwrap();
    all_free_but(&weak.upgrade().unwrap(), last.as_ref().unwrap().frame_count());
    drop(last);
    assert!(weak.upgrade().is_none(), "the arena goes with its last frames");
}

fn all_free_but(arena: &Arena, used: u64) {
    arena.drain().unwrap();
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames - used);
}

/// No address space for the pages, or for what is kept about them: an error, not the end of the
/// process.
#[test]
fn a_machine_without_memory_is_an_error() {
    let status = child::fork(|| {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let used: u64 = statm.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 4096;
        let before = getrlimit(Resource::As);
        // 1 TiB of pages takes 2 GiB of entries. Room for neither, then for the pages alone (for a
        // moment they take 1 GiB more, to be aligned).
        let range = pages(0, 1 << 28);
        let mut ok = true;
        for room in [1 << 30, (1 << 40) + (1 << 30) + (8 << 20)] {
            setrlimit(Resource::As, Rlimit { current: Some(used + room), maximum: before.maximum })
                .unwrap();
            // Twice: nothing is left behind.
            for _ in 0..2 {
                ok &= HostMmu::new(1, range).is_err_and(|error| error.is_out_of_memory());
            }
        }
        setrlimit(Resource::As, before).unwrap();
        ok
    });
    assert_eq!(status, 0);
}

/// More than can be addressed, or than can be counted.
#[test]
fn sizes_that_no_machine_has_are_errors() {
    for bytes in [u64::MAX, u64::MAX - 4096, 1 << 63, 1 << 47] {
        assert!(matches!(HostVm::new(bytes).err(), Some(Error::Knob { .. })), "{bytes} bytes");
    }
    let arena = Arc::new(Arena::builder(2 << 20).backing(Backing::Memfd).build().unwrap());
    for pages in [u64::MAX, (1 << 52) - 1, (1 << 52) - 511, 1 << 51] {
        assert!(HostAreas::new(Arc::clone(&arena), pages).is_err(), "{pages} pages");
    }
}

/// Neither descriptors nor threads nor mappings are left behind by machines that are gone.
#[test]
fn machines_that_are_gone_leave_nothing_behind() {
    let status = child::fork(|| {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let once = || match HostMmu::new(2, pages(0, 512)) {
            Ok(mmu) => drop(mmu),
            Err(error) => skipped("machines_that_are_gone_leave_nothing_behind", &error),
        };
        once();
        let before = (open(), threads());
        (0..50).for_each(|_| once());
        // And where one cannot be made for lack of descriptors.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum: limit.maximum }).unwrap();
        let refused = (0..10).all(|_| HostMmu::new(1, pages(0, 512)).is_err());
        setrlimit(Resource::Nofile, limit).unwrap();
        // A thread that has been joined may be seen for a moment longer.
        for _ in 0..1000 {
            if threads() != before.1 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        refused && (open(), threads()) == before
    });
    assert_eq!(status, 0);
}

/// A machine over an arena's own frames, which lie across the ends of page tables: each frame has
/// one place, and what reclaim takes is free in the arena.
#[test]
fn a_machine_over_an_arena_maps_each_frame_at_its_own_page() {
    let arena = Arc::new(Arena::with_size(8 * MIB).unwrap());
    let total = arena.range().len();
    let first = Vpn::new(509);
    // SAFETY: nobody else uses this arena.
    let mmu = match unsafe { HostMmu::over(Arc::clone(&arena), first) } {
        Ok(mmu) => mmu,
        Err(error) => {
            return skipped("a_machine_over_an_arena_maps_each_frame_at_its_own_page", &error);
        }
    };
    // SAFETY: only through the machine.
    let frames = unsafe { arena.frame_allocator() };
    let records: Vec<Frame> = (0..total).map(|_| Frame::new()).collect();
    let mappings: Vec<Mapping> = (0..256).map(|_| Mapping::new()).collect();
    let tables: Vec<PageTable> =
        (0..(509 + total).div_ceil(TABLE_ENTRIES)).map(|_| PageTable::new()).collect();
    let mut vmas = [IntervalNode::new(); 4];
    let spaces = [Space::new(space(0), vpn(0), &tables, &mut vmas)];
    let vm = Vm::new(mmu, arena.range().start, &records, &mappings, &spaces);
    let all = VpnRange::new(first, total).unwrap();
    vm.add_vma(space(0), all, Vma { access: Access::ReadWrite, droppable: false }).unwrap();
    let order = Order::new(4).unwrap();
    let mut folios = Vec::new();
    for i in 0..40u64 {
        let folio = vm.folio_alloc(&frames, order).unwrap();
        let at = vm.mmu().page_of(folio.pfn()).unwrap();
        assert_eq!(
            vm.mmu().pointer(space(0), at),
            arena.pointer(folio.pfn()),
            "the frame is the page"
        );
        let wrong = Vpn::new((at.get() + 32).min(first.get() + total - 16));
        let refused = vm.map(folio, (0, 16), space(0), wrong, Access::ReadWrite);
        assert!(
            matches!(refused, Err(VmError::Map(MapError::Host(_)) | VmError::Occupied { .. })),
            "{refused:?}"
        );
        vm.map(folio, (0, 16), space(0), at, Access::ReadWrite).unwrap();
        vm.put(&frames, folio.pfn()).unwrap();
        for page in 0..16 {
            vm.mmu().words(space(0), vpn(at.get() + page)).unwrap()[page as usize]
                .store(i + 1, Ordering::Relaxed);
        }
        folios.push(at.get());
    }
    assert_eq!(vm.madvise_free(&frames, space(0), all), Ok(640));
    for at in folios.iter().step_by(4) {
        vm.mmu().words(space(0), vpn(at + 7)).unwrap()[8].store(9, Ordering::Relaxed);
    }
    assert_eq!(vm.madvise_pageout(&frames, space(0), all), Ok(480));
    assert_eq!(arena.free_frames(), total - 160);
    for (i, at) in folios.iter().enumerate().step_by(4) {
        for page in 0..16 {
            let held = vm.mmu().words(space(0), vpn(at + page)).unwrap()[page as usize]
                .load(Ordering::Relaxed);
            assert_eq!(held, i as u64 + 1);
        }
    }
    vm.unmap(&frames, space(0), all).unwrap();
    drop(vm);
    all_free(&arena);
    let memfd = Arc::new(Arena::builder(8 * MIB).backing(Backing::Memfd).build().unwrap());
    // SAFETY: refused.
    let over = unsafe { HostMmu::over(memfd, first) };
    assert!(matches!(over, Err(Error::Knob { knob: "backing", .. })));
}
