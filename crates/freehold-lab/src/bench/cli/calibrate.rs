//! `freehold calibrate`: the constants of the simulation's cost model, measured on this machine.

use std::fs;
use std::path::PathBuf;

use crate::bench::clock::Cpus;
use crate::cli::error::CliError;
use crate::cli::given::Shown;
use crate::cli::size::whole;
use crate::cli::target::Target;
use crate::cli::{Outcome, given, output};
use crate::engines::EngineSpec;
use crate::simulate::output::Document;
use crate::simulate::validation::validation_table;
use crate::simulate::{Model, model_file};
use crate::tables::table::{Cell, Style, rendered, right};
use crate::trials::progress;
use clap::Args;
use serde_json::Value;

use crate::bench::calibrate::{STEPS, calibrate};
use crate::bench::validate::{cases, validate};

// Paragraphs are one line each: clap breaks them where the terminal ends.
const HELP: &str = "\
Each constant is measured by itself, by one thread or by two in turns: read-modify-writes, lines \
passed between cores, \
a mutex, bursts of allocations and frees of each kind of engine, and the steps that the engines \
count in them. With one \
CPU the constants of two are those of the checked-in model. How much further another socket is \
(socket_factor) and how \
many CPUs a socket has (cores_per_socket) are not measured: change them in the file. All of it is \
measured --runs times, and \
each constant is the median, since a virtual machine may be twice as slow for some seconds.

Examples:
  freehold calibrate                            print the constants; takes about half a minute
  freehold calibrate --output here.json         write them to a file
  freehold simulate -w pair --cpus 1,64 --model here.json
  freehold calibrate --validate --model here.json
                                                simulated beside measured, on this machine's own \
CPUs

Nothing else should run meanwhile.

--json prints the model, as --output writes it: \
{\"machine\", \"measured_cpus\", \"rmw_ns\", \"transfer_ns\", \"line_ns\", \
\"hold_ns\", ..., \"engines\": {family: its costs}}. --validate --json prints \
{\"command\": \"simulate\", \"model\", \"validation\": [{\"workload\", \"engine\", \
\"cpus\", \"measured\", \"simulated\"}]}.";

/// Engines of a comparison unless told otherwise.
const DEFAULT: [&str; 3] = ["vanilla", "pcp-buddy", "freehold"];
/// Runs of a comparison.
const RUNS: usize = 5;

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CalibrateArgs {
    /// Write the model to a file, for simulate's --model.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What to call the machine in the model and in what is simulated with it. Default: what the
    /// system says of its CPU.
    #[arg(long, value_name = "TEXT")]
    machine: Option<String>,

    /// Instead, compare the simulation with real threads on this machine's CPUs, 1, 2 and 16 as far
    /// as there are so many.
    #[arg(long, conflicts_with_all = ["output", "machine", "runs"])]
    validate: bool,

    /// With --validate: an engine, by its name for `freehold simulate`. May be given several times.
    /// Default: vanilla, pcp-buddy and freehold.
    #[arg(short, long = "engine", value_name = "NAME[,±SWITCH]...", requires = "validate")]
    engines: Vec<EngineSpec>,

    /// With --validate: constants that --output wrote. Default: those checked in.
    #[arg(long, value_name = "FILE", requires = "validate")]
    model: Option<PathBuf>,

    /// How many times everything is measured, 1 to 99.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole(1..=99u32))]
    runs: u32,

    #[command(flatten)]
    shown: Shown,
}

pub(crate) fn run(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    if args.validate {
        return compare(args);
    }
    // Fail before the work, not after it.
    Target::MODEL.check(args.output.as_ref())?;
    let cpus = Cpus::allowed();
    let machine = args.machine.clone().unwrap_or_else(describe);
    if cpus.count() < 2 {
        output::complain(
            "warning: this process may use one CPU; what takes two is taken from the checked-in \
             model",
        );
    }
    let bar = progress::steps(
        "calibrating",
        STEPS as u64 * u64::from(args.runs),
        progress::TURNS,
        args.shown.no_progress,
    );
    let once = |_| {
        calibrate(machine.clone(), &cpus, |what| {
            bar.set_message(what.to_owned());
            bar.inc(1);
        })
    };
    let models: Vec<Model> =
        (0..args.runs).map(once).collect::<Result<_, _>>().map_err(CliError::new)?;
    bar.finish_and_clear();
    let values = models.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    let model: Model = serde_json::from_value(median(values))?;
    if let Some(path) = &args.output {
        let mut text = serde_json::to_string_pretty(&model)?;
        text.push('\n');
        Target::MODEL.write(path, text)?;
    }
    output::result(&args.shown.printed, &model, |style| table(&model, style))?;
    Ok(Outcome::Fine)
}

/// Each number's median in these documents, which have the same names; of an even number of them
/// the upper one.
fn median(mut all: Vec<Value>) -> Value {
    match &all[0] {
        Value::Object(first) => {
            let of = |name: &String| median(all.iter().map(|one| one[name].clone()).collect());
            first.keys().map(|name| (name.clone(), of(name))).collect()
        }
        Value::Number(_) => {
            all.sort_by(|a, b| {
                f64::total_cmp(&a.as_f64().unwrap_or(0.0), &b.as_f64().unwrap_or(0.0))
            });
            all.swap_remove(all.len() / 2)
        }
        _ => all.swap_remove(0),
    }
}

/// Simulated beside measured.
fn compare(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    let model = model_file::read(args.model.as_deref())?;
    let engines = given::engines(&args.engines, &DEFAULT)?;
    let cpus = Cpus::allowed();
    let steps = cases(&cpus).len() * engines.len() * RUNS;
    let bar = progress::steps("measuring", steps as u64, progress::TURNS, args.shown.no_progress);
    let rows = validate(&engines, &model, &cpus, RUNS, |kind, n, engine| {
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
    let rows = rows?;
    let document = Document::new(1, &model, &[], Some(&rows));
    output::result(&args.shown.printed, &document, |style| validation_table(&rows, style))?;
    Ok(Outcome::Fine)
}

fn table(model: &Model, style: Style) -> String {
    let row = |(name, value, _)| [Cell::new(name), right(format!("{value:.2}"))];
    let table = rendered(style, ["constant", "value"], model.constants().into_iter().map(row));
    format!("{table}\n\nmachine: {}, {} CPUs\n", model.machine, model.measured_cpus)
}

/// What the system says of its CPU.
fn describe() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info
        .lines()
        .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')));
    named.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_median_of_runs_is_each_constants() {
        let of = |rmw: f64, alloc: f64| json!({"machine": "m", "rmw_ns": rmw, "engines": {"x": {"alloc_ns": alloc}}});
        let runs = vec![of(1.0, 5.0), of(3.0, 4.0), of(2.0, 6.0)];
        assert_eq!(median(runs.clone()), of(2.0, 5.0));
        assert_eq!(median(runs[..1].to_vec()), runs[0]);
    }
}
