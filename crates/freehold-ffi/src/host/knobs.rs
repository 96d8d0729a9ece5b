//! The knobs of an arena that have to do with safety and with limits: the others are in
//! `builder.rs`.

use core::ffi::c_void;

use crate::error::Error;
use crate::host::builder::{ArenaBuilder, turn};
use crate::status::Status;

/// An allocation of so many neighbouring frames is about to fail, for the `attempts`th time. Says
/// whether it has freed something, so that it is to be tried again. Must not throw or longjmp.
pub type OnExhausted =
    Option<unsafe extern "C" fn(user: *mut c_void, frames: u64, attempts: u32) -> bool>;

/// An arena is at its limit of resident memory: bytes that the OS may back, and the limit. Must not
/// throw or longjmp.
pub type OnPressure = Option<unsafe extern "C" fn(user: *mut c_void, resident: u64, limit: u64)>;

/// The program's own pointer, which the program lets any thread have.
struct User(*mut c_void);

// SAFETY: whoever sets a callback promises that it can be called on any thread.
unsafe impl Send for User {}
// SAFETY: the pointer is only handed to that callback.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Never gives memory back: for arenas that a device or the kernel knows the pages of. For parts of
/// one there is `freehold_arena_pin`. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_pinned(
    builder: *mut ArenaBuilder,
    pinned: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.pinned(pinned))) }
}

/// Notes where allocations start, so that `freehold_arena_free` of more frames than were allocated
/// is refused with `FREEHOLD_STATUS_WRONG_ORDER`. Every call takes longer. Default: no, but for
/// builds of the library with debug assertions.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_checked(
    builder: *mut ArenaBuilder,
    checked: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.checked(checked))) }
}

/// Writes zeros over frames that are freed. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_zero_on_free(
    builder: *mut ArenaBuilder,
    zero: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.zero_on_free(zero))) }
}

/// Leaves the arena out of core dumps. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_dont_dump(
    builder: *mut ArenaBuilder,
    dont_dump: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.dont_dump(dont_dump))) }
}

/// Keeps every page in memory from its first touch on (mlock2 with MLOCK_ONFAULT); nothing is given
/// back. Default: no.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_locked(
    builder: *mut ArenaBuilder,
    locked: bool,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.locked(locked))) }
}

/// The most bytes that the OS may back of the arena, in blocks of 2 MiB. Where that is reached, free
/// memory is given back first, and then calls that need more are refused with
/// `FREEHOLD_STATUS_LIMIT`. Default: none.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_resident_limit(
    builder: *mut ArenaBuilder,
    bytes: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.resident_limit(bytes))) }
}

/// The least run of free frames, a power of two from 1 to 512, that is given back out of a block in
/// use. Default: 8.
///
/// Thread safety: one thread at a time for each builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_least_run(
    builder: *mut ArenaBuilder,
    frames: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.least_run(frames))) }
}

/// Called before an allocation fails for want of frames, on the thread that allocates, with no lock
/// held: it may free, allocate and trim. Null, the default: nobody is asked.
///
/// Thread safety: one thread at a time for each builder.
///
/// Requires: the callback can be called with `user` on any thread while an arena made with it is
/// not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_on_exhausted(
    builder: *mut ArenaBuilder,
    callback: OnExhausted,
    user: *mut c_void,
    error: *mut Error,
) -> Status {
    let user = User(user);
    let call = move |wanted: freehold_host::Exhausted| {
        // SAFETY: the promise of whoever has set it.
        callback.is_some_and(|call| unsafe { call(user.get(), wanted.frames, wanted.attempts) })
    };
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.on_exhausted(call))) }
}

/// Called where the limit on resident memory is reached, before free memory is given back, as
/// `freehold_arena_builder_on_exhausted` says.
///
/// Thread safety: one thread at a time for each builder.
///
/// Requires: the callback can be called with `user` on any thread while an arena made with it is
/// not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_builder_on_pressure(
    builder: *mut ArenaBuilder,
    callback: OnPressure,
    user: *mut c_void,
    error: *mut Error,
) -> Status {
    let user = User(user);
    let call = move |pressure: freehold_host::Pressure| {
        if let Some(call) = callback {
            // SAFETY: the promise of whoever has set it.
            unsafe { call(user.get(), pressure.resident, pressure.limit) }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { turn(builder, error, |builder| Ok(builder.on_pressure(call))) }
}
