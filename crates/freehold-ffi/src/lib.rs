// What registries show, with its examples compiled and run.
#![cfg_attr(feature = "std", doc = include_str!("../README.md"))]
//!
//! # How calls answer
//!
//! A call that can fail returns a `freehold_status`, 0 for success, which `freehold_strerror` puts
//! into words. Its last parameter is a `freehold_error *`, null or filled in on failure: the frame
//! concerned, the value found and the value expected, the kernel's errno, and all of it as a
//! sentence. No last error is kept. Results go through out parameters, which are not touched on
//! failure.
//!
//! # Pointers
//!
//! What every function asks of its pointers is said once, here and at the top of the header; a
//! function says what else it asks for under "Requires". A null pointer is refused with a status,
//! or does nothing and yields 0, -1, false or null in the calls that return no status. All others
//! are what they are called: an allocator, a CPU or an arena comes from this library and is not
//! destroyed; what is named in the singular can be read, or written to where it is a result; an
//! array has as many entries as is said; a text ends with a zero; a callback may be called with its
//! `user`, during the call and, where the library keeps it, as long as it does.
//!
//! # Panics
//!
//! No panic crosses the boundary. A panic would be a defect found in the middle of a call, after
//! which the allocator cannot go on: every function is `extern "C"`, in which Rust turns a panic
//! into an abort, with a message on standard error. Callbacks must not throw or longjmp either:
//! they run with the allocator's own stack frames below them.
//!
//! # Threads
//!
//! Any thread may make any call at any time, with these exceptions. A function that asks for more
//! says so under "Thread safety". The handle of an owned CPU, and a `freehold_frames`, belong to
//! one thread at a time. In a callback of the platform only those calls may be made that take no
//! lock; they say so. In a signal handler there is no call on an arena. Any thread may free a
//! frame.
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
//! # Versions
//!
//! Every symbol begins with `freehold_`, every macro and enumerator with `FREEHOLD_`. The shared
//! library's soname carries the version that its ABI depends on: `libfreehold.so.0.1` before 1.0,
//! where each minor version may differ.

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
pub mod contig;
pub mod cpu;
pub mod error;
#[cfg(feature = "std")]
pub mod host;
pub mod hotplug;
pub mod isolation;
pub mod platform;
pub mod request;
pub mod reserve;
pub mod stats;
pub mod status;
pub mod version;

#[cfg(all(feature = "panic-handler", not(feature = "std"), not(test)))]
mod freestanding;
