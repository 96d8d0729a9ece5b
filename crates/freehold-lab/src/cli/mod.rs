//! The command line of `freehold`.
//!
//! Results go to standard output and everything else (progress, warnings, errors) to standard
//! error, so that `--json` is always one valid document. Exit codes: 0 fine; 1 an engine ended not
//! whole, `compare --worse` found something worse, or a soak something wrong; 2 wrong usage or
//! input that cannot be read; 130 stopped by the user.

mod against_kernel;
mod bench;
mod calibrate;
mod compare;
mod complete;
mod engines;
mod error;
mod fragmentation;
mod given;
mod input;
mod look;
mod machine;
mod notes;
mod output;
mod passes;
mod picture;
mod progress;
mod record;
mod replay;
mod replay_args;
mod report;
mod results;
mod simulate;
mod size;
mod soak;
mod stop;
mod target;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use error::CliError;

const EXAMPLES: &str = "\
Examples:
  freehold                                      replay the sample trace through the default engines
  freehold replay trace.parquet                 replay a trace of your own
  freehold replay --json *.parquet              the same for several, for programs
  freehold replay -e vanilla -e pcp-buddy-fixed,-merge trace.txt.gz
                                                compare two engines, one with a change switched off
  freehold replay --memory 1G trace.parquet     press it for memory
  freehold bench --quick                        what allocations and frees cost
  freehold report -o report.html *.json         one page of what the others printed with --json
  freehold compare --worse 2 main.json now.json what has changed, with an exit code for CI
  freehold simulate -w kernel-build-like --cpus 1,32,1024
                                                the same engines on machines that are not at hand
  freehold soak --minutes 60                    everything at once on many threads
  freehold look                                 how fragmented this machine's memory is
  freehold engines                              what can be named after --engine

A trace is Parquet, or the text of tracefs, `trace-cmd report`, `perf script` or bpftrace (docs/recording.md has the \
script), plain or compressed with gzip or zstd; '-' reads standard input. To record one, as root:
  freehold record -o trace.parquet -- make

Exit codes: 0 fine; 1 an engine ended not whole, compare --worse found something worse, or a soak something wrong; 2 wrong \
usage or unreadable input; 130 stopped by Ctrl-C.";

/// Replays real traces of a kernel's page allocator through several designs and compares what each
/// would have cost.
#[derive(Parser, Debug)]
#[command(name = "freehold", version, after_help = EXAMPLES, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Replay traces through engines and print a comparison.
    Replay(Box<replay_args::ReplayArgs>),
    /// Measure what allocations and frees cost, engines side by side.
    Bench(Box<bench::BenchArgs>),
    /// Simulate engines on 1 to 1,024 CPUs.
    Simulate(Box<simulate::SimulateArgs>),
    /// Measure the constants of the simulation's cost model on this machine.
    Calibrate(calibrate::CalibrateArgs),
    /// Do everything the allocator can do at once, on many threads, and check that nothing is
    /// wrong.
    Soak(soak::SoakArgs),
    /// Show how fragmented a machine's memory is, without a trace.
    Look(look::LookArgs),
    /// Record a trace of the running kernel (root).
    Record(record::RecordArgs),
    /// Make one HTML page of what the other commands printed with --json.
    Report(report::ReportArgs),
    /// Compare two results that the other commands printed with --json.
    Compare(compare::CompareArgs),
    /// List the engines and switches that can be named.
    Engines(engines::EnginesArgs),
    /// Print what a shell needs to complete this command.
    Completions(complete::CompletionsArgs),
    /// Print the manual page, or write all of them.
    Man(complete::ManArgs),
}

/// What came of a command that did its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// All is well.
    Fine,
    /// An engine ended not whole, or a soak found something wrong.
    NotWhole,
    /// A result is worse than another by more than what is tolerated.
    Worse,
    /// Some of the input could not be read; said already.
    Unreadable,
    /// The user stopped it; what there was has been printed.
    Interrupted,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => replay::run(&replay_args::ReplayArgs::sample()),
        Some(Command::Replay(args)) => replay::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
        Some(Command::Simulate(args)) => simulate::run(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Soak(args)) => soak::run(&args),
        Some(Command::Look(args)) => look::run(&args),
        Some(Command::Record(args)) => record::run(&args),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Compare(args)) => compare::run(&args),
        Some(Command::Engines(args)) => engines::run(&args),
        Some(Command::Completions(args)) => complete::completions(&args),
        Some(Command::Man(args)) => complete::man(&args),
    };
    match done {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::NotWhole | Outcome::Worse) => ExitCode::from(1),
        Ok(Outcome::Unreadable) => ExitCode::from(2),
        // What a shell reports of a program that Ctrl-C has ended.
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        // Whoever read our output has seen enough: `freehold | head` is no error.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::error(error);
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_subcommand_and_an_empty_replay_are_the_same() {
        let cli = Cli::parse_from(["freehold", "replay"]);
        let Some(Command::Replay(args)) = cli.command else { panic!("replay is a subcommand") };
        assert_eq!(*args, replay_args::ReplayArgs::sample());
    }
}
