//! Atomics that tell of each access; of the same size as the machine's.

use core::sync::atomic;
pub(crate) use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Op, access};

macro_rules! atomic {
    ($name:ident: $value:ty, $($call:ident $op:ident)*) => {
        #[repr(transparent)]
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code)]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }
            #[inline]
            fn told<T>(&self, op: Op, with: $value, act: impl FnOnce() -> (T, bool)) -> T {
                // Relaxed: under the witness's lock; without one it is not called.
                let value = || self.0.load(Ordering::Relaxed) as u64;
                access(core::ptr::from_ref(self).addr(), op, with as u64, value, act)
            }
            #[inline]
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                self.told(Op::Load, Default::default(), || (self.0.load(ordering), true))
            }
            #[inline]
            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                self.told(Op::Store, value, || (self.0.store(value, ordering), true));
            }
            #[inline]
            pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.told(Op::Swap, value, || (self.0.swap(value, ordering), true))
            }
            #[inline]
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.told(Op::Exchange, to, || {
                    let result = self.0.compare_exchange(from, to, ordering, failure);
                    (result, result.is_ok())
                })
            }
            #[inline]
            pub(crate) fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                ordering: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, ordering, failure)
            }
            $(#[inline]
            pub(crate) fn $call(&self, value: $value, ordering: Ordering) -> $value {
                self.told(Op::$op, value, || (self.0.$call(value, ordering), true))
            })*
        }
    };
}

// Sums and maxima are of counters, which no history has.
atomic!(AtomicBool: bool, fetch_and And fetch_or Or);
atomic!(AtomicU8: u8, fetch_and And fetch_or Or fetch_add Store fetch_sub Store);
atomic!(AtomicU16: u16, fetch_and And fetch_or Or fetch_add Store fetch_sub Store);
atomic!(AtomicU32: u32, fetch_and And fetch_or Or fetch_add Store fetch_sub Store fetch_max Store);
atomic!(AtomicU64: u64, fetch_and And fetch_or Or fetch_add Store fetch_sub Store fetch_max Store);
