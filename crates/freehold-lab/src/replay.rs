//! `freehold replay`: traces through engines.

use std::path::PathBuf;

use serde::Serialize;

use super::passes::{Done, drive, survey};
use super::replay_args::ReplayArgs;
use super::{against_kernel, machine, notes, sample};
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::cli::{Outcome, output};
use freehold_labkit::engine::Paths;
use freehold_labkit::engines::{self, EngineSpec};
use freehold_labkit::replay::Replay;
use freehold_labkit::replay::against_kernel::AgainstKernel;
use freehold_labkit::report::{paths, table};

pub(super) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    against_kernel::check(args)?;
    let specs = specs(args)?;

    let mut results: Vec<Result<Done, (String, CliError)>> = Vec::new();
    let mut outcome = Outcome::Fine;
    let arguments: Vec<Option<&PathBuf>> =
        if args.traces.is_empty() { vec![None] } else { args.traces.iter().map(Some).collect() };
    let mut printed = false;
    for argument in &arguments {
        let (name, done) = one(args, &specs, *argument);
        match &done {
            Ok(Done { replay, comparison }) => {
                notes::of_engines(&name, replay);
                if !replay.is_whole() && outcome == Outcome::Fine {
                    outcome = Outcome::NotWhole;
                }
                if !args.shown.json && !args.power {
                    print_table(args, replay, comparison.as_ref(), !printed)?;
                    printed = true;
                }
            }
            Err(error) => {
                output::error(error);
                outcome = Outcome::Unreadable;
            }
        }
        results.push(done.map_err(|error| (name, error)));
    }

    write_out(args, &results)?;
    Ok(outcome)
}

/// What is said of all traces together.
fn write_out(
    args: &ReplayArgs,
    results: &[Result<Done, (String, CliError)>],
) -> Result<(), CliError> {
    if args.power && !args.shown.json {
        let comparisons = results.iter().flatten().filter_map(|done| {
            Some((done.replay.survey.description.name.as_str(), done.comparison.as_ref()?))
        });
        output::print(&freehold_labkit::report::power::render(comparisons, output::style()))?;
    }
    // Nothing at all is no document; the errors have been said.
    if !results.iter().any(Result::is_ok) {
        return Ok(());
    }
    let documents: Vec<Document<'_>> = results.iter().map(Document::from).collect();
    if args.shown.json {
        match &documents[..] {
            [document] => output::print_json(document)?,
            traces => output::print_json(&Documents { traces })?,
        }
    }
    Ok(())
}

/// What `--json` prints of a trace.
#[derive(Serialize)]
#[serde(untagged)]
enum Document<'a> {
    Replayed {
        #[serde(flatten)]
        replay: &'a Replay,
        #[serde(skip_serializing_if = "Option::is_none")]
        against_kernel: Option<&'a AgainstKernel>,
    },
    Unreadable {
        trace: Named<'a>,
        error: &'a str,
    },
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

/// What `--json` prints of several traces.
#[derive(Serialize)]
struct Documents<'a> {
    traces: &'a [Document<'a>],
}

impl<'a> From<&'a Result<Done, (String, CliError)>> for Document<'a> {
    fn from(result: &'a Result<Done, (String, CliError)>) -> Self {
        match result {
            Ok(done) => {
                Self::Replayed { replay: &done.replay, against_kernel: done.comparison.as_ref() }
            }
            Err((name, error)) => {
                Self::Unreadable { trace: Named { name }, error: error.message() }
            }
        }
    }
}

fn one(
    args: &ReplayArgs,
    specs: &[EngineSpec],
    argument: Option<&PathBuf>,
) -> (String, Result<Done, CliError>) {
    let trace = match argument {
        None => sample::trace(),
        Some(path) => match TraceFile::named(path, args.skip_bad) {
            Ok(trace) => trace,
            Err(error) => return (path.display().to_string(), Err(error)),
        },
    };
    let name = trace.shown().to_owned();
    let done = if args.compares() {
        against_kernel::run(args, specs, &trace)
    } else {
        replay_one(args, specs, &trace).map(|replay| Done { replay, comparison: None })
    };
    (name, done)
}

fn replay_one(
    args: &ReplayArgs,
    specs: &[EngineSpec],
    trace: &TraceFile,
) -> Result<Replay, CliError> {
    let choice = machine::choose(args, trace)?;
    // Where memory begins with what was in use, what the recording kernel was asked to free of it
    // is freed.
    let warm = args.warm || choice.is_filled();
    let survey = survey(args, warm, trace)?;
    let machine = choice.machine(args, trace, &survey)?;
    drive(args, specs, trace, &survey, warm, machine)
}

fn specs(args: &ReplayArgs) -> Result<Vec<EngineSpec>, CliError> {
    if !args.engines.is_empty() {
        return Ok(args.engines.clone());
    }
    let recording = || engines::RECORDING_KERNEL.parse().into_iter();
    if args.power {
        return Ok(recording().chain(engines::wrong_kernels()).collect());
    }
    let names: &[&str] =
        if args.against_kernel { &[engines::RECORDING_KERNEL] } else { &engines::DEFAULT };
    names.iter().map(|name| Ok(name.parse()?)).collect()
}

/// The ways of the engines that say them.
fn taken(replay: &Replay) -> Vec<(String, Paths)> {
    replay
        .engines
        .iter()
        .filter_map(|engine| Some((engine.engine.clone(), engine.paths?)))
        .collect()
}

fn print_table(
    args: &ReplayArgs,
    replay: &Replay,
    comparison: Option<&AgainstKernel>,
    first: bool,
) -> Result<(), CliError> {
    let style = output::style();
    let text = match comparison {
        Some(comparison) => {
            freehold_labkit::report::against_kernel::render(replay, comparison, style)
        }
        None if replay.threads.is_some() => freehold_labkit::report::threads::render(replay, style),
        None => table::render(replay, style),
    };
    let text =
        if args.paths { format!("{text}\n{}", paths::render(&taken(replay), style)) } else { text };
    output::print(&if first { text } else { format!("\n{text}") })
}
