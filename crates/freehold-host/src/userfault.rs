//! `userfaultfd(2)` with write protection: the kernel's structures and request numbers, which
//! neither rustix nor libc has, each behind a function.
//!
//! ```text
//!   api         which features the kernel has
//!   register    a range whose write faults come here
//!   protect     a range: writes fault, or do not any more
//!   next        the next fault: its address
//!   wake        threads that wait for a range
//! ```

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;

use crate::Error;
use crate::stamp::Stamp;
use crate::sys::{Bytes, last_errno, no_room_or};

const UFFD_API: u64 = 0xaa;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`, and so on.
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
const UFFDIO_WAKE: u64 = 0x8010_aa02;
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
const REGISTER_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
/// Protection holds for pages that are not there yet, too (Linux 6.4). Without it, the first write
/// to a page that was advised before it was ever used would go unseen.
const FEATURE_UNPOPULATED: u64 = 1 << 13;
/// Leave faults that the kernel itself takes, in `read(2)` for example, out: what is allowed to
/// everybody.
const USER_MODE_ONLY: u32 = 1;

const HINT: &str =
    "needs Linux 6.4 with CONFIG_USERFAULTFD, and a process that may use it (no seccomp filter)";

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

/// One `userfaultfd`.
///
/// In a forked child the descriptor is still the parent's: what is asked of it happens to the
/// parent's memory. So there nothing is.
pub(crate) struct Userfault {
    fd: OwnedFd,
    stamp: Stamp,
}

fn range(bytes: Bytes) -> Range {
    Range { start: bytes.0.as_ptr().addr() as u64, len: bytes.1 as u64 }
}

impl Userfault {
    pub(crate) fn new() -> Result<Self, Error> {
        let open = |flags: u32| {
            let flags = UserfaultfdFlags::from_bits_retain(flags)
                | UserfaultfdFlags::CLOEXEC
                | UserfaultfdFlags::NONBLOCK;
            // SAFETY: the descriptor stays in this type, which says what may be done with it.
            unsafe { rustix::mm::userfaultfd(flags) }
        };
        // Writes that the kernel makes for a thread, as in `read(2)`, are seen too where that is
        // allowed; else they fail with `EFAULT`.
        let fd = match open(0) {
            // Where Linux is taken for another system.
            _ if cfg!(feature = "plain") => Err(Errno::NOSYS),
            Err(Errno::PERM) => open(USER_MODE_ONLY),
            opened => opened,
        };
        let fd = fd.map_err(|errno| Error::os("userfaultfd", errno, 0, HINT))?;
        let mut api = [UFFD_API, FEATURE_WRITE_PROTECT | FEATURE_UNPOPULATED, 0];
        let this = Self { fd, stamp: Stamp::new()? };
        // SAFETY: the structure is three words.
        unsafe { this.ioctl(UFFDIO_API, &mut api) }
            .map_err(|errno| Error::os("UFFDIO_API", errno, 0, HINT))?;
        Ok(this)
    }

    /// Whether this is a child of the process that made it, where no write is seen.
    pub(crate) fn is_forked(&self) -> bool {
        self.stamp.is_forked()
    }

    /// # Safety
    ///
    /// `arg` is the structure that the request takes.
    unsafe fn ioctl<T>(&self, request: u64, arg: &mut T) -> Result<(), Errno> {
        if self.is_forked() {
            return Err(Errno::PERM);
        }
        loop {
            // SAFETY: the caller's promise; the structure outlives the call.
            let done = unsafe {
                libc::ioctl(self.fd.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(arg))
            };
            match done {
                0 => return Ok(()),
                _ => match last_errno() {
                    // The mappings were changing.
                    Errno::INTR | Errno::AGAIN => {}
                    errno => return Err(errno),
                },
            }
        }
    }

    /// Write faults of protected pages of this range come here from now on.
    pub(crate) fn register(&self, bytes: Bytes) -> Result<(), Error> {
        let Range { start, len } = range(bytes);
        let mut register = [start, len, REGISTER_MODE_WP, 0];
        // SAFETY: the structure is four words.
        unsafe { self.ioctl(UFFDIO_REGISTER, &mut register) }
            .map_err(|errno| Error::os("UFFDIO_REGISTER", errno, len, no_room_or(HINT, errno)))
    }

    /// Undoes [`Self::register`]; whoever waits goes on.
    pub(crate) fn unregister(&self, bytes: Bytes) {
        // SAFETY: the structure is two words. It fails only where nothing is registered.
        let _ = unsafe { self.ioctl(UFFDIO_UNREGISTER, &mut range(bytes)) };
    }

    /// From its return on every write to these pages faults; or, with `on` false, none does, and
    /// whoever waits goes on.
    pub(crate) fn protect(&self, bytes: Bytes, on: bool) -> Result<(), Errno> {
        let Range { start, len } = range(bytes);
        let mut protect = [start, len, if on { WRITEPROTECT_MODE_WP } else { 0 }];
        // SAFETY: the structure is three words.
        unsafe { self.ioctl(UFFDIO_WRITEPROTECT, &mut protect) }
    }

    /// Whoever waits for these pages tries again.
    pub(crate) fn wake(&self, bytes: Bytes) {
        // It fails only where nothing is registered; but whoever waits would wait for ever, so that
        // is tried more than once. SAFETY: the structure is two words.
        let woken = || unsafe { self.ioctl(UFFDIO_WAKE, &mut range(bytes)) }.is_ok();
        let _ = (0..100).any(|_| woken());
    }

    /// Where the next fault is, if there is one.
    pub(crate) fn next(&self) -> Result<Option<u64>, Errno> {
        // struct uffd_msg: event, seven bytes; flags, address.
        let mut message = [0u8; 32];
        loop {
            match rustix::io::read(&self.fd, &mut message) {
                Ok(32) if message[0] == EVENT_PAGEFAULT => {
                    let mut address = [0; 8];
                    address.copy_from_slice(&message[16..24]);
                    return Ok(Some(u64::from_ne_bytes(address)));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
