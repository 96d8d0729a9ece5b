//! Atomics: the machine's, which unit tests count (`steps.rs`); loom's under `--cfg loom`, which
//! runs through every interleaving of a small machine.
//!
//! Nearly every field of the allocator is an atomic that only the holder of some lock writes.
//! [`Relaxed`] gives those relaxed reads and writes short names; they compile to ordinary moves,
//! and the lock's own acquire and release order them. What is used *without* a lock spells its
//! orderings out and says why.

#[cfg(all(test, not(loom)))]
pub(crate) use crate::tests::steps::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(not(any(test, loom)))]
use core::sync::atomic::fence;
#[cfg(not(any(test, loom)))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::AtomicPtr;
#[cfg(loom)]
use under_loom::fence;
#[cfg(loom)]
pub(crate) use under_loom::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Relaxed access to a field that has one writer at a time, or whose readers want a hint only.
pub(crate) trait Relaxed<T> {
    /// The value now.
    fn get(&self) -> T;
    /// Replaces the value.
    fn set(&self, value: T);
}

macro_rules! plain {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Relaxed<$value> for $atomic {
            #[inline(always)]
            fn get(&self) -> $value {
                // Relaxed: see `Relaxed`.
                self.load(Ordering::Relaxed)
            }
            #[inline(always)]
            fn set(&self, value: $value) {
                // Relaxed: see `Relaxed`.
                self.store(value, Ordering::Relaxed);
            }
        }
    )*};
}

plain!(AtomicBool: bool, AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

/// Counters, all of which wrap.
pub(crate) trait Count {
    /// Adds, with one writer at a time: a plain load, add and store, never a read-modify-write.
    fn add(&self, n: u64);
    /// Subtracts, with one writer at a time.
    fn sub(&self, n: u64);
    /// Adds beside other writers.
    fn add_shared(&self, n: u64);
}

impl Count for AtomicU64 {
    #[inline(always)]
    fn add(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }
    #[inline(always)]
    fn sub(&self, n: u64) {
        self.set(self.get().wrapping_sub(n));
    }
    fn add_shared(&self, n: u64) {
        // Relaxed: a statistic.
        self.fetch_add(n, Ordering::Relaxed);
    }
}

/// Called where a branch is hardly ever taken, so that the compiler lays its code out of the way.
#[cold]
#[inline(always)]
pub(crate) fn rarely() {}

/// Makes what other threads did before the writes that this one has seen visible to it.
#[inline(always)]
pub(crate) fn acquire_fence() {
    fence(Ordering::Acquire);
}

/// Makes what this thread did before visible to a thread that sees one of its later writes.
#[inline(always)]
pub(crate) fn release_fence() {
    fence(Ordering::Release);
}

/// Keeps everything before it before everything after it.
pub(crate) fn full_fence() {
    fence(Ordering::SeqCst);
}

/// The owner's side of an asymmetric barrier: keeps the compiler from moving a later load before an
/// earlier store. The other side, [`Platform::heavy_barrier`](crate::Platform::heavy_barrier),
/// makes this CPU's hardware do the same.
///
/// Loom knows no asymmetric barriers; there both sides are sequentially consistent fences, which is
/// what the pair amounts to.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// An atomic that has `before_read`, `after_write` and `store!` of where it is made do more than
/// the machine's: in unit tests, and with loom.
#[cfg(any(test, loom))]
macro_rules! atomic {
    ($name:ident: $value:ty, $($call:ident)*) => {
        #[repr(transparent)]
        #[derive(Default)]
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code)]
        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                before_read(ordering);
                self.0.load(ordering)
            }
            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                store!(self.0, value, ordering);
                after_write(ordering);
            }
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                before_read(ordering);
                let result = self.0.compare_exchange(from, to, ordering, failure);
                result.inspect(|_| after_write(ordering))
            }
            // One that fails for no reason would make the number of steps a matter of luck; of
            // loom's a loop cannot tell that from another CPU's success.
            pub(crate) fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, ordering, failure)
            }
            $(pub(crate) fn $call(&self, value: $value, ordering: Ordering) -> $value {
                before_read(ordering);
                let old = self.0.$call(value, ordering);
                after_write(ordering);
                old
            })*
        }
    };
}

/// All that there are.
#[cfg(any(test, loom))]
macro_rules! atomics {
    () => {
        atomic!(AtomicBool: bool, swap fetch_and fetch_or);
        atomic!(AtomicU8: u8, swap fetch_and fetch_or fetch_add fetch_sub);
        atomic!(AtomicU16: u16, swap fetch_and fetch_or fetch_add fetch_sub);
        atomic!(AtomicU32: u32, swap fetch_and fetch_or fetch_add fetch_sub fetch_max);
        atomic!(AtomicU64: u64, swap fetch_and fetch_or fetch_add fetch_sub fetch_max);
    };
}

/// Loom takes a sequentially consistent access for an acquiring and releasing one, which is weaker
/// than the machine's; its fences are what they should be. One before each such load gives what the
/// protocols rely on: of two threads that each write one place and then read the other's, one sees
/// the other.
///
/// Such a fence orders more than the access that it stands for: it releases what came before and
/// acquires what was seen, so that an access beside it may be weaker than it should be and nothing
/// shows. A test of one ordering asks for fewer, see [`Strict`](under_loom::Strict).
#[cfg(loom)]
pub(crate) mod under_loom {
    extern crate std;

    use core::cell::Cell;

    use loom::sync::atomic;
    pub(crate) use loom::sync::atomic::Ordering;

    /// How a sequentially consistent access is made more than an acquiring and releasing one.
    #[derive(Clone, Copy, PartialEq, Eq)]
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) enum Strict {
        /// By a fence before each that reads: stronger than the language, and cheap to search.
        BeforeReads,
        /// By a fence between one that writes and the next that reads: all that "each writes one
        /// place and then reads the other's" needs, and no more. An access that is weakened has
        /// none.
        Between,
        /// Not at all: what hands on the contents of frames must not need it.
        Never,
    }

    std::thread_local! {
        /// All threads of a model are coroutines of one thread of the machine.
        static ALONE: Cell<bool> = const { Cell::new(false) };
        static STRICT: Cell<Strict> = const { Cell::new(Strict::BeforeReads) };
    }

    loom::thread_local! {
        /// This thread of the model has made such a write since its last fence.
        static WROTE: Cell<bool> = Cell::new(false);
    }

    /// For the rest of the execution; each begins with [`Strict::BeforeReads`].
    #[cfg(test)]
    pub(crate) fn set_strict(strict: Strict) {
        STRICT.set(strict);
    }

    /// Says whether the model has one thread now: before others are started, and after all are
    /// joined. Whatever a fence would order is ordered by the start or the join then.
    #[cfg(test)]
    pub(crate) fn set_alone(alone: bool) {
        ALONE.set(alone);
    }

    /// Left out where the thread is alone: for each fence loom looks at every atomic that there is,
    /// which was most of the time.
    pub(crate) fn fence(ordering: Ordering) {
        if !ALONE.get() {
            atomic::fence(ordering);
        }
    }

    /// Comes before a load or an exchange.
    fn before_read(ordering: Ordering) {
        if ordering != Ordering::SeqCst {
            return;
        }
        match STRICT.get() {
            Strict::BeforeReads => fence(Ordering::SeqCst),
            Strict::Between => {
                if WROTE.with(|wrote| wrote.replace(false)) {
                    fence(Ordering::SeqCst);
                }
            }
            Strict::Never => {}
        }
    }

    /// Comes after a store or an exchange.
    fn after_write(ordering: Ordering) {
        if ordering == Ordering::SeqCst && STRICT.get() == Strict::Between {
            WROTE.with(|wrote| wrote.set(true));
        }
    }

    macro_rules! store {
        ($word:expr, $value:expr, $ordering:expr) => {
            if $ordering == Ordering::SeqCst {
                // An exchange, as on x86: loom does not know where among others' exchanges a store
                // comes, and shows their values to a thread that reads last.
                $word.swap($value, Ordering::AcqRel);
            } else {
                $word.store($value, $ordering);
            }
        };
    }

    atomics!();
}
