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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// A descriptor of ours, as long as its number names what it named at first.
pub(crate) struct File {
    fd: ManuallyDrop<OwnedFd>,
    device: u64,
    inode: u64,
}

impl File {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let status = rustix::fs::fstat(&fd)?;
        Ok(Self { device: status.st_dev, inode: status.st_ino, fd: ManuallyDrop::new(fd) })
    }

    /// The descriptor; `None` where the program has closed it.
    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        let status = rustix::fs::fstat(self.fd.as_fd()).ok()?;
        let same = status.st_dev == self.device && status.st_ino == self.inode;
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

/// No descriptor has been opened yet.
const NONE: i64 = -1;

/// This process as `process_madvise(2)` wants it named, and whose it is: the process number in the
/// upper half, so that a forked child opens one of its own. One for all arenas, opened by the first
/// that needs it, and never closed.
static OURSELVES: AtomicI64 = AtomicI64::new(NONE);

fn packed(fd: RawFd) -> i64 {
    (i64::from(getpid().as_raw_nonzero().get()) << 32) | i64::from(fd)
}

/// Runs `call` with a descriptor of this process. A number that the program has closed, or has
/// given to a file of its own, is refused by the kernel with `EBADF`: then another one is opened.
pub(crate) fn with_pidfd<R>(call: impl Fn(BorrowedFd<'_>) -> Result<R, Errno>) -> Result<R, Errno> {
    // Relaxed, here and below: the number is all there is; the kernel knows what it means.
    let known = OURSELVES.load(Ordering::Relaxed);
    if known != NONE && known >> 32 == packed(0) >> 32 {
        // SAFETY: a number that is not open, or names something else, is an error of the call.
        match call(unsafe { BorrowedFd::borrow_raw(known as RawFd) }) {
            Err(Errno::BADF) => {}
            result => return result,
        }
    }
    let new = pidfd_open(getpid(), PidfdFlags::empty())?;
    let packed = packed(new.as_raw_fd());
    match OURSELVES.compare_exchange(known, packed, Ordering::Relaxed, Ordering::Relaxed) {
        // SAFETY: it stays open, as far as it is up to us.
        Ok(_) => call(unsafe { BorrowedFd::borrow_raw(new.into_raw_fd()) }),
        // Another thread was first. This one is closed after its only use.
        Err(_) => call(new.as_fd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::FromRawFd;

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

    #[test]
    fn a_descriptor_of_this_process_is_opened_again_where_it_was_closed() {
        let first = with_pidfd(|fd| Ok(fd.as_raw_fd())).unwrap();
        let refused = std::cell::Cell::new(0);
        let second = with_pidfd(|fd| {
            if fd.as_raw_fd() == first {
                refused.set(refused.get() + 1);
                return Err(Errno::BADF);
            }
            Ok(fd.as_raw_fd())
        });
        assert_eq!(refused.get(), 1);
        assert!(second.unwrap() != first);
    }
}
