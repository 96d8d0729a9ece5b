//! A thread on another CPU while something is measured.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::bench::clock::Cpus;

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
