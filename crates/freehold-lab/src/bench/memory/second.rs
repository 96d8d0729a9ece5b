//! How long something takes, by itself or beside a thread on another CPU.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::clock::{Cpus, thread_time};

/// What a second thread does over and over: one that runs has to be interrupted by every flush.
pub(super) type Other<'o> = &'o mut (dyn FnMut() + Send);

/// What one thread does alone is timed by its CPU time, which a neighbour on the machine does not
/// disturb. Beside another thread it is the wall clock: while a virtual machine delivers an
/// interrupt to its other CPU the guest's CPU time may stand still, and that is just what a flush
/// costs. Of 10 us that a single `madvise(MADV_DONTNEED)` of a page took beside a second thread
/// here, the thread's CPU clock saw between 3 and 8.
pub(super) fn timed<R>(
    cpus: &Cpus,
    other: Option<Other<'_>>,
    work: impl FnOnce() -> R,
) -> (Duration, R) {
    let Some(other) = other else {
        let start = thread_time();
        let result = work();
        return (thread_time().saturating_sub(start), result);
    };
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
        let start = Instant::now();
        let result = work();
        let time = start.elapsed();
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        (time, result)
    })
}
