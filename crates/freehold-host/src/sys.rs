//! The system calls that rustix does not have, each behind a function that can be read in one
//! sitting.
//!
//! `process_madvise(2)`, `mbind(2)` and `mincore(2)` are in neither of rustix's back ends, so these
//! three go through `libc` here; so do signal masks, and the requests of `userfaultfd(2)`, in their
//! own module.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::Error;

/// What to try when there is no address space.
pub(crate) const NO_ROOM: &str = "ask for less, raise RLIMIT_AS, RLIMIT_DATA and vm.max_map_count \
                                  (mappings of a process), or allow overcommit \
                                  (vm.overcommit_memory 0 or 1)";

/// What to try when a call about a mapping fails: where it is not for want of room, `hint`.
pub(crate) fn no_room_or(hint: &'static str, errno: Errno) -> &'static str {
    if errno == Errno::NOMEM { NO_ROOM } else { hint }
}

/// A slice on the heap. An allocation that fails otherwise would end the process.
pub(crate) fn boxed<T>(len: usize, make: impl FnMut() -> T) -> Result<Box<[T]>, Error> {
    let mut all = Vec::new();
    let bytes = (len * size_of::<T>()) as u64;
    let no_memory = |_| Error::os("malloc", Errno::NOMEM, bytes, "fewer bytes, or raise RLIMIT_AS");
    all.try_reserve_exact(len).map_err(no_memory)?;
    all.resize_with(len, make);
    Ok(all.into_boxed_slice())
}

/// An error where the system's pages are no frames.
pub(crate) fn check_page_size() -> Result<(), Error> {
    match rustix::param::page_size() {
        4096 => Ok(()),
        bytes => Err(Error::PageSize { bytes }),
    }
}

/// Bytes of memory: where they start, and how many.
pub(crate) type Bytes = (NonNull<u8>, usize);

/// The most vectors of one `process_madvise` (`UIO_MAXIOV`).
pub(crate) const MAX_VECTORS: usize = 1024;

/// `madvise(MADV_DONTNEED)` over several ranges in one call, with one flush for all of them.
/// Returns the bytes done, which may be fewer than asked for.
///
/// # Safety
///
/// Nobody may use these bytes, nor rely on what is in them.
pub(crate) unsafe fn dont_need_vectors(
    pidfd: BorrowedFd<'_>,
    ranges: &[Bytes],
) -> Result<usize, Errno> {
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|&(base, len)| libc::iovec { iov_base: base.as_ptr().cast(), iov_len: len })
        .collect();
    // SAFETY: the vectors outlive the call; what becomes of the memory they name is the caller's
    // promise.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            vectors.as_ptr(),
            vectors.len().min(MAX_VECTORS),
            libc::MADV_DONTNEED,
            0usize,
        )
    };
    usize::try_from(done).map_err(|_| last_errno())
}

/// How `mbind(2)` places pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// On that node while it has memory (`MPOL_PREFERRED`).
    Preferred,
    /// On that node or not at all (`MPOL_BIND`).
    Bound,
}

/// Says on which node the pages of a range are to be when they come into being.
pub(crate) fn bind(range: Bytes, node: u32, placement: Placement) -> Result<(), Errno> {
    const WORDS: usize = 16;
    let mode: libc::c_int = match placement {
        Placement::Preferred => 1, // MPOL_PREFERRED
        Placement::Bound => 2,     // MPOL_BIND
    };
    let mut mask = [0 as libc::c_ulong; WORDS];
    let bits = libc::c_ulong::BITS;
    let Some(word) = mask.get_mut((node / bits) as usize) else { return Err(Errno::INVAL) };
    *word |= 1 << (node % bits);
    // The kernel reads one bit less than it is told (an old mistake that has become the interface).
    let most = WORDS as libc::c_ulong * libc::c_ulong::from(bits) + 1;
    // SAFETY: the mask outlives the call and has the bits named; the contents of memory do not
    // change.
    let done = unsafe {
        libc::syscall(libc::SYS_mbind, range.0.as_ptr(), range.1, mode, mask.as_ptr(), most, 0)
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// A memfd that can be sealed; one that nobody ever executes, with `no_exec`, which Linux has since
/// 6.3.
///
/// Not rustix's, whose way to fail is a jump on nothing in particular to valgrind, and to fail is
/// what the first of two attempts does there.
pub(crate) fn memfd_create(name: &CStr, no_exec: bool) -> Result<OwnedFd, Errno> {
    const MFD_NOEXEC_SEAL: libc::c_uint = 8;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let flags = if no_exec { flags | MFD_NOEXEC_SEAL } else { flags };
    // SAFETY: a name that ends with a zero.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: a descriptor made just now, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How long a file may be that this process writes; `None` where there is no limit, or the kernel
/// does not say.
///
/// Not rustix's, which takes it for granted that the kernel does.
pub(crate) fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a place for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The CPU that the calling thread runs on; 0 where the kernel does not say, which rustix takes for
/// granted.
pub(crate) fn current_cpu() -> usize {
    // SAFETY: it takes nothing and changes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// How many pages of a range the kernel has in memory.
#[cfg(test)]
pub(crate) fn pages_in_memory(range: Bytes) -> Result<u64, Errno> {
    let mut pages = 0;
    each_page_in_memory(range, |_| pages += 1)?;
    Ok(pages)
}

/// Calls `f` with the number of each page of a range that the kernel has in memory, counted from
/// its start.
pub(crate) fn each_page_in_memory(range: Bytes, mut f: impl FnMut(usize)) -> Result<(), Errno> {
    const PAGES: usize = 1 << 15;
    let mut seen = vec![0u8; PAGES];
    for start in (0..range.1).step_by(PAGES * 4096) {
        let len = (range.1 - start).min(PAGES * 4096);
        let at = range.0.as_ptr().wrapping_add(start);
        // SAFETY: the table has a byte for each page of the range.
        if unsafe { libc::mincore(at.cast::<c_void>(), len, seen.as_mut_ptr()) } != 0 {
            return Err(last_errno());
        }
        let there =
            seen[..len.div_ceil(4096)].iter().enumerate().filter(|(_, page)| **page & 1 != 0);
        there.for_each(|(page, _)| f(start / 4096 + page));
    }
    Ok(())
}

/// The calling thread's number.
pub(crate) fn thread_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Whether no thread has that number, of this process or another that shares its memory. A number
/// that another thread has by now, of this program or another, is that of a living thread.
pub(crate) fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 is never sent.
    let there = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
    there != 0 && last_errno() == Errno::SRCH
}

pub(crate) fn last_errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    Errno::from_raw_os_error(raw)
}
