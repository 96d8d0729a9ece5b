//! The arena: frames by number. See [`Frames`](crate::Frames) for frames that free themselves.

mod evacuate;
mod handle;
mod look;
mod memory;
mod quick;
mod raw;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::Pfn;

pub use self::evacuate::Evacuated;
pub use self::handle::Handle;
use crate::core::Core;
use crate::guard::Guard;
use crate::key::Key;
use crate::marks::Marks;
use crate::memory::Memory;
use crate::notes::Notes;
use crate::pass::{Released, Which, pass};
use crate::release::Release;
use crate::watch::Watch;
use crate::{Error, thread};

/// An arena of real page frames. See the [crate's documentation](crate).
///
/// All calls take `&self` and may be made from any thread. They are not for signal handlers: a
/// thread that is interrupted inside its own CPU's state must not enter it again.
///
/// The calls by frame number are the raw ones: nothing frees such frames but a free, and whoever
/// frees must be right about who uses them. [`frames`](Self::frames) and its kin return handles
/// that do it by themselves.
pub struct Arena {
    /// What a thread finds its CPU by: a copy of `core.key`, two loads less on every call.
    key: Key,
    /// A copy of `inner.core`: one load less on every call.
    core: Arc<Core>,
    /// A copy of `core.marks`: likewise.
    marks: Marks,
    pub(crate) inner: Box<Inner>,
    refused_drops: AtomicU64,
}

/// What an arena consists of, for its calls and its passes.
pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) memory: Memory,
    /// Nothing is ever given back.
    pub(crate) pinned: bool,
    pub(crate) watch: Watch,
    pub(crate) release: Release,
    pub(crate) guard: Option<Guard>,
}

impl Arena {
    pub(crate) fn new(inner: Box<Inner>) -> Self {
        Self {
            key: inner.core.key(),
            core: Arc::clone(&inner.core),
            marks: inner.core.marks,
            inner,
            refused_drops: AtomicU64::new(0),
        }
    }

    /// Keeps the arena for the rest of the program, so that its [`Frames`](crate::Frames) have no
    /// lifetime to look after.
    #[must_use]
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// Gives free memory back to the OS, now: every wholly free block, and of blocks in use the
    /// aligned runs of [`least_run`](crate::Builder::least_run) free frames or more that it backs.
    ///
    /// Takes the kernel's time for as much memory, and a microsecond or a few for each block that
    /// the OS backs. Others work on meanwhile; an allocation that fails ends the call early.
    ///
    /// # Errors
    ///
    /// [`Error::Os`], for the first run of blocks that the kernel refused; all others were given
    /// back and all are free. [`Error::Forked`].
    pub fn trim(&self) -> Result<Released, Error> {
        pass(&self.inner, Which::All)
    }

    /// Gives back the blocks that have been wholly free, and untouched, since the last call, and
    /// free runs of those of which nothing was handed out since, up to 512 blocks (1 GiB, about 65
    /// ms in 4 KiB pages); does the periodic work of the threads' CPUs. Runs that a thread has
    /// freed and taken again by itself are not handed out in this sense.
    ///
    /// Of an arena of [huge pages](crate::Backing::HugePages) it breaks up those last of which
    /// parts are free, and none of which fewer than 64 frames are; and it has the kernel put blocks
    /// into huge pages again that were broken up before and are in use by nine tenths, up to 128
    /// (.7 ms each).
    ///
    /// To be called from a timer or a thread of the program's, each 10 s or so: memory that is used
    /// again within that time costs no page faults (240 ns to give a page back, and as much again
    /// to fault it in). More often than each 100 ms costs more than it saves: a call looks at every
    /// block.
    ///
    /// # Errors
    ///
    /// As [`Self::trim`].
    pub fn pass(&self) -> Result<Released, Error> {
        pass(&self.inner, Which::Decayed)
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
        if let Some(guard) = &self.inner.guard {
            guard.end(&self.inner.memory);
        }
        if core.stamp.is_forked() {
            self.inner.memory.forked();
            return;
        }
        core.collect_ended();
        core.close();
        thread::forget(core);
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("range", &self.range())
            .field("backing", &self.backing())
            .finish_non_exhaustive()
    }
}
