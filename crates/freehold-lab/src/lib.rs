//! The command line of `freehold`: replays of traces, recordings, and the list of engines.
//!
//! ```text
//!  freehold  replay ── replay_args, machine, passes, notes: traces through engines
//!            record   a trace of the running kernel
//!            engines  the names of designs and switches
//!            tools    look, replay threads, bench, ...: programs of their own, started as cargo starts its
//! ```
//!
//! Results go to standard output and everything else (progress, warnings, errors) to standard
//! error, so that `--json` is always one valid document. Exit codes: 0 fine; 1 an engine lost
//! frames or failed its checks; 2 wrong usage or input that cannot be read; 130 stopped by the
//! user.

#![deny(unsafe_code)]
// A program: what is public is for its tests and for other programs of the laboratory.
#![allow(missing_docs, clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod engines;
// What `freehold-replay-modes` replays with as well.
#[doc(hidden)]
pub mod machine;
mod notes;
#[doc(hidden)]
pub mod passes;
mod record;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod replay_args;
mod sample;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use freehold_labkit::cli::exit_code;

const EXAMPLES: &str = "\
Examples:
  freehold                                      the built-in recording, five designs
  freehold trace.parquet                        replay a trace of your own
  freehold replay --json *.parquet              several traces, as JSON
  freehold replay -e vanilla -e pcp-buddy-fixed,-merge trace.txt.gz
                                                two engines, one without a change
  freehold replay --memory 1G trace.parquet     on a machine short of memory
  freehold bench --quick                        what allocations and frees cost
  freehold report -o report.html *.json         one page of all these results
  freehold compare --worse 2 main.json now.json exit code 1 if a figure is over 2 % worse
  freehold simulate -w kernel-build-like --cpus 1,32,1024
                                                on simulated machines
  freehold soak --minutes 60                    a stress test on many threads
  freehold look                                 how fragmented memory is
  freehold engines                              what can be named after --engine

A trace is Parquet, or the text of tracefs, `trace-cmd report`, `perf script` or bpftrace (docs/recording.md has the \
script), plain or compressed with gzip or zstd; '-' reads standard input. To record one, as root:
  freehold record -o trace.parquet -- make

look, replay threads, replay fidelity, bench, calibrate, simulate, report, compare and soak are programs of their own, named in \
[brackets] above and by 'freehold replay --help'. A release has them; a first build leaves them out, and then says how to install them.

Exit codes: 0 fine; 1 an engine lost frames or failed its checks, compare --worse found something worse, or a soak found an error; 2 wrong \
usage or unreadable input; 130 stopped by Ctrl-C.";

/// Replays traces of a kernel's page allocator through several designs, and says which is best at
/// what, and whether the zone lock is a problem.
#[derive(Parser, Debug)]
#[command(
    name = "freehold", version, after_help = EXAMPLES, max_term_width = 120,
    override_usage = "freehold [TRACE]...\n       freehold <COMMAND> [OPTIONS] [ARGUMENTS]..."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Replay traces through engines and print a comparison.
    Replay(Box<replay_args::ReplayArgs>),
    /// Record a trace of the running kernel (root).
    Record(record::RecordArgs),
    /// List the engines and switches that can be named.
    Engines(engines::EnginesArgs),
    #[command(flatten)]
    Tool(tools::Tool),
}

/// The definition of the command line: what completions and manual pages are made from.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with these arguments, the first of which is its name.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(tools::with_replay(arguments.into_iter().collect()));
    exit_code(match cli.command {
        None => replay::run(&replay_args::ReplayArgs::default()),
        Some(Command::Replay(args)) => match &args.mode {
            Some(mode) => return mode.run(),
            None => replay::run(&args),
        },
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Engines(args)) => engines::run(&args),
        Some(Command::Tool(tool)) => return tool.run(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn no_subcommand_and_an_empty_replay_are_the_same() {
        let cli = Cli::parse_from(["freehold", "replay"]);
        let Some(Command::Replay(args)) = cli.command else { panic!("replay is a subcommand") };
        assert_eq!(*args, replay_args::ReplayArgs::default());
    }
}
