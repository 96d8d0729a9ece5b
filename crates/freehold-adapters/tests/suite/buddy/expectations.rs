// What users of buddy_system_allocator's frame allocators count on: its own tests of them, said
// anew and compiled twice. The line before this is included says which allocator it is.

use std::alloc::Layout;

fn with<const ORDER: usize>(frames: std::ops::Range<usize>) -> FrameAllocator<ORDER> {
    let mut allocator = FrameAllocator::new();
    allocator.insert(frames);
    allocator
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn nothing_comes_out_of_an_empty_one() {
    assert_eq!(FrameAllocator::<32>::new().alloc(1), None);
}

#[test]
fn the_odd_frame_goes_first_and_the_pair_stays() {
    let mut frames = FrameAllocator::<32>::new();
    assert_eq!(frames.alloc(1), None);
    frames.insert(0..3);
    assert_eq!([1, 2, 1, 2].map(|count| frames.alloc(count)), [Some(2), Some(0), None, None]);
}

#[test]
fn a_piece_that_starts_at_zero_stays_whole() {
    let mut frames = FrameAllocator::<7>::new();
    frames.add_frame(0, 64);
    assert_eq!(frames.alloc(64), Some(0));
}

#[test]
fn more_than_there_can_be_is_refused() {
    assert_eq!(FrameAllocator::<32>::new().alloc(10_000_000_000), None);
}

#[test]
fn an_allocation_has_at_most_the_largest_order() {
    let mut frames = with::<22>(0..5_000_000);
    assert_eq!(frames.alloc((1 << 21) + 1), None);
    assert_eq!(frames.alloc(1 << 21), Some(0));
    assert_eq!(frames.alloc(1 << 21), Some(1 << 21));
}

#[test]
fn with_one_order_more_it_has() {
    assert_eq!(with::<23>(0..5_000_000).alloc((1 << 21) + 1), Some(0));
}

#[test]
fn half_of_it_again_and_again() {
    let mut frames = FrameAllocator::<32>::new();
    assert_eq!(frames.alloc(1), None);
    frames.add_frame(0, 1024);
    for _ in 0..100 {
        let first = frames.alloc(512).unwrap();
        frames.dealloc(first, 512);
    }
}

#[test]
fn single_frames_of_an_odd_piece() {
    let mut frames = FrameAllocator::<32>::new();
    frames.add_frame(100, 1024);
    for _ in 0..10 {
        let frame = frames.alloc(1).unwrap();
        frames.dealloc(frame, 1);
    }
    assert_ne!(frames.alloc(1).unwrap(), frames.alloc(1).unwrap());
}

#[test]
fn layouts_take_the_smallest_piece_that_is_aligned() {
    let mut frames = with::<32>(1..64);
    let asked = [(2, 4), (2, 2), (2, 1), (1, 16)];
    let taken = asked.map(|(size, align)| frames.alloc_aligned(layout(size, align)));
    assert_eq!(taken, [4, 2, 8, 16].map(Some));
}

#[test]
fn what_is_of_the_largest_order_already_does_not_merge() {
    let mut frames = with::<2>(0..4);
    let taken = [frames.alloc(2).unwrap(), frames.alloc(2).unwrap()];
    for first in taken {
        frames.dealloc(first, 2);
    }
    assert_eq!(frames.alloc(2), Some(0));
    assert_eq!(frames.alloc(4), None);
}

#[test]
fn all_of_it_at_its_place() {
    let mut frames = with::<32>(0..4);
    assert_eq!((frames.alloc_at(0, 4), frames.alloc(1)), (Some(0), None));
}

#[test]
fn a_pair_out_of_the_middle() {
    let mut frames = with::<32>(0..8);
    assert_eq!(frames.alloc_at(2, 2), Some(2));
    assert_eq!([2, 4, 1].map(|count| frames.alloc(count)), [Some(0), Some(4), None]);
}

#[test]
fn a_place_that_is_taken() {
    let mut frames = with::<32>(0..8);
    assert_eq!(frames.alloc(4), Some(0));
    assert_eq!((frames.alloc_at(0, 2), frames.alloc_at(2, 2)), (None, None));
    assert_eq!(frames.alloc_at(4, 2), Some(4));
}

#[test]
fn a_place_that_is_not_aligned() {
    let mut frames = with::<32>(0..16);
    assert_eq!(
        (frames.alloc_at(3, 4), frames.alloc_at(1, 2), frames.alloc_at(1, 1)),
        (None, None, Some(1))
    );
}

#[test]
fn what_was_had_at_a_place_merges_again() {
    let mut frames = with::<32>(0..16);
    assert_eq!(frames.alloc_at(4, 4), Some(4));
    frames.dealloc(4, 4);
    assert_eq!(frames.alloc(16), Some(0));
}

#[test]
fn a_place_that_is_not_there() {
    assert_eq!(with::<32>(0..8).alloc_at(16, 2), None);
}

#[test]
fn places_until_there_are_none() {
    let mut frames = with::<32>(0..16);
    for place in [0, 4, 8, 12] {
        assert_eq!(frames.alloc_at(place, 4), Some(place));
    }
    assert_eq!(frames.alloc(1), None);
}
