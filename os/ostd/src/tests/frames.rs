//! What OSTD's tests do not ask: that its frames are Freehold's, and that all of them come back.

use alloc::vec::Vec;
use core::alloc::Layout;

use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::{FrameAllocOptions, HasPaddr, PAGE_SIZE, Split};
use ostd::prelude::*;

use crate::frames::FRAMES;

fn free() -> u64 {
    FRAMES.0.engine().unwrap().zone_stats(0).unwrap().free
}

#[ktest]
fn frames_are_freeholds_and_come_back() {
    let before = free();
    let segment = FrameAllocOptions::new().alloc_segment(100).unwrap();
    assert_eq!(free(), before - 100);
    // Any part, in any order.
    let (left, right) = segment.split(37 * PAGE_SIZE);
    drop(left);
    assert_eq!(free(), before - 63);
    right.for_each(drop);
    assert_eq!(free(), before);
    assert_eq!(FRAMES.0.unused_frames(), 0);
    FRAMES.0.engine().unwrap().validate().unwrap();
}

#[ktest]
fn all_of_memory_in_pieces_of_two_mebibytes() {
    let before = free();
    let mut pieces = Vec::with_capacity(before as usize / 512 + 1);
    let taken = free();
    while let Ok(piece) = FrameAllocOptions::new().zeroed(false).alloc_segment(512) {
        assert!(piece.paddr().is_multiple_of(PAGE_SIZE));
        pieces.push(piece);
    }
    assert!(pieces.len() as u64 > taken / 512 * 9 / 10, "{} of {taken} frames", pieces.len() * 512);
    assert_eq!(free(), taken - pieces.len() as u64 * 512);
    drop(pieces);
    assert_eq!(free(), before);
    FRAMES.0.engine().unwrap().validate().unwrap();
}

#[ktest]
fn a_frame_is_not_freed_twice() {
    let page = FRAMES.alloc(Layout::from_size_align(PAGE_SIZE, PAGE_SIZE).unwrap()).unwrap();
    FRAMES.dealloc(page, PAGE_SIZE);
    let before = free();
    assert!(FRAMES.0.try_dealloc(page, PAGE_SIZE).is_err());
    assert_eq!(free(), before);
}
