//! The arena, and its frames by number.

use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use freehold_host::Arena as HostArena;

use crate::arguments::{frames, shared};
use crate::error::{Error, Failure, answer, tell};
use crate::status::Status;

/// An arena of real page frames in this process. Opaque.
///
/// Its calls may be made from any thread, but not from signal handlers. In a child of fork(2)
/// every call is refused with `FREEHOLD_STATUS_FORKED`: the frames belong to the parent.
pub struct Arena {
    /// `LIVE`, or `ENDED`; in whatever else a pointer points to, most likely neither.
    magic: AtomicU64,
    arena: ManuallyDrop<HostArena>,
}

const LIVE: u64 = 0xF4EE_401D_A4E7_A11E;
const ENDED: u64 = 0xF4EE_401D_DEAD_A4E7;

/// The handles of the arenas that ended last, a few words each. They are kept, so that who still
/// uses one is told so, and does not read memory that is somebody else's by now. No lock: a child
/// of fork(2) may end its copies too, and a lock that another thread held at that moment would stay
/// locked there.
static LAST_ENDED: [AtomicPtr<Arena>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];
/// How many arenas have ended.
static HAVE_ENDED: AtomicUsize = AtomicUsize::new(0);

impl Arena {
    pub(crate) fn boxed(arena: HostArena) -> *mut Self {
        Box::into_raw(Box::new(Self {
            magic: AtomicU64::new(LIVE),
            arena: ManuallyDrop::new(arena),
        }))
    }

    /// Keeps the handle of an arena that has just ended, in the place of the one that was kept
    /// longest.
    ///
    /// # Safety
    ///
    /// It is boxed, and the arena in it is dropped.
    unsafe fn keep(this: *mut Self) {
        // Relaxed: only which place.
        let place = HAVE_ENDED.fetch_add(1, Ordering::Relaxed) % LAST_ENDED.len();
        // AcqRel: what was done with a handle comes before it is freed.
        let longest = LAST_ENDED[place].swap(this, Ordering::AcqRel);
        if !longest.is_null() {
            // SAFETY: boxed, kept once, and taken out of its place here; its arena is dropped.
            drop(unsafe { Box::from_raw(longest) });
        }
    }

    fn check(&self) -> Result<(), Failure> {
        // Relaxed: to end an arena while others use it breaks a promise; this is to find
        // those who come later.
        match self.magic.load(Ordering::Relaxed) {
            LIVE => Ok(()),
            ENDED => Err(Failure::Ended),
            magic => Err(Failure::Argument {
                what: "arena",
                value: magic,
                allowed: "a pointer to an arena",
            }),
        }
    }
}

/// The arena behind a handle, unless that is null, has been destroyed or is none.
#[inline(always)]
pub(crate) unsafe fn live<'a>(arena: *const Arena) -> Result<&'a HostArena, Failure> {
    // SAFETY: the caller's promise.
    let this = unsafe { shared(arena, "arena")? };
    this.check()?;
    Ok(&this.arena)
}

/// An arena of at least that many bytes of private memory, with every knob at its default. To be
/// given to `freehold_arena_destroy`. In a process that has called mlockall(MCL_FUTURE) the kernel
/// backs and locks all of it at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_new(
    bytes: u64,
    arena: *mut *mut Arena,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { tell(arena, "arena", error, || Ok(Arena::boxed(HostArena::with_size(bytes)?))) }
}

/// Ends an arena and sets the pointer to null; its memory goes back to the OS, frames that are
/// still allocated included. A null arena is fine and nothing is done. A later use of another
/// copy of the pointer is answered with `FREEHOLD_STATUS_ENDED`, until 64 more have ended.
///
/// Thread safety: nobody may be using the arena or its frames, or use them later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_destroy(
    arena: *mut *mut Arena,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe {
        answer(error, || {
            let handle = arena.as_mut().ok_or(Failure::Null("arena"))?;
            let Some(this) = handle.as_mut() else { return Ok(()) };
            // AcqRel, Acquire: of threads that end an arena at once, one does; what the others did
            // with it before comes before that.
            if this
                .magic
                .compare_exchange(LIVE, ENDED, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                return this.check().and(Err(Failure::Ended));
            }
            ManuallyDrop::drop(&mut this.arena);
            Arena::keep(this);
            *handle = ptr::null_mut();
            Ok(())
        })
    }
}

/// Frees the frames from `start` to `end` (not included), whatever the allocations were, from any
/// thread. Never waits for a lock. Frames that are free already are refused, as by `freehold_free`;
/// what neither of two frees could see is counted in `late_double_frees` of the statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_free_range(
    arena: *const Arena,
    start: u64,
    end: u64,
    error: *mut Error,
) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(live(arena)?.free_range(frames(start, end))?)) }
}

/// Checks every invariant; fails with the first violation. Everybody else waits meanwhile. Only to
/// be relied on while nobody frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_validate(arena: *const Arena, error: *mut Error) -> Status {
    // SAFETY: the caller's promise, for each pointer.
    unsafe { answer(error, || Ok(live(arena)?.validate()?)) }
}
