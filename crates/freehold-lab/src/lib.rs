//! The library behind the `freehold` command: driving engines with page-allocator traces and other
//! work, and presenting what each engine did. Traces are read by [`freehold_trace`].
//!
//! ```text
//!  trace file ──> TraceReader ──> replay ──> Engine (one a design) ──> Counters ──> report (table, JSON, Parquet)
//!                 (any format)    maps frames, orders events
//! ```

// Allowed in seven files only, which say why: mappings, memory behind frame numbers and of an
// arena, peers that hand out addresses (three times), and signals that stop a thread.
#![deny(unsafe_code)]

// The library is engines, and what one can ask of them. The rooms of commands are public for this
// crate's own tests and examples, and no interface that others use.
#[doc(hidden)]
pub mod bench;
mod better;
pub mod cli;
#[doc(hidden)]
pub mod compare;
pub mod engine;
pub mod engines;
#[doc(hidden)]
pub mod fragmentation;
#[doc(hidden)]
pub mod html;
mod kinds;
mod look;
mod nearest;
mod one_line;
mod pool;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod simulate;
#[doc(hidden)]
pub mod soak;

/// The page that package registries show, here so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
