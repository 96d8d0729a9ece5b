//! `freehold bench`: what an allocation and a free cost.

use clap::Args;

use crate::bench::{BenchEngine, Kind, Plan, Scale, listing, table};
use crate::cli::error::CliError;
use crate::cli::given::Shown;
use crate::cli::size::whole;
use crate::cli::{Outcome, given, output, progress, stop};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
What each benchmark does, and its metrics: freehold bench --list.

All engines run the same loops, compiled for each of them; nothing is called through a table in a \
timed loop. \
Engines take turns within a run; a figure is the median of the runs, with the farthest of them \
as \u{b1}. Threads stay \
on one CPU each. What one thread does is timed by its CPU clock. One uncontended atomic \
read-modify-write (RMW) is \
measured in the same run: compare machines by it, not by nanoseconds. The reuse of \
chunks is counted exactly, once, on one thread that plays all CPUs.

The first engine is the baseline. A star stands where all runs lie above all of the first's, or \
all below: of 4 runs \
at least. At most one comparison of equals in thirty gets one.

Examples:
  freehold bench                                everything, the default engines
  freehold bench --quick orders bulk            two of them, in a few seconds
  freehold bench -e vanilla -e vanilla,+least-drain near-mark
                                                what one patch is worth
  freehold bench used near-mark near-mark-1024  machines that have run for a while, and full ones
  freehold bench -e freehold -e mimalloc orders peers; most need a build with --features peers,
                                                llfree one with --features llfree
  freehold contiguity --help                    counts of contiguity on machines of 2 to 1,024 CPUs
  freehold bench --json | jq '.rows[] | select(.benchmark == \"bulk\")'

--json prints {\"yardstick\": {\"rmw_ns\"}, \
\"cpus\", \"pinned\", \"barrier\", \"interrupted\", \"left_out\": what was, and why, \"rows\": \
[{\"benchmark\", \"engine\", \"metric\", \"unit\", \"median\", \
\"min\", \"max\", \"values\": each run, \"runs\", \"exact\": counted on one thread, \
\"better\": \"less\", \"more\" or \"neither\"}]}; rows of engines but the first also have \
\"baseline\", \"percent\" (how much more than the baseline, negative for less) and \
\"clear\": their runs do not overlap.

Ctrl-C ends after the engine under way and prints what there is (exit code 130).";

/// Engines unless told otherwise. The first is the one that the others are compared with.
const DEFAULT: [&str; 4] = ["freehold", "vanilla", "pcp-buddy-fixed", "buddy_system_allocator"];
/// Runs unless told otherwise.
const RUNS: usize = 7;
/// With --quick: the fewest that can differ clearly.
const QUICK_RUNS: usize = 4;

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub(crate) struct BenchArgs {
    /// Benchmarks to run; --list describes them. Default: all.
    #[arg(value_name = "NAME")]
    benchmarks: Vec<Kind>,

    /// An engine to measure: freehold, buddy_system_allocator (behind its spin lock), a peer
    /// (mimalloc, jemalloc, snmalloc: they need a build with --features peers;
    /// llfree needs --features llfree), or a kernel's design with changes to switch on (+) or off
    /// (-); --list has all. May be given several times; the others are compared
    /// with the first.
    /// Default: freehold, vanilla, pcp-buddy-fixed and buddy_system_allocator.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    engines: Vec<BenchEngine>,

    /// Runs of each, 1 to 100. Default: 7; with --quick 4.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=100u16))]
    runs: Option<u16>,

    /// Repeat less within a run, and run less often: a minute or two in all.
    #[arg(long)]
    quick: bool,

    /// Print the benchmarks with their metrics, and the engines; measure nothing.
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn run(args: &BenchArgs) -> Result<Outcome, CliError> {
    let mut benchmarks: Vec<Kind> = Kind::ALL.to_vec();
    if !args.benchmarks.is_empty() {
        benchmarks.retain(|kind| args.benchmarks.contains(kind));
    }
    if args.list {
        output::result(&args.shown.printed, &listing::entries(&benchmarks), |style| {
            listing::catalogue(&benchmarks, style)
        })?;
        return Ok(Outcome::Fine);
    }
    let scale = if args.quick { Scale::QUICK } else { Scale::FULL };
    let runs = args.runs.map_or(if args.quick { QUICK_RUNS } else { RUNS }, usize::from);
    let plan = Plan { benchmarks, engines: engines(args)?, runs, scale };

    let stop = stop::on_signals(true);
    let turns = plan.benchmarks.len() * plan.runs;
    let bar = progress::turns("measuring", turns, args.shown.no_progress);
    let report = crate::bench::run(&plan, &stop, |kind, run, engine| {
        // Drawn here and nowhere else: a bar with a thread of its own would take the core that is
        // measured.
        bar.set_message(format!("{kind}: {engine}"));
        let before = plan.benchmarks.iter().position(|&known| known == kind).unwrap_or(0);
        bar.set_position((before * runs + run) as u64);
    })
    .map_err(CliError::new)?;
    bar.finish_and_clear();

    // What the figures lack.
    report.left_out.iter().for_each(|what| output::complain(&format!("warning: {what}")));
    if report.interrupted {
        output::complain("interrupted: what follows is what was done until then");
    }
    output::result(&args.shown.printed, &report, |style| {
        if report.rows.is_empty() { String::new() } else { table::render(&report, style) }
    })?;
    Ok(if report.interrupted { Outcome::Interrupted } else { Outcome::Fine })
}

fn engines(args: &BenchArgs) -> Result<Vec<BenchEngine>, CliError> {
    let engines = given::engines(&args.engines, &DEFAULT)?;
    for engine in &engines {
        if let BenchEngine::Peer(peer) = engine {
            peer.needs().map_or(Ok(()), |needs| Err(CliError::new(needs).hint(peer.build())))?;
        }
    }
    Ok(engines)
}
