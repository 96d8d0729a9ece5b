//! What the machine itself costs: figures in nanoseconds mean little from one machine to another,
//! and on a shared one from one minute to the next, so each run measures one elementary step beside
//! the engines.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::thread_time;

/// A word on a cache line of its own; two lines, because some CPUs fetch lines in pairs.
#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds that one uncontended atomic read-modify-write takes: `n` of them in a chain, each
/// with the result of the one before it, on a line that nobody else touches.
pub fn rmw_ns(n: u64) -> f64 {
    let line = Line(AtomicU64::new(0));
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
