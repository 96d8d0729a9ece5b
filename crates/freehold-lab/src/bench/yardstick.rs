//! What the machine itself costs: figures in nanoseconds mean little from one machine to another,
//! and on a shared one from one minute to the next, so each run measures two elementary steps and
//! the engines beside them.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::clock::{Cpus, thread_time};

/// A word on a cache line of its own; two lines, because some CPUs fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Line(pub AtomicU64);

/// Nanoseconds that one uncontended atomic read-modify-write takes: `n` of them in a chain, each
/// with the result of the one before it, on a line that nobody else touches.
pub fn rmw_ns(n: u64) -> f64 {
    let line = Line::default();
    let mut value = black_box(1);
    let start = thread_time();
    for _ in 0..n {
        // AcqRel: what an allocator's own step would be. On x86 every ordering is the same
        // instruction.
        value = line.0.fetch_add(value & 1, Ordering::AcqRel);
    }
    black_box(value);
    thread_time().saturating_sub(start).as_nanos() as f64 / n as f64
}

/// Nanoseconds that it takes to hand a cache line to another core and have that core write it: half
/// of a round trip between threads on the first two of `cpus`; `None` where there is only one.
pub fn handover_ns(cpus: &Cpus, rounds: u64) -> Option<f64> {
    (cpus.count() > 1).then(|| turns(cpus, rounds, || (), || ()))
}

/// Nanoseconds a turn, where this thread does `first` and one on the second CPU does `second`, in
/// turns.
pub(super) fn turns(
    cpus: &Cpus,
    rounds: u64,
    mut first: impl FnMut(),
    mut second: impl FnMut() + Send,
) -> f64 {
    let line = Line::default();
    let elapsed = std::thread::scope(|scope| {
        let line = &line;
        // Acquire and Release: a turn carries what was written in the one before.
        let wait = |wanted: u64| wait_until(|| line.0.load(Ordering::Acquire) == wanted);
        scope.spawn(move || {
            cpus.pin(1);
            for round in 0..rounds {
                wait(2 * round + 1);
                second();
                line.0.store(2 * round + 2, Ordering::Release);
            }
        });
        let mut start = Instant::now();
        for round in 0..rounds {
            // The first rounds warm up, and wait for the other thread.
            if round == rounds / 10 {
                start = Instant::now();
            }
            first();
            line.0.store(2 * round + 1, Ordering::Release);
            wait(2 * round + 2);
        }
        start.elapsed()
    });
    elapsed.as_nanos() as f64 / (2 * (rounds - rounds / 10)) as f64
}

/// Spins until `done`; gives the core away now and then, for a machine on which the other thread
/// has lost its own.
#[inline(always)]
pub(super) fn wait_until(mut done: impl FnMut() -> bool) {
    let mut turns = 0u32;
    while !done() {
        turns += 1;
        if turns.is_multiple_of(1 << 14) {
            std::thread::yield_now();
        }
        spin_loop();
    }
}
