//! The thread that lets writers through: reads write faults from the userfaultfd and decides each
//! by the page's entry.
//!
//! ```text
//!   entry                       what happens to the writer
//!   mapped                      dirty bit set, protection off: goes on
//!   taken or being dropped      waits until reclaim has decided
//!   nothing                     protection off: writes to a page that nothing is mapped at
//! ```
//!
//! A thread of its own, not a signal handler: it works for faults that the kernel takes inside
//! system calls, and leaves the program's signals alone.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use freehold_vm::Entry;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::pages::{DROPPING, Pages, TAKEN};
use super::stats::count;
use crate::Error;
use crate::own_thread;

/// How often the thread is told to end.
const RETRIES: u32 = 100;

/// The thread, ended by dropping this.
pub(super) struct Handler {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    /// Tells a forked child, which has this value but not the thread, and whose process ID may be
    /// the parent's: in a PID namespace of its own.
    pages: Arc<Pages>,
}

impl Handler {
    pub(super) fn start(pages: Arc<Pages>) -> Result<Self, Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| {
            Error::os("eventfd", errno, 0, "raise the limit of open files (ulimit -n)")
        })?;
        let stop = Arc::new(stop);
        let theirs = (Arc::clone(&pages), Arc::clone(&stop));
        let thread = own_thread::spawn("freehold-faults", move || run(&theirs.0, &theirs.1));
        let thread = thread.map_err(|error| {
            let errno = Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EAGAIN));
            Error::os("clone", errno, 0, "raise the limit of threads (ulimit -u)")
        })?;
        Ok(Self { stop, thread: Some(thread), pages })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take().filter(|_| !self.pages.userfault.is_forked()) else {
            return;
        };
        // The counter is far from full, so it fails only where somebody has forbidden it; then the
        // thread stays.
        let told = || rustix::io::write(&*self.stop, &1u64.to_ne_bytes()).is_ok();
        if (0..RETRIES).any(|_| told()) {
            let _ = thread.join();
        }
    }
}

fn run(pages: &Pages, stop: &OwnedFd) {
    loop {
        let mut fds = [
            PollFd::new(&pages.userfault, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        let stopped = match poll(&mut fds, None) {
            Ok(_) => !fds[1].revents().is_empty(),
            // No memory for a moment, or forbidden; but who waits for this thread would wait for
            // ever. So it looks itself.
            Err(_) => {
                std::thread::yield_now();
                rustix::io::read(stop, &mut [0; 8]).is_ok()
            }
        };
        if stopped {
            return;
        }
        while let Ok(Some(address)) = pages.userfault.next() {
            handle(pages, address);
        }
    }
}

fn handle(pages: &Pages, address: u64) {
    let Some(index) = pages.index_of(address) else { return };
    let counters = &pages.counters;
    let mut waited = false;
    loop {
        // Acquire: as `AtomicEntry::load`.
        let bits = pages.entries[index].load(Ordering::Acquire);
        if bits & (TAKEN | DROPPING) != 0 && !Entry::from_bits(bits).is_mapped() {
            count(&counters.waits, u64::from(!std::mem::replace(&mut waited, true)));
            std::thread::yield_now();
            continue;
        }
        let entry = Entry::from_bits(bits);
        let one = pages.lock();
        let new = if entry.is_mapped() { entry.with(Entry::HARDWARE).bits() } else { bits };
        // AcqRel, Acquire: as `AtomicEntry::replace`.
        if pages.entries[index]
            .compare_exchange(bits, new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            continue;
        }
        if pages.protect(index, 1, false).is_err() {
            // The range is not registered any more.
            pages.wake(index);
        }
        drop(one);
        count(if entry.is_mapped() { &counters.write_faults } else { &counters.late_writes }, 1);
        return;
    }
}
