//! `freehold calibrate`: the constants of the simulation's cost model, measured on this machine.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use comfy_table::Cell;

use super::error::CliError;
use super::given::Shown;
use super::target::Target;
use super::{Outcome, output, progress};
use crate::bench::clock::Cpus;
use crate::report::table::{Style, rendered, right};
use crate::simulate::Model;
use crate::simulate::calibrate::{STEPS, calibrate};

const HELP: &str = "\
Each constant is measured by itself, by one thread or by two in turns: read-modify-writes, lines passed between cores, \
a mutex, bursts of allocations and frees of each kind of engine, and the steps that the engines count in them. With one \
CPU the constants of two are those of the checked-in model. How much further another socket is (socket_factor) and how \
many CPUs a socket has (cores_per_socket) are not measured: change them in the file. All of it is done --runs times, and \
each constant is the median: a virtual machine may be twice as slow for some seconds.

Examples:
  freehold calibrate                            print the constants; about half a minute
  freehold calibrate --output here.json         keep them
  freehold simulate -w pair --cpus 1,64 --model here.json

Nothing else should run meanwhile.

--json prints the model, as --output writes it: {\"machine\", \"measured_cpus\", \"rmw_ns\", \"transfer_ns\", \"line_ns\", \
\"hold_ns\", ..., \"engines\": {family: its costs}}.";

#[derive(Args, Clone, PartialEq, Eq, Debug)]
#[command(after_help = HELP)]
pub(super) struct CalibrateArgs {
    /// Write the model to a file, for simulate's --model.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What to call the machine in the model and in what is simulated with it. Default: what the
    /// system says of its CPU.
    #[arg(long, value_name = "TEXT")]
    machine: Option<String>,

    /// How many times all is measured.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,

    #[command(flatten)]
    shown: Shown,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    // Fail before the work, not after it.
    Target::MODEL.check(args.output.as_ref(), &[])?;
    let cpus = Cpus::allowed();
    let machine = args.machine.clone().unwrap_or_else(describe);
    if cpus.count() < 2 {
        output::complain(
            "warning: this process may use one CPU; what takes two is taken from the checked-in model",
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
    let model = Model::median(&models);
    if let Some(path) = &args.output {
        let mut text = serde_json::to_string_pretty(&model)?;
        text.push('\n');
        Target::MODEL.write(path, text)?;
    }
    output::result(args.shown.json, &model, |style| table(&model, style))?;
    Ok(Outcome::Fine)
}

fn table(model: &Model, style: Style) -> String {
    let row = |(name, value, _)| [Cell::new::<String>(name), right(format!("{value:.2}"))];
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
