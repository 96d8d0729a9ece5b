//! `freehold replay`: traces through engines.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::CliError;
use super::input::TraceFile;
use super::passes::{Done, drive, survey};
use super::replay_args::ReplayArgs;
use super::target::Target;
use super::{Outcome, against_kernel, machine, notes, output, picture, report};
use crate::engine::Paths;
use crate::engines::{self, EngineSpec};
use crate::replay::Replay;
use crate::replay::against_kernel::AgainstKernel;
use crate::report::{paths, picture as draw, table, timeline};

pub(super) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    // Fail before the work, not after it.
    let mut others: Vec<(&str, &Path)> =
        args.traces.iter().map(|trace| ("a trace", trace.as_path())).collect();
    Target::TIMELINE.check(args.timeline.as_ref(), &others)?;
    others.extend(args.timeline.as_ref().map(|path| ("the timeline", path.as_path())));
    Target::REPORT.check(args.html.as_ref(), &others)?;
    against_kernel::check(args)?;
    let specs = specs(args)?;
    let mut pictures = picture::files(args.picture.as_ref(), &args.traces, &others)?.into_iter();

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
        if let (Some(path), Ok(done)) = (pictures.next(), &done) {
            let svg = draw::render(&done.replay)
                .map_err(|error| Target::PICTURE.failed(&path, &error))?;
            Target::PICTURE.write(&path, svg)?;
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
        output::print(&crate::report::power::render(comparisons, output::style()))?;
    }
    if let Some(path) = &args.timeline {
        let file = File::create(path).map_err(|error| Target::TIMELINE.failed(path, &error))?;
        timeline::write(file, results.iter().flatten().map(|done| &done.replay))
            .map_err(|error| Target::TIMELINE.failed(path, &error))?;
    }
    // Nothing at all is no document; the errors have been said.
    if !results.iter().any(Result::is_ok) {
        return Ok(());
    }
    let documents: Vec<Document<'_>> = results.iter().map(Document::from).collect();
    if let Some(path) = &args.html {
        report::write(&documents, path)?;
    }
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
        None => TraceFile::sample(),
        Some(path) => match TraceFile::named(path, args.skip_bad, args.kernel) {
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
        Some(comparison) => crate::report::against_kernel::render(replay, comparison, style),
        None if replay.threads.is_some() => crate::report::threads::render(replay, style),
        None => table::render(replay, style),
    };
    let text =
        if args.paths { format!("{text}\n{}", paths::render(&taken(replay), style)) } else { text };
    output::print(&if first { text } else { format!("\n{text}") })
}
