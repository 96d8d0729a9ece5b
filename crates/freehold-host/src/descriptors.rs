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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn memfd() -> OwnedFd {
        rustix::fs::memfd_create("freehold-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_number_that_names_another_file_by_now_is_neither_used_nor_closed() {
        let ours = memfd();
        let number = ours.as_raw_fd();
        let file = File::new(ours).unwrap();
        assert_eq!(file.get().map(|fd| fd.as_raw_fd()), Some(number));
        // SAFETY: what a careless program does: another file under the number of ours.
        assert_eq!(unsafe { libc::dup2(memfd().as_raw_fd(), number) }, number);
        assert!(file.get().is_none());
        drop(file);
        // SAFETY: the number is that file's, which nobody else closes.
        let mut theirs = unsafe { std::fs::File::from_raw_fd(number) };
        theirs.write_all(b"still open").unwrap();
    }
}
