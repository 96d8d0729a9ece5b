//! Room for a few mappings, kept for when the process has as many as it may have
//! (`vm.max_map_count`).
//!
//! ```text
//!   kept       |none|read|none|read|none|     five mappings
//!   given up   |          none          |     one
//! ```
//!
//! Even taking pages away may want a mapping for a moment, or the one in the middle of another.
//! Where the kernel refuses it, the room is given up, the call made again, and the room taken back
//! as soon as there is some.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::Error;
use crate::mapping::Mapping;
use crate::sys::NO_ROOM;

/// Pages of it. A new mapping may exceed the limit by one, and one in the middle of another wants
/// to be two below it.
const PAGES: usize = 5;

/// See the module's documentation.
pub(crate) struct Spare {
    area: Mapping,
    kept: AtomicBool,
}

impl Spare {
    pub(crate) fn new() -> Result<Self, Error> {
        let area = Mapping::anonymous(PAGES * 4096, ProtFlags::empty(), MapFlags::NORESERVE)?;
        let this = Self { area, kept: AtomicBool::new(false) };
        this.keep();
        if this.is_kept() {
            Ok(this)
        } else {
            Err(Error::os("mprotect", Errno::NOMEM, 4096, NO_ROOM))
        }
    }

    fn is_kept(&self) -> bool {
        // Relaxed: a hint. Who changes the area at the same moment as somebody else leaves more
        // room or less.
        self.kept.load(Ordering::Relaxed)
    }

    fn protect(&self, page: usize, pages: usize, rights: MprotectFlags) -> Result<(), Errno> {
        let at = self.area.base().as_ptr().wrapping_add(page * 4096);
        // SAFETY: an area that is never used.
        unsafe { rustix::mm::mprotect(at.cast(), pages * 4096, rights) }
    }

    /// Takes the room back where it has been given up, and there is some. A load where it has not.
    pub(crate) fn keep(&self) {
        if self.is_kept() {
            return;
        }
        let kept =
            [1, 3].into_iter().try_for_each(|page| self.protect(page, 1, MprotectFlags::READ));
        if kept.is_err() {
            let _ = self.protect(0, PAGES, MprotectFlags::empty());
        }
        // Relaxed: a hint. Who changes the area at the same moment as somebody else leaves more
        // room or less.
        self.kept.store(kept.is_ok(), Ordering::Relaxed);
    }

    /// Whether there is room now that was not before.
    pub(crate) fn give_up(&self) -> bool {
        // Relaxed: a hint. Who changes the area at the same moment as somebody else leaves more
        // room or less.
        self.kept.swap(false, Ordering::Relaxed)
            && self.protect(0, PAGES, MprotectFlags::empty()).is_ok()
    }
}
