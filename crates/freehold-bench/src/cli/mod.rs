//! The command line of `freehold bench`, `freehold calibrate` and `freehold contiguity`.

mod bench;
mod calibrate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use freehold_labkit::cli::exit_code;

use crate::contiguity;

/// Measure what allocations and frees cost, engines side by side.
#[derive(Parser, Debug)]
#[command(
    name = "freehold-bench",
    bin_name = "freehold bench",
    version,
    max_term_width = 120,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    bench: bench::BenchArgs,
}

/// What has arguments of its own.
#[derive(Subcommand, Debug)]
enum Command {
    /// Count what engines do to contiguity, over machines of many shapes.
    #[command(alias = "fragmentation")] // What it was called once.
    Contiguity(contiguity::cli::ContiguityArgs),
    /// Measure the constants of the simulation's cost model on this machine.
    Calibrate(calibrate::CalibrateArgs),
}

/// The definition of the command line: what completions and manual pages are made from.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with these arguments, the first of which is its name.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    exit_code(match &cli.command {
        None => bench::run(&cli.bench),
        Some(Command::Contiguity(args)) => contiguity::cli::run(args),
        Some(Command::Calibrate(args)) => calibrate::run(args),
    })
}
