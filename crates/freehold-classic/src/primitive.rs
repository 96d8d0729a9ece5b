//! The atomics this crate is built on: core's, or loom's when the lock-free list is model-checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p freehold-classic --release loom_`).

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
