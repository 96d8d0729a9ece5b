//! Whether an allocator keeps its word: on more threads than cores, near the end of memory, while
//! CPUs and memory come and go, and while threads stand still in the middle of a call.
//!
//! ```text
//! soak      storm.rs    every call at once, an owner of each frame in a ledger, each call's bound
//! mt        storm.rs    short storms on many small random machines
//! exact     exact/      one thread: each answer is compared with a table of all frames
//! nofalse   nofalse.rs  there is always a free chunk: no request may fail
//! stop      stand.rs    one thread stands still anywhere; the others get all else, without waiting
//! mark      mark.rs     how far below the min mark threads get together
//! ```
//!
//! A frame that is handed out twice or freed while in use is seen at once (`ledger.rs`).
//! `bounds.rs` has what each call may cost at most. Each case prints what it found as JSON.

#![deny(unsafe_code)]

mod bounds;
mod checks;
mod clerk;
mod cli;
mod exact;
mod handle;
mod ledger;
mod machine;
mod mark;
mod nofalse;
mod platform;
mod plugger;
mod random;
mod stand;
#[allow(unsafe_code)]
mod stops;
mod storm;
mod worker;
mod world;

use std::process::ExitCode;
use std::time::Duration;

/// A storm.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How long, the end not counted.
    pub(crate) time: Duration,
    /// Threads that call.
    pub(crate) threads: u32,
    /// Frames of the machine.
    pub(crate) frames: u64,
    /// Frames that threads have at once, about: no more than the machine has.
    pub(crate) used: u64,
    /// Where the memory is.
    pub(crate) map: Map,
    /// What random numbers are drawn from. How threads meet is up to the system: a seed is not a
    /// run.
    pub(crate) seed: u64,
    /// Stop threads in mid-call, for that long at most.
    pub(crate) stops: Option<Duration>,
    /// How long a call may take before the run has failed.
    pub(crate) patience: Duration,
    /// What to do wrong on purpose, so that one can see it noticed.
    pub(crate) plant: Option<Plant>,
}

/// Where the memory of the machine is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Map {
    /// Two zones, each in one piece.
    #[default]
    Plain,
    /// Two to four zones of a few blocks, with holes in blocks and between them, by the seed.
    Random,
}

/// A fault of the storm's own, in place of one of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Plant {
    /// A chunk is freed while its thread goes on using it.
    UseAfterFree,
    /// A frame is freed twice.
    DoubleFree,
    /// A frame is entered in the name of another thread.
    WrongOwner,
    /// A chunk is never freed.
    Leak,
    /// A call does not return.
    Stall,
    /// Every bound is taken for half of what it is.
    SmallBound,
}

fn main() -> ExitCode {
    cli::run()
}
