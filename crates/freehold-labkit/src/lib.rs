//! The library below the commands of Freehold's laboratory: engines by name, replays of traces,
//! tables, JSON, and options that all command lines have. [`freehold_trace`] reads the traces.
//!
//! ```text
//!  freehold (replay, record, engines)   freehold-bench   freehold-simulate   freehold-report   freehold-soak
//!             \    -replay-modes  -look          |                  |                 |              /
//!              \       |          |       freehold-trials (what those four and -replay-modes share)
//!               \      |          |          |
//!  freehold-labkit         cli  report  replay  engines  engine  model  zone_lock
//!                                              |
//!  freehold-trace      freehold-classic      freehold
//!
//!  trace file ──> TraceReader ──> replay ──> Engine (one a design) ──> Counters ──> report (table, JSON)
//!                 (any format)    maps frames, orders events
//! ```

#![deny(unsafe_code)]
// What goes wrong is said by the error that a command prints.
#![allow(clippy::missing_errors_doc, clippy::missing_panics_doc)]

// The library is engines, and what one can ask of them. The rest is public for the commands and
// their tests, and no interface that others use.
#[doc(hidden)]
pub mod better;
#[doc(hidden)]
pub mod cli;
pub mod engine;
pub mod engines;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod nearest;
#[doc(hidden)]
pub mod one_line;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod zone_lock;

/// The page that package registries show, here so that its example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
