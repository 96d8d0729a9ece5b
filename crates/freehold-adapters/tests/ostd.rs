//! OSTD's contract: any sub-range may be freed, in any order, by anybody, and
//! large requests work again.

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use freehold::{FreeError, Threads, Watermarks};
use freehold_adapters::ostd::{GlobalFrames, Paddr, Settings};

const PAGE: usize = 4096;
/// Where the memory of this process that stands for physical memory begins: 1 GiB, 64 MiB long.
/// Only what the metadata takes is ever touched.
const BASE: Paddr = 1 << 30;
const SIZE: usize = 64 << 20;

static MEMORY: LazyLock<usize> = LazyLock::new(|| {
    let memory = vec![0u64; SIZE / 8 + PAGE / 8].leak();
    memory.as_mut_ptr().expose_provenance().next_multiple_of(PAGE)
});

fn direct_map(paddr: Paddr) -> *mut u8 {
    assert!((BASE..BASE + SIZE).contains(&paddr));
    core::ptr::with_exposed_provenance_mut(*MEMORY + paddr - BASE)
}

/// Each test has a part of the memory for itself: the metadata of 2 GiB is 256 KiB and something.
fn new(watermarks: Watermarks) -> GlobalFrames<Threads> {
    let settings = Settings { watermarks, ..Settings::new(4, 2 << 30, direct_map) };
    // SAFETY: `direct_map` is where that memory is, and each test adds another part of it.
    unsafe { GlobalFrames::new(settings, || Threads::new(4)) }
}

fn layout(pages: usize, align: usize) -> Layout {
    Layout::from_size_align(pages * PAGE, align).unwrap()
}

#[test]
fn boots_from_pieces_and_takes_its_metadata_from_the_first_that_has_room() {
    static FRAMES: LazyLock<GlobalFrames<Threads>> = LazyLock::new(|| new(Watermarks::None));
    let frames = &*FRAMES;
    assert_eq!(frames.alloc(layout(1, PAGE)), None);
    frames.add_free_memory(BASE + 100, 3 * PAGE); // two whole frames
    frames.add_free_memory(BASE + 16 * PAGE, 0);
    assert_eq!((frames.alloc(layout(1, PAGE)), FRAMES.unused_frames()), (None, 2));
    frames.add_free_memory(BASE + (4 << 20), 4 << 20);
    frames.add_free_memory(BASE + (8 << 20), 2 << 20);
    assert_eq!(FRAMES.unused_frames(), 0);
    frames.add_free_memory((2 << 30) - PAGE, 3 * PAGE); // two frames above the limit
    assert_eq!(FRAMES.unused_frames(), 2);
    let there = FRAMES.engine().unwrap().zone_stats(0).unwrap().free;
    let metadata = 2 + 1024 + 512 + 1 - there;
    assert!(
        (28..64).contains(&metadata),
        "{metadata} frames of metadata for 2 GiB: 112 KiB and something"
    );
    let mut all: Vec<Paddr> = std::iter::from_fn(|| frames.alloc(layout(1, PAGE))).collect();
    assert_eq!(all.len() as u64, there);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, there);
    let of_metadata = BASE + (8 << 20) - metadata as usize * PAGE..BASE + (8 << 20);
    assert!(!all.iter().any(|address| of_metadata.contains(address)));
    assert!(all.contains(&(BASE + PAGE)) && all.contains(&((2 << 30) - PAGE)));
    FRAMES.engine().unwrap().validate().unwrap();
}

#[test]
fn any_part_in_any_order_by_any_cpu_and_two_mebibytes_come_back() {
    static FRAMES: LazyLock<GlobalFrames<Threads>> = LazyLock::new(|| new(Watermarks::None));
    FRAMES.add_free_memory(BASE + (12 << 20), 20 << 20);
    let whole = || std::iter::from_fn(|| FRAMES.alloc(layout(512, 2 << 20))).collect::<Vec<_>>();
    let blocks = whole();
    assert_eq!(blocks.len(), 9); // of ten, one has the metadata
    // Buddies split between two CPUs: one frees the even frames, another one the odd ones.
    std::thread::scope(|scope| {
        for parity in 0..2 {
            let blocks = &blocks;
            scope.spawn(move || {
                for &block in blocks {
                    (parity..512).step_by(2).for_each(|i| FRAMES.dealloc(block + i * PAGE, PAGE));
                }
            });
        }
    });
    assert_eq!(whole().len(), 9);
    // Odd sizes are taken exactly, and go home in other pieces than they came.
    for &block in &blocks {
        FRAMES.dealloc(block + PAGE, 511 * PAGE);
        FRAMES.dealloc(block, PAGE);
    }
    let segment = FRAMES.alloc(layout(700, PAGE)).unwrap();
    FRAMES.dealloc(segment + 100 * PAGE, 500 * PAGE);
    FRAMES.dealloc(segment + 600 * PAGE, 100 * PAGE);
    FRAMES.dealloc(segment, 100 * PAGE);
    assert_eq!(whole().len(), 9);
    FRAMES.engine().unwrap().validate().unwrap();
}

#[test]
fn wrong_frees_and_memory_twice_are_refused() {
    let frames = new(Watermarks::None);
    assert!(matches!(frames.try_dealloc(BASE, PAGE), Err(FreeError::OutOfZone { .. })));
    frames.add_free_memory(BASE + (40 << 20), 8 << 20);
    let at = frames.alloc(layout(4, 4 * PAGE)).unwrap();
    let free = || frames.engine().unwrap().zone_stats(0).unwrap().free;
    let before = free();
    for (address, size) in
        [(at + 1, PAGE), (at, PAGE + 1), (at, 0), (at, usize::MAX & !(PAGE - 1)), (8 << 30, PAGE)]
    {
        assert!(frames.try_dealloc(address, size).is_err(), "{address:#x}, {size:#x}");
        assert!(catch_unwind(AssertUnwindSafe(|| frames.dealloc(address, size))).is_err());
    }
    frames.dealloc(at + PAGE, PAGE);
    assert!(matches!(frames.try_dealloc(at, 4 * PAGE), Err(FreeError::DoubleFree { .. })));
    assert_eq!(free(), before + 1);
    let twice = catch_unwind(AssertUnwindSafe(|| frames.add_free_memory(BASE + (40 << 20), PAGE)))
        .unwrap_err();
    assert!(twice.downcast::<String>().unwrap().contains("is there already"));
    // The metadata is nobody's memory: it cannot be freed, nor can it become memory.
    assert!(frames.try_dealloc(BASE + (48 << 20) - PAGE, PAGE).is_err());
    for (address, size) in [(BASE + (48 << 20) - PAGE, PAGE), (BASE + (48 << 20) - PAGE, 2 * PAGE)]
    {
        assert!(catch_unwind(AssertUnwindSafe(|| frames.dealloc(address, size))).is_err());
    }
    assert_eq!(free(), before + 1);
    frames.engine().unwrap().validate().unwrap();
}

#[test]
fn what_was_used_before_there_was_an_allocator_comes_by_a_free() {
    let frames = new(Watermarks::None);
    let at = BASE + (48 << 20);
    frames.add_free_memory(at + 16 * PAGE, 8 << 20);
    let free = || frames.engine().unwrap().zone_stats(0).unwrap().free;
    let before = free();
    assert!(frames.try_dealloc(at, PAGE).is_err());
    frames.dealloc(at + 3 * PAGE, PAGE);
    frames.dealloc(at + 4 * PAGE, 12 * PAGE);
    assert_eq!((free(), frames.unused_frames()), (before + 13, 0));
    // Memory like any other from then on.
    assert!(catch_unwind(AssertUnwindSafe(|| frames.dealloc(at + 3 * PAGE, PAGE))).is_err());
    // Not where a part of it is there already.
    assert!(catch_unwind(AssertUnwindSafe(|| frames.dealloc(at + 2 * PAGE, 2 * PAGE))).is_err());
    let all: Vec<Paddr> = std::iter::from_fn(|| frames.alloc(layout(1, PAGE))).collect();
    assert!(
        all.contains(&(at + 3 * PAGE))
            && all.contains(&(at + 15 * PAGE))
            && !all.contains(&(at + 2 * PAGE))
    );
    frames.engine().unwrap().validate().unwrap();
}
