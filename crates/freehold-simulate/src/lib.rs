//! Any engine on 1 to 1,024 CPUs, in simulated time, on one core: `freehold simulate`.
//!
//! ```text
//!  workloads/  what each CPU does          machine    carries calls out by the real engine, adds up their time
//!  run, row    from start to end           engine     what a call has done, by the engine's own counters
//!  queue       who goes on when; ticks     lock       waiting
//!  time        picoseconds                 lines      who wrote a cache line last
//!  model       what each step costs        validation simulated beside measured
//!  many        many of them, on threads    output     table and JSON; plot: pictures
//!  tally       what is counted meanwhile   latency    how long allocations took, over time
//! ```
//!
//! # What is real and what is modelled
//!
//! The engine is real: the same code as in `replay` and `bench` decides which frame is handed out,
//! when a CPU goes to the zone, and how many steps that takes. So counts (lock acquisitions, steps,
//! merges, fallbacks, free blocks) are those of the design, for that order of calls. Time is
//! modelled: each step costs what it was measured to cost on one machine ([`model`]), a lock serves
//! one at a time ([`lock`]), and a line that another CPU wrote has to be fetched; while it is on
//! its way to one, others wait for it ([`lines`]). A CPU of freehold that looks for its next block
//! fetches one line that others write, a row of the board; other writes to what all CPUs share are
//! counted but not charged. A heavy barrier takes its caller `barrier_ns` for each
//! other CPU; what it takes those is not charged. What bounds a row (think time, a lock, lines) is
//! said with it.
//!
//! `freehold calibrate` measures what each step costs on a machine, and `freehold calibrate
//! --validate` compares the simulation with real threads.
//!
//! Not modelled: the interconnect's bandwidth and topology beyond two distances, caches that
//! overflow, interrupts (those of heavy barriers too) and scheduling, reclaim and compaction.
//! Memory of another node (`--nodes`) is as near as one's own.

#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod cli;
pub mod latency;
pub mod lines;
pub mod lock;
pub mod machine;
pub mod many;
pub mod output;
pub mod plot;
pub mod queue;
pub mod row;
pub mod run;
pub mod tally;
mod ticks;
pub mod time;
pub mod validation;
pub mod workloads;

pub use cli::{command, main};
pub use freehold_labkit::cli::model_file;
pub use freehold_labkit::model;
pub use model::Model;
pub use row::{Bound, Row};
pub use run::{Scenario, SimulateError, simulate};
pub use workloads::Kind;
