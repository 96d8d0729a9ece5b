//! The machine's atomics for unit tests: they count how often they are used, and have a test do
//! something between any two uses.
//!
//! ```text
//! steps(call)                    uses of atomics that a call makes: what a bound of docs/bounds.md is about, whatever the machine's speed
//! interrupted(n, other, call)    call, and before its nth use of an atomic all of other
//! interrupted_by(stops, call)    call, and before several of its uses all of another; each of these may be interrupted itself
//! ```
//!
//! To everybody else a call that is interrupted by all of their calls is one that is stopped there.
//! So a test that goes through all `n` stops a call at each of its steps, and has it go on
//! afterwards. The other calls come one after another here; loom mixes two.

use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::vec::Vec;

use core::sync::atomic;
pub(crate) use core::sync::atomic::{AtomicPtr, Ordering};

/// What is done in a call's place for some time.
pub(crate) type Other = Box<dyn FnOnce()>;

std::thread_local! {
    /// Uses of atomics by this thread.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static FENCES: Cell<u64> = const { Cell::new(0) };
    /// Before which of them something else is done next.
    static AT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// All that is to be done, the next last, and before which of them.
    static STOPS: RefCell<Vec<(u64, Other)>> = const { RefCell::new(Vec::new()) };
}

/// A fence, which is counted, and is no step.
pub(crate) fn fence(ordering: Ordering) {
    FENCES.set(FENCES.get() + u64::from(ordering == Ordering::SeqCst));
    atomic::fence(ordering);
}

/// Full fences that this thread has made.
pub(crate) fn fences() -> u64 {
    FENCES.get()
}

/// Comes before each use of an atomic.
fn step() {
    let now = STEPS.get() + 1;
    STEPS.set(now);
    if now == AT.get() {
        // Taken out meanwhile: the steps of what is done are not the call's.
        let mut stops = STOPS.take();
        AT.set(u64::MAX);
        while let Some((_, other)) = stops.pop_if(|(at, _)| *at == now) {
            other();
        }
        AT.set(stops.last().map_or(u64::MAX, |(at, _)| *at));
        STOPS.set(stops);
        STEPS.set(now);
    }
}

/// What a call returns, and in how many uses of atomics.
pub(crate) fn steps<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = call();
    (result, STEPS.get() - before)
}

/// What a call returns before whose use number `n` of an atomic, counted from 1, all of `other` is
/// done; and whether it made so many.
pub(crate) fn interrupted<T>(
    n: u64,
    other: impl FnOnce() + 'static,
    call: impl FnOnce() -> T,
) -> (T, bool) {
    let (result, left) = interrupted_by(Vec::from([(n, Box::new(other) as Other)]), call);
    (result, left == 0)
}

/// What a call returns before whose uses of atomics of these numbers something else is done; and
/// how many of them it did not come to. What is done may be interrupted in its turn.
pub(crate) fn interrupted_by<T>(
    mut stops: Vec<(u64, Other)>,
    call: impl FnOnce() -> T,
) -> (T, usize) {
    stops.sort_by_key(|&(n, _)| core::cmp::Reverse(n));
    stops.iter_mut().for_each(|(n, _)| *n += STEPS.get());
    let at = AT.replace(stops.last().map_or(u64::MAX, |(at, _)| *at));
    let before = STOPS.replace(stops);
    let result = call();
    AT.set(at);
    (result, STOPS.replace(before).len())
}

fn before_read(_: Ordering) {
    step();
}

fn after_write(_: Ordering) {}

macro_rules! store {
    ($word:expr, $value:expr, $ordering:expr) => {
        step();
        $word.store($value, $ordering);
    };
}

atomics!();
