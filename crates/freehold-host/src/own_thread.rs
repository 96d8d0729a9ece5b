//! The thread of this crate's own, which takes no signal that is meant for the program.
//!
//! A handler may run on any thread that does not block its signal. On this one it could write to a
//! page whose faults the thread is there for, and wait for ever. And a program that takes its
//! signals with `sigwait(3)`, blocked on all threads that it knows of, would be ended by one that
//! comes here.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// What a mistake of the thread's own raises, which blocking makes no better.
const MISTAKES: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// The calling thread's signals, blocked until this is dropped; or as they were, where the kernel
/// refuses that.
struct Blocked(Option<libc::sigset_t>);

impl Blocked {
    fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: each set is filled before it is read; the signals named are signals.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for signal in MISTAKES {
                libc::sigdelset(all.as_mut_ptr(), signal);
            }
            let done =
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) == 0;
            Self(done.then(|| before.assume_init()))
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set that was there before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

/// Starts a thread of that name.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The new thread inherits what its maker blocks, so that there is no moment at which it does
    // not.
    let _blocked = Blocked::new();
    Builder::new().name(name.to_owned()).spawn(run)
}
