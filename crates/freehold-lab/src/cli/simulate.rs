//! `freehold simulate`: engines on machines that are not at hand.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::error::CliError;
use super::given::Shown;
use super::input::TraceFile;
use super::size::{Memory, parse_cpus, parse_memory, parse_percent};
use super::target::Target;
use super::{Outcome, given, output, progress, report, stop};
use crate::bench::clock::Cpus;
use crate::engine::Paths;
use crate::engines::EngineSpec;
use crate::report::table::rendered;
use crate::report::{paths, unique};
use crate::simulate::output::{Document, parquet, table, validation_table};
use crate::simulate::run::{NODES_MAX, Scenario, SimulateError};
use crate::simulate::sweep::{Kept, Shard, SweepError, sweep};
use crate::simulate::validate::{ValidationRow, cases, validate};
use crate::simulate::workloads::{About, TraceOps};
use crate::simulate::{Kind, Model, plot};
use crate::simulate::{Row, TICK_MS};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
The engines are the real ones; one thread plays all CPUs, in the order of simulated time. What each call did is read \
from the engine's counters, what that takes from the cost model; locks are queues. The same arguments give the same \
output, byte for byte, on any machine.

Examples:
  freehold simulate -w many-alloc-few-free --cpus 2,16,128,1024
  freehold simulate -w exit-avalanche --cpus 256 -e vanilla -e pcp-buddy,-merge --memory 256G --json
  freehold simulate -w kernel-build-like --cpus 1,4,16,64,256,1024 --picture build.svg
  freehold simulate -w kernel-build-like --cpus 1024 --nodes 8 --memory 128G
  freehold simulate -w trace --trace trace.parquet --cpus 2,64
  freehold simulate --validate                  simulated beside measured on this machine's own CPUs
  freehold simulate --sweep -w pair -w bulk --cpus 1,8,64 --memory 4G,64G --seed 1,2 --output results.parquet
  freehold simulate --sweep ... --shard 3/16 --output results-3.parquet
                                                one share of sixteen, for a job array; read the files together

--json prints {\"command\": \"simulate\", \"seed\", \"verdict\", \"model\", \"rows\": [{\"engine\", \"workload\", \"cpus\", \
\"nodes\", \"memory_bytes\", \"frames_per_second\", \"zone_lock_wait_share\", \"pcp_lock_wait_share\", \"fallbacks\", \
\"unusable_index\", ...}]}, and with --validate \"validation\": [{\"workload\", \"engine\", \"cpus\", \"measured\", \
\"simulated\"}].

A sweep that Ctrl-C ends goes on where it was when it is started again (exit code 130 meanwhile): what is done is kept \
beside the output in FILE.kept.jsonl until all is.";

/// Engines unless told otherwise.
const DEFAULT: [&str; 3] = ["vanilla", "pcp-buddy", "freehold"];
/// The workload, CPUs and memory unless told otherwise.
const DEFAULT_CPUS: [u16; 4] = [1, 4, 16, 64];
const DEFAULT_MEMORY: u64 = 64 << 18;
/// Runs of a validation.
const RUNS: usize = 5;

#[derive(Args, Clone, PartialEq, Debug)]
#[command(after_help = HELP)]
pub(super) struct SimulateArgs {
    /// What the CPUs do (--list says what there is). May be given several times. Default:
    /// kernel-build-like.
    #[arg(short, long = "workload", value_name = "NAME", value_delimiter = ',')]
    workloads: Vec<Kind>,

    /// How many CPUs, 1 to 1,024. Default: 1,4,16,64.
    #[arg(long, value_name = "N[,N]...", value_delimiter = ',', value_parser = parse_cpus)]
    cpus: Vec<u16>,

    /// An engine: freehold, or a kernel's design with changes to switch on (+) or off (-). May be
    /// given several times. Default: vanilla, pcp-buddy and freehold.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...")]
    engines: Vec<EngineSpec>,

    /// Memory of the machine. Default: 64G.
    #[arg(long, value_name = "SIZE[,SIZE]...", value_delimiter = ',', value_parser = parse_memory)]
    memory: Vec<Memory>,

    /// What the CPUs' random numbers are drawn from. Default: 1.
    #[arg(long, value_name = "S[,S]...", value_delimiter = ',')]
    seed: Vec<u64>,

    /// Nanoseconds that a CPU does something else per allocation. Default: the workload's own.
    #[arg(long, value_name = "NS", value_parser = parse_think)]
    think: Option<f64>,

    /// Frames to allocate while measuring, after half as many that are not measured: less is
    /// quicker. Default: as many as the workload needs to be seen in all its phases.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,

    /// Memory nodes. Each has a zone, with a lock of its own, of an even share of the memory; the
    /// CPUs are spread over them evenly, neighbours together. A CPU's requests go to its own node
    /// and, where that has nothing, to the next ones and round. Memory of another node is as near
    /// as one's own. Default: 1.
    #[arg(long, value_name = "N[,N]...", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: Vec<u16>,

    /// Make that share of each zone CMA, which serves movable requests only: above 0 % up to 90 %.
    /// A second table, and `cma` in the JSON, count what it serves.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    cma: Option<f64>,

    /// Simulated milliseconds between two ticks of a CPU, its periodic work; 0: it never ticks.
    /// Default: 1000, as the kernel's vmstat worker.
    #[arg(long, value_name = "MS", value_parser = parse_tick)]
    tick: Option<f64>,

    /// The trace to play, for the workload 'trace'.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Constants that 'freehold calibrate --output' wrote. Default: those checked in, of a machine
    /// that the output names.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Compare with real threads on this machine's CPUs, 1, 2 and 16 as far as there are so many.
    /// Without --workload nothing else is done.
    #[arg(long, conflicts_with_all = ["sweep"])]
    validate: bool,

    /// Run all combinations into one Parquet file, resumable.
    #[arg(long, requires = "output")]
    sweep: bool,

    /// Only the share i of n of the combinations, i from 0 to n - 1.
    #[arg(long, value_name = "i/n", requires = "sweep")]
    shard: Option<Shard>,

    /// Write the rows as Parquet.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Draw throughput, lock waits and fragmentation against CPUs (or memory, where only that
    /// varies) as SVG.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,

    /// Simulations at the same time. Default: as many as there are CPUs here.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,

    /// Print what workloads there are, and nothing else.
    #[arg(long)]
    list: bool,

    /// Also write one HTML page with tables and curves.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    html: Option<PathBuf>,

    /// After the table, print how often each of an engine's ways was taken. Of engines that count
    /// it, which freehold does.
    #[arg(long, conflicts_with = "json")]
    paths: bool,

    #[command(flatten)]
    shown: Shown,
}

fn parse_think(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ns) if (0.0..=1e9).contains(&ns) => Ok(ns),
        _ => Err(format!("'{text}' is no number of nanoseconds from 0 to 1,000,000,000")),
    }
}

fn parse_tick(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if ms == 0.0 || (0.01..=1e6).contains(&ms) => Ok(ms),
        _ => Err(format!(
            "'{text}' is no number of milliseconds from 0.01 to 1,000,000, and not 0 for none"
        )),
    }
}

pub(super) fn run(args: &SimulateArgs) -> Result<Outcome, CliError> {
    if args.list {
        return list(args.shown.json);
    }
    only_of_simulations(args)?;
    let model = model(args.model.as_deref())?;
    let engines = given::engines(&args.engines, &DEFAULT)?;
    // Fail before the work, not after it.
    args.picture.as_deref().map_or(Ok(()), given::svg)?;
    if args.picture.is_some() && unique(args.nodes.iter().copied()).len() > 1 {
        return Err(CliError::new("--picture draws machines of one number of nodes")
            .hint("one --nodes N for each picture"));
    }
    Target::PICTURE.check(args.picture.as_ref(), &[])?;
    Target::ROWS.check(args.output.as_ref(), &[])?;
    Target::REPORT.check(args.html.as_ref(), &[])?;
    let validation = args.validate.then(|| validation(args, &engines, &model)).transpose()?;
    let only_validation = args.validate && args.workloads.is_empty();
    let scenarios = if only_validation { Vec::new() } else { scenarios(args, &engines)? };
    let done = simulated(args, &scenarios, &model)?;
    let rows = &done.rows;
    if done.interrupted {
        output::complain(&format!("interrupted: {} of {} are done", rows.len(), scenarios.len()));
    }
    if done.reused > 0 {
        output::complain(&format!(
            "note: {} of {} were done by an earlier run",
            done.reused,
            scenarios.len()
        ));
    }
    if let Some(path) = args.picture.as_ref().filter(|_| !rows.is_empty()) {
        Target::PICTURE.write(path, plot::render(rows, &model)?)?;
    }
    let seed = seeds(args)[0];
    let document = Document::new(seed, &model, rows, validation.as_deref());
    if let Some(path) = args.html.as_ref().filter(|_| validation.is_some() || !rows.is_empty()) {
        report::write(&[&document], path)?;
    }
    output::result(args.shown.json, &document, |style| {
        let tables = [
            validation.as_ref().map(|rows| validation_table(rows, style)),
            (!rows.is_empty()).then(|| table(rows, &model, style)),
            (args.paths && !rows.is_empty()).then(|| paths::render(&taken(rows), style)),
        ];
        tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
    })?;
    Ok(if done.interrupted { Outcome::Interrupted } else { Outcome::Fine })
}

/// Refuses what says something about simulations where none is asked for: a validation has cases of
/// its own.
fn only_of_simulations(args: &SimulateArgs) -> Result<(), CliError> {
    let given = [
        ("--cpus", !args.cpus.is_empty()),
        ("--memory", !args.memory.is_empty()),
        ("--seed", !args.seed.is_empty()),
        ("--think", args.think.is_some()),
        ("--frames", args.frames.is_some()),
        ("--nodes", !args.nodes.is_empty()),
        ("--cma", args.cma.is_some()),
        ("--tick", args.tick.is_some()),
        ("--trace", args.trace.is_some()),
        ("--output", args.output.is_some()),
        ("--picture", args.picture.is_some()),
        ("--paths", args.paths),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((name, _)) if args.validate && args.workloads.is_empty() => Err(CliError::new(
            format!("{name} says nothing about --validate, whose cases are its own"),
        )
        .hint("name what else is to be simulated: --workload NAME")),
        _ => Ok(()),
    }
}

/// The ways of the engines that say them, each named by what tells its row apart.
fn taken(rows: &[Row]) -> Vec<(String, Paths)> {
    let several = |of: fn(&Row) -> &str| rows.iter().any(|row| of(row) != of(&rows[0]));
    let name = |row: &Row| {
        let workload = if several(|row| &row.workload) {
            format!(", {}", row.workload)
        } else {
            String::new()
        };
        format!("{}, {} CPUs{workload}", row.engine, row.cpus)
    };
    rows.iter().filter_map(|row| Some((name(row), row.paths?))).collect()
}

/// Runs the scenarios and writes the Parquet file.
fn simulated(
    args: &SimulateArgs,
    scenarios: &[Scenario],
    model: &Model,
) -> Result<crate::simulate::sweep::Swept, CliError> {
    if scenarios.is_empty() {
        return Ok(crate::simulate::sweep::Swept::default());
    }
    let stop = stop::on_signals(true);
    let mut kept = match args.output.as_ref().filter(|_| args.sweep) {
        Some(path) => {
            let beside = Kept::beside(path);
            Some(
                Kept::open(beside.clone(), model)
                    .map_err(|error| Target::ROWS.failed(&beside, &error))?,
            )
        }
        None => None,
    };
    let jobs = given::jobs(args.jobs);
    let bar = progress::steps(
        "simulating",
        scenarios.len() as u64,
        progress::TURNS,
        args.shown.no_progress,
    );
    let swept = sweep(scenarios, model, jobs, kept.as_mut(), &stop, |done, scenario| {
        bar.set_position(done as u64);
        bar.set_message(format!(
            "{} on {} CPUs: {}",
            scenario.workload, scenario.cpus, scenario.engine
        ));
    });
    bar.finish_and_clear();
    let swept = swept.map_err(refused)?;
    if let Some(path) = args.output.as_ref().filter(|_| !swept.interrupted) {
        // Complete or not there: a reader never finds half a file.
        let unfinished = Kept::beside(path).with_extension("unfinished");
        let file = File::create(&unfinished).map_err(|error| Target::ROWS.failed(path, &error))?;
        parquet(file, &swept.rows, model).map_err(|error| Target::ROWS.failed(path, &error))?;
        fs::rename(&unfinished, path).map_err(|error| Target::ROWS.failed(path, &error))?;
        if let Some(kept) = kept {
            // Left over it costs nothing but room.
            let _ = kept.remove();
        }
    }
    Ok(swept)
}

fn refused(error: SweepError) -> CliError {
    let hint = match &error {
        SweepError::Simulate(SimulateError::TooLittleMemory { needed_mib, .. }) => {
            Some(format!("give it more: --memory {}G", needed_mib.div_ceil(1024)))
        }
        SweepError::Simulate(SimulateError::TooManyNodes { .. }) => {
            Some("give it fewer: --nodes 1, for example".to_owned())
        }
        SweepError::Simulate(SimulateError::TooFewCpus { fewest, .. }) => {
            Some(format!("give it more: --cpus {fewest}"))
        }
        _ => None,
    };
    CliError::new(error.to_string()).hint_if(hint)
}

fn list(json: bool) -> Result<Outcome, CliError> {
    let all = Kind::ALL.map(Kind::about);
    let row = |about: &About| {
        [about.name, about.what, about.source, &format!("{:.0}", about.think_ns)].map(str::to_owned)
    };
    output::result(json, &all, |style| {
        format!(
            "{}\n",
            rendered(style, ["workload", "what the CPUs do", "from", "think ns"], all.map(row))
        )
    })?;
    Ok(Outcome::Fine)
}

fn model(path: Option<&Path>) -> Result<Model, CliError> {
    let Some(path) = path else { return Ok(Model::standard()) };
    let hint = "'freehold calibrate --output FILE' writes one";
    let text = fs::read_to_string(path).map_err(|error| {
        CliError::new(format!("cannot read the model {}: {error}", path.display())).hint(hint)
    })?;
    Model::parse(&text)
        .map_err(|error| CliError::new(format!("{}: {error}", path.display())).hint(hint))
}

fn seeds(args: &SimulateArgs) -> Vec<u64> {
    given::or(&args.seed, &[1])
}

/// All combinations: workload, memory, CPUs, seed, engine; of these the shard's.
fn scenarios(args: &SimulateArgs, engines: &[EngineSpec]) -> Result<Vec<Scenario>, CliError> {
    let workloads = given::or(&args.workloads, &[Kind::KernelBuildLike]);
    let trace = match (&args.trace, workloads.contains(&Kind::Trace)) {
        (Some(path), true) => {
            let file = TraceFile::named(path, false, None)?;
            Some(Arc::new(TraceOps::read(&file)?))
        }
        (None, true) => {
            return Err(CliError::new("the workload 'trace' plays a trace, and none was named")
                .hint("name one: --trace trace.parquet"));
        }
        (Some(_), false) => {
            return Err(
                CliError::new("a trace was named, and no workload plays it").hint("add -w trace")
            );
        }
        (None, false) => None,
    };
    let cpus = given::or(&args.cpus, &DEFAULT_CPUS);
    // Those that were asked for by name must do; of the default ones as many as the workload can
    // have.
    let fits = |kind: Kind, cpus: u16| !args.cpus.is_empty() || cpus >= kind.about().fewest_cpus;
    let memory = if args.memory.is_empty() {
        vec![DEFAULT_MEMORY]
    } else {
        unique(args.memory.iter().map(|memory| memory.frames))
    };
    let nodes = if args.nodes.is_empty() { vec![1] } else { unique(args.nodes.iter().copied()) };
    let sizes: Vec<(u64, u16)> =
        memory.iter().flat_map(|&frames| nodes.iter().map(move |&n| (frames, n))).collect();
    let mut all = Vec::new();
    for &workload in &workloads {
        for &(frames, nodes) in &sizes {
            for &cpus in cpus.iter().filter(|&&cpus| fits(workload, cpus)) {
                for seed in seeds(args) {
                    for engine in engines {
                        all.push(Scenario {
                            engine: engine.clone(),
                            workload,
                            cpus,
                            frames,
                            nodes,
                            cma: args.cma.unwrap_or(0.0),
                            seed,
                            think_ns: args.think,
                            measured: args.frames,
                            tick_ms: args.tick.unwrap_or(TICK_MS),
                            trace: trace.clone(),
                        });
                    }
                }
            }
        }
    }
    // All of it is looked at before any of it is run.
    for scenario in &all {
        scenario.check().map_err(|error| refused(error.into()))?;
    }
    let shard = args.shard.unwrap_or_default();
    Ok(all
        .into_iter()
        .enumerate()
        .filter(|(place, _)| shard.takes(*place))
        .map(|(_, scenario)| scenario)
        .collect())
}

fn validation(
    args: &SimulateArgs,
    engines: &[EngineSpec],
    model: &Model,
) -> Result<Vec<ValidationRow>, CliError> {
    let cpus = Cpus::allowed();
    let steps = cases(&cpus).len() * engines.len() * RUNS;
    let bar = progress::steps("measuring", steps as u64, progress::TURNS, args.shown.no_progress);
    let rows = validate(engines, model, &cpus, RUNS, |kind, n, engine| {
        bar.set_message(format!("{kind} on {n} CPUs: {engine}"));
        bar.inc(1);
    });
    bar.finish_and_clear();
    if cpus.count() < 16 {
        output::complain(&format!(
            "note: this process may use {} CPUs; compared on no more",
            cpus.count()
        ));
    }
    Ok(rows?)
}
