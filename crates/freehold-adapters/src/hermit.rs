//! The shape of the Hermit kernel's `PageRangeAllocator`, over the real `free-list` crate's ranges
//! and layouts.
//!
//! Hermit's trait has no `self`: the type is the allocator. So a kernel says on a type of its own
//! where its allocator is, and
//! [`PageRanges`] of that type implements the trait:
//!
//! ```
//! use freehold::{Config, FrameRange, Freehold, Pfn, Threads, ZoneConfig};
//! use freehold_adapters::hermit::{Engine, PageRangeAllocator, PageRanges};
//! use free_list::PageLayout;
//! use std::sync::OnceLock;
//!
//! static PHYSICAL: OnceLock<Freehold<'static, Threads>> = OnceLock::new();
//!
//! enum Physical {}
//!
//! impl Engine for Physical {
//!     type Platform = Threads;
//!
//!     unsafe fn init() {
//!         let memory = [FrameRange::new(Pfn::new(0x1000), 1 << 15).unwrap()]; // from the boot memory map
//!         let zones = [ZoneConfig::new(&memory)];
//!         PHYSICAL.get_or_init(|| Freehold::leaked(&Config::new(8, &zones), Threads::new(8)).unwrap());
//!     }
//!
//!     fn engine() -> &'static Freehold<'static, Threads> {
//!         PHYSICAL.get().expect("init comes first")
//!     }
//! }
//!
//! type FrameAlloc = PageRanges<Physical>;
//!
//! // SAFETY: once, before anything else.
//! unsafe { FrameAlloc::init() };
//! let range = FrameAlloc::allocate(PageLayout::from_size_align(5 << 12, 2 << 20).unwrap())?;
//! assert_eq!((range.pages().get(), range.start() % (2 << 20)), (5, 0));
//! // SAFETY: nobody uses it.
//! unsafe { FrameAlloc::deallocate(range) };
//! # Ok::<(), freehold::AllocError>(())
//! ```
//!
//! The kernel is no library, so the trait is written down here again. Its error is
//! `core::alloc::AllocError`, which only nightly compilers have; here it is the allocator's own,
//! which says why.

use core::marker::PhantomData;

use ::free_list::{PageLayout, PageRange};
use freehold::{
    AllocError, FRAME_SIZE, FrameRange, FreeError, Freehold, Migratetype, Order, Pfn, Platform,
};

use crate::run::alloc_run;

/// What Hermit wants of a page range allocator, but for the error's type.
pub trait PageRangeAllocator {
    /// Makes the allocator ready.
    ///
    /// # Safety
    ///
    /// Once, before any other call.
    unsafe fn init();

    /// Pages in a row for that layout.
    ///
    /// # Errors
    ///
    /// Where there are none.
    fn allocate(layout: PageLayout) -> Result<PageRange, AllocError>;

    /// Just these pages.
    ///
    /// # Errors
    ///
    /// Where some of them are in use or do not exist; nothing has changed then.
    fn allocate_at(range: PageRange) -> Result<(), AllocError>;

    /// Frees these pages.
    ///
    /// # Safety
    ///
    /// They are allocated, and nobody uses them any more.
    unsafe fn deallocate(range: PageRange);
}

/// Where a kernel's allocator is.
pub trait Engine: 'static {
    /// The allocator's host.
    type Platform: Platform + 'static;

    /// Makes it.
    ///
    /// # Safety
    ///
    /// Once, before any other call.
    unsafe fn init();

    /// The allocator. May panic before [`Self::init`].
    fn engine() -> &'static Freehold<'static, Self::Platform>;
}

/// The allocator of `E` as a [`PageRangeAllocator`]; see the [module's documentation](self).
#[derive(Debug)]
pub struct PageRanges<E>(PhantomData<E>);

fn frames(range: PageRange) -> FrameRange {
    let pfn = |address: usize| Pfn::new(address as u64 / FRAME_SIZE);
    FrameRange { start: pfn(range.start()), end: pfn(range.end()) }
}

impl<E: Engine> PageRanges<E> {
    /// As [`PageRangeAllocator::deallocate`], but says why not.
    ///
    /// # Safety
    ///
    /// Nobody uses the pages any more.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    pub unsafe fn try_deallocate(range: PageRange) -> Result<(), FreeError> {
        E::engine().here().free_range(frames(range))
    }
}

impl<E: Engine> PageRangeAllocator for PageRanges<E> {
    unsafe fn init() {
        // SAFETY: the caller's promise.
        unsafe { E::init() }
    }

    /// Exactly the layout's size, anywhere that its alignment allows.
    fn allocate(layout: PageLayout) -> Result<PageRange, AllocError> {
        let count = (layout.size() as u64).div_ceil(FRAME_SIZE);
        let align = (layout.align() as u64).div_ceil(FRAME_SIZE);
        let everywhere = FrameRange { start: Pfn::new(0), end: Pfn::new(1 << 40) };
        let start = alloc_run(E::engine(), count, align, Migratetype::Unmovable, everywhere)?;
        let (start, len) = (start.get() * FRAME_SIZE, count * FRAME_SIZE);
        // It cannot be refused: neither is empty, and frames end at 2^52.
        PageRange::from_start_len(start as usize, len as usize).map_err(|_| AllocError::NoMemory {
            order: Order::fitting(count).unwrap_or(Order::MAX),
        })
    }

    fn allocate_at(range: PageRange) -> Result<(), AllocError> {
        E::engine().alloc_contig_range(frames(range), |_| false)
    }

    /// # Panics
    ///
    /// Where some of the pages are free already, were never handed out or do not exist; nothing has
    /// changed then. See
    /// [`PageRanges::try_deallocate`].
    unsafe fn deallocate(range: PageRange) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { Self::try_deallocate(range) } {
            panic!("deallocate({range:?}): {error}");
        }
    }
}
