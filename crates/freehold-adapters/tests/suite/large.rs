//! Collections over the arena, by way of `allocator-api2`.

use std::sync::Arc;

use allocator_api2::alloc::{Allocator, Layout};
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use freehold_adapters::large::LargeBuffers;
use freehold_host::Arena;

fn used(arena: &Arena) -> u64 {
    arena.stats().frames - arena.free_frames()
}

#[test]
fn a_vector_takes_frames_once_it_is_large_and_gives_back_what_it_does_not_need() {
    let arena = Arena::with_size(64 << 20).unwrap();
    let mut numbers = Vec::new_in(LargeBuffers::new(&arena));
    numbers.extend(0..500u64);
    assert_eq!(used(&arena), 0); // 4000 bytes: the system's
    numbers.extend(500..1_000_000u64);
    assert_eq!(used(&arena), (numbers.capacity() as u64 * 8).div_ceil(4096));
    assert!(arena.pfn_of(numbers.as_ptr().cast()).is_some());
    let at = numbers.as_ptr();
    numbers.truncate(1000);
    numbers.shrink_to_fit();
    assert_eq!((used(&arena), numbers.as_ptr()), (2, at)); // in place
    assert!(numbers.iter().copied().eq(0..1000));
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert_eq!(used(&arena), 0); // back with the system
    assert!(numbers.iter().copied().eq(0..10));
    arena.validate().unwrap();
}

#[test]
fn boxes_zeroed_memory_alignments_and_other_threads() {
    let arena = Arc::new(Arena::with_size(64 << 20).unwrap());
    let buffers = LargeBuffers::new(Arc::clone(&arena)).threshold(64 << 10);
    let page = Box::new_in([1u8; 8192], buffers.clone());
    assert_eq!(used(&arena), 0); // below this threshold
    let large = Box::new_in([7u64; 16384], buffers.clone());
    assert_eq!(used(&arena), 32);
    std::thread::spawn(move || {
        assert!(large.iter().all(|&n| n == 7));
        drop(large);
    })
    .join()
    .unwrap();
    drop(page);
    assert_eq!(used(&arena), 0);

    for align in [1, 4096, 8192, 2 << 20, 4 << 20] {
        let layout = Layout::from_size_align(300_000, align).unwrap();
        // Dirty first, so that zeroes are somebody's doing.
        for zeroed in [false, true, true] {
            let at =
                if zeroed { buffers.allocate_zeroed(layout) } else { buffers.allocate(layout) }
                    .unwrap();
            assert_eq!((at.len(), at.cast::<u8>().addr().get() % align), (74 * 4096, 0));
            assert_eq!(used(&arena), 74);
            // SAFETY: it is as long as that and ours; given back as it was taken.
            unsafe {
                let bytes = std::slice::from_raw_parts_mut(at.cast::<u8>().as_ptr(), at.len());
                assert!(!zeroed || bytes.iter().all(|&byte| byte == 0));
                bytes.fill(0xff);
                buffers.deallocate(at.cast(), layout);
            }
        }
    }
    assert_eq!(used(&arena), 0);
    arena.validate().unwrap();
}

#[test]
fn what_the_arena_has_no_room_for_is_the_systems_and_goes_back_there() {
    let arena = Arena::with_size(4 << 20).unwrap();
    let buffers = LargeBuffers::new(&arena);
    let mut all = std::vec::Vec::new();
    for i in 0..6u8 {
        let mut buffer: Vec<u8, _> = Vec::with_capacity_in(1 << 20, buffers.clone());
        buffer.resize(1 << 20, i);
        all.push(buffer);
    }
    assert_eq!(used(&arena), 1024);
    assert_eq!(all.iter().filter(|b| arena.pfn_of(b.as_ptr()).is_none()).count(), 2);
    for (i, buffer) in all.iter_mut().enumerate() {
        buffer.truncate(70_000);
        buffer.shrink_to_fit();
        assert!(buffer.iter().all(|&byte| usize::from(byte) == i));
    }
    drop(all);
    assert_eq!(used(&arena), 0);
    arena.validate().unwrap();
}

#[test]
fn a_double_free_is_a_panic_and_does_no_harm() {
    let arena = Arena::with_size(4 << 20).unwrap();
    let buffers = LargeBuffers::new(&arena);
    let layout = Layout::from_size_align(10_000, 8).unwrap();
    let at = buffers.allocate(layout).unwrap().cast::<u8>();
    // SAFETY: ours. The second call breaks the promise on purpose: nobody uses the frames, so what
    // is tested is the answer.
    unsafe {
        buffers.deallocate(at, layout);
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            buffers.deallocate(at, layout)
        }));
        let message = again.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("double free"), "{message}");
    }
    assert_eq!(used(&arena), 0);
    arena.validate().unwrap();
}

/// A buffer doubled over and over stays where it is from 2 MiB on, so that it is never there twice.
#[test]
fn a_doubled_buffer_grows_where_it_is() {
    let arena = Arena::with_size(128 << 20).unwrap();
    let buffers = LargeBuffers::new(&arena);
    let mut layout = Layout::from_size_align(4 << 20, 8).unwrap();
    let first = buffers.allocate(layout).unwrap().cast::<u8>();
    // SAFETY: ours, as long as the layout says.
    unsafe {
        first.write_bytes(7, layout.size());
        let mut zeroed = false;
        while layout.size() < 64 << 20 {
            let new = Layout::from_size_align(layout.size() * 2 - 1000, 8).unwrap();
            let grown = if zeroed {
                buffers.grow_zeroed(first, layout, new)
            } else {
                buffers.grow(first, layout, new)
            }
            .unwrap();
            assert_eq!(grown.cast(), first, "at {} bytes", new.size());
            assert_eq!(used(&arena), (new.size() as u64).div_ceil(4096));
            let bytes = std::slice::from_raw_parts(first.as_ptr(), new.size());
            assert!(bytes[..4 << 20].iter().all(|&byte| byte == 7));
            assert!(!zeroed || bytes[layout.size()..].iter().all(|&byte| byte == 0));
            first.add(layout.size()).write_bytes(9, new.size() - layout.size());
            (layout, zeroed) = (new, !zeroed);
        }
        // More than there is room for: it moves, and takes along what it holds.
        let new =
            Layout::from_size_align(layout.size() + ((arena.free_frames() + 1) * 4096) as usize, 8)
                .unwrap();
        let moved = buffers.grow(first, layout, new).unwrap().cast::<u8>();
        assert!(moved != first && arena.pfn_of(moved.as_ptr()).is_none());
        assert!(std::slice::from_raw_parts(moved.as_ptr(), 4 << 20).iter().all(|&byte| byte == 7));
        buffers.deallocate(moved, new);
    }
    assert_eq!(used(&arena), 0);
    arena.validate().unwrap();
}
