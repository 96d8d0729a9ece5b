//! Whose memory this is: a page that the kernel empties in a forked child.
//!
//! ```text
//! parent                 child after fork
//! [ ... 0 0 0 | id ]     [ ... 0 0 0 | 0 ]      MADV_WIPEONFORK
//! ```
//!
//! A child of `fork` has one thread; whatever lock another thread held at that moment stays held
//! for ever. So the child must not touch the allocator, and has to know that it is the child
//! without a system call on each operation. Every call compares this page's number with the one
//! that the thread remembers: the same comparison that finds the thread's slot, so it costs one
//! load. It also works where `pthread_atfork` handlers do not run (a bare `clone`, `_Fork`).

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::Advice;

use crate::Error;
use crate::mapping::Mapping;
use crate::sys::no_room_or;

/// See the module's documentation.
pub(crate) struct Stamp {
    page: Mapping,
}

/// Where in the page: the last word. The allocator writes what CPUs have, near the starts of pages,
/// all the time, and a load whose address has the same last 12 bits as a store under way is held up
/// by it: measured, 1.2 ns of 14.
const LAST: usize = 4096 / size_of::<AtomicU64>() - 1;

/// Numbers are never used twice, so that a thread cannot take a new arena for one that is gone.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Stamp {
    pub(crate) fn new() -> Result<Self, Error> {
        let page = Mapping::zeroed(4096)?;
        // SAFETY: the page is ours and this advice changes nothing in this process.
        unsafe {
            rustix::mm::madvise(page.base().as_ptr().cast(), page.len(), Advice::LinuxWipeOnFork)
        }
        .map_err(|errno| {
            let hint = no_room_or("Linux 4.14 or later is needed", errno);
            Error::os("madvise(MADV_WIPEONFORK)", errno, 4096, hint)
        })?;
        let stamp = Self { page };
        // Relaxed, both: only uniqueness matters; whoever shares the arena with another thread
        // orders the rest.
        stamp.word().store(NEXT.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(stamp)
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page, so large enough and aligned; it lives as long as `self`
        // and is only used here.
        unsafe { self.page.base().cast::<AtomicU64>().add(LAST).as_ref() }
    }

    /// The arena's number; 0 in a forked child.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        // Relaxed: it never changes in this process.
        self.word().load(Ordering::Relaxed)
    }

    /// Whether this is a child of the process that made the arena.
    pub(crate) fn is_forked(&self) -> bool {
        self.id() == 0
    }
}
