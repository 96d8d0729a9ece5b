//! An arena as the page allocator of [`freehold_vm`]: frames by number, nothing else.

use freehold::{AllocError, FrameRange, Frames, FreeError, Order, Pfn, Request};

use crate::{Arena, Error};

/// An [`Arena`] that virtual memory takes its frames from; made by [`Arena::frame_allocator`].
///
/// It is a type of its own because the frees of [`freehold::Frames`] are safe to call, while an
/// arena's frees by number are not: they could free what a [`Frames`](crate::Frames) handle points
/// to.
#[derive(Clone, Copy)]
pub struct ArenaFrames<'a> {
    arena: &'a Arena,
}

impl Arena {
    /// This arena as the page allocator of a [`Vm`](freehold_vm::Vm) or a
    /// [`Vmalloc`](freehold_vm::Vmalloc).
    ///
    /// # Safety
    ///
    /// Through what is returned, nobody frees frames that a [`Frames`](crate::Frames) handle has,
    /// or that somebody else still uses: as for [`Arena::free`], but promised once for all calls.
    #[must_use]
    pub unsafe fn frame_allocator(&self) -> ArenaFrames<'_> {
        ArenaFrames { arena: self }
    }
}

/// In a forked child nothing can be allocated: to the mechanisms above that is an arena without
/// memory.
fn alloc_error(error: Error, order: Order) -> AllocError {
    match error {
        Error::Alloc(error) => error,
        _ => AllocError::NoMemory { order },
    }
}

/// In a forked child the frames are the parent's: not of this process.
fn free_error(error: Error, pfn: Pfn) -> FreeError {
    match error {
        Error::Free(error) => error,
        _ => FreeError::OutOfZone { pfn },
    }
}

impl Frames for ArenaFrames<'_> {
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError> {
        self.arena.request(request).map_err(|error| alloc_error(error, request.order()))
    }

    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        self.arena.bulk(request, out).map_err(|error| alloc_error(error, request.order()))
    }

    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.arena.give(pfn, order).map_err(|error| free_error(error, pfn))
    }

    fn free_range(&self, range: FrameRange) -> Result<(), FreeError> {
        self.arena.give_range(range).map_err(|error| free_error(error, range.start))
    }
}
