//! Which blocks must stay in memory because a device, or the kernel on behalf of one, knows their
//! pages: see "I/O into frames" in the crate's documentation.
//!
//! ```text
//! pins  4 bytes a block, zero until one is pinned       how many pins there are in it
//! ```
//!
//! A pin counts for the whole block: what is given back and what is kept is decided by blocks and
//! parts of them, and memory registered for I/O is mostly much more than one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use freehold::{FrameRange, PAGEBLOCK_FRAMES};

use crate::Error;
use crate::arena::{Arena, Handle};
use crate::mapping::Mapping;

/// The pins of an arena's blocks.
pub(crate) struct Pins {
    counts: Mapping,
    first_block: u64,
    blocks: u64,
    /// Pins there are, so that an arena without any looks at nothing else.
    any: AtomicU64,
    /// All of the arena is pinned for good.
    all: bool,
}

impl Pins {
    pub(crate) fn new(first_block: u64, blocks: u64, all: bool) -> Result<Self, Error> {
        let counts = Mapping::zeroed(blocks as usize * size_of::<AtomicU32>())?;
        counts.no_huge_pages();
        Ok(Self { counts, first_block, blocks, any: AtomicU64::new(0), all })
    }

    /// Whether nothing of the arena is ever given back.
    pub(crate) fn all(&self) -> bool {
        self.all
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.counts.len() as u64
    }

    fn counts(&self) -> &[AtomicU32] {
        // SAFETY: the mapping has a count for each block, zeroed, aligned, and only ever used as
        // atomics.
        unsafe {
            std::slice::from_raw_parts(
                self.counts.base().cast::<AtomicU32>().as_ptr(),
                self.blocks as usize,
            )
        }
    }

    /// Whether a block, counted from the arena's first, must stay.
    pub(crate) fn is_pinned(&self, block: u64) -> bool {
        // Relaxed, both: who gives memory back holds the lock under which pins are made.
        self.all
            || (self.any.load(Ordering::Relaxed) != 0
                && self.counts()[block as usize].load(Ordering::Relaxed) != 0)
    }

    fn blocks_of(&self, range: FrameRange) -> std::ops::Range<usize> {
        let first = range.start.get() / PAGEBLOCK_FRAMES - self.first_block;
        let end = range.end.get().div_ceil(PAGEBLOCK_FRAMES) - self.first_block;
        first as usize..end as usize
    }

    fn add(&self, range: FrameRange) {
        // Relaxed, both: made under the lock of whoever gives memory back.
        self.any.fetch_add(1, Ordering::Relaxed);
        self.counts()[self.blocks_of(range)].iter().for_each(|count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn remove(&self, range: FrameRange) {
        // Release: what was done with the memory while it was pinned comes before it may go.
        self.counts()[self.blocks_of(range)].iter().for_each(|count| {
            count.fetch_sub(1, Ordering::Release);
        });
        self.any.fetch_sub(1, Ordering::Release);
    }
}

/// Frames whose memory stays while this lives, in use or free: [trim](Arena::trim),
/// [pass](Arena::pass), the background thread and [shrink](Arena::shrink) keep off the blocks that
/// they are in.
///
/// For memory that the kernel or a device has been told of: `IORING_REGISTER_BUFFERS`, RDMA memory
/// regions, `AF_XDP` umems, VFIO. They hold on to the pages that were there at that moment; a page
/// given back and touched again is another page, into which they do not write.
///
/// ```
/// use freehold_host::{Arena, Pin};
///
/// let arena: &'static Arena = Arena::with_size(8 << 20)?.leak();
/// let pin: Pin = Pin::new(arena, arena.range())?; // first pinned, then registered
/// drop(arena.frames(512)?);
/// assert_eq!(arena.trim()?.blocks, 0);
/// drop(pin); // first unregistered, then unpinned
/// assert_eq!(arena.trim()?.blocks, 1);
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[must_use = "what nobody keeps pinned may be given back at once"]
#[derive(Debug)]
pub struct Pin<H: Handle = &'static Arena> {
    arena: H,
    range: FrameRange,
}

impl Arena {
    /// Keeps these frames' memory where it is, see [`Pin`].
    ///
    /// # Errors
    ///
    /// As [`Pin::new`].
    pub fn pin(&self, range: FrameRange) -> Result<Pin<&Self>, Error> {
        Pin::new(self, range)
    }
}

impl<H: Handle> Pin<H> {
    /// Pins frames of an arena. Waits for a pass that gives memory back, and takes time in
    /// proportion to the blocks.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideArena`] for frames that are not the arena's, [`Error::Alloc`] for none,
    /// [`Error::Forked`].
    pub fn new(arena: H, range: FrameRange) -> Result<Self, Error> {
        arena.check_range(range)?;
        {
            let _no_pass = arena.inner.release.alone();
            arena.inner.pins.add(range);
        }
        Ok(Self { arena, range })
    }

    /// The pin that [`into_raw`](Self::into_raw) gave out.
    ///
    /// # Safety
    ///
    /// `range` is from `into_raw` of a pin on that arena, and comes back once.
    pub unsafe fn from_raw(arena: H, range: FrameRange) -> Self {
        Self { arena, range }
    }

    /// Which frames; they stay pinned, for good unless [`from_raw`](Self::from_raw) takes them
    /// back.
    #[must_use = "these frames stay pinned for good unless somebody takes them back"]
    pub fn into_raw(self) -> FrameRange {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used again, so the handle is moved out once.
        drop(unsafe { std::ptr::read(&raw const this.arena) });
        this.range
    }

    /// Which frames.
    #[must_use]
    pub fn range(&self) -> FrameRange {
        self.range
    }
}

impl<H: Handle> Drop for Pin<H> {
    fn drop(&mut self) {
        // The counts of a forked child are its own copy, which nobody looks at.
        self.arena.inner.pins.remove(self.range);
    }
}
