//! A hosted arena under a whole program: large buffers are frames, small ones the system's.
//!
//! ```no_run
//! use freehold_adapters::global::LargeFromArena;
//!
//! #[global_allocator]
//! static GLOBAL: LargeFromArena = LargeFromArena::new(8 << 30); // address space, not memory
//! # fn main() {}
//! ```
//!
//! What a program gets for it: memory of large buffers that is [given
//! back](freehold_host::Arena::trim) to the system, statistics of it, and shrinking that moves
//! nothing. What it does not get is a faster `malloc`: requests below the
//! [threshold](LargeFromArena::with) (128 KiB, where glibc begins to map each buffer on its own)
//! are the system's.
//!
//! # An allocator under itself
//!
//! The arena's own code allocates: little, while it is made and when a thread first meets it. It
//! must not get that from itself. So a thread that is inside the arena gets what it asks for from
//! the system, and while the arena is being made everybody does. Which of the two a buffer is from
//! is told by its address. A thread's last frees, made by destructors of thread-local values when
//! its slot in the arena is gone already, go through a CPU that is shared.
//!
//! A forked child gets everything from the system; frees of what its parent allocated do nothing in
//! it.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::fmt;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::alloc::System;
use std::{eprintln, process, thread_local};

use freehold::{FrameRange, Pfn};
use freehold_host::{Arena, Builder};

use crate::large::{THRESHOLD, frames_at, frames_of, give, grow_in_place, take};

const UNTOUCHED: u8 = 0;
const BEGUN: u8 = 1;
const MADE: u8 = 2;
const FAILED: u8 = 3;

/// What glibc maps on its own by default.
const LARGE: usize = 128 << 10;

/// The global allocator; see the [module's documentation](self).
pub struct LargeFromArena {
    bytes: u64,
    threshold: usize,
    build: fn(Builder) -> Builder,
    arena: AtomicPtr<Arena>,
    state: AtomicU8,
}

thread_local! {
    /// This thread is inside the arena. No destructor and a constant to begin with: looking at it
    /// allocates nothing, and it can be looked at while the thread ends.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` as the arena's own code; `None` where it runs already.
fn inside<R>(f: impl FnOnce() -> R) -> Option<R> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    if INSIDE.replace(true) {
        return None;
    }
    let _leave = Leave;
    Some(f())
}

impl LargeFromArena {
    /// Buffers of 128 KiB and more out of an arena of so many bytes of address space, made at the
    /// first of them.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self::with(bytes, LARGE, |builder| builder)
    }

    /// An allocator that takes from another size on (at least a page), with knobs of the arena's.
    #[must_use]
    pub const fn with(bytes: u64, threshold: usize, build: fn(Builder) -> Builder) -> Self {
        Self {
            bytes,
            threshold: if threshold < THRESHOLD { THRESHOLD } else { threshold },
            build,
            arena: AtomicPtr::new(null_mut()),
            state: AtomicU8::new(UNTOUCHED),
        }
    }

    /// The arena, once there was a large buffer: to look at its statistics, or trim it. `None`
    /// before, and where it could not be made.
    #[must_use]
    pub fn arena(&self) -> Option<&'static Arena> {
        // Acquire: with the store in `make`, so that all of the arena is seen.
        let arena = self.arena.load(Ordering::Acquire);
        // SAFETY: it is null, or was leaked in `make` and lives as long as the program.
        unsafe { arena.as_ref() }
    }

    fn arena_or_make(&self) -> Option<&'static Arena> {
        match self.arena() {
            None => self.make(),
            arena => arena,
        }
    }

    #[cold]
    fn make(&self) -> Option<&'static Arena> {
        // Relaxed: who wins does all by itself, and tells the others by `arena`.
        self.state.compare_exchange(UNTOUCHED, BEGUN, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // On this thread everything that it allocates is the system's, and other threads see no
        // arena yet.
        let made = (self.build)(Arena::builder(self.bytes)).build();
        match made {
            Ok(arena) => {
                let arena = arena.leak();
                // Release: with the load in `arena`.
                self.arena.store(core::ptr::from_ref(arena).cast_mut(), Ordering::Release);
                self.state.store(MADE, Ordering::Relaxed);
                Some(arena)
            }
            Err(error) => {
                self.state.store(FAILED, Ordering::Relaxed);
                eprintln!("freehold: no arena for large buffers, the system serves them: {error}");
                None
            }
        }
    }

    fn large(&self, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
        if layout.size() < self.threshold {
            return None;
        }
        inside(|| take(self.arena_or_make()?, layout, zeroed)).flatten()
    }

    /// The frames behind a buffer, if it is the arena's.
    fn frames(&self, at: *mut u8, bytes: usize) -> Option<(&'static Arena, FrameRange)> {
        let arena = self.arena()?;
        Some((arena, frames_at(arena, NonNull::new(at)?, bytes)?))
    }
}

/// Gives frames back, or ends the program: a double free that goes on is worse, and a panic may not
/// leave an allocator.
///
/// # Safety
///
/// They are the caller's, and nobody uses them any more.
unsafe fn give_or_abort(arena: &Arena, range: FrameRange) {
    // SAFETY: the caller's promise.
    let freed = || unsafe { give(arena, range) };
    // A free from inside the arena is of what the arena allocated, which is never frames; so this
    // is never inside already.
    if let Some(Err(error)) = inside(freed) {
        eprintln!("freehold: a buffer was freed twice, or was none: {error}");
        process::abort();
    }
}

// SAFETY: a buffer is a run of frames, or the system allocator's, and is freed to where it came
// from; it is as large and as aligned as was asked. It does not unwind.
unsafe impl GlobalAlloc for LargeFromArena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.large(layout, false) {
            Some(at) => at.as_ptr(),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.large(layout, true) {
            Some(at) => at.as_ptr(),
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        match self.frames(ptr, layout.size()) {
            // SAFETY: the caller's promise.
            Some((arena, range)) => unsafe { give_or_abort(arena, range) },
            // SAFETY: the caller's promise, and not the arena's, so the system's.
            None => unsafe { System.dealloc(ptr, layout) },
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let here = self.frames(ptr, layout.size());
        let old = frames_of(layout.size());
        let new = frames_of(new_size);
        match here {
            Some((arena, range)) if new <= old && new_size >= self.threshold => {
                let tail = FrameRange { start: Pfn::new(range.start.get() + new), end: range.end };
                // SAFETY: the caller gives up all behind the new end.
                unsafe { give_or_abort(arena, tail) };
                return ptr;
            }
            Some((arena, range))
                // SAFETY: the caller has the buffer.
                if new > old && unsafe { grow_in_place(arena, range, new_size, None) } =>
            {
                return ptr;
            }
            None if new_size < self.threshold => {
                // SAFETY: the caller's promise; it is the system's and stays so.
                return unsafe { System.realloc(ptr, layout, new_size) };
            }
            _ => {}
        }
        // SAFETY: the caller promises that the new size, rounded up to the alignment, does not
        // overflow.
        let to = unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !to.is_null() {
            // SAFETY: both have so many bytes, and the new buffer is another one; then the caller's
            // promise.
            unsafe {
                to.copy_from_nonoverlapping(ptr, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
        }
        to
    }
}

impl fmt::Debug for LargeFromArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeFromArena")
            .field("bytes", &self.bytes)
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}
