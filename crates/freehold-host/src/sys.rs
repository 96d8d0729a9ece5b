//! The system calls that rustix does not have, each behind a function that can be read in one
//! sitting, and mappings that unmap themselves.
//!
//! `process_madvise(2)`, `mbind(2)` and `mincore(2)` are in neither of rustix's back ends, so these
//! three go through `libc` here; so do signal masks, and the requests of `userfaultfd(2)`, in their
//! own module.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Error;

/// What to try when there is no address space.
pub(crate) const NO_ROOM: &str = "ask for less, raise RLIMIT_AS, RLIMIT_DATA and vm.max_map_count (mappings of a process), \
                                  or allow overcommit (vm.overcommit_memory 0 or 1)";

/// What to try when a call about a mapping fails: where it is not for want of room, `hint`.
pub(crate) fn no_room_or(hint: &'static str, errno: Errno) -> &'static str {
    if errno == Errno::NOMEM { NO_ROOM } else { hint }
}

/// Unmaps a range, or at least gives back what is in it: where it has become part of a larger
/// mapping, which would have to be cut in two, and the process has as many as it may have. Then
/// only addresses are lost.
///
/// # Safety
///
/// The range is a mapping that the caller owns and gives up.
unsafe fn unmap(base: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    if unsafe { rustix::mm::munmap(base.cast(), len) }.is_err() {
        // SAFETY: as above.
        let _ = unsafe { rustix::mm::madvise(base.cast(), len, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Anonymous memory of its own, unmapped when dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is only an address range that this value owns; what is done with the memory is
// its users' affair.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of at least `len` bytes; pages come into being when they are touched.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::NORESERVE)
    }

    /// Address space, or memory, of at least `len` bytes.
    pub(crate) fn anonymous(len: usize, prot: ProtFlags, flags: MapFlags) -> Result<Self, Error> {
        let len = len.max(1).checked_next_multiple_of(4096).ok_or(Error::Knob {
            knob: "size",
            value: len as u64,
            allowed: "within the address space",
        })?;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE | flags)
        }
        .map_err(|errno| Error::os("mmap", errno, len as u64, NO_ROOM))?;
        // The kernel maps nothing at address 0 unless asked to.
        let base = NonNull::new(base.cast()).ok_or(Error::os(
            "mmap",
            Errno::NOMEM,
            len as u64,
            NO_ROOM,
        ))?;
        Ok(Self { base, len })
    }

    /// The same, starting at a multiple of `align` (a power of two): more is mapped, and the ends
    /// are given up.
    pub(crate) fn aligned(
        len: usize,
        align: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Error> {
        let more = len.checked_add(align).ok_or(Error::Knob {
            knob: "size",
            value: len as u64,
            allowed: "within the address space",
        })?;
        let whole = std::mem::ManuallyDrop::new(Self::anonymous(more, prot, flags)?);
        let start = whole.base.as_ptr();
        let skip = start.addr().next_multiple_of(align) - start.addr();
        let base = start.wrapping_add(skip);
        for (from, bytes) in [(start, skip), (base.wrapping_add(len), whole.len - skip - len)] {
            if bytes > 0 {
                // SAFETY: these pages were mapped just now, nobody knows of them, and the rest does
                // not include them.
                unsafe { unmap(from, bytes) };
            }
        }
        let base =
            NonNull::new(base).ok_or(Error::os("mmap", Errno::NOMEM, len as u64, NO_ROOM))?;
        Ok(Self { base, len })
    }

    /// Puts the whole of a file there instead.
    pub(crate) fn replace_with_file(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range replaced is this mapping's, of which `&mut self` shows that nobody uses
        // it.
        let mapped =
            unsafe { rustix::mm::mmap(self.base.as_ptr().cast(), self.len, prot, flags, fd, 0) };
        mapped
            .map(drop)
            .map_err(|errno| Error::os("mmap of the memfd", errno, self.len as u64, NO_ROOM))
    }

    /// Puts huge pages there instead, all of them set aside for this mapping at once.
    pub(crate) fn replace_with_huge_pages(&mut self) -> Result<(), Error> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // Not NORESERVE: that would put the error off to the first touch, where it is a SIGBUS.
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: as above.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(self.base.as_ptr().cast(), self.len, prot, flags) };
        let hint = "set huge pages aside first: vm.nr_hugepages must have one to spare for each 2 MiB of the arena";
        mapped
            .map(drop)
            .map_err(|errno| Error::os("mmap(MAP_HUGETLB)", errno, self.len as u64, hint))
    }

    /// Keeps the kernel from using huge pages here, where it has any.
    pub(crate) fn no_huge_pages(&self) {
        let advice = rustix::mm::Advice::LinuxNoHugepage;
        // SAFETY: our own range, in which nothing changes. A kernel without huge pages refuses the
        // advice, which is as good.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, advice) };
    }

    /// Gives pages that are in memory and hold nothing but zeros back to the OS: they read as zeros
    /// without being there.
    ///
    /// # Safety
    ///
    /// Private anonymous memory, all of it readable, into which nobody writes meanwhile.
    pub(crate) unsafe fn forget_zeros(&self) {
        let mut run = (0, 0);
        let forget = |(start, end): (usize, usize)| {
            if start < end {
                // SAFETY: within the mapping; these pages are zeros before and after, by the
                // caller's promise. What cannot be given back stays.
                let _ = unsafe {
                    let from = self.base.add(start * 4096).as_ptr().cast();
                    rustix::mm::madvise(
                        from,
                        (end - start) * 4096,
                        rustix::mm::Advice::LinuxDontNeed,
                    )
                };
            }
        };
        let done = each_page_in_memory((self.base, self.len), |page| {
            // SAFETY: within the mapping, which is aligned to pages; the caller promises that
            // nobody writes.
            let words = unsafe {
                std::slice::from_raw_parts(self.base.add(page * 4096).cast::<u64>().as_ptr(), 512)
            };
            if words.iter().any(|&word| word != 0) {
                return;
            }
            if run.1 != page {
                forget(run);
                run.0 = page;
            }
            run.1 = page + 1;
        });
        // Where the kernel does not say, all stays.
        if done.is_ok() {
            forget(run);
        }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own; whoever drops it has made sure that nothing points
        // there any more.
        unsafe { unmap(self.base.as_ptr(), self.len) };
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

/// Makes pages fatal to touch without changing their mapping (`MADV_GUARD_INSTALL`); a new mapping
/// in their place undoes it.
///
/// # Safety
///
/// Nobody uses these bytes.
pub(crate) unsafe fn install_guards(range: (*mut u8, usize)) -> Result<(), Errno> {
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    // SAFETY: the caller's promise.
    match unsafe { libc::madvise(range.0.cast(), range.1, MADV_GUARD_INSTALL) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
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

/// The CPU that the calling thread runs on; 0 where the kernel does not say, for the same reason as
/// above.
pub(crate) fn current_cpu() -> usize {
    // SAFETY: it takes nothing and changes nothing.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// How many pages of a range the kernel has in memory.
pub(crate) fn pages_in_memory(range: Bytes) -> Result<u64, Errno> {
    let mut pages = 0;
    each_page_in_memory(range, |_| pages += 1)?;
    Ok(pages)
}

/// Calls `f` with the number of each page of a range that the kernel has in memory, counted from
/// its start.
fn each_page_in_memory(range: Bytes, mut f: impl FnMut(usize)) -> Result<(), Errno> {
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

pub(crate) fn last_errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    Errno::from_raw_os_error(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_mappings_are_and_can_be_written_to_the_last_byte() {
        for len in [4096, 1 << 20, 3 << 20] {
            let rw = ProtFlags::READ | ProtFlags::WRITE;
            let mapping = Mapping::aligned(len, 2 << 20, rw, MapFlags::NORESERVE).unwrap();
            assert_eq!((mapping.base().addr().get() % (2 << 20), mapping.len()), (0, len));
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { mapping.base().add(len - 1).write(1) };
            assert_eq!(pages_in_memory((mapping.base(), len)), Ok(1));
        }
        assert!(Mapping::aligned(usize::MAX, 4096, ProtFlags::empty(), MapFlags::empty()).is_err());
        assert!(Mapping::zeroed(usize::MAX).is_err());
    }

    #[test]
    fn pages_of_zeros_go_and_others_stay() {
        let mapping = Mapping::zeroed(64 * 4096).unwrap();
        for page in 0..64 {
            let value = if page % 5 == 0 { 7 } else { 0 };
            // SAFETY: within the mapping, which nobody else knows.
            unsafe { mapping.base().add(page * 4096 + 4095).write(value) };
        }
        let range = (mapping.base(), mapping.len());
        assert_eq!(pages_in_memory(range), Ok(64));
        // SAFETY: nobody else knows of it.
        unsafe { mapping.forget_zeros() };
        assert_eq!(pages_in_memory(range), Ok(13));
        for page in 0..64 {
            // SAFETY: as above.
            assert_eq!(
                unsafe { mapping.base().add(page * 4096 + 4095).read() },
                if page % 5 == 0 { 7 } else { 0 }
            );
        }
    }

    #[test]
    fn binding_to_a_node_that_there_is_and_to_one_that_there_is_not() {
        let mapping = Mapping::zeroed(4096).unwrap();
        let range = (mapping.base(), mapping.len());
        for placement in [Placement::Preferred, Placement::Bound] {
            match bind(range, 0, placement) {
                // A kernel without NUMA support, or a sandbox.
                Err(Errno::NOSYS | Errno::PERM) => return,
                bound => assert_eq!(bound, Ok(())),
            }
            assert!(bind(range, 1000, placement).is_err());
            assert_eq!(
                bind(range, 5000, placement),
                Err(Errno::INVAL),
                "more nodes than the mask has room for"
            );
        }
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { mapping.base().write(1) };
        assert_eq!(pages_in_memory(range), Ok(1));
    }
}
