//! Atomics: the machine's, or loom's under `--cfg loom`, which then runs through every
//! interleaving.
//!
//! Many fields are atomics that only the holder of some lock writes. [`Plain`] gives those relaxed
//! reads and writes short names; they compile to ordinary moves, and the lock's own acquire and
//! release order them. What is used *without* a lock spells its orderings out and says why.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Relaxed access to a field that has one writer at a time, or whose readers want a hint only.
pub(crate) trait Plain<T> {
    /// The value now.
    fn get(&self) -> T;
    /// Replaces the value.
    fn set(&self, value: T);
}

macro_rules! plain {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Plain<$value> for $atomic {
            #[inline(always)]
            fn get(&self) -> $value {
                // Relaxed: see `Plain`.
                self.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn set(&self, value: $value) {
                // Relaxed: see `Plain`.
                self.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

plain!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64);

macro_rules! new_is_default {
    ($([$($of:tt)*] $type:ty),*) => {
        $(impl<$($of)*> Default for $type {
            fn default() -> Self {
                Self::new()
            }
        })*
    };
}

new_is_default!([] crate::Frame, [] crate::Mapping, [] crate::PageTable, [] crate::RunNode,
    [T] crate::IntervalNode<T>, [const CPUS: usize] crate::SoftMmu<CPUS>);

/// One turn of a wait where the host has nothing better. Loom must be told that nothing happens
/// here until somebody else has run.
pub(crate) fn relax() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
