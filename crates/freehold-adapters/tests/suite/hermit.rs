//! Hermit's trait over the real `free-list` crate's types, beside that crate's own allocator doing
//! the same.

use std::panic::catch_unwind;
use std::sync::OnceLock;

use free_list::{FreeList, PageLayout, PageRange};
use freehold::{
    AllocError, Config, FrameRange, FreeError, Freehold, Pfn, Threads, Watermarks, ZoneConfig,
};
use freehold_adapters::hermit::{Engine, PageRangeAllocator, PageRanges};

static PHYSICAL: OnceLock<Freehold<'static, Threads>> = OnceLock::new();

enum Physical {}

impl Engine for Physical {
    type Platform = Threads;

    unsafe fn init() {
        // 32 MiB from 16 MiB on.
        let memory = [FrameRange::new(Pfn::new(0x1000), 8192).unwrap()];
        let zones = [ZoneConfig { watermarks: Watermarks::None, ..ZoneConfig::new(&memory) }];
        PHYSICAL
            .get_or_init(|| Freehold::leaked(&Config::new(2, &zones), Threads::new(2)).unwrap());
    }

    fn engine() -> &'static Freehold<'static, Threads> {
        PHYSICAL.get().expect("init comes first")
    }
}

type Frames = PageRanges<Physical>;

fn free_space() -> usize {
    Physical::engine().zone_stats(0).unwrap().free as usize * 4096
}

/// One test, since the type is the allocator.
#[test]
fn as_a_kernel_uses_it() {
    // SAFETY: once, before anything else.
    unsafe { Frames::init() };
    let mut list = FreeList::<64>::new();
    // SAFETY: it is nobody's memory.
    unsafe { list.deallocate((0x100_0000..0x300_0000).try_into().unwrap()).unwrap() };

    // Layouts of all kinds: as much is taken as by the kernel's own allocator, and aligned as well.
    let mut live: Vec<(PageRange, PageRange)> = Vec::new();
    for i in 0..200usize {
        let layout =
            PageLayout::from_size_align((1 + i * 7 % 40) << 12, 1 << (12 + i % 7)).unwrap();
        let (ours, theirs) = (Frames::allocate(layout).unwrap(), list.allocate(layout).unwrap());
        assert_eq!((ours.len(), ours.start() % layout.align()), (theirs.len(), 0));
        assert!(!live.iter().any(|(other, _)| other.overlaps(ours)));
        live.push((ours, theirs));
        if i % 3 == 2 {
            let (ours, theirs) = live.swap_remove(i % live.len());
            // SAFETY: nobody uses them.
            unsafe {
                Frames::deallocate(ours);
                list.deallocate(theirs).unwrap();
            }
        }
        assert_eq!(free_space(), list.free_space());
    }

    // Just these pages, if nobody has them.
    let taken = live[0].0;
    let free_before = free_space();
    assert!(matches!(Frames::allocate_at(taken), Err(AllocError::Busy { .. })));
    let outside = PageRange::new(0x300_0000, 0x300_1000).unwrap();
    assert!(matches!(Frames::allocate_at(outside), Err(AllocError::BadRange { .. })));
    assert_eq!(free_space(), free_before);

    for (ours, theirs) in live {
        // SAFETY: nobody uses them. A part first, then the rest.
        unsafe {
            if ours.pages().get() > 1 {
                Frames::deallocate(PageRange::new(ours.start() + 4096, ours.end()).unwrap());
                Frames::deallocate(PageRange::from_start_len(ours.start(), 4096).unwrap());
            } else {
                Frames::deallocate(ours);
            }
            list.deallocate(theirs).unwrap();
        }
    }
    assert_eq!((free_space(), list.free_space()), (32 << 20, 32 << 20));
    let everything = PageRange::new(0x100_0000, 0x300_0000).unwrap();
    Frames::allocate_at(everything).unwrap();
    assert!(Frames::allocate(PageLayout::from_size(4096).unwrap()).is_err());
    // SAFETY: nobody uses it.
    unsafe { Frames::deallocate(everything) };

    // Wrong frees: refused where one asks, a panic where the kernel's trait has no answer.
    // SAFETY: nobody uses any of this.
    unsafe {
        assert!(matches!(Frames::try_deallocate(everything), Err(FreeError::DoubleFree { .. })));
        assert!(matches!(Frames::try_deallocate(outside), Err(FreeError::OutOfZone { .. })));
        let message = catch_unwind(|| Frames::deallocate(everything))
            .unwrap_err()
            .downcast::<String>()
            .unwrap();
        assert!(message.contains("double free"), "{message}");
    }
    assert_eq!(free_space(), 32 << 20);
    Physical::engine().validate().unwrap();
}
