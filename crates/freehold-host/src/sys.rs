//! What is asked of the system in a way of its own, each behind a function that can be read in one
//! sitting: here what all have, in `linux.rs` and `plain.rs` what they do not.
//!
//! `process_madvise(2)`, `mbind(2)` and `mincore(2)` are in neither of rustix's back ends, so they
//! go through `libc`.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::param::page_size;

pub(crate) use self::os::*;
use crate::Error;

#[cfg_attr(all(target_os = "linux", not(feature = "plain")), path = "sys/linux.rs")]
#[cfg_attr(not(all(target_os = "linux", not(feature = "plain"))), path = "sys/plain.rs")]
mod os;

/// What to try when there is no address space.
pub(crate) const NO_ROOM: &str = "ask for less, raise RLIMIT_AS, RLIMIT_DATA and vm.max_map_count \
                                  (mappings of a process), or allow overcommit \
                                  (vm.overcommit_memory 0 or 1)";

/// What to try when a call about a mapping fails: where it is not for want of room, `hint`.
pub(crate) fn no_room_or(hint: &'static str, errno: Errno) -> &'static str {
    if errno == Errno::NOMEM { NO_ROOM } else { hint }
}

/// An error where the system's pages are no frames. Whether they are larger ones, which is fine on
/// some.
pub(crate) fn has_large_pages() -> Result<bool, Error> {
    match page_size() {
        bytes @ 4096..=PAGE_MOST => Ok(bytes > 4096),
        bytes => Err(Error::PageSize { bytes }),
    }
}

/// Bytes of memory: where they start, and how many.
pub(crate) type Bytes = (NonNull<u8>, usize);

/// The most vectors of one `process_madvise` (`UIO_MAXIOV`).
pub(crate) const MAX_VECTORS: usize = 1024;

/// How `mbind(2)` places pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// On that node while it has memory (`MPOL_PREFERRED`).
    Preferred,
    /// On that node or not at all (`MPOL_BIND`).
    Bound,
}

/// How many pages of a range the kernel has in memory.
#[cfg(test)]
pub(crate) fn pages_in_memory(range: Bytes) -> Result<u64, Errno> {
    let mut pages = 0;
    each_page_in_memory(range, |_| pages += 1)?;
    Ok(pages)
}

/// Calls `f` with the number of each frame of a range that the kernel has in memory, counted from
/// its start.
pub(crate) fn each_page_in_memory(range: Bytes, mut f: impl FnMut(usize)) -> Result<(), Errno> {
    const PAGES: usize = 1 << 15;
    let (mut seen, page) = (vec![0u8; PAGES], page_size());
    // Whole pages, of which the first may begin before the range.
    let before = range.0.addr().get() % page;
    let (base, all) = (range.0.as_ptr().wrapping_sub(before), before + range.1);
    for start in (0..all).step_by(PAGES * page) {
        let len = (all - start).min(PAGES * page);
        let at = base.wrapping_add(start);
        // SAFETY: the table has a byte for each page of the range.
        if unsafe { libc::mincore(at.cast(), len, seen.as_mut_ptr().cast()) } != 0 {
            return Err(last_errno());
        }
        for (n, _) in seen[..len.div_ceil(page)].iter().enumerate().filter(|(_, of)| **of & 1 != 0)
        {
            let of_page = (start + n * page..start + (n + 1) * page).step_by(4096);
            of_page.filter(|at| (before..all).contains(at)).for_each(|at| f((at - before) / 4096));
        }
    }
    Ok(())
}

pub(crate) fn last_errno() -> Errno {
    let raw = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    Errno::from_raw_os_error(raw)
}
