//! Requests about to fail, counted: meanwhile no CPU takes more in hand than a call needs.
//!
//! ```text
//! CPU 0   fails ── Failing::new ── recall ── look ─────────────── found
//! CPU 1                                   free, alloc: one frame, no lease
//! ```
//!
//! Without it CPU 1 leases a word with the last free frames between the recall and the look, and
//! CPU 0 fails beside frames that lie side by side. That was seen 113 times in a row.
//!
//! Nor does a CPU keep to itself what it frees: its [allowance](crate::zone::allowance) is 0.
//!
//! A thread that is stopped while it is counted holds up nobody: the others go on, frame by frame.

use crate::Freehold;
use crate::primitive::{AtomicU64, Ordering, Relaxed};

/// Requests that are about to fail, on a line of its own.
#[repr(align(128))]
pub(crate) struct Failures(pub(crate) AtomicU64);

/// Counts a request as failing for as long as it lives.
pub(crate) struct Failing<'a, 'm, P>(&'a Freehold<'m, P>);

impl<'a, 'm, P> Failing<'a, 'm, P> {
    /// Before others are asked for what they have in hand.
    pub(crate) fn new(fh: &'a Freehold<'m, P>) -> Self {
        // SeqCst: a CPU that is asked later has seen it when it takes its next word, or its lease
        // is among those that the recall ends.
        fh.failing.0.fetch_add(1, Ordering::SeqCst);
        for cpu in fh.cpus.iter().filter(|cpu| cpu.most.get() != 0) {
            // SeqCst: as in `CpuState::set_most`.
            cpu.most.store(0, Ordering::SeqCst);
        }
        Self(fh)
    }
}

impl<P> Drop for Failing<'_, '_, P> {
    fn drop(&mut self) {
        // SeqCst: as it came.
        self.0.failing.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Failures {
    /// Whether a request is about to fail, so that nobody may take more than it needs.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        // SeqCst: see `Failing::new`. On x86-64 it is a plain load.
        self.0.load(Ordering::SeqCst) != 0
    }
}
