//! The command line: a subcommand for each case.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::random::Random;
use crate::world::LEAST;
use crate::{Map, Plan, Plant, exact, mark, nofalse, stand, storm};

/// Whether a Freehold allocator keeps its word.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  torture soak --minutes 60
  torture soak --map random --seed 3            zones with holes
  torture soak --memory 1T --used 256M          the metadata of 1 TiB
  torture nofalse --order 3 --stops 300         with threads that are stopped for 300 us at most
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
    /// Every call at once on more threads than cores, each frame's owner in a ledger.
    Soak(Soak),
    /// Short storms on small random machines.
    Mt {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Machines.
        #[arg(long, default_value_t = 10)]
        seeds: u64,
        /// How long each storm takes.
        #[arg(long, default_value_t = 300)]
        millis: u64,
        /// Threads are stopped for so many us at most; 0 for none.
        #[arg(long, default_value_t = 0)]
        stops: u64,
    },
    /// One thread on random machines: each answer is compared with a table of all frames.
    Exact {
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Machines.
        #[arg(long, default_value_t = 40)]
        seeds: u64,
    },
    /// There is always a free chunk: no request may fail.
    Nofalse(nofalse::Arguments),
    /// One thread stands still anywhere: the others get all but what it has, without waiting.
    Stop {
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// How far below the min mark threads get together.
    Mark(mark::Arguments),
}

#[derive(Args)]
struct Soak {
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Instead of seconds.
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// Default: three for each core, 8 at least.
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(2..=1024))]
    threads: Option<u32>,
    /// Memory of the machine, 64M or more, as 512M, 16G or 1T; with little of it there is never
    /// enough.
    #[arg(long, default_value = "256M", value_parser = machine)]
    memory: u64,
    /// About the most of it that threads have at once. Of a large machine of which little is used
    /// only the metadata of that part takes memory.
    #[arg(long, value_parser = frames)]
    used: Option<u64>,
    #[arg(long, value_enum, default_value_t)]
    map: Map,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop no threads in mid-call.
    #[arg(long)]
    no_stops: bool,
    /// How many seconds a call may take.
    #[arg(long, hide = true, default_value_t = 20)]
    patience: u64,
    /// Plant a fault, to see that it is noticed.
    #[arg(long, hide = true)]
    plant: Option<Plant>,
}

/// Frames of so much memory.
fn frames(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.len() - text.len().min(1));
    let shift = match unit {
        "M" => 8,
        "G" => 18,
        "T" => 28,
        _ => return Err("a number and M, G or T, as in 256M".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| format!("'{number}' is no number"))?;
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or("too much".to_owned())
}

/// The memory of a machine.
fn machine(text: &str) -> Result<u64, String> {
    let enough = |n: &u64| *n >= LEAST;
    frames(text)?.checked_add(0).filter(enough).ok_or(format!("{}M is the least", LEAST >> 8))
}

fn soak(given: &Soak) -> Value {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let plan = Plan {
        time: Duration::from_secs(given.minutes.map_or(given.seconds, |minutes| minutes * 60)),
        threads: given.threads.unwrap_or((3 * cores as u32).clamp(8, 1024)),
        frames: given.memory,
        used: given.used.unwrap_or(u64::MAX),
        map: given.map,
        seed: given.seed,
        stops: (!given.no_stops).then_some(Duration::from_millis(8)),
        patience: Duration::from_secs(given.patience),
        plant: given.plant,
    };
    told(storm::run(plan))
}

/// A machine that there cannot be is a trouble, too.
fn told(result: Result<Value, freehold::ConfigError>) -> Value {
    result.unwrap_or_else(|error| json!({ "troubles": [format!("no such machine: {error}")] }))
}

/// Storms on small machines; ends with the first one in which something is wrong.
fn mt(first: u64, seeds: u64, millis: u64, stops: u64) -> Value {
    let mut calls = 0;
    for seed in first..first + seeds {
        let plan = Plan {
            time: Duration::from_millis(millis),
            threads: 2 + Random::new(seed).below(5) as u32,
            frames: 0,
            used: u64::MAX,
            map: Map::Random,
            seed,
            stops: (stops > 0).then_some(Duration::from_micros(stops)),
            patience: Duration::from_secs(20),
            plant: None,
        };
        let found = told(storm::run(plan));
        calls += found["calls"].as_u64().unwrap_or_default();
        if found["troubles"].as_array().is_none_or(|troubles| !troubles.is_empty()) {
            return json!({ "troubles": found["troubles"], "seed": seed, "storm": found });
        }
    }
    json!({ "troubles": [], "machines": seeds, "calls": calls })
}

/// Runs the case that the command line names, and prints what it found.
pub(crate) fn run() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = match Cli::parse().case {
        Case::Soak(given) => soak(&given),
        Case::Mt { first, seeds, millis, stops } => mt(first, seeds, millis, stops),
        Case::Exact { first, seeds } => exact::run(first, seeds),
        Case::Nofalse(given) => nofalse::run(&given),
        Case::Stop { seconds, seed } => stand::run(seconds, seed),
        Case::Mark(given) => mark::run(&given),
    };
    let ok = found["troubles"].as_array().is_some_and(Vec::is_empty);
    println!("{:#}", json!({ "command": format!("torture {}", words.join(" ")), "found": found }));
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
