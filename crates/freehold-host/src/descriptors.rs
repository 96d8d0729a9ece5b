//! File descriptors in a process that may close them behind our back, and give their numbers to
//! files of its own.
//!
//! ```text
//! arena       fd 7 -> memfd           made by us; device and inode noted
//! program     closefrom(3)            a daemon closes what it does not know
//!             open("database")  = 7   fd 7 is the program's file now
//! arena       7 is not our inode      neither used nor closed
//! ```
//!
//! Memory is given back through the mapping, which no descriptor can take away. Where a descriptor
//! is needed all the same (a second mapping), [`File::get`] looks at what it names first.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Stat, fstat};
use rustix::io::Errno;

/// A descriptor of ours, as long as its number names what it named at first.
pub(crate) struct File {
    fd: ManuallyDrop<OwnedFd>,
    named: Stat,
}

impl File {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { named: fstat(&fd)?, fd: ManuallyDrop::new(fd) })
    }

    /// The descriptor; `None` where the program has closed it.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let names = fstat(self.fd.as_fd()).ok()?;
        let same = names.st_dev == self.named.st_dev && names.st_ino == self.named.st_ino;
        same.then(|| self.fd.as_fd())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: dropped here and nowhere else; the number still names our file.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}
