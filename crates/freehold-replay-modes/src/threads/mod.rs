//! `freehold replay threads`: a trace through engines on real threads.
//!
//! | room | what |
//! |---|---|
//! | `replay` | what such a replay is, and what it can show |
//! | `plan` | what each CPU has to do, and on what each step depends |
//! | `carry_out` | a plan carried out on one engine, a thread for each CPU |
//! | `waits` | engines for threads, and how long calls of Freehold wait |
//! | `table` | the table |

mod carry_out;
mod plan;
mod replay;
mod table;
mod waits;

use clap::Args;
use freehold_lab::passes::{self, Ready};
use freehold_lab::replay::{Done, each_trace, engines_of};
use freehold_lab::replay_args::{Common, MachineArgs};
use freehold_labkit::cli::Outcome;
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::engines;
use freehold_labkit::replay::{ReplayOptions, SAMPLES};
use serde::Serialize;

pub use replay::{CPUS_MAX, ThreadsReport, replay_on_threads};
pub use table::render;
pub use waits::build;

const HELP: &str = "\
A CPU's calls stay in their order; a free waits for its allocation; nothing else is ordered, except that no thread gets more than \
4,096 operations ahead of another.

Prints waits for locks, PCP trylock failures, calls that went past the PCP to the zone, and waits for another CPU's PCP lock \
(the inversion of order that reviewers of pcp-buddy feared): they differ from run to run, and with the machine. Threads run \
at full speed, without the work between calls, so locks are contended more often than in the recording; on two cores a \
thread that is preempted while it holds a lock makes the other wait as no kernel would; and nothing here tells what many \
CPUs would do (`freehold simulate` does).";

/// Arguments of `freehold replay threads`.
#[derive(Args, Clone, PartialEq, Debug, Default)]
#[command(after_help = HELP)]
pub(crate) struct ThreadsArgs {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    machine: MachineArgs,

    /// The share of single frees, 0 to 1, that arrive inside another call of their CPU, as an
    /// interrupt's do: they cannot use the CPU's own lists. Which frees these are is the same in
    /// every run and for every engine. (Linux before 6.2 kept interrupts off there: for 5.17 and
    /// 5.18 this is a what-if.)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    interrupts: f64,
}

/// What this mode prints beside the replay.
#[derive(Serialize)]
struct OnThreads {
    threads: ThreadsReport,
}

pub(crate) fn run(args: &ThreadsArgs) -> Result<Outcome, CliError> {
    each_trace(
        &args.common,
        |trace| replayed(args, trace),
        |done, style| render(&done.replay, &done.more.threads, style),
    )
}

fn replayed(args: &ThreadsArgs, trace: &TraceFile) -> Result<Done<OnThreads>, CliError> {
    let chosen = engines_of(&args.common, trace, &engines::COMPARED)?;
    let ready = passes::ready(&args.common, &args.machine, &chosen, trace)?;
    let Ready { survey, warm, machine, beginning } = ready;
    let cpus = machine.cpus;
    if cpus > CPUS_MAX {
        let problem = format!("{cpus} CPUs are too many for threads: {CPUS_MAX} is the most");
        let hint = format!("fold them onto fewer: --cpus {CPUS_MAX}");
        return Err(CliError::new(problem).hint(hint));
    }
    let engines = passes::engines(&chosen.specs, trace.shown(), |spec| build(spec, &machine))?;
    let options = ReplayOptions { cpus, warm, jobs: 1, samples: SAMPLES, memory_maps: 0 };
    let (frames, share) = (machine.memory_frames, args.interrupts);
    let (replay, threads) =
        replay_on_threads(beginning, trace, &survey, &engines, frames, options, share)?;
    Ok(Done { replay, more: OnThreads { threads } })
}

/// `0.05`: a share.
fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("'{text}' is not a share: a number from 0 to 1, for example 0.05"))
}
