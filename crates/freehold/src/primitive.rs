//! Atomics: the machine's, or loom's under `--cfg loom`, which then runs through every interleaving.
//!
//! Nearly every field of the allocator is an atomic that only the holder of some lock writes. [`Plain`] gives those
//! relaxed reads and writes short names; they compile to ordinary moves, and the lock's own acquire and release order
//! them. What is used *without* a lock spells its orderings out and says why.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

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

plain!(AtomicBool: bool, AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

/// Counters with one writer at a time: a plain load, add and store, never a read-modify-write.
pub(crate) trait Count<T> {
    /// Adds, wrapping.
    fn add(&self, n: T);
    /// Subtracts, wrapping.
    fn sub(&self, n: T);
}

macro_rules! count {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Count<$value> for $atomic {
            #[inline(always)]
            fn add(&self, n: $value) {
                self.set(self.get().wrapping_add(n));
            }
            #[inline(always)]
            fn sub(&self, n: $value) {
                self.set(self.get().wrapping_sub(n));
            }
        }
    )*};
}

count!(AtomicU32: u32, AtomicU64: u64);

/// Counters that several parties may write at once.
pub(crate) trait SharedCount {
    /// Adds, wrapping.
    fn add_shared(&self, n: u64);
}

impl SharedCount for AtomicU64 {
    fn add_shared(&self, n: u64) {
        // Relaxed: a statistic.
        self.fetch_add(n, Ordering::Relaxed);
    }
}

/// Called where a branch is hardly ever taken, so that the compiler lays its code out of the way.
#[cold]
#[inline(always)]
pub(crate) fn rarely() {}

/// The owner's side of an asymmetric barrier: keeps the compiler from moving a later load before an earlier store. The
/// other side, [`Platform::heavy_barrier`](crate::Platform::heavy_barrier), makes this CPU's hardware do the same.
///
/// Loom knows no asymmetric barriers; there both sides are sequentially consistent fences, which is what the pair
/// amounts to.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
