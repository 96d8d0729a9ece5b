//! The modes of `freehold replay` that most replays do without.
//!
//! ```text
//!  threads    each CPU's calls on a thread of its own, against the engines' real locks
//!  fidelity   an engine beside what the recording kernel itself counted
//! ```
//!
//! `freehold replay threads` and `freehold replay fidelity` start this program, which replays with
//! what `freehold-lab` has for every replay.

#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod fidelity;
pub mod threads;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use freehold_labkit::cli::exit_code;

/// Replay traces on threads, or beside the recording kernel's own counts.
#[derive(Parser, Debug)]
#[command(
    name = "freehold-replay-modes",
    bin_name = "freehold replay",
    version,
    max_term_width = 120,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand, Debug)]
enum Mode {
    /// Replay each CPU's calls on a thread of its own, all against the engine's real locks.
    Threads(threads::ThreadsArgs),
    /// Compare refills and drains of the recording kernel's engine (or those given) with what that
    /// kernel itself counted in the trace.
    Fidelity(fidelity::FidelityArgs),
}

/// The definition of the command line: what completions and manual pages are made from.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with these arguments, the first of which is its name.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(match &Cli::parse_from(arguments).mode {
        Mode::Threads(args) => threads::run(args),
        Mode::Fidelity(args) => fidelity::run(args),
    })
}
