//! [`Frames`]: the calls of a page allocator, for code that does not care whose they are.
//!
//! ```text
//!            Frames
//!     /        |        \
//! Handle<D>  Freehold   a wrapper that counts, checks or fails on purpose; another allocator
//! ```
//!
//! A handle's own methods are the fastest and have more to say; this is what adapters, the virtual
//! memory of `freehold-vm`, hosts and tests ask for. `&dyn Frames` is `Frames` too.

use super::handle::{Door, Handle, one_by_one};
use crate::{
    AllocError, BulkFreeError, FrameRange, FreeError, Freehold, Order, Pfn, Platform, Request,
};

/// Where frames come from and go to: a CPU of a [`Freehold`], or the allocator itself, which asks
/// the platform for the current CPU at each call.
///
/// What was allocated in one piece must be freeable in parts, without being split first.
pub trait Frames {
    /// Allocates `2^order` neighbouring, naturally aligned frames.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; nothing has changed then.
    fn alloc(&self, request: Request) -> Result<Pfn, AllocError>;

    /// Frees `2^order` frames: any aligned part of what was allocated.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError>;

    /// Frees any range of frames that were allocated, whatever the allocations were.
    ///
    /// # Errors
    ///
    /// See [`FreeError`]; nothing has changed then.
    fn free_range(&self, range: FrameRange) -> Result<(), FreeError>;

    /// Allocates single frames until `out` is full or memory is not; returns how many there are.
    /// Here one after the other; allocators that know better do it at once.
    ///
    /// # Errors
    ///
    /// See [`AllocError`]; only where not a single frame was allocated. A request that is not of
    /// order 0 is [`AllocError::OrderTooLarge`].
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
        one_by_one(request, out, |request| self.alloc(request))
    }

    /// Frees single frames, in any order. Here one after the other; allocators that know better
    /// free neighbours together.
    ///
    /// # Errors
    ///
    /// The first frame that cannot be freed, and how many before it in the slice have been freed;
    /// those behind it have not.
    fn free_bulk(&self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
        for (freed, &pfn) in frames.iter().enumerate() {
            self.free(pfn, Order::ZERO).map_err(|error| BulkFreeError { freed, error })?;
        }
        Ok(())
    }
}

/// The calls of [`Frames`] are those of something else. Always inlined, as what they call: a request
/// is known at compile time then, and a pair of calls takes less than half the instructions.
macro_rules! calls_of {
    ($self:ident => $other:expr) => {
        #[inline(always)]
        fn alloc(&$self, request: Request) -> Result<Pfn, AllocError> {
            $other.alloc(request)
        }

        #[inline(always)]
        fn free(&$self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
            $other.free(pfn, order)
        }

        #[inline]
        fn free_range(&$self, range: FrameRange) -> Result<(), FreeError> {
            $other.free_range(range)
        }

        #[inline]
        fn alloc_bulk(&$self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError> {
            $other.alloc_bulk(request, out)
        }

        #[inline]
        fn free_bulk(&$self, frames: &[Pfn]) -> Result<(), BulkFreeError> {
            $other.free_bulk(frames)
        }
    };
}

impl<'m, P: Platform, D: Door<'m>> Frames for Handle<'_, 'm, P, D> {
    calls_of!(self => self);
}

/// On the CPU that the platform names at each call.
impl<P: Platform> Frames for Freehold<'_, P> {
    calls_of!(self => self.here());
}

impl<F: Frames + ?Sized> Frames for &F {
    calls_of!(self => (**self));
}
