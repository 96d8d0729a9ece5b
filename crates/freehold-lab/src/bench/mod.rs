//! What an allocation and a free cost: several engines side by side, in one run.
//!
//! ```text
//!  kind        the benchmarks; metric      calls      what a loop asks of an engine (static dispatch)
//!  scale       how much a run does         engines/   the engines behind those calls
//!  runner      what is measured, in what   result     medians, and the JSON
//!              order, who takes turns      table      the table
//!  loops       one thread's loops          yardstick  what an atomic costs here
//!  steady      its loops that hold memory  cli        the command
//!  threads     several threads' loops      workloads/ the benchmarks themselves
//! ```
//!
//! # How far the figures can be trusted
//!
//! * Every engine runs the same generic loops, compiled for it ([`calls`] says why). Every result
//!   is checked and every frame number used ([`loops`] says how).
//! * Within a run the engines take turns, A B C A B C, so that disturbances hit all of them. A
//!   figure is the median of the runs, with the least and the greatest beside it.
//! * Before the first run each engine goes through a warm-up. One that loses a frame, in it or in a
//!   run, gets no figure. Each run begins with the CPUs' own stocks drained.
//! * Each thread stays on one CPU. Benchmarks of one thread are timed by that thread's CPU clock,
//!   the others by the wall clock ([`clock`]).
//! * No timed loop touches the memory of a frame.
//! * Counts (of `producer-consumer`: zone-lock acquisitions, different chunks) come from one
//!   thread: exact, and equal in every run.
//! * An engine clearly differs from the first where their runs do not overlap, of four at least.
//! * Each run also measures an atomic read-modify-write ([`yardstick`]), as a unit for comparing
//!   machines.

pub mod calls;
pub(crate) mod cli;
pub mod clock;
pub mod engines;
pub mod figures;
mod kind;
pub mod listing;
pub mod loops;
pub mod metric;
pub mod result;
pub mod runner;
mod scale;
pub mod steady;
pub mod table;
pub mod threads;
pub mod workloads;
pub mod yardstick;

pub use engines::BenchEngine;
pub use kind::Kind;
pub use result::{Report, Row, Spread};
pub use runner::{Plan, run};
pub use scale::Scale;
