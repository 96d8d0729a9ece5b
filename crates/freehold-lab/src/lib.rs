//! Freehold's laboratory: what the `freehold` command does, one module a command, and what they
//! share.
//!
//! ```text
//!  commands   the command line: replay, record, engines, and which of the others are built in
//!  look  fidelity  simulate  bench  contiguity  report  compare   a command each, behind features
//!  results    what report and compare read back
//!  trials     what those share that a replay does without
//!  cli  draw  tables  engines  replay  engine  model  zone_lock   what all commands share
//!
//!  trace file ──> TraceReader ──> replay ──> Engine (one a design) ──> Counters ──> tables, JSON
//!                 (any format)    maps frames, orders events
//! ```

// Allowed in a few files of `bench` only, which say why.
#![deny(unsafe_code)]
// A program: what is public is for its tests.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(feature = "bench")]
pub mod bench;
pub mod cli;
pub mod commands;
#[cfg(feature = "report")]
pub mod compare;
#[cfg(feature = "contiguity")]
pub mod contiguity;
pub(crate) mod draw;
pub mod engine;
pub mod engines;
#[cfg(feature = "fidelity")]
mod fidelity;
mod look;
pub mod model;
pub mod nearest;
pub mod one_line;
pub mod replay;
#[cfg(feature = "report")]
pub mod report;
#[cfg(feature = "report")]
pub mod results;
#[cfg(feature = "simulate")]
pub mod simulate;
pub mod tables;
#[cfg(feature = "trials")]
pub mod trials;
pub mod zone_lock;

pub use commands::{called, command, main, status};
