// What registries show, with its examples compiled and run.
#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # Pointers
//!
//! What calls answer, and what they ask of pointers, threads and callbacks, is said once, at the
//! top of `include/freehold.h`; a function says what else it asks for under "Requires" and "Thread
//! safety".
//!
//! # Panics
//!
//! No panic crosses the boundary. A panic would be a defect found in the middle of a call, after
//! which the allocator cannot go on: every function is `extern "C"`, in which Rust turns a panic
//! into an abort, with a message on standard error.
//!
//! # Without std
//!
//! With `--no-default-features --features panic-handler` this is the bare allocator alone, as a
//! static library that needs no C library, no heap and no threads: `make freestanding`. Define
//! `FREEHOLD_FREESTANDING` before including the header to hide the arena. The program
//! brings `memcpy`, `memmove`, `memset`, `memcmp` and `bcmp` (GCC demands all but the last of any
//! freestanding program) and `freehold_panic`, which does not return. Code generation is
//! `RUSTFLAGS`' business: `-Cno-redzone=yes -Ccode-model=kernel -Crelocation-model=static` for a
//! kernel in the upper half on x86-64.
//!
//! Every symbol begins with `freehold_`, every macro and enumerator with `FREEHOLD_`.

#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(
    clippy::missing_safety_doc,
    reason = "what the callers of all functions promise is said once, under Pointers"
)]

pub mod allocator;
mod arguments;
pub mod calls;
pub mod chunk;
pub mod config;
pub mod cpu;
pub mod error;
mod failure;
mod handle;
#[cfg(feature = "std")]
pub mod host;
pub mod platform;
pub mod ranges;
pub mod request;
pub mod stats;
pub mod status;
pub mod version;

#[cfg(all(feature = "panic-handler", not(feature = "std"), not(test)))]
mod freestanding;
