//! A zone of its own for the tests of page tables: 64 MiB of OSTD's memory, with an allocator of
//! its own.
//!
//! OSTD's own frames come from another instance (`frames.rs`), which its interrupt handlers use,
//! too. So nothing but a test changes what is free here, and every test can check that all came
//! back.

use alloc::vec;
use core::mem::MaybeUninit;

use freehold::{Config, FRAME_SIZE, FrameRange, Freehold, Pfn, SingleCpu, ZoneConfig};
use ostd::mm::{FrameAllocOptions, HasPaddr};
use spin::Once;

/// Frames of the zone.
pub(crate) const FRAMES: u64 = (64 << 20) / FRAME_SIZE;

static FREEHOLD: Once<Freehold<'static, SingleCpu>> = Once::new();
static FIRST: Once<Pfn> = Once::new();

/// Makes it. Once.
pub(crate) fn init() {
    let segment = FrameAllocOptions::new().zeroed(false).alloc_segment(FRAMES as usize);
    let segment = segment.unwrap_or_else(|error| panic!("no memory for the zone: {error:?}"));
    let start = Pfn::new(segment.paddr() as u64 / FRAME_SIZE);
    // For good: from here on the frames are this zone's.
    core::mem::forget(segment);
    let ranges = [FrameRange { start, end: Pfn::new(start.get() + FRAMES) }];
    let zones = [ZoneConfig::new(&ranges)];
    let config = Config::new(1, &zones);
    let size = config.metadata_size().unwrap_or_else(|error| panic!("{error}"));
    // Room to begin at a whole frame.
    let room = vec![MaybeUninit::<u8>::uninit(); size + FRAME_SIZE as usize].leak();
    let skip = room.as_ptr().align_offset(FRAME_SIZE as usize);
    let freehold = Freehold::new(&config, &mut room[skip..skip + size], SingleCpu);
    FREEHOLD.call_once(|| freehold.unwrap_or_else(|error| panic!("{error}")));
    FIRST.call_once(|| start);
}

/// The zone's allocator.
pub(crate) fn freehold() -> &'static Freehold<'static, SingleCpu> {
    FREEHOLD.get().expect("the tests begin by making it")
}

/// The zone's first frame.
pub(crate) fn first() -> Pfn {
    *FIRST.get().expect("the tests begin by making it")
}
