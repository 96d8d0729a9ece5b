//! The kernel's word that memory is short: pressure stall information, `/proc/pressure/memory` or a
//! control group's `memory.pressure`.
//!
//! A trigger is written into the file: "somebody has waited for memory for 150 ms within 1 s". When
//! that happens, poll(2) tells whoever waits for it, at most once in the window.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// A trigger. See [`Tenants::press`](crate::Tenants::press) for what to do when it fires.
///
/// ```no_run
/// use std::path::Path;
/// use std::time::Duration;
///
/// use freehold_host::{Arena, Psi, Tenants};
///
/// let tenants = Tenants::new(Arena::with_size(1 << 30)?.leak())?;
/// let (stall, window) = (Duration::from_millis(150), Duration::from_secs(2));
/// let psi = Psi::open(Path::new("/proc/pressure/memory"), stall, window)?;
/// while psi.wait(None)? {
///     tenants.press();
/// }
/// # Ok::<(), freehold_host::Error>(())
/// ```
#[derive(Debug)]
pub struct Psi(OwnedFd);

impl Psi {
    /// A trigger on such a file: somebody has waited for memory for `stall` within `window`, 500 ms
    /// to 10 s; without `CAP_SYS_RESOURCE` a multiple of 2 s.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where the kernel has no such file, or will not have the trigger.
    pub fn open(path: &Path, stall: Duration, window: Duration) -> Result<Self, Error> {
        let hint = "name /proc/pressure/memory, or a control group's memory.pressure; the kernel \
                    needs CONFIG_PSI, and psi=1 where it is off";
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty())
            .map_err(|errno| Error::os("open of a pressure file", errno, 0, hint))?;
        let trigger = format!("some {} {}\0", stall.as_micros(), window.as_micros());
        let hint = "a window of 500 ms to 10 s, by whole 2 s for an ordinary user, and a stall \
                    that is shorter";
        rustix::io::write(&fd, trigger.as_bytes())
            .map_err(|errno| Error::os("write of a pressure trigger", errno, 0, hint))?;
        Ok(Self(fd))
    }

    /// Waits until it fires, or for so long; whether it has.
    ///
    /// # Errors
    ///
    /// [`Error::Os`] where the control group is gone.
    pub fn wait(&self, most: Option<Duration>) -> Result<bool, Error> {
        let most = most.map(|most| Timespec {
            tv_sec: most.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: most.subsec_nanos().into(),
        });
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::PRI)];
        let gone = |errno| Error::os("poll of a pressure file", errno, 0, "open it again");
        loop {
            match poll(&mut fds, most.as_ref()) {
                // The caller's own signals: what is left of the time is not known.
                Err(Errno::INTR) if most.is_some() => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(gone(errno)),
                Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                    return Err(gone(Errno::NODEV));
                }
                Ok(_) => return Ok(fds[0].revents().contains(PollFlags::PRI)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// Urgent data of a socket is what poll(2) tells of in the same way.
    #[test]
    fn a_trigger_that_fires_ends_the_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let psi = Psi(listener.accept().unwrap().0.into());
        assert_eq!(psi.wait(Some(Duration::ZERO)), Ok(false));
        // SAFETY: one byte, of a string.
        let sent =
            unsafe { libc::send(sender.as_raw_fd(), c"!".as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        assert_eq!(psi.wait(None), Ok(true));
    }

    #[test]
    fn the_kernel_has_a_trigger_or_says_why_not() {
        let (stall, window) = (Duration::from_secs(1), Duration::from_secs(2));
        let nowhere = Psi::open(Path::new("/nowhere/memory"), stall, window).unwrap_err();
        assert!(nowhere.to_string().contains("CONFIG_PSI"), "{nowhere}");
        match Psi::open(Path::new("/proc/pressure/memory"), stall, window) {
            Ok(psi) => assert!(psi.wait(Some(Duration::ZERO)).is_ok()),
            Err(error) => eprintln!("SKIPPED a trigger of the kernel's: {error}"),
        }
    }
}
