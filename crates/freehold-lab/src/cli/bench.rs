//! `freehold bench`: what an allocation and a free cost.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::error::CliError;
use super::{Outcome, output};
use crate::bench::catalogue::THREADS;
use crate::bench::{self, BenchEngine, Kind, Plan, Scale, table};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
What each benchmark and metric means and where it comes from: freehold bench --list.

All engines run the same loops, compiled for each of them; nothing is called through a table in a timed loop. \
Engines take turns within a run; a figure is the median of the runs, with the least and the greatest. Threads stay \
on one CPU each. One uncontended atomic read-modify-write (RMW) and the hand-over of a cache line to the other core \
are measured in the same run: compare machines by them, not by nanoseconds.

Examples:
  freehold bench                                everything, the default engines
  freehold bench --quick pair bulk              two of them, in a few seconds
  freehold bench -e freehold -e vanilla -e vanilla,-contig-free contig
  freehold bench --targets                      and whether freehold reaches what it is meant to
  freehold bench --json | jq '.rows[] | select(.benchmark == \"pair\")'

--json prints {\"yardstick\": {\"rmw_ns\", \"handover_ns\"}, \"rows\": [{\"benchmark\", \"engine\", \"metric\", \
\"unit\", \"median\", \"min\", \"max\", \"runs\"}]}.

Ctrl-C ends after the engine under way and prints what there is (exit code 130).";

/// Engines unless told otherwise. The first is the one that the others are compared with.
const DEFAULT: [&str; 4] = ["freehold", "vanilla", "pcp-buddy-fixed", "buddy_system_allocator"];
/// Runs unless told otherwise.
const RUNS: usize = 7;
/// The same with `--quick`.
const QUICK_RUNS: usize = 3;

/// Arguments of `freehold bench`.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub(super) struct BenchArgs {
    /// Benchmarks to run: pair, bulk, random-free, order9-split, contig, producer-consumer, remote-free, two-threads,
    /// sixteen-threads (with as many threads as this process may use CPUs, 16 at most). Default: all.
    #[arg(value_name = "NAME")]
    benchmarks: Vec<Kind>,

    /// An engine to measure: freehold, buddy_system_allocator (behind its spin lock), or a kernel's design with
    /// changes to switch on (+) or off (-). May be given several times; the others are compared with the first.
    /// Default: freehold, vanilla, pcp-buddy-fixed and buddy_system_allocator.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    engines: Vec<BenchEngine>,

    /// Runs of each. Default: 7; 3 with --quick.
    #[arg(short, long, value_name = "N")]
    runs: Option<NonZeroUsize>,

    /// Less of everything that repeats itself: all benchmarks in well under a minute.
    #[arg(long)]
    quick: bool,

    /// Print what can be measured, and nothing else.
    #[arg(long)]
    list: bool,

    /// After the table, print what freehold is meant to reach and whether it did in this run.
    #[arg(long, conflicts_with_all = ["json", "list"])]
    targets: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Show no progress bar.
    #[arg(long)]
    no_progress: bool,
}

pub(super) fn run(args: &BenchArgs) -> Result<Outcome, CliError> {
    let mut benchmarks: Vec<Kind> = Kind::ALL.to_vec();
    if !args.benchmarks.is_empty() {
        benchmarks.retain(|kind| args.benchmarks.contains(kind));
    }
    if args.list {
        return list(&benchmarks, args.json);
    }
    let (scale, runs) = if args.quick { (Scale::QUICK, QUICK_RUNS) } else { (Scale::FULL, RUNS) };
    let plan = Plan { benchmarks, engines: engines(args)?, runs: args.runs.map_or(runs, NonZeroUsize::get), scale };

    let stop = stop_on_ctrl_c();
    let bar = bar(&plan, args.no_progress);
    let report = bench::run(&plan, &stop, |kind, engine| {
        // Drawn here and nowhere else: a bar with a thread of its own would take the core that is measured.
        bar.set_message(format!("{kind}: {engine}"));
        bar.inc(1);
    })
    .map_err(|error| CliError::new(error.to_string()))?;
    bar.finish_and_clear();

    for kind in &report.left_out {
        output::complain(&format!("warning: {kind} left out: it needs two CPUs and this process may use one"));
    }
    if let Some(row) = report.rows.iter().find(|row| row.metric == THREADS && row.median < 16.0) {
        output::complain(&format!(
            "note: {} ran {:.0} threads: this process may use no more CPUs",
            row.benchmark, row.median
        ));
    }
    if report.interrupted {
        output::complain("interrupted: what follows is what was done until then");
    }
    if args.json {
        output::print_json(&report.document())?;
    } else if !report.rows.is_empty() {
        let style = output::style();
        let mut text = table::render(&report, style);
        if args.targets {
            text.push('\n');
            text.push_str(&table::render_targets(&report, style));
        }
        output::print(&text)?;
    }
    Ok(if report.interrupted { Outcome::Interrupted } else { Outcome::Fine })
}

fn list(benchmarks: &[Kind], json: bool) -> Result<Outcome, CliError> {
    let all: Vec<_> = benchmarks.iter().map(|kind| kind.about()).collect();
    if json {
        output::print_json(&all)?;
    } else {
        output::print(&table::render_catalogue(&all, output::style()))?;
    }
    Ok(Outcome::Fine)
}

fn engines(args: &BenchArgs) -> Result<Vec<BenchEngine>, CliError> {
    let mut engines: Vec<BenchEngine> = Vec::new();
    let default = || DEFAULT.iter().map(|name| name.parse().map_err(|error| CliError::new(format!("{error}"))));
    let named = args.engines.iter().cloned().map(Ok);
    let wanted: Result<Vec<BenchEngine>, CliError> =
        if args.engines.is_empty() { default().collect() } else { named.collect() };
    for engine in wanted? {
        // Twice the same would be two rows of one name.
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    Ok(engines)
}

/// A flag that the first Ctrl-C sets; the second ends the process at once.
pub(super) fn stop_on_ctrl_c() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let handler = move || {
        // Relaxed: a flag that carries nothing.
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Without a handler Ctrl-C ends the process as ever, which is no reason not to measure.
    let _ = ctrlc::set_handler(handler);
    stop
}

fn bar(plan: &Plan, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(plan.steps() as u64), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("measuring [{bar:30}] {pos}/{len}, {eta} left, {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    bar
}
