//! From a memory map in bytes to an allocator, and the maps that are refused.

use std::alloc::{Layout, alloc_zeroed};

use freehold::{BootError, ConfigError, Freehold, Migratetype, Order, Pfn, Request, SingleCpu};

/// Where the test "maps" the metadata: memory of the heap that is never given back.
fn from_map(map: &[(u64, u64)]) -> Result<(Freehold<'static, SingleCpu>, u64), BootError> {
    let mut at = 0;
    let map_metadata = |physical: u64| {
        at = physical;
        // SAFETY: the layout is not empty. 16 MiB are more than any map here needs.
        unsafe { alloc_zeroed(Layout::from_size_align(16 << 20, 4096).unwrap()) }
    };
    // SAFETY: frames are only numbers here, and the metadata is the heap's, for ever.
    let freehold = unsafe { Freehold::from_map(map, 1, map_metadata, SingleCpu) }?;
    Ok((freehold, at))
}

#[test]
fn all_but_the_metadata_and_broken_frames_is_free() {
    // 159 frames; half a frame; 127 MiB that begin and end inside a frame.
    let map = [(0x1000, 0x9f000), (0xb_0800, 0x800), ((1 << 20) + 1, (127 << 20) - 2)];
    let (freehold, metadata) = from_map(&map).unwrap();
    let end = ((1 << 20) + 1 + (127 << 20) - 2) / 4096;
    let taken = end - metadata / 4096;
    assert!(taken > 0 && taken < 64, "{taken} frames of metadata");
    let free = freehold.zone_stats(0).unwrap().free;
    assert_eq!(free, 0x9f + (end - 257 - taken), "first and last frames are not whole");
    freehold.validate().unwrap();
    // Everything that is handed out lies before the metadata.
    let mut taken = 0;
    while let Ok(pfn) = freehold.here().alloc(
        Request::new(Order::ZERO, Migratetype::Movable).flags(freehold::AllocFlags::NO_WATERMARKS),
    ) {
        assert!(pfn < Pfn::new(metadata / 4096), "{pfn} is metadata");
        taken += 1;
    }
    assert_eq!(taken, free);
}

#[test]
fn the_metadata_is_taken_from_the_largest_piece() {
    let (_, metadata) = from_map(&[(64 << 20, 96 << 20), (1 << 30, 8 << 20)]).unwrap();
    assert!((64 << 20..160 << 20).contains(&metadata), "{metadata:#x}");
}

#[test]
fn maps_without_room_are_refused_with_the_sizes() {
    assert_eq!(from_map(&[]).err(), Some(BootError::NoFrame));
    assert_eq!(from_map(&[(1 << 20, 4095)]).err(), Some(BootError::NoFrame));
    let Err(BootError::NoMemory { needed, largest: 4096 }) = from_map(&[(1 << 20, 5000)]) else {
        panic!("one frame has no room for the metadata of a section");
    };
    // One frame more than the metadata is enough, and one byte less is not.
    let enough = ((needed as u64).div_ceil(4096) + 1) * 4096;
    let (freehold, _) = from_map(&[(1 << 20, enough)]).unwrap();
    assert_eq!(freehold.zone_stats(0).unwrap().free, 1);
    assert!(matches!(from_map(&[(1 << 20, enough - 1)]), Err(BootError::NoMemory { .. })));
}

#[test]
fn maps_that_make_no_sense_are_refused() {
    let many: Vec<_> = (0..129).map(|n| (n << 21, 1 << 20)).collect();
    assert_eq!(from_map(&many).err(), Some(BootError::TooManyPieces { pieces: 129 }));
    assert!(from_map(&many[..128]).is_ok());
    let wraps = BootError::Wraps { start: u64::MAX - 4095, bytes: 8192 };
    assert_eq!(from_map(&[(u64::MAX - 4095, 8192)]).err(), Some(wraps));
    let twice = from_map(&[(0, 8 << 20), (4 << 20, 8 << 20)]).err();
    assert!(matches!(twice, Some(BootError::Config(ConfigError::Overlap { .. }))), "{twice:?}");
}
