//! The command line: a subcommand for each case.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::{exact, mark, mt, nofalse, stand};

/// Whether a Freehold allocator keeps its word.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  torture mt --seeds 360 --millis 10000 --stops 8000    an hour of everything
  torture nofalse --order 3 --stops 300                 threads are stopped for 300 us at most
  torture exact --first 1 --seeds 2000

Each prints what it found as JSON, `troubles` first of all.
Exit status: 0 nothing was wrong, 1 something was, 2 wrong usage."
)]
struct Cli {
    #[command(subcommand)]
    case: Case,
}

#[derive(Subcommand)]
enum Case {
    /// One thread on random machines: each answer is compared with a table of all frames.
    Exact {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Machines.
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
    },
    /// Every call at once on random machines, each frame's owner in a ledger.
    Mt(mt::Arguments),
    /// There is always a free chunk: no request may fail.
    Nofalse(nofalse::Arguments),
    /// One thread stands still anywhere: the others get all but what it has, without waiting.
    Stop {
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Threads take all they get: they leave the min mark, to the frame.
    Mark(mark::Arguments),
}

/// Runs the case that the command line names, and prints what it found.
pub(crate) fn run() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = match Cli::parse().case {
        Case::Exact { first, seeds } => run_exact(first, seeds),
        Case::Mt(given) => mt::run(&given),
        Case::Nofalse(given) => nofalse::run(&given),
        Case::Stop { seconds, seed } => stand::run(seconds, seed),
        Case::Mark(given) => mark::run(&given),
    };
    let ok = found["troubles"].as_array().is_some_and(Vec::is_empty);
    println!("{:#}", json!({ "command": format!("torture {}", words.join(" ")), "found": found }));
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays the machines of these seeds; ends with the first that is wrong.
fn run_exact(first: u64, seeds: u64) -> Value {
    let mut counts = exact::case::Counts::default();
    for seed in first..first + seeds {
        match exact::of_seed(seed) {
            Ok(made) => counts.add(&made),
            Err(wrong) => return json!({ "troubles": [format!("seed {seed}: {wrong}")] }),
        }
    }
    json!({
        "troubles": [], "machines": seeds, "steps": counts.steps, "failures": counts.failures,
        "searched": counts.searched,
    })
}

/// Through which door the threads of a case call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum By {
    /// Each owns its CPU.
    Own,
    /// None does.
    On,
    /// Every other one does.
    Mix,
}
