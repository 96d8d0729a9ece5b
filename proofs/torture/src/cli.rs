//! `freehold soak`: everything at once, for as long as one likes.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser};
use freehold::FRAME_SIZE;

use crate::table::table;
use crate::{LEAST, Map, Plan, Plant, run as soak};
use freehold_lab::cli::error::CliError;
use freehold_lab::cli::given::Shown;
use freehold_lab::cli::size::{Memory, parse_bytes, parse_memory, whole};
use freehold_lab::cli::{Outcome, exit_code, output, stop};
use freehold_lab::trials::progress;

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
Threads allocate and free in every way there is, through CPUs that they own or share, near the end of memory, while CPUs, memory and ranges come and go and threads are stopped in mid-call by signals. A separate ledger records the owner of every frame; from time to time all threads pause and every invariant is checked. At the end everything is freed and must be where it was.

Printed for each kind of call: how long it took, and the most heavy barriers and turns of waits in one call, beside the most that one may have (docs/bounds.md); while one thread runs alone also its writes to memory that all CPUs of a zone write. More than one may have is a failure. So is a call that takes 20 s: what each thread was doing is printed then. Times are of this machine with all that runs on it; a call in which its thread was stopped is not among them.

The same seed draws the same numbers; how threads meet is up to the system.

Examples:
  freehold soak                                 a minute
  freehold soak --minutes 60 --threads 32 --memory 1G
  freehold soak --map sparse --aged             holes, four zones, scattered frames from the start
  freehold soak --memory 1T --used 256M         the metadata of 1 TiB
  freehold soak --seconds 10 --json

--json prints {\"ok\", \"troubles\": [...], \"stuck\": [...], \"rows\": [{\"call\", \"owner\", \"alone\", \"count\", \"refused\", \"p50_ns\", \"p99_ns\", \"p999_ns\", \"max_ns\", \"barriers\", \"barriers_bound\", ...}], ...}.

Exit codes: 0 nothing was wrong; 1 something was; 2 wrong usage; 130 stopped by Ctrl-C, with what was done checked and printed.";

/// Turns of the progress bar are seconds.
const MINUTE: u64 = 60;

/// Stress the allocator on many threads, and check every frame.
#[derive(Parser, Debug)]
#[command(name = "freehold-soak", bin_name = "freehold soak", version, max_term_width = 120)]
struct Cli {
    #[command(flatten)]
    args: SoakArgs,
}

/// The definition of the command line: what completions and manual pages are made from.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command with these arguments, the first of which is its name.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    exit_code(run(&Cli::parse_from(arguments).args))
}

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
struct SoakArgs {
    /// How long in minutes, 1 to 100,000. Default: one.
    #[arg(long, value_name = "N", value_parser = whole(1..=100_000u64))]
    minutes: Option<u64>,

    /// How long in seconds instead, 1 to 6,000,000.
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = whole(1..=6_000_000u64))]
    seconds: Option<u64>,

    /// Threads, 2 to 1,024. Default: three for each core, 8 at least.
    #[arg(short, long, value_name = "N", value_parser = whole(2..=1024u32))]
    threads: Option<u32>,

    /// Memory of the machine, 64M or more; with little of it there is never enough.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_machine)]
    memory: Memory,

    /// About the most of it that threads have at once. Default: all of it. Of a large machine of
    /// which little is used, only the metadata of that part takes memory.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    used: Option<Memory>,

    /// Where the memory is: two zones in one piece each, or four zones with holes that share sections
    /// (192M at least).
    #[arg(long, value_enum, default_value_t)]
    map: Map,

    /// Begin with half of the memory in use, scattered over all blocks.
    #[arg(long)]
    aged: bool,

    /// What random numbers are drawn from.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Stop no threads in mid-call.
    #[arg(long)]
    no_stops: bool,

    #[command(flatten)]
    shown: Shown,

    /// How many seconds a call may take.
    #[arg(long, hide = true, value_name = "N", default_value_t = 20)]
    patience: u64,

    /// Plant a fault, to see that it is noticed.
    #[arg(long, hide = true, value_name = "FAULT")]
    plant: Option<Plant>,
}

/// The machine's memory.
fn parse_machine(text: &str) -> Result<Memory, String> {
    if parse_bytes(text)? < LEAST * FRAME_SIZE {
        return Err(format!("{text} is too little: {}M is the least", (LEAST * FRAME_SIZE) >> 20));
    }
    parse_memory(text)
}

fn threads() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    (3 * cores as u32).clamp(8, 1024)
}

fn run(args: &SoakArgs) -> Result<Outcome, CliError> {
    let seconds = args.seconds.unwrap_or_else(|| args.minutes.unwrap_or(1) * MINUTE);
    let plan = Plan {
        time: Duration::from_secs(seconds),
        threads: args.threads.unwrap_or_else(threads),
        frames: args.memory.frames,
        used: args.used.map_or(u64::MAX, |used| used.frames),
        map: args.map,
        aged: args.aged,
        seed: args.seed,
        stops: !args.no_stops,
        patience: Duration::from_secs(args.patience),
        plant: args.plant,
    };
    let stop = stop::on_signals(true);
    let bar = progress::steps("soaking", seconds, progress::TURNS, args.shown.no_progress);
    let report = soak(plan, &stop, |time, calls| {
        bar.set_position(time.as_secs());
        bar.set_message(format!("{calls} calls"));
    });
    bar.finish_and_clear();
    let report =
        report.map_err(|error| CliError::new(format!("there is no such machine: {error}")))?;
    // Before the table, whose last line is the verdict: it is what stays on the screen.
    report.troubles.iter().chain(&report.stuck).for_each(|what| output::complain(what));
    output::result(&args.shown.printed, &report, |style| table(&report, style))?;
    // Relaxed: a flag that carries nothing.
    Ok(match report.ok {
        false => Outcome::NotWhole,
        true if stop.load(std::sync::atomic::Ordering::Relaxed) => Outcome::Interrupted,
        true => Outcome::Fine,
    })
}
