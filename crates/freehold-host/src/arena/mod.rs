//! The arena: frames by number. See [`Frames`](crate::Frames) for frames that free themselves.

mod handle;
mod look;
mod memory;
mod quick;
mod raw;
pub(crate) mod resize;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::Pfn;

pub use self::handle::Handle;
use self::resize::Extent;
use crate::Error;
use crate::background::Background;
use crate::builder::Builder;
use crate::core::Core;
use crate::frames::Frames;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::release::{self, Release, Released, Which};
use crate::thread::{self, Key};

/// What an arena and its background thread share.
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) notes: Notes,
    pub(crate) memory: Memory,
    pub(crate) release: Release,
    pub(crate) extent: Extent,
}

/// An arena of real page frames. See the [crate's documentation](crate).
///
/// All calls take `&self` and may be made from any thread. They are not for signal handlers: a thread that is interrupted
/// inside its own CPU's state must not enter it again.
///
/// The calls by frame number are the raw ones: nothing frees such frames but a free, and whoever frees must be right
/// about who uses them. [`frames`](Self::frames) and its kin return handles that do it by themselves.
pub struct Arena {
    /// What a thread finds its CPU by: a copy of `core.key`, two loads less on every call.
    key: Key,
    /// The same as `inner.core`: one load less on every call.
    core: Arc<Core>,
    pub(crate) inner: Arc<Inner>,
    background: Option<Background>,
    refused_drops: AtomicU64,
}

impl Arena {
    pub(crate) fn new(inner: Arc<Inner>, background: Option<Background>) -> Self {
        Self {
            key: inner.core.key(),
            core: Arc::clone(&inner.core),
            inner,
            background,
            refused_drops: AtomicU64::new(0),
        }
    }

    /// An arena of at least that many bytes of private memory, with every knob at its default.
    ///
    /// In a process that has called `mlockall(MCL_FUTURE)` the kernel backs and locks all of it at once: see [`Builder::new`].
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn with_size(bytes: u64) -> Result<Self, Error> {
        Self::builder(bytes).build()
    }

    /// The knobs.
    pub fn builder(bytes: u64) -> Builder {
        Builder::new(bytes)
    }

    /// Keeps the arena for the rest of the program, so that its [`Frames`] have no lifetime to look after.
    #[must_use]
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    // ---- Handles ----

    /// So many neighbouring frames (any number), which go home when the handle is dropped. What is in them is whatever
    /// their last user left.
    ///
    /// A power of two of frames is a chunk, aligned to its size: it is refused quickly where no such chunk is free, even if a run
    /// is free that starts elsewhere. Any other number is cut from the next larger chunk, or where there is none from any
    /// run that is long enough.
    ///
    /// Takes constant time up to a block, while there is such a chunk; without one, a number that is no power of two takes time
    /// proportional to the arena. Beyond a block it takes time proportional to the number of blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] where there is no such chunk or none is asked for, [`Error::NoRun`] where there is no such run,
    /// [`Error::Forked`].
    #[inline(always)]
    pub fn frames(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::new(self, count)
    }

    /// The same, all zero. Frames that come fresh from the OS are zero already and are not touched.
    ///
    /// # Errors
    ///
    /// As [`Self::frames`].
    pub fn zeroed(&self, count: u64) -> Result<Frames<&Self>, Error> {
        Frames::zeroed(self, count)
    }

    // ---- Giving memory back ----

    /// Gives free memory back to the OS, now: every wholly free block, and of blocks in use the aligned runs of 8 free frames
    /// or more that it backs (but for [`Backing::Hugetlb`](crate::Backing::Hugetlb), whose pages are blocks, and no longer set
    /// aside once they are given back).
    ///
    /// Takes the kernel's time for as much memory, and a microsecond or a few for each block that the OS backs. Others work on
    /// meanwhile; an allocation that fails ends the call early.
    ///
    /// # Errors
    ///
    /// [`Error::Os`], for the first run of blocks that the kernel refused; all others were given back and all are free.
    /// [`Error::Forked`].
    pub fn trim(&self) -> Result<Released, Error> {
        release::pass(&self.inner, Which::All)
    }

    /// Gives back the blocks that have been wholly free, and untouched, since the last call, and free runs of those of which
    /// nothing was handed out since, up to the [budget](Builder::budget); does the periodic work of the threads' CPUs. To be called once each
    /// [decay](Builder::decay) time; the [background thread](Builder::background) does just that.
    ///
    /// # Errors
    ///
    /// As [`Self::trim`].
    pub fn pass(&self) -> Result<Released, Error> {
        release::pass(&self.inner, Which::Decayed)
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn pointer_unchecked(&self, pfn: Pfn) -> *mut u8 {
        self.inner.memory.pointer(pfn)
    }

    /// A handle's frames could not be freed.
    pub(crate) fn refuse_drop(&self, error: Error) {
        // A child's copy of a handle frees nothing: the frames are the parent's.
        if error != Error::Forked {
            // Relaxed: a statistic.
            self.refused_drops.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let core = &self.core;
        let forked = core.stamp.is_forked();
        if let Some(background) = self.background.take() {
            background.stop(forked);
        }
        if forked {
            self.inner.memory.forked();
            return;
        }
        core.close();
        thread::forget(core);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("range", &self.range()).field("backing", &self.backing()).finish_non_exhaustive()
    }
}
