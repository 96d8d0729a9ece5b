//! Threads that ended without a word: by the system call `exit` of their own, or in a program whose
//! C library runs no destructors of thread-local storage. What such a thread has of an arena is
//! found by asking the kernel whether the thread is there.
//!
//! Asked where a thread finds no free slot, in a pass, and where the arena goes. A number that
//! another thread has by now, of this program or another, is that of a living thread: its slot is
//! found later.

/// The calling thread's number.
pub(crate) fn current() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Whether no thread has that number, of this process or another that shares its memory.
pub(crate) fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 is never sent.
    let there = unsafe { libc::syscall(libc::SYS_tkill, thread, 0) };
    there != 0 && crate::sys::last_errno() == rustix::io::Errno::SRCH
}
