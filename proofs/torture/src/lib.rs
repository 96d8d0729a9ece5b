//! A soak: everything the allocator can do at once, on more threads than cores, for as long as one
//! likes.
//!
//! ```text
//! aged    if asked for: half of memory is in use, scattered
//! solo    one thread makes every call, waiting for no other: shared writes are counted call by call
//! storm   all threads; CPUs, memory and isolated ranges come and go; threads are stopped in mid-call
//!         now and then all pause: every invariant is checked, and free and owned frames add up
//! end     everything is freed, the CPUs are drained, and all memory must be where it was
//! ```
//!
//! A ledger records each frame's owner, so that a frame that is handed out twice or freed while in
//! use is seen at once. `bounds.rs` has what each call may cost at most; a call beyond that is a
//! failure, too.

#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs)]

mod aged;
mod books;
mod bounds;
mod call;
mod checks;
mod clerk;
mod cli;
mod cores;
mod handle;
mod host;
mod map;
mod plugger;
mod report;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod stops;
#[cfg(not(target_os = "linux"))]
#[path = "no_stops.rs"]
mod stops;
mod storm;
mod table;
mod tally;
mod watch;
mod worker;
mod world;

pub use cli::{command, main};
pub use report::{Report, Row, Stops};
pub use storm::run;
use world::LEAST;

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Plan {
    /// How long, the end not counted.
    pub time: Duration,
    /// Threads that call.
    pub threads: u32,
    /// Frames of the machine.
    pub frames: u64,
    /// Frames that threads have at once, about: no more than the machine has.
    pub used: u64,
    /// Where the memory is.
    pub map: Map,
    /// Half of all frames are in use at first, scattered over all blocks.
    pub aged: bool,
    /// What random numbers are drawn from. How threads meet is up to the system: the same seed is
    /// not the same run.
    pub seed: u64,
    /// Stop threads in mid-call.
    pub stops: bool,
    /// How long a call may take before the run has failed.
    pub patience: Duration,
    /// What to do wrong on purpose, so that one can see it noticed.
    pub plant: Option<Plant>,
}

/// Where the machine's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Map {
    /// Two zones, each in one piece.
    #[default]
    Plain,
    /// Four zones that share sections of metadata; each in pieces, with holes inside blocks and of
    /// whole sections between them.
    Sparse,
}

/// A fault of the soak's own, in place of one of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Plant {
    /// A chunk is freed while its thread goes on using it.
    UseAfterFree,
    /// A frame is freed twice.
    DoubleFree,
    /// A frame is entered in another thread's name.
    WrongOwner,
    /// A chunk is never freed.
    Leak,
    /// A call does not return.
    Stall,
    /// Every bound is taken for half of what it is.
    SmallBound,
}
