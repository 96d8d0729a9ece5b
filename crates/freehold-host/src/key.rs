//! Where in a thread's `FAST` an arena has its place: see `thread.rs`.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::CpuId;

use crate::host::OwnedCpu;
use crate::runs::Runs;
use crate::stamp::Stamp;

/// Places in `FAST`.
pub(crate) const WAYS: usize = 8;

/// What a thread has for itself in an arena: a CPU, and where it has freed runs. The CPU first,
/// which every call needs.
#[repr(C)]
pub(crate) struct Own {
    cpu: OwnedCpu,
    pub(crate) runs: Runs,
}

impl Own {
    pub(crate) fn new(cpu: OwnedCpu, runs: Runs) -> Self {
        Self { cpu, runs }
    }
}

impl Deref for Own {
    type Target = OwnedCpu;

    #[inline(always)]
    fn deref(&self) -> &OwnedCpu {
        &self.cpu
    }
}

/// One of the places: of an arena in which the thread has a CPU of its own, or shares one.
pub(crate) struct Fast {
    pub(crate) id: Cell<u64>,
    /// Dangling where nobody's. Its thread has it boxed, and for itself.
    pub(crate) own: Cell<NonNull<Own>>,
    /// The arena's number where the thread shares a CPU there, and which.
    pub(crate) shared: Cell<(u64, CpuId)>,
}

impl Fast {
    pub(crate) const fn nobodys(id: u64) -> Self {
        Self {
            id: Cell::new(id),
            own: Cell::new(NonNull::dangling()),
            shared: Cell::new((id, CpuId::new(0))),
        }
    }
}

/// By what a thread finds its CPU of an arena. Good while the arena's [`Core`](crate::core::Core)
/// lives.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    /// The arena's number, which a forked child sees as another one.
    stamp: NonNull<AtomicU64>,
    /// Where in `FAST`, in bytes: the start of one of its places.
    offset: usize,
}

// SAFETY: what it points to is atomic, and lives in memory of the process that no thread owns.
unsafe impl Send for Key {}
// SAFETY: what it points to is atomic, and lives in memory of the process that no thread owns.
unsafe impl Sync for Key {}

impl Key {
    /// A new arena's. Arenas made one after the other have different places.
    pub(crate) fn of(stamp: &Stamp) -> Self {
        let way = (stamp.id() % WAYS as u64) as usize;
        Self { stamp: NonNull::from(stamp.word()), offset: way * size_of::<Fast>() }
    }

    /// The arena's number, as this process sees it.
    ///
    /// # Safety
    ///
    /// The arena's core lives.
    #[inline(always)]
    pub(crate) unsafe fn id(self) -> u64 {
        // SAFETY: the stamp lives as long as the core. Relaxed: it never changes in this process.
        unsafe { self.stamp.as_ref() }.load(Ordering::Relaxed)
    }

    /// Its place, in bytes from the first: the start of one of them.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset
    }

    pub(crate) fn way(self) -> usize {
        self.offset / size_of::<Fast>()
    }
}
