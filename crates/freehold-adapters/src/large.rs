//! Large buffers from a hosted arena, for every collection that takes an `allocator-api2`
//! allocator.
//!
//! ```
//! use allocator_api2::vec::Vec;
//! use freehold_adapters::large::LargeBuffers;
//! use freehold_host::Arena;
//!
//! let arena = Arena::with_size(64 << 20)?;
//! let mut buffer = Vec::new_in(LargeBuffers::new(&arena));
//! buffer.resize(1 << 20, 0u8); // 256 frames of the arena
//! assert_eq!(arena.stats().frames - arena.free_frames(), 256);
//! buffer.truncate(5000);
//! buffer.shrink_to_fit(); // in place: the other 254 go home
//! assert_eq!(arena.stats().frames - arena.free_frames(), 2);
//! # Ok::<(), freehold_host::Error>(())
//! ```
//!
//! A request of at least the [threshold](LargeBuffers::threshold) takes whole frames: 4 KiB is the
//! smallest that makes sense, and the default. Smaller ones go to the system's allocator, which is
//! made for them, and so does whatever the arena has no room for. Where a buffer is, is told by its
//! address. Shrinking gives the frames behind the new end back and moves nothing; growing moves
//! nothing from 2 MiB on, where the frames behind are free.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{GlobalAlloc, System};

use allocator_api2::alloc::{AllocError, Allocator};
use freehold::{FRAME_SIZE, FrameRange, Migratetype, Order, Pfn, Request};
use freehold_host::{Arena, Error, Frames, Handle};

/// The smallest request that is given frames, in bytes, unless said otherwise.
pub const THRESHOLD: usize = FRAME_SIZE as usize;

/// An allocator over an arena, which it refers to as [`Frames`] do: `&Arena`, `&'static Arena` or
/// `Arc<Arena>`. See the [module's documentation](self).
#[derive(Clone, Debug)]
pub struct LargeBuffers<H: Handle = &'static Arena> {
    arena: H,
    threshold: usize,
}

impl<H: Handle> LargeBuffers<H> {
    /// Buffers of that arena, from a page on.
    pub const fn new(arena: H) -> Self {
        Self { arena, threshold: THRESHOLD }
    }

    /// Only requests of at least so many bytes are given frames; at least a page.
    #[must_use]
    pub fn threshold(mut self, bytes: usize) -> Self {
        self.threshold = bytes.max(THRESHOLD);
        self
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &H {
        &self.arena
    }
}

/// How many frames hold so many bytes.
fn frames_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(FRAME_SIZE)
}

/// Frames for that layout; `None` where the arena has none.
fn take(arena: &Arena, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let count = frames_of(layout.size());
    let range = if layout.align() as u64 <= FRAME_SIZE {
        let frames = if zeroed { arena.zeroed(count) } else { arena.frames(count) };
        frames.ok()?.into_raw()
    } else {
        // A chunk starts at a multiple of its size: one of the alignment's size, if that is more.
        let align = Order::fitting(layout.align() as u64 / FRAME_SIZE)
            .filter(|o| o.frames() * FRAME_SIZE == layout.align() as u64)?;
        let order = Order::fitting(count.checked_next_power_of_two()?)
            .filter(|order| order.frames() >= count)?;
        let start = arena.request(Request::new(order, Migratetype::Movable).align(align)).ok()?;
        let end = Pfn::new(start.get() + count);
        let tail = FrameRange { start: end, end: Pfn::new(start.get() + order.frames()) };
        if !tail.is_empty() {
            // SAFETY: allocated just now, and nobody knows of them.
            let freed = unsafe { arena.free_range(tail) };
            debug_assert_eq!(freed, Ok(()));
        }
        if zeroed {
            let bytes = (count * FRAME_SIZE) as usize;
            // SAFETY: allocated just now; the frames are the caller's to be.
            unsafe { arena.pointer(start)?.write_bytes(0, bytes) };
        }
        FrameRange { start, end }
    };
    arena.pointer(range.start)
}

/// The frames that a buffer of that size has; `None` where it is not the arena's.
fn frames_at(arena: &Arena, at: NonNull<u8>, bytes: usize) -> Option<FrameRange> {
    FrameRange::new(arena.pfn_of(at.as_ptr())?, frames_of(bytes))
}

/// From how many frames on a buffer is grown where it is, if what lies behind it is free: a block.
/// To find that out concerns whole blocks; what is smaller is copied sooner.
const GROWN_IN_PLACE: u64 = freehold::PAGEBLOCK_FRAMES;

/// Grows a buffer to so many bytes without moving it; `false` where something is in the way. All
/// behind `dirty` bytes is zero then, if that is given.
///
/// # Safety
///
/// The frames are the caller's, and of that arena; `dirty` bytes are within them.
unsafe fn grow_in_place(
    arena: &Arena,
    range: FrameRange,
    bytes: usize,
    dirty: Option<usize>,
) -> bool {
    let more = frames_of(bytes).saturating_sub(range.len());
    if more > 0 {
        if range.len() < GROWN_IN_PLACE {
            return false;
        }
        // SAFETY: the caller's promise; they are taken out of the handle again.
        let Ok(mut frames) = (unsafe { Frames::from_raw(arena, range) }) else { return false };
        let grown =
            if dirty.is_some() { frames.try_extend_zeroed(more) } else { frames.try_extend(more) };
        let _ = frames.into_raw();
        if grown.is_err() {
            return false;
        }
    }
    if let (Some(dirty), Some(at)) = (dirty, arena.pointer(range.start)) {
        // SAFETY: within the buffer's own frames.
        unsafe { at.add(dirty).write_bytes(0, (range.len() * FRAME_SIZE) as usize - dirty) };
    }
    true
}

/// Gives a buffer's frames back.
///
/// # Safety
///
/// They are the caller's, and nobody uses them any more.
unsafe fn give(arena: &Arena, range: FrameRange) -> Result<(), Error> {
    if range.is_empty() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    match unsafe { arena.free_range(range) } {
        // A child's copy of its parent's buffer: nothing to free.
        Err(Error::Forked) => Ok(()),
        result => result,
    }
}

fn slice(at: NonNull<u8>, len: usize) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(at, len)
}

impl<H: Handle> LargeBuffers<H> {
    fn allocate_any(&self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling = core::ptr::without_provenance_mut(layout.align());
            return Ok(slice(NonNull::new(dangling).ok_or(AllocError)?, 0));
        }
        if layout.size() >= self.threshold {
            if let Some(at) = take(&self.arena, layout, zeroed) {
                return Ok(slice(at, (frames_of(layout.size()) * FRAME_SIZE) as usize));
            }
        }
        // SAFETY: the layout is not of size zero.
        let at = unsafe { if zeroed { System.alloc_zeroed(layout) } else { System.alloc(layout) } };
        Ok(slice(NonNull::new(at).ok_or(AllocError)?, layout.size()))
    }
}

// SAFETY: frames stay allocated, at their address, until they are freed: the handle keeps the
// arena. Clones refer to the same arena, and which allocator a buffer is of is told by its address,
// which all of them see alike.
unsafe impl<H: Handle> Allocator for LargeBuffers<H> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_any(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_any(layout, true)
    }

    /// # Panics
    ///
    /// Where the frames are free already: a defect of the program. Nothing has changed then.
    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        match frames_at(&self.arena, ptr, layout.size()) {
            // SAFETY: the caller's promise: it is a buffer of this allocator that nobody uses any
            // more, and of this size or one with as many frames.
            Some(range) => unsafe { give(&self.arena, range) }.unwrap_or_else(|error| {
                panic!("deallocate({ptr:p}, {} bytes): {error}", layout.size())
            }),
            // SAFETY: the caller's promise, and not the arena's, so the system's.
            None => unsafe { System.dealloc(ptr.as_ptr(), layout) },
        }
    }

    unsafe fn grow(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are what this demands.
        unsafe { self.grown(ptr, old, new, false) }
    }

    unsafe fn grow_zeroed(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promises are what this demands.
        unsafe { self.grown(ptr, old, new, true) }
    }

    unsafe fn shrink(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let whole =
            frames_at(&self.arena, ptr, old.size()).filter(|_| old.size() != 0 && new.size() != 0);
        // A buffer below the threshold is better off with the system.
        let stays = new.size() >= self.threshold && ptr.addr().get() % new.align() == 0;
        let Some(range) = whole.filter(|_| stays) else {
            // SAFETY: the caller's promises are what these demand.
            unsafe { return self.moved(ptr, old, new, new.size(), false) };
        };
        let kept = frames_of(new.size());
        let tail = FrameRange { start: Pfn::new(range.start.get() + kept), end: range.end };
        // SAFETY: the caller has the buffer, and gives up all behind the new end.
        unsafe { give(&self.arena, tail) }
            .unwrap_or_else(|error| panic!("shrink({ptr:p}): {error}"));
        Ok(slice(ptr, (kept * FRAME_SIZE) as usize))
    }
}

impl<H: Handle> LargeBuffers<H> {
    /// # Safety
    ///
    /// `ptr` is a buffer of this allocator with that layout, and the new one is as large.
    unsafe fn grown(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
        zeroed: bool,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let stays = old.size() != 0 && ptr.addr().get() % new.align() == 0;
        if let Some(range) = frames_at(&self.arena, ptr, old.size()).filter(|_| stays) {
            // SAFETY: the caller has the buffer.
            if unsafe {
                grow_in_place(&self.arena, range, new.size(), zeroed.then_some(old.size()))
            } {
                return Ok(slice(ptr, (frames_of(new.size()) * FRAME_SIZE) as usize));
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.moved(ptr, old, new, old.size(), zeroed) }
    }

    /// # Safety
    ///
    /// `ptr` is a buffer of this allocator with that layout; `bytes` is in both.
    unsafe fn moved(
        &self,
        ptr: NonNull<u8>,
        old: Layout,
        new: Layout,
        bytes: usize,
        zeroed: bool,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let to = self.allocate_any(new, zeroed)?;
        // SAFETY: the new buffer is another one; both have so many bytes.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(ptr, bytes) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(ptr, old) };
        Ok(to)
    }
}
