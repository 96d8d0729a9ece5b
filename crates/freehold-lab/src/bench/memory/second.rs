//! A thread on another CPU while something is measured, and the clock for that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::clock::{Cpus, thread_time};

/// A clock that has been started.
pub(super) enum Clock {
    /// What one thread does alone: its CPU time, which a neighbour on the machine does not disturb.
    Cpu(Duration),
    /// Beside another thread, the wall clock: while a virtual machine delivers an interrupt to its other CPU the guest's
    /// CPU time may stand still, and that is just what a flush costs. Of 10 us that a single `madvise(MADV_DONTNEED)` of a
    /// page took beside a second thread here, the thread's CPU clock saw between 3 and 8.
    Wall(Instant),
}

impl Clock {
    pub(super) fn start(second_thread: bool) -> Self {
        if second_thread { Self::Wall(Instant::now()) } else { Self::Cpu(thread_time()) }
    }

    pub(super) fn elapsed(&self) -> Duration {
        match self {
            Self::Cpu(start) => thread_time().saturating_sub(*start),
            Self::Wall(start) => start.elapsed(),
        }
    }
}

/// Does `work` while another thread, on the second CPU, calls `other` over and over: a thread that runs has to be
/// interrupted by every flush.
pub(super) fn beside<R>(cpus: &Cpus, mut other: impl FnMut() + Send, work: impl FnOnce() -> R) -> R {
    let (runs, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cpus.pin(1);
            // Release: whoever sees it sees this thread on its CPU.
            runs.store(true, Ordering::Release);
            // Relaxed: only says when to stop.
            while !done.load(Ordering::Relaxed) {
                other();
            }
        });
        // Acquire: as above.
        while !runs.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let result = work();
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        result
    })
}
