//! Linux's own calls.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::SealFlags;
use rustix::io::Errno;
pub(crate) use rustix::mm::Advice;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::{MembarrierCommand, membarrier};

use super::{Bytes, MAX_VECTORS, Placement, last_errno};
use crate::Error;

/// The largest page of the system's.
pub(crate) const PAGE_MOST: usize = 4096;

/// Registers this process for expedited barriers; `false` where the kernel has none.
pub(crate) fn register_barrier() -> bool {
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

/// A barrier on every core that runs a thread of this process.
pub(crate) fn barrier() -> bool {
    membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

/// # Safety
///
/// As madvise(2), of the caller's own memory.
pub(crate) unsafe fn advise((base, len): Bytes, advice: Advice) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, advice) }
}

/// What is given back stays what it was, but for its contents.
pub(crate) const NEW_PAGES: bool = false;

/// Gives pages back, which are zero from then on: of private memory, or of a file by its mapping.
/// The call that the kernel has refused.
///
/// # Safety
///
/// Nobody uses these bytes, nor relies on what is in them.
pub(crate) unsafe fn give_back(range: Bytes, shared: bool) -> Result<(), (Errno, &'static str)> {
    // Of shared memory the pages are the file's, and it is the file that gives them back. The
    // call goes through the mapping: the descriptor may be another file's by now.
    let (advice, call) = match shared {
        true => (Advice::LinuxRemove, "madvise(MADV_REMOVE)"),
        false => (Advice::LinuxDontNeed, "madvise(MADV_DONTNEED)"),
    };
    // SAFETY: the caller's promise.
    unsafe { advise(range, advice) }.map_err(|errno| (errno, call))
}

/// Has the kernel put memory into huge pages (Linux 6.1), whoever uses it: what is in it does not
/// change, and what was missing is zero.
pub(crate) fn collapse((base, len): Bytes) -> Result<(), Errno> {
    // <linux/mman.h>; libc does not have it for every C library.
    const MADV_COLLAPSE: libc::c_int = 25;
    // SAFETY: nothing in it changes.
    let done = unsafe { libc::madvise(base.as_ptr().cast(), len, MADV_COLLAPSE) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Whether nobody can make a file shorter.
pub(crate) fn cannot_shrink(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK))
}

/// `madvise(MADV_DONTNEED)` over several ranges in one call, with one flush for all of them.
/// Returns the bytes done, which may be fewer than asked for.
///
/// # Safety
///
/// Nobody may use these bytes, nor rely on what is in them.
pub(crate) unsafe fn dont_need_vectors(ranges: &[Bytes]) -> Result<usize, Errno> {
    // Open for this call only: so nobody closes it meanwhile who does not know it, and a forked
    // child has none of its parent's.
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty())?;
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

/// Gives a new file its length; an error where it would be more than the process may write, for
/// which the kernel has a signal instead (`SIGXFSZ`).
fn set_length(file: &OwnedFd, len: u64) -> Result<(), Error> {
    let refused =
        |errno| Error::os("ftruncate of the memfd", errno, len, "raise RLIMIT_FSIZE (ulimit -f)");
    if file_size_limit().is_some_and(|limit| limit < len) {
        return Err(refused(Errno::FBIG));
    }
    rustix::fs::ftruncate(file, len).map_err(refused)
}

/// A memfd of that length for good (`F_SEAL_SHRINK`, `F_SEAL_GROW`), whose seals nobody changes
/// (`F_SEAL_SEAL`) and from which nobody executes code (`MFD_NOEXEC_SEAL`, since Linux 6.3). So
/// whoever else has the descriptor can make no byte of it unreadable, nor unwritable.
pub(crate) fn sealed_memfd(len: u64) -> Result<OwnedFd, Error> {
    let hint = "memfd_create(2) needs Linux 3.17 and a free file descriptor (ulimit -n)";
    let fd = memfd_create(c"freehold", true)
        .or_else(|errno| match errno {
            Errno::INVAL => memfd_create(c"freehold", false),
            errno => Err(errno),
        })
        .map_err(|errno| Error::os("memfd_create", errno, len, hint))?;
    set_length(&fd, len)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)
        .map_err(|errno| Error::os("fcntl(F_ADD_SEALS)", errno, len, "Linux 3.17 is needed"))?;
    Ok(fd)
}

/// A memfd that can be sealed; one that nobody ever executes, with `no_exec`, which Linux has since
/// 6.3.
///
/// Not rustix's, whose way to fail is a jump on nothing in particular to valgrind, and to fail is
/// what the first of two attempts does there.
fn memfd_create(name: &CStr, no_exec: bool) -> Result<OwnedFd, Errno> {
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
fn file_size_limit() -> Option<u64> {
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
