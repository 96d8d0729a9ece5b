//! What virtual areas are asked for, what can go wrong, and what is counted. The mechanism is in
//! `vmalloc/mod.rs`.

use core::fmt;

use freehold::{AllocError, FreeError};

use crate::stats::counters;
use crate::{MapError, Vpn};
#[cfg(doc)]
use crate::{Mmu, Vmalloc};

/// What kind of area is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pages, without the guard page.
    pub pages: u64,
    /// Pages that the area's start is a multiple of; a power of two.
    pub align: u64,
    /// Whether entries of 2 MiB may be used.
    pub huge: bool,
}

impl Layout {
    /// `pages` pages to read and write, anywhere; a guard page, which is never mapped, follows.
    #[must_use]
    pub const fn pages(pages: u64) -> Self {
        Self { pages, align: 1, huge: false }
    }

    /// The area has to start at a multiple of `align` pages.
    #[must_use]
    pub const fn align(mut self, align: u64) -> Self {
        self.align = align;
        self
    }

    /// Entries of 2 MiB may be used, where the area has 2 MiB or more; its size is rounded up to a
    /// multiple then.
    #[must_use]
    pub const fn huge(mut self, huge: bool) -> Self {
        self.huge = huge;
        self
    }
}

/// Why a call of [`Vmalloc`] did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum VmallocError {
    /// An area of no pages was asked for.
    ZeroPages,
    /// The alignment is not a power of two.
    BadAlign {
        /// The alignment, in pages.
        align: u64,
    },
    /// There is no gap for that many pages with that alignment.
    NoSpace {
        /// Pages, with the guard page.
        pages: u64,
    },
    /// The caller's nodes, of areas or of runs, are all in use.
    NoNodes,
    /// There are not enough frames.
    Alloc(AllocError),
    /// The host could not map them.
    Map(MapError),
    /// No area starts at that page, or it is being freed.
    NotAnArea {
        /// The page.
        start: Vpn,
    },
    /// The page allocator refused frames of the area: somebody else has freed them. The area is
    /// gone, and those of its frames that could be freed are free.
    Free(FreeError),
}

impl fmt::Display for VmallocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroPages => f.write_str("an area of no pages was asked for"),
            Self::BadAlign { align } => {
                write!(f, "an alignment of {align} pages is not a power of two")
            }
            Self::NoSpace { pages } => {
                write!(f, "no gap of {pages} virtual pages with that alignment")
            }
            Self::NoNodes => {
                f.write_str("all nodes for areas or runs are in use; hand over larger slices")
            }
            Self::Alloc(error) => write!(f, "{error}"),
            Self::Map(error) => write!(f, "{error}"),
            Self::NotAnArea { start } => {
                write!(f, "no area starts at {start}, or it is being freed")
            }
            Self::Free(error) => write!(f, "a frame of the area cannot be freed: {error}"),
        }
    }
}

impl core::error::Error for VmallocError {}

counters! {
    /// What a [`Vmalloc`] has done.
    VmallocStats, Counters {
        /// Areas made.
        areas,
        /// Areas freed.
        areas_freed,
        /// Frames allocated.
        frames,
        /// Frames freed.
        frames_freed,
        /// Calls of the page allocator for chunks of order 1 or more, or whole pageblocks.
        large_allocs,
        /// Those that failed and lowered the cap.
        large_failures,
        /// Runs of frames freed, each with one call.
        frees,
        /// Calls of [`Mmu::map`].
        maps,
        /// Calls of [`Mmu::unmap`].
        unmaps,
        /// Calls of [`Mmu::flush`].
        flushes,
    }
}
