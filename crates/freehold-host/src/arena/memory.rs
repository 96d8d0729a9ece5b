//! Frames as memory: where they are, and whether the kernel backs them.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use freehold::{AllocError, FRAME_SIZE, FrameRange, Pfn};

use super::Arena;
use crate::Error;
use crate::memory::Backing;

impl Arena {
    /// Where a frame is; `None` for frames of other arenas. Reading and writing there is for
    /// whoever has the frame.
    #[inline]
    #[must_use]
    pub fn pointer(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        if !self.range().contains(pfn) {
            return None;
        }
        NonNull::new(self.inner.memory.pointer(pfn))
    }

    /// Which frame a byte is in; `None` outside the arena.
    #[inline]
    #[must_use]
    pub fn pfn_of(&self, pointer: *const u8) -> Option<Pfn> {
        let pfn = Pfn::new(pointer.addr() as u64 / FRAME_SIZE);
        self.range().contains(pfn).then_some(pfn)
    }

    /// All frames there are.
    #[inline]
    #[must_use]
    pub fn range(&self) -> FrameRange {
        self.inner.memory.range()
    }

    /// The memfd behind the frames, for a second mapping: frame `pfn` is at
    /// [`offset`](Self::offset). `None` for other kinds of memory, and where the program has closed
    /// the descriptor, as daemons do that close every one they do not know.
    ///
    /// # Safety
    ///
    /// Whoever reads or writes frames through the file, or through another mapping of it, must have
    /// those frames: a handle's slice relies on nobody else writing there. The file's size is
    /// sealed.
    #[must_use]
    pub unsafe fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.memory.file()
    }

    /// Where a frame is in the [`memfd`](Self::memfd), in bytes; `None` for frames of other arenas.
    #[must_use]
    pub fn offset(&self, pfn: Pfn) -> Option<u64> {
        let range = self.range();
        range.contains(pfn).then(|| (pfn.get() - range.start.get()) * FRAME_SIZE)
    }

    /// What the frames are made of.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.inner.memory.backing()
    }

    /// What a forked child finds at the frames' addresses.
    #[must_use]
    pub fn on_fork(&self) -> crate::OnFork {
        self.inner.memory.on_fork()
    }

    /// Has the kernel back these frames now (`MADV_POPULATE_WRITE`), so that it says here if it
    /// cannot, instead of by a signal at the first touch. What is in them does not change.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where memory, the huge pages or the file do not suffice, [`Error::Limit`],
    /// [`Error::OutsideArena`], [`Error::Forked`]. Frames before the one that failed may be backed.
    /// Frames that are free are backed from then on too, until they are given back like others that
    /// were used.
    pub fn populate(&self, range: FrameRange) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        if let Some(limit) = self.inner.watch.limit {
            self.make_room(range, limit)?;
        }
        let done = self.inner.memory.populate(range);
        self.inner.notes.backed(range);
        done
    }

    /// [`populate`](Self::populate) for frames that somebody has, of which there is a note.
    pub(crate) fn populate_handed_out(&self, range: FrameRange) -> Result<(), Error> {
        self.core.check_fork()?;
        self.check_inside(range)?;
        self.inner.memory.populate(range)
    }

    /// How many of these frames the kernel has in memory at this moment. Takes time proportional to
    /// the range.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideArena`], [`Error::Os`].
    pub fn frames_in_memory(&self, range: FrameRange) -> Result<u64, Error> {
        self.check_inside(range)?;
        self.inner.memory.in_memory(range)
    }

    pub(super) fn check_inside(&self, range: FrameRange) -> Result<(), Error> {
        let all = self.range();
        if range.start < all.start || range.start >= all.end {
            return Err(Error::OutsideArena { pfn: range.start });
        }
        if range.end > all.end {
            return Err(Error::OutsideArena { pfn: all.end });
        }
        if range.is_empty() {
            return Err(AllocError::ZeroLength.into());
        }
        Ok(())
    }
}
