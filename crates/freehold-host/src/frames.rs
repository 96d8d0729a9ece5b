//! Frames with an owner: memory that goes home by itself.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;

use freehold::{FRAME_SIZE, FrameRange, Pfn};

use crate::Error;
use crate::arena::{Arena, Handle};

/// Neighbouring frames of an arena, as memory. Dropped, they go home, on whichever thread that is.
///
/// `H` says how the handle holds on to its arena, see [`Handle`]; in a structure it is mostly
/// `Frames` alone, which is `Frames<&'static Arena>`.
///
/// ```
/// use freehold_host::{Arena, Frames};
///
/// struct Message {
///     body: Frames,
/// }
///
/// let arena: &'static Arena = Arena::with_size(64 << 20)?.leak();
/// let mut message = Message { body: Frames::new(arena, 3)? };
/// message.body[4096..][..5].copy_from_slice(b"hello");
/// let (first, rest) = message.body.split(1).unwrap();
/// assert_eq!(&rest[..5], b"hello");
/// drop(first); // any part can go home on its own
/// std::thread::spawn(move || drop(rest)).join().unwrap();
/// assert_eq!(arena.free_frames(), arena.stats().frames);
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[must_use = "frames that nobody keeps go home at once"]
pub struct Frames<H: Handle = &'static Arena> {
    arena: H,
    range: FrameRange,
}

impl Arena {
    /// So many neighbouring frames (any number), which go home when the handle is dropped. What is
    /// in them is whatever their last user left.
    ///
    /// A power of two of frames is a chunk, aligned to its size: it is refused quickly where no
    /// such chunk is free, even if a run is free that starts elsewhere. Any other number starts
    /// anywhere: in the smallest gap that will do of those looked at, beside whole blocks, or,
    /// where neither is found, in any run that is long enough.
    ///
    /// Takes constant time up to a block, while there is such a gap or a whole block; without one,
    /// a number that is no power of two takes time proportional to the arena. Beyond a block it
    /// takes time proportional to the number of blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] where there is no such chunk or none is asked for, [`Error::NoRun`] where
    /// there is no such run, [`Error::Forked`].
    #[inline(always)]
    pub fn frames(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::new(self, count)
    }

    /// [`frames`](Self::frames) that are all zero. Those that come fresh from the OS are so
    /// already, and are not touched.
    ///
    /// # Errors
    ///
    /// As [`Self::frames`].
    pub fn zeroed(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::zeroed(self, count)
    }
}

impl<H: Handle> Frames<H> {
    /// So many neighbouring frames: see [`Arena::frames`].
    ///
    /// # Errors
    ///
    /// Those of [`Arena::frames`].
    #[inline(always)]
    pub fn new(arena: H, count: u64) -> Result<Self, Error> {
        // One place where the handle is made, of what is in registers: the long way's result is in
        // memory, and to gather both there would cost as much as the allocation.
        let start = match arena.quick(count) {
            Some(start) => start,
            None => arena.several(count)?,
        };
        Ok(Self { arena, range: FrameRange { start, end: Pfn::new(start.get() + count) } })
    }

    /// So many neighbouring frames, all zero: see [`Arena::zeroed`].
    ///
    /// # Errors
    ///
    /// Those of [`Arena::zeroed`].
    pub fn zeroed(arena: H, count: u64) -> Result<Self, Error> {
        let range = arena.take_range(count, |dirty| {
            let bytes = (dirty.len() * FRAME_SIZE) as usize;
            // SAFETY: the frames are the arena's and have just been allocated to us: nobody else
            // uses them.
            unsafe { ptr::write_bytes(arena.pointer_unchecked(dirty.start), 0, bytes) };
        })?;
        Ok(Self { arena, range })
    }

    /// Makes a handle of raw frames.
    ///
    /// # Safety
    ///
    /// The frames are of that arena, allocated, and nobody else has or uses them: they come from
    /// [`into_raw`](Self::into_raw), [`Arena::request`] or the like, and were not freed since.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideArena`] for frames that are not of that arena, [`Error::Alloc`] for none.
    pub unsafe fn from_raw(arena: H, range: FrameRange) -> Result<Self, Error> {
        let all = arena.range();
        if range.is_empty() {
            return Err(freehold::AllocError::ZeroLength.into());
        }
        if !all.contains(range.start) || range.end > all.end {
            return Err(Error::OutsideArena {
                pfn: if all.contains(range.start) { all.end } else { range.start },
            });
        }
        Ok(Self { arena, range })
    }

    /// The frames, which nothing frees by itself any more.
    #[must_use = "these frames are lost unless somebody frees them"]
    pub fn into_raw(self) -> FrameRange {
        let (_, range) = self.into_parts();
        range
    }

    fn into_parts(self) -> (H, FrameRange) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used again, so the handle is moved out once.
        (unsafe { ptr::read(&raw const this.arena) }, this.range)
    }

    /// Which frames.
    #[must_use]
    pub fn range(&self) -> FrameRange {
        self.range
    }

    /// The first frame.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.range.start
    }

    /// How many frames. `len` is in bytes, as a slice's.
    #[must_use]
    pub fn frame_count(&self) -> u64 {
        self.range.len()
    }

    /// Their arena.
    #[must_use]
    pub fn arena(&self) -> &H {
        &self.arena
    }

    /// The first byte. Good while the handle lives, whatever is moved.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.arena.pointer_unchecked(self.range.start)
    }

    /// The first byte, to write to.
    #[inline]
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.arena.pointer_unchecked(self.range.start)
    }

    /// Cuts the frames in two: the first `frames`, and the rest. Costs nothing in the allocator.
    ///
    /// # Errors
    ///
    /// The handle itself, where one part would be empty.
    pub fn split(self, frames: u64) -> Result<(Self, Self), Self> {
        if frames == 0 || frames >= self.frame_count() {
            return Err(self);
        }
        let (arena, range) = self.into_parts();
        let middle = Pfn::new(range.start.get() + frames);
        let first =
            Self { arena: arena.clone(), range: FrameRange { start: range.start, end: middle } };
        Ok((first, Self { arena, range: FrameRange { start: middle, end: range.end } }))
    }

    /// Makes one handle of two whose frames are neighbours, in either order.
    ///
    /// # Errors
    ///
    /// Both, as they were, where they are not neighbours or of two arenas.
    pub fn merge(self, other: Self) -> Result<Self, (Self, Self)> {
        if !ptr::eq(&raw const *self.arena, &raw const *other.arena) {
            return Err((self, other));
        }
        let (low, high) =
            if self.range.start < other.range.start { (&self, &other) } else { (&other, &self) };
        if low.range.end != high.range.start {
            return Err((self, other));
        }
        let range = FrameRange { start: low.range.start, end: high.range.end };
        // Both give up their frames; one arena handle goes on, the other is dropped.
        let (arena, _) = self.into_parts();
        drop(other.into_parts());
        Ok(Self { arena, range })
    }

    /// Adds the `more` frames right behind these, if they are free: nothing is moved or copied.
    /// What is in them is whatever their last user left.
    ///
    /// Takes time proportional to the number of blocks they lie in.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] where one of them is in use or `more` is 0, [`Error::OutsideArena`] behind
    /// the arena's end, [`Error::Limit`], [`Error::Forked`]. Nothing has changed then.
    pub fn try_extend(&mut self, more: u64) -> Result<(), Error> {
        let end = Pfn::new(self.range.end.get().saturating_add(more));
        self.arena.take_at(FrameRange { start: self.range.end, end }, |_| {})?;
        self.range.end = end;
        Ok(())
    }

    /// Has the kernel back these frames now: see [`Arena::populate`].
    ///
    /// # Errors
    ///
    /// Those of [`Arena::populate`].
    pub fn populate(&self) -> Result<(), Error> {
        self.arena.populate_handed_out(self.range)
    }
}

impl<H: Handle> Deref for Frames<H> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        let len = (self.range.len() * FRAME_SIZE) as usize;
        // SAFETY: the frames are the arena's, which the handle keeps, and this handle's alone until
        // it is dropped. All of the arena's memory is initialised: by the kernel, or by whoever
        // wrote there.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), len) }
    }
}

impl<H: Handle> DerefMut for Frames<H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = (self.range.len() * FRAME_SIZE) as usize;
        // SAFETY: as in `deref`; `&mut self` shows that nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), len) }
    }
}

impl<H: Handle> Drop for Frames<H> {
    #[inline]
    fn drop(&mut self) {
        self.arena.give_frames(self.range);
    }
}

impl<H: Handle> fmt::Debug for Frames<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Frames").field(&self.range).finish()
    }
}
