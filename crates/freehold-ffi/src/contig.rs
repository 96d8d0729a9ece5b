//! Frames that the caller names, with their users moved out of the way.

use core::ffi::c_void;

use freehold::FrameRange;

use crate::allocator::Allocator;
use crate::arguments::{frames, shared};
use crate::error::{Error, answer};
use crate::status::Status;

/// Moves the contents of the frames from `start` to `end` (not included) elsewhere and frees the
/// frames; says whether trying was of use. Called without any lock held, so it may call the
/// allocator. Must not throw or longjmp.
pub type Migrate = Option<unsafe extern "C" fn(user: *mut c_void, start: u64, end: u64) -> bool>;

/// The caller's function as the allocator takes it; null moves nothing.
///
/// # Safety
///
/// The function may be called with that pointer as long as the result is used.
unsafe fn mover(migrate: Migrate, user: *mut c_void) -> impl FnMut(FrameRange) -> bool {
    move |used| {
        // SAFETY: the caller's promise.
        migrate.is_some_and(|migrate| unsafe { migrate(user, used.start.get(), used.end.get()) })
    }
}

/// Allocates exactly the frames from `start` to `end` (not included), having `migrate` move their
/// users away. Takes time proportional to the range, times the rounds of migration (5 at most). On
/// failure every block is as it was, but for what `migrate` has moved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_contig_range(
    allocator: *const Allocator,
    start: u64,
    end: u64,
    migrate: Migrate,
    user: *mut c_void,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        answer(error, || {
            let this = shared(allocator, "allocator")?;
            this.engine.alloc_contig_range(frames(start, end), mover(migrate, user))?;
            Ok(())
        })
    }
}
