//! The command line of `freehold report` and `freehold compare`.

mod compare;
mod report;
mod results;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use freehold_labkit::cli::exit_code;

/// Make one HTML page of what the other commands printed with --json.
#[derive(Parser, Debug)]
#[command(
    name = "freehold-report",
    bin_name = "freehold report",
    version,
    max_term_width = 120,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    report: report::ReportArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Compare two results that the other commands printed with --json.
    #[command(bin_name = "freehold compare")]
    Compare(compare::CompareArgs),
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
        None => report::run(&cli.report),
        Some(Command::Compare(args)) => compare::run(args),
    })
}
