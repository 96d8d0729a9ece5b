//! Any engine on 1 to 1,024 CPUs, in simulated time, on one core: `freehold simulate`.
//!
//! ```text
//!  workloads/  what each CPU does              machine    makes the engine's calls, adds up time
//!  run, row    one simulation, start to end    lock       waits for locks
//!  queue       which CPU is next; ticks        lines      which CPU wrote a cache line last
//!  time        picoseconds                     output     table and JSON
//!  tally       counts of the measured stretch
//! ```
//!
//! # What is real and what is modelled
//!
//! The engine is real: the code of `replay` and `bench` decides which frame is handed out, when a
//! CPU goes to the zone, and how many steps that takes. So counts (lock acquisitions, steps,
//! merges, fallbacks, free blocks) are those of the design, for that order of calls. Time is
//! modelled: each step costs what it was measured to cost on one machine ([`model`]), a lock serves
//! one CPU at a time ([`lock`]), and a line that another CPU wrote has to be fetched; while it is
//! on its way to one CPU, others wait for it ([`lines`]). A CPU of freehold that looks for its next
//! block fetches one line that others write, a row of the board; its other shared writes are
//! counted but not charged. A heavy barrier takes its caller `barrier_ns` for each other CPU; its
//! cost to those is not charged. Each row names its bound: think time, a lock, lines.
//!
//! Not modelled: the interconnect's bandwidth and topology beyond two distances, caches that
//! overflow, interrupts (those of heavy barriers too) and scheduling, reclaim and compaction.
//! A machine has one zone; of one with several nodes, simulate a node.

mod cli;
pub mod lines;
pub mod lock;
pub mod machine;
pub mod output;
pub mod queue;
pub mod row;
pub mod run;
pub mod tally;
mod ticks;
pub mod time;
pub mod workloads;

pub use crate::model;
pub(crate) use cli::{SimulateArgs, run};
pub use model::Model;
pub use row::{Bound, Row};
pub use run::{Scenario, SimulateError, simulate, simulate_all};
pub use workloads::Kind;
