//! What the machine itself costs: figures in nanoseconds mean little from one machine to another,
//! and on a shared one from one minute to the next, so each run measures two elementary steps and
//! the engines beside them.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    if cpus.count() < 2 {
        return None;
    }
    let line = Line::default();
    let ready = AtomicBool::new(false);
    let elapsed = std::thread::scope(|scope| {
        scope.spawn(|| {
            cpus.pin(1);
            // Release and Acquire throughout: a hand-over that carries data.
            ready.store(true, Ordering::Release);
            for round in 0..rounds {
                wait_until(|| line.0.load(Ordering::Acquire) == 2 * round + 1);
                line.0.store(2 * round + 2, Ordering::Release);
            }
        });
        wait_until(|| ready.load(Ordering::Acquire));
        let start = Instant::now();
        for round in 0..rounds {
            line.0.store(2 * round + 1, Ordering::Release);
            wait_until(|| line.0.load(Ordering::Acquire) == 2 * round + 2);
        }
        start.elapsed()
    });
    Some(elapsed.as_nanos() as f64 / (2 * rounds) as f64)
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
