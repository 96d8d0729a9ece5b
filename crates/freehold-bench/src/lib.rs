//! What an allocation and a free cost: several engines side by side, in one run.
//!
//! ```text
//!  kind        what can be measured          calls     what a loop asks of an engine (static dispatch)
//!  catalogue   what each is; metric: a figure  engines/  the engines behind those calls
//!  plan        which of them; scale: how much  runner    in what order; side: what takes turns
//!  budget      for how long, with --quick    mapping   memory as the system gives it; backing: behind frame numbers
//!  loops       one thread's loops            result    medians, and the JSON
//!  steady      its loops that hold memory
//!  threads     several threads' loops        table     the table
//!  workloads/  the proposals' workloads      significance  whether a difference is one
//!  yardstick   what the machine costs
//!  memory/     virtual memory on top: vmalloc, lazyfree, give-back, arena
//!  sampler     which samples of a loop count; probe: whether the core is ours
//! ```
//!
//! # How far the figures can be trusted
//!
//! * Every engine runs the same generic loops, compiled for it ([`calls`] says why). Every result
//!   is looked at and every frame number used ([`loops`] says how).
//! * Within a run the engines take turns, A B C A B C, so that whatever the machine goes through
//!   hits all of them. A figure is the median of the runs, with the least and the greatest beside
//!   it.
//! * Before the first run each engine goes through a warm-up with every frame stamped
//!   ([`engines::Stamped`]); an engine that hands out a frame twice, or loses one, gets no figure.
//!   Each run begins with the CPUs' own stocks drained.
//! * Threads stay on one CPU each. What one thread does alone is timed by that thread's CPU clock,
//!   the rest by the wall clock ([`clock`]).
//! * What one thread does alone is timed in samples of some 200 us, and only those count in which
//!   the core was ours and not also a neighbour's ([`sampler`]).
//! * No timed loop touches the memory of a frame, but those of the workloads that are about memory
//!   ([`Kind::writes_memory`]); these run over real memory ([`backing`]).
//! * What is counted (zone-lock acquisitions, different frames) is counted on one thread where that
//!   can be: exact, and the same in every run ([`workloads::counting`]).
//! * A difference from the first engine is called one by a test ([`freehold_labkit::significance`]).
//! * The same run measures an atomic read-modify-write and the hand-over of a cache line
//!   ([`yardstick`]), in which figures can be compared between machines.

// Allowed in a few files only, which say why: mappings, memory behind frame numbers and of an arena, the probe,
// peers that hand out addresses (three times).
#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

// Writes to frames, as their users do.
#[allow(unsafe_code)]
pub mod backing;
pub mod budget;
mod calibrate;
pub mod calls;
mod catalogue;
mod cli;
pub mod clock;
pub mod engines;
pub mod figures;
pub mod fragmentation;
mod gathered;
mod kind;
pub mod listing;
pub mod loops;
mod mapping;
pub mod memory;
pub mod metric;
mod plan;
mod probe;
mod real;
pub mod result;
mod ring;
pub mod runner;
pub mod sampler;
mod scale;
mod side;
pub mod steady;
pub mod table;
pub mod threads;
mod validate;
pub mod workloads;
pub mod yardstick;

pub use budget::Budget;
pub use cli::{command, main};
pub use engines::BenchEngine;
pub use kind::Kind;
pub use plan::Plan;
pub use result::{Report, Row, Spread};
pub use runner::run;
pub use scale::Scale;
