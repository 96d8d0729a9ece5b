//! `FrameAllocator` and `FrameDeallocator` of the `x86_64` crate.
//!
//! ```
//! use freehold::{Config, FrameRange, Freehold, Pfn, SingleCpu, ZoneConfig};
//! use freehold_adapters::x86_64::Frames;
//! use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PhysFrame};
//! use x86_64::structures::paging::{Size2MiB, Size4KiB};
//!
//! let memory = [FrameRange::new(Pfn::new(0x1000), 1 << 15).unwrap()];
//! let zones = [ZoneConfig::new(&memory)];
//! let config = Config::new(1, &zones);
//! let size = Freehold::<SingleCpu>::metadata_size(&config)?;
//! let mut metadata = vec![core::mem::MaybeUninit::uninit(); size];
//! let freehold = Freehold::new(&config, &mut metadata, SingleCpu)?;
//!
//! // A handle: copy it, keep one on each CPU.
//! // SAFETY: what it hands out is freed through such handles only.
//! let mut frames = unsafe { Frames::new(&freehold) };
//! let table: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
//! let huge: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
//! assert_eq!(huge.start_address().as_u64() % (2 << 20), 0);
//! // SAFETY: nobody uses them.
//! unsafe {
//!     frames.deallocate_frame(table);
//!     frames.deallocate_frame(huge);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The traits want `&mut self`, and the allocator is everybody's: so what implements them is a
//! handle, of which there may be any number. One over `&Freehold` works on the CPU that the
//! platform names; one over `&Owned` is the CPU's own and the fastest; one over `On` names a CPU.

use ::x86_64::PhysAddr;
use ::x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

use freehold::{FRAME_SIZE, FreeError, Migratetype, Order, Pfn, Request};

/// A handle that hands out frames of each of the three sizes. See the
/// [module's documentation](self).
#[derive(Clone, Copy, Debug)]
pub struct Frames<S> {
    source: S,
    migratetype: Migratetype,
}

impl<S: freehold::Frames> Frames<S> {
    /// Frames of that allocator, or CPU: anything that is [`freehold::Frames`]. They are unmovable:
    /// what a page table, a stack or a device has cannot go elsewhere.
    ///
    /// ```compile_fail,E0133
    /// # use freehold::{Freehold, SingleCpu};
    /// # fn new(freehold: &Freehold<'_, SingleCpu>) {
    /// // Whoever calls it promises something about every other use of the allocator.
    /// freehold_adapters::x86_64::Frames::new(freehold);
    /// # }
    /// ```
    ///
    /// # Safety
    ///
    /// A frame that this handle or a copy of it hands out is not freed but through one of them, nor
    /// taken over otherwise, as by a free of a range that it lies in. Freeing in the allocator
    /// itself is safe, and what it frees it hands out again; but [`FrameAllocator`] promises its
    /// callers that a frame is theirs alone. So `source` hands out a frame to one caller at a time,
    /// until it is freed, as [`Freehold`](freehold::Freehold) and its handles do.
    #[must_use]
    pub const unsafe fn new(source: S) -> Self {
        Self { source, migratetype: Migratetype::Unmovable }
    }

    /// Frames of another kind: [`Migratetype::Movable`] for what the kernel can copy elsewhere, as
    /// user pages.
    #[must_use]
    pub const fn migratetype(mut self, migratetype: Migratetype) -> Self {
        self.migratetype = migratetype;
        self
    }

    const fn order<Z: PageSize>() -> Order {
        match Order::fitting(Z::SIZE / FRAME_SIZE) {
            Some(order) => order,
            None => panic!("a page is at least a frame"),
        }
    }

    /// Frees a frame, or says why not.
    ///
    /// # Safety
    ///
    /// Nobody uses the frame any more.
    ///
    /// # Errors
    ///
    /// The allocator's own; nothing has changed then.
    pub unsafe fn try_deallocate_frame<Z: PageSize>(
        &self,
        frame: PhysFrame<Z>,
    ) -> Result<(), FreeError> {
        self.source.free(Pfn::new(frame.start_address().as_u64() / FRAME_SIZE), Self::order::<Z>())
    }
}

// SAFETY: by the promises made to `Frames::new` the source hands out a frame to one caller at a
// time, whatever its size, until it is freed, which only who has it does.
unsafe impl<S: freehold::Frames, Z: PageSize> FrameAllocator<Z> for Frames<S> {
    /// `None` where there is no free chunk of that size. Frames are aligned to their size.
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame<Z>> {
        let pfn = self.source.alloc(Request::new(Self::order::<Z>(), self.migratetype)).ok()?;
        // In range: the allocator has no frames above 2^40, and a physical address has 52 bits.
        Some(PhysFrame::containing_address(PhysAddr::new(pfn.get() * FRAME_SIZE)))
    }
}

impl<S: freehold::Frames, Z: PageSize> FrameDeallocator<Z> for Frames<S> {
    /// # Panics
    ///
    /// Where the frame is free already, was never handed out or does not exist; nothing has changed
    /// then. See
    /// [`Frames::try_deallocate_frame`].
    #[inline]
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<Z>) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.try_deallocate_frame(frame) } {
            panic!("deallocate_frame: {error}");
        }
    }
}
