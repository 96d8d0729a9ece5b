//! Things that end a process, or need one of their own, done in a forked child.

#![allow(dead_code, unreachable_pub)]

use std::mem::ManuallyDrop;
use std::panic;
use std::time::{Duration, Instant};

/// Forks, runs `child` in the child, and returns its wait status: 0 where it returned true.
///
/// What the child's closure owns is the child's; the parent's copy of it is forgotten.
pub fn fork(child: impl FnOnce() -> bool) -> i32 {
    let child = ManuallyDrop::new(child);
    // SAFETY: the child only runs `child` and leaves by `_exit`, without unwinding further or
    // running anybody's destructors; glibc makes `malloc` usable after fork.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let child = ManuallyDrop::into_inner(child);
            let ok = panic::catch_unwind(panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!ok)) }
        }
        pid => wait(pid),
    }
}

/// A child's wait status, once it has ended.
pub fn wait(pid: i32) -> i32 {
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } != pid {
        // A child that hangs must fail the test, not hang it.
        if start.elapsed() > Duration::from_secs(60) {
            // SAFETY: our own child, and a place for its status.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
            }
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    status
}
