//! `freehold simulate`: engines on machines that are not at hand.

use clap::Args;

use crate::cli::error::CliError;
use crate::cli::given::{Printed, Shown};
use crate::cli::size::{parse_memory, whole};
use crate::cli::{Outcome, given, output};
use crate::engines::EngineSpec;
use crate::simulate::output::{Document, table};
use crate::simulate::workloads::About;
use crate::simulate::{Kind, Model, Row, Scenario, SimulateError, simulate_all};
use crate::tables::table::rendered;
use crate::tables::{thousands, unique};
use crate::trials::defaults::SIMULATED_CPUS_MAX;
use crate::trials::pool::{self, Done};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
The engines are the real ones; one thread plays all CPUs, in the order of simulated time. What \
each call did is read \
from the engine's counters, and how long that takes from the cost model; locks are queues. The \
same arguments give the same \
output, byte for byte, on any machine.

Examples:
  freehold simulate -w many-alloc-few-free --cpus 2,16,128,1024
  freehold simulate -w exit-avalanche --cpus 256 -e vanilla -e pcp-buddy,-merge --memory 256G --json
  freehold simulate -w kernel-build-like --cpus 1,4,16,64,256,1024 --format csv
  freehold simulate -w kernel-build-like --cpus 128 --memory 16G
                                                one node of 1,024 CPUs on eight

--json prints {\"command\": \"simulate\", \"interrupted\", \"seed\" where there is one, \"model\", \"rows\": \
[{\"engine\", \"workload\", \"cpus\", \
\"memory_bytes\", \"frames_per_second\", \"zone_lock_wait_share\", \"pcp_lock_wait_share\", \
\"fallbacks\", \"unusable_index\", ...}]}.

Ctrl-C ends after the simulations under way and prints what is done (exit code 130).";

/// Engines unless told otherwise.
const DEFAULT: [&str; 3] = ["vanilla", "pcp-buddy", "freehold"];
/// The workload, CPUs and memory unless told otherwise.
const DEFAULT_CPUS: [u16; 4] = [1, 4, 16, 64];
const DEFAULT_MEMORY: u64 = 64 << 18;

#[derive(Args, Clone, PartialEq, Debug)]
#[command(after_help = HELP)]
pub(crate) struct SimulateArgs {
    /// What the CPUs do (--list says what there is). May be given several times. Default:
    /// kernel-build-like.
    #[arg(short, long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<Kind>,

    /// How many CPUs, 1 to 1,024. Default: 1,4,16,64.
    #[arg(long, value_name = "N[,N]...", value_delimiter = ',',
          value_parser = whole(1..=SIMULATED_CPUS_MAX))]
    cpus: Vec<u16>,

    /// An engine: freehold, or a kernel's design with changes to switch on (+) or off (-). May be
    /// given several times. Default: vanilla, pcp-buddy and freehold.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    engines: Vec<EngineSpec>,

    /// Memory of the machine. Default: 64G.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_memory)]
    memory: Vec<u64>,

    /// What the CPUs' random numbers are drawn from. Default: 1.
    #[arg(long, value_name = "S[,S]...", value_delimiter = ',', value_parser = whole(0..=u64::MAX))]
    seed: Vec<u64>,

    /// Frames to allocate while measuring, after half as many that are not measured: fewer take
    /// less time. Default: as many as the workload needs to be seen in all its phases.
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX))]
    frames: Option<u64>,

    /// Simulations at the same time. Default: as many as there are CPUs here.
    #[arg(short, long, value_name = "N", value_parser = whole(1..=u16::MAX))]
    jobs: Option<u16>,

    /// Print the workloads, and simulate nothing.
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn run(args: &SimulateArgs) -> Result<Outcome, CliError> {
    if args.list {
        return list(&args.shown.printed);
    }
    let model = Model::standard();
    let engines = given::engines(&args.engines, &DEFAULT)?;
    let scenarios = scenarios(args, &engines)?;
    let done = simulated(args, &scenarios, &model)?;
    let rows = &done.results;
    let seed = match args.seed[..] {
        [] => Some(1),
        [one] => Some(one),
        _ => None,
    };
    let interrupted = done.interrupted;
    let document = Document { command: "simulate", interrupted, seed, model: &model, rows };
    output::result(&args.shown.printed, &document, |style| {
        if rows.is_empty() { String::new() } else { table(rows, &model, style) }
    })?;
    Ok(if done.interrupted { Outcome::Interrupted } else { Outcome::Fine })
}

fn simulated(
    args: &SimulateArgs,
    scenarios: &[Scenario],
    model: &Model,
) -> Result<Done<Row>, CliError> {
    let (what, quiet) = (("simulating", "simulations"), args.shown.no_progress);
    let simulated = pool::watched(what, scenarios.len(), quiet, |stop, told| {
        simulate_all(scenarios, model, given::jobs(args.jobs), stop, |done, scenario| {
            let Scenario { workload, cpus, engine, .. } = scenario;
            told(done, format!("{workload} on {cpus} CPUs: {engine}"));
        })
    });
    simulated.map_err(refused)
}

/// An error of a simulation as the user sees it.
fn refused(error: SimulateError) -> CliError {
    let hint = match &error {
        SimulateError::TooFewCpus { fewest, .. } => Some(format!("give it more: --cpus {fewest}")),
        SimulateError::Full { .. } => Some("give it more --memory, or fewer --cpus".to_owned()),
        _ => None,
    };
    CliError::new(error.to_string()).hint_if(hint)
}

fn list(printed: &Printed) -> Result<Outcome, CliError> {
    let all = Kind::ALL.map(Kind::about);
    let row = |about: &About| {
        let what = format!("{}\nFrom {}.", about.what, about.source);
        [about.name.to_owned(), what, thousands(about.think_ns as u64)]
    };
    output::result(printed, &all, |style| {
        format!(
            "{}\n",
            rendered(
                style,
                ["workload", "what the CPUs do, and where it is from", "think ns"],
                all.map(row)
            )
        )
    })?;
    Ok(Outcome::Fine)
}

/// All combinations: workload, memory, seed, CPUs, engine.
fn scenarios(args: &SimulateArgs, engines: &[EngineSpec]) -> Result<Vec<Scenario>, CliError> {
    let workloads = given::or(&args.workloads, &[Kind::KernelBuildLike]);
    let cpus = given::or(&args.cpus, &DEFAULT_CPUS);
    // Those that were asked for by name must do; of the default ones as many as the workload can
    // have.
    let fits = |kind: Kind, cpus: u16| !args.cpus.is_empty() || cpus >= kind.about().fewest_cpus;
    let memory = if args.memory.is_empty() {
        vec![DEFAULT_MEMORY]
    } else {
        unique(args.memory.iter().copied())
    };
    let mut all = Vec::new();
    for &workload in &workloads {
        for &frames in &memory {
            for seed in given::or(&args.seed, &[1]) {
                for &cpus in cpus.iter().filter(|&&cpus| fits(workload, cpus)) {
                    for engine in engines {
                        let one = Scenario::new(engine.clone(), workload, cpus, frames);
                        all.push(Scenario { seed, measured: args.frames, ..one });
                    }
                }
            }
        }
    }
    // All of it is looked at before any of it is run.
    for scenario in &all {
        scenario.check().map_err(refused)?;
    }
    Ok(all)
}
