//! `freehold replay`: traces through engines, serially, on threads, or beside the recording kernel.

use std::path::PathBuf;

use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::cli::{Outcome, given, model_file, output};
use freehold_labkit::engines::{self, EngineSpec};
use freehold_labkit::model::Model;
use freehold_labkit::replay::Replay;
use freehold_labkit::replay::against_kernel::AgainstKernel;
use freehold_labkit::report::answer::{self, Answer};
use freehold_labkit::report::{against_kernel, table, threads};
use serde::Serialize;

use super::passes::{How, drive, survey};
use super::replay_args::{Common, MachineArgs, Mode, ReplayArgs};
use super::{fidelity, machine, notes, sample};

/// What came of one trace.
pub(super) struct Done {
    pub(super) replay: Replay,
    pub(super) comparison: Option<AgainstKernel>,
    /// Of a serial replay.
    pub(super) answer: Option<Answer>,
}

impl ReplayArgs {
    /// What `freehold` alone does.
    pub(super) fn sample() -> Self {
        Self::default()
    }

    /// What every mode heeds, of the one that was asked for.
    fn of_mode(&self) -> &Common {
        match &self.mode {
            None => &self.common,
            Some(Mode::Threads(args)) => &args.common,
            Some(Mode::Fidelity(args)) => &args.common,
        }
    }
}

pub(super) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let common = args.of_mode();
    let model = model_file::read(args.model.as_deref())?;
    let mut results: Vec<Result<Done, (String, CliError)>> = Vec::new();
    let mut outcome = Outcome::Fine;
    let arguments: Vec<Option<&PathBuf>> = if common.traces.is_empty() {
        vec![None]
    } else {
        common.traces.iter().map(Some).collect()
    };
    let mut printed = false;
    for argument in &arguments {
        let (name, done) = one(args, &model, *argument);
        match &done {
            Ok(done) => {
                notes::of_engines(&name, &done.replay);
                if !done.replay.is_whole() && outcome == Outcome::Fine {
                    outcome = Outcome::NotWhole;
                }
                if !common.shown.printed.json {
                    print_table(args, done, !printed)?;
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
    // Nothing at all is no document; the errors have been said.
    if common.shown.printed.json && results.iter().any(Result::is_ok) {
        print_json(&results)?;
    }
    Ok(outcome)
}

fn print_json(results: &[Result<Done, (String, CliError)>]) -> Result<(), CliError> {
    let documents: Vec<Document<'_>> = results.iter().map(Document::from).collect();
    match &documents[..] {
        [document] => output::print_json(document),
        traces => output::print_json(&Documents { traces }),
    }
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
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a Answer>,
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
            Ok(done) => Self::Replayed {
                replay: &done.replay,
                against_kernel: done.comparison.as_ref(),
                answer: done.answer.as_ref(),
            },
            Err((name, error)) => {
                Self::Unreadable { trace: Named { name }, error: error.message() }
            }
        }
    }
}

/// Replays one trace; its name comes with whatever came of it.
fn one(
    args: &ReplayArgs,
    model: &Model,
    argument: Option<&PathBuf>,
) -> (String, Result<Done, CliError>) {
    let trace = match argument {
        None => sample::trace(),
        Some(path) => {
            match TraceFile::named(path, args.of_mode().skip_bad, args.of_mode().kernel) {
                Ok(trace) => trace,
                Err(error) => return (path.display().to_string(), Err(error)),
            }
        }
    };
    let done = replayed(args, model, &trace);
    (trace.shown().to_owned(), done)
}

/// The engines of a replay, and what there is to say of the choice once the trace has been read: a
/// file that is no trace has no kernel either.
pub(super) struct Chosen {
    pub(super) specs: Vec<EngineSpec>,
    note: Option<String>,
}

impl Chosen {
    pub(super) fn say(&self) {
        self.note.iter().for_each(|note| output::complain(note));
    }
}

fn replayed(args: &ReplayArgs, model: &Model, trace: &TraceFile) -> Result<Done, CliError> {
    let chosen = &engines_of(args, trace)?;
    match &args.mode {
        None => {
            let how = How::Serial {
                jobs: given::jobs(args.jobs),
                memory_maps: args.memory_map.unwrap_or(0),
            };
            let done = on_machine(&args.common, &args.machine, chosen, trace, how)?;
            Ok(Done { answer: Some(answer::of(&done.replay, model)), ..done })
        }
        Some(Mode::Threads(args)) => {
            let how = How::Threads { interrupts: args.interrupts };
            on_machine(&args.common, &args.machine, chosen, trace, how)
        }
        Some(Mode::Fidelity(args)) => fidelity::run(args, chosen, trace),
    }
}

/// The engines that were asked for; else the kernel that recorded the trace, the baseline, and what
/// a replay compares it with.
fn engines_of(args: &ReplayArgs, trace: &TraceFile) -> Result<Chosen, CliError> {
    let common = args.of_mode();
    if !common.engines.is_empty() {
        return Ok(Chosen { specs: given::engines(&common.engines, &[])?, note: None });
    }
    let own = match trace.kernel() {
        None => Err(format!("{}: the trace does not say which kernel recorded it", trace.shown())),
        Some(kernel) => engines::of_kernel(kernel.major, kernel.minor).map_err(|error| {
            format!("{}: the kernel that recorded it is not an engine: {error}", trace.shown())
        }),
    };
    let newest = engines::NEWEST;
    let (own, note) = match own {
        Ok(spec) => (spec.name().to_owned(), None),
        Err(why) => {
            let note =
                format!("{why}; {newest} is the baseline (--kernel VERSION names the kernel)");
            (newest.to_owned(), Some(note))
        }
    };
    let compared =
        if matches!(args.mode, Some(Mode::Fidelity(_))) { &[][..] } else { &engines::COMPARED };
    let all: Vec<&str> = std::iter::once(own.as_str()).chain(compared.iter().copied()).collect();
    Ok(Chosen { specs: given::engines(&[], &all)?, note })
}

/// Replays a trace on the machine that the arguments and what lies beside it say.
fn on_machine(
    common: &Common,
    wanted: &MachineArgs,
    chosen: &Chosen,
    trace: &TraceFile,
    how: How,
) -> Result<Done, CliError> {
    let choice = machine::choose(common, wanted, trace)?;
    // Where memory begins with what was in use, what the recording kernel was asked to free of it
    // is freed.
    let warm = wanted.warm || choice.is_filled();
    let survey = survey(common, warm, trace)?;
    chosen.say();
    let machine = choice.machine(common, wanted, trace, &survey)?;
    let replay = drive(common, &chosen.specs, trace.into(), &survey, warm, machine, how)?;
    Ok(Done { replay, comparison: None, answer: None })
}

fn print_table(args: &ReplayArgs, done: &Done, first: bool) -> Result<(), CliError> {
    let (replay, style) = (&done.replay, output::style(&args.of_mode().shown.printed));
    let mut text = match &done.comparison {
        Some(comparison) => against_kernel::render(replay, comparison, style),
        None if replay.threads.is_some() => threads::render(replay, style),
        None => table::render(replay, style),
    };
    if let Some(answer) = &done.answer {
        text = format!("{text}\n{}", answer::render(answer, style));
    }
    output::print(&if first { text } else { format!("\n{text}") })
}
