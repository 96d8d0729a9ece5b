//! Where the system is not Linux, or is taken for another (feature `plain`, for tests): plain
//! anonymous memory. What Linux alone has is refused, or goes without.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{Bytes, Placement};
use crate::Error;

/// The largest page of the system's. Of pages that are larger than a frame whole blocks go back.
pub(crate) const PAGE_MOST: usize = 64 << 10;

/// What can be asked for, by Linux's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::enum_variant_names, reason = "the names that rustix has")]
pub(crate) enum Advice {
    LinuxDontFork,
    LinuxHugepage,
    LinuxNoHugepage,
    LinuxPopulateWrite,
    LinuxWipeOnFork,
}

/// There are none: CPUs have ordinary locks.
pub(crate) fn register_barrier() -> bool {
    false
}

pub(crate) fn barrier() -> bool {
    false
}

/// # Safety
///
/// The memory is the caller's own, and mapped.
pub(crate) unsafe fn advise((base, len): Bytes, advice: Advice) -> Result<(), Errno> {
    match advice {
        #[cfg(target_os = "linux")]
        Advice::LinuxDontFork => {
            use rustix::mm::{Advice::LinuxDontFork, madvise};
            // SAFETY: nothing changes in this process.
            unsafe { madvise(base.as_ptr().cast(), len, LinuxDontFork) }
        }
        #[cfg(any(target_vendor = "apple", target_os = "freebsd"))]
        Advice::LinuxDontFork => {
            const INHERIT_NONE: libc::c_int = 2; // <sys/mman.h>, <mach/vm_inherit.h>
            // SAFETY: nothing changes in this process.
            let done = unsafe { libc::minherit(base.as_ptr().cast(), len, INHERIT_NONE) };
            if done == 0 { Ok(()) } else { Err(super::last_errno()) }
        }
        _ => Err(Errno::NOSYS),
    }
}

/// What is given back is open to all, and copied to children.
pub(crate) const NEW_PAGES: bool = true;

/// Gives pages back, which are zero from then on: by new ones in their place. The call that the
/// system has refused.
///
/// # Safety
///
/// Nobody uses these bytes, nor relies on what is in them; they are whole pages of private memory.
pub(crate) unsafe fn give_back((base, len): Bytes, _: bool) -> Result<(), (Errno, &'static str)> {
    let (at, rw) = (base.as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
    let flags = MapFlags::FIXED | MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the caller's promise.
    let done = unsafe { rustix::mm::mmap_anonymous(at, len, rw, flags) };
    done.map(drop).map_err(|errno| (errno, "mmap"))
}

pub(crate) fn collapse(_: Bytes) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

pub(crate) fn cannot_shrink(_: BorrowedFd<'_>) -> Result<bool, Errno> {
    Err(Errno::NOSYS)
}

/// # Safety
///
/// As of Linux's.
pub(crate) unsafe fn dont_need_vectors(_: &[Bytes]) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

pub(crate) fn bind(_: Bytes, _: u32, _: Placement) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

pub(crate) fn sealed_memfd(len: u64) -> Result<OwnedFd, Error> {
    Err(Error::os("memfd_create", Errno::NOSYS, len, "shared memory needs Linux"))
}

pub(crate) fn current_cpu() -> usize {
    0
}

/// A number that no other thread of this process has had.
pub(crate) fn thread_number() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    thread_local! {
        static MINE: Cell<i32> = const { Cell::new(0) };
    }
    if MINE.get() == 0 {
        // Relaxed: only uniqueness matters.
        MINE.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    MINE.get()
}

/// It is not known: what a thread has that ends without destructors goes home with its arena.
pub(crate) fn is_gone(_: i32) -> bool {
    false
}
