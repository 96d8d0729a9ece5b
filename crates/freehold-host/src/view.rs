//! An arena's frames in another process: its memfd, mapped once more.
//!
//! ```text
//! process A   Arena::memfd(), Arena::offset(pfn)            allocates and frees
//!                  | descriptor, offset
//! process B   View::map(fd)                                 reads and writes what it was told of
//! ```
//!
//! Only the memory is shared. What is free is A's affair alone, so B can be killed at any moment
//! and A loses nothing: it frees what it had given B, when it learns of the end of B.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::Error;
use crate::mapping::Mapping;
use crate::sys;

/// All frames of another process's arena, at addresses of this one.
pub struct View {
    mapping: Mapping,
}

impl View {
    /// Maps the file that [`Arena::memfd`](crate::Arena::memfd) is, to read and to write. Costs
    /// addresses only.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where it cannot be mapped, is empty, or is a file that somebody could make
    /// shorter, by which reads end in a signal (`SIGBUS`): arenas' are sealed against that.
    pub fn map(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        let refused = |call, errno| Error::os(call, errno, 0, "give the memfd of an arena");
        let sealed =
            sys::cannot_shrink(fd).map_err(|errno| refused("fcntl(F_GET_SEALS)", errno))?;
        if !sealed {
            return Err(refused("fcntl(F_GET_SEALS)", Errno::PERM));
        }
        let status = rustix::fs::fstat(fd).map_err(|errno| refused("fstat", errno))?;
        let len = usize::try_from(status.st_size).ok().filter(|&len| len > 0);
        let len = len.ok_or_else(|| refused("fstat", Errno::INVAL))?;
        // The base is a multiple of a block, so that huge pages can be shown, too.
        Ok(Self { mapping: Mapping::aligned(len, 2 << 20, Some(fd))? })
    }

    /// Where so many bytes from an [`offset`](crate::Arena::offset) on are; `None` where there are
    /// not so many. What is there is whatever the two processes agree on: each sees the other's
    /// writes, so it is to be used by atomic accesses, or by one of them at a time.
    #[must_use]
    pub fn pointer(&self, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(bytes)?;
        let start = self.mapping.base().as_ptr().wrapping_add(usize::try_from(offset).ok()?);
        if end <= self.mapping.len() as u64 { NonNull::new(start) } else { None }
    }
}
