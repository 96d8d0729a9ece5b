//! Memory that a device knows the pages of.

use freehold::{Order, Pfn};
use freehold_host::freehold_vm::Access;
use freehold_host::{Arena, Error, HostVm, Pin};

use crate::common::skipped;
use crate::ring::{Ring, page_of};

fn bytes_of(arena: &Arena) -> (*mut u8, usize) {
    let range = arena.range();
    (arena.pointer(range.start).unwrap().as_ptr(), (range.len() << 12) as usize)
}

/// What a read through the ring finds at the frames' own address, after memory was freed, given
/// back as far as it is, and handed out again.
fn read_after_trim(arena: &Arena) -> Result<u8, std::io::Error> {
    let (base, len) = bytes_of(arena);
    let ring = Ring::register(base, len)?;
    let file = page_of(0xab);
    let mut frames = arena.frames(1)?;
    assert_eq!(ring.read(&file, frames.as_mut_ptr(), 4096), 4096);
    assert_eq!(frames[0], 0xab, "registered just now");
    drop(frames);
    arena.trim()?;
    arena.pass()?;
    arena.pass()?;
    let mut frames = arena.zeroed(1)?;
    assert_eq!(ring.read(&file, frames.as_mut_ptr(), 4096), 4096);
    Ok(frames[4095])
}

#[test]
fn what_a_ring_has_registered_is_not_given_away_while_it_is_pinned() {
    let arena = Arena::builder(4 << 20).populate(true).build().unwrap();
    let pin = arena.pin(arena.range()).unwrap();
    match read_after_trim(&arena) {
        Ok(byte) => assert_eq!(byte, 0xab, "the ring wrote into a page that is not the frame's"),
        Err(error) => return skipped("what_a_ring_has_registered", &error),
    }
    drop(pin);
    assert_eq!(arena.trim().unwrap().blocks, 2);
    let all = Arena::builder(4 << 20).populate(true).pinned(true).build().unwrap();
    assert_eq!(read_after_trim(&all).unwrap(), 0xab);
}

#[test]
fn pins_keep_the_blocks_that_they_are_in_from_trim_and_shrink() {
    let arena = Arena::with_size(8 << 20).unwrap();
    let first = arena.range().start.get();
    let range = |start: u64, len| freehold::FrameRange::new(Pfn::new(first + start), len).unwrap();
    drop(arena.zeroed(2048).unwrap());
    let outer = Pin::new(&arena, range(500, 30)).unwrap();
    let inner = arena.pin(range(511, 1)).unwrap();
    assert_eq!(arena.trim().unwrap().blocks, 2, "two of four blocks are pinned");
    drop(outer);
    assert_eq!(arena.trim().unwrap().blocks, 1, "one of the pins is gone");
    assert_eq!(arena.shrink(8 << 20 >> 1).map(|gone| gone.len()), Ok(1024));
    assert_eq!(arena.shrink(2 << 20).map(|gone| gone.len()), Ok(512));
    let last = arena.pin(range(0, 512)).unwrap();
    assert_eq!(inner.into_raw(), range(511, 1));
    drop(last);
    drop(arena.zeroed(512).unwrap());
    assert_eq!(arena.trim().unwrap().blocks, 0, "a pin that nobody takes back stays");
    // SAFETY: given out above, and taken back once.
    drop(unsafe { Pin::from_raw(&arena, range(511, 1)) });
    assert_eq!(arena.trim().unwrap().blocks, 1);
    assert!(matches!(arena.pin(range(512, 1)), Err(Error::OutsideArena { .. })));
}

#[test]
fn an_end_that_is_pinned_does_not_go() {
    let arena = Arena::with_size(8 << 20).unwrap();
    let first = arena.range().start.get();
    let pin = arena.pin(freehold::FrameRange::new(Pfn::new(first + 512), 1).unwrap()).unwrap();
    assert_eq!(arena.shrink(6 << 20), Err(Error::InUse { bytes: 4 << 20 }));
    assert!(arena.shrink(4 << 20).is_ok());
    drop(pin);
    assert!(arena.shrink(2 << 20).is_ok());
    let whole = Arena::builder(8 << 20).pinned(true).build().unwrap();
    assert_eq!(whole.shrink(2 << 20), Err(Error::InUse { bytes: 0 }));
}

/// A page of a `HostVm` that a device writes to is pinned first, and dirty when it is unpinned.
#[test]
fn a_pinned_page_of_a_vm_keeps_what_a_device_writes() {
    let test = "a_pinned_page_of_a_vm";
    let host = match HostVm::new(1 << 20) {
        Ok(host) => host,
        Err(error) => return skipped(test, &error),
    };
    let (vm, frames, pages) = (host.vm(), host.frames(), host.pages(0, 16).unwrap());
    let order = Order::new(4).unwrap();
    vm.map_new(&frames, HostVm::SPACE, pages.start, order, Access::ReadWrite).unwrap();
    let at = vm.mmu().pointer(HostVm::SPACE, pages.start).unwrap().as_ptr();
    let pinned = vm.pin(&frames, HostVm::SPACE, pages.start, true).unwrap();
    let ring = match Ring::register(at, 4096) {
        Ok(ring) => ring,
        Err(error) => return skipped(test, &error),
    };
    vm.madvise_free(&frames, HostVm::SPACE, pages).unwrap();
    assert_eq!(ring.read(&page_of(0xab), at, 4096), 4096);
    assert_eq!(vm.madvise_pageout(&frames, HostVm::SPACE, pages), Ok(0), "pinned");
    drop(ring);
    vm.unpin(&frames, pinned, true).unwrap();
    let _ = vm.madvise_pageout(&frames, HostVm::SPACE, pages);
    // SAFETY: the page is mapped, or reads as zeros.
    assert_eq!(unsafe { at.read_volatile() }, 0xab, "a device's write was dropped");
}
