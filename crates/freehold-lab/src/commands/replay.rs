//! `freehold replay`, and what its other modes share with it: each trace in turn, the engines for
//! it, tables or JSON.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::cli::error::CliError;
use crate::cli::given::Form;
use crate::cli::input::TraceFile;
use crate::cli::provenance::About;
use crate::cli::target::Target;
use crate::cli::{Outcome, given, output};
use crate::engines;
use crate::model::Model;
use crate::replay::of_zone::{OfZone, RowsOf};
use crate::replay::{Replay, Trace};
use crate::tables::answer::{self, Answer};
use crate::tables::table::{self, Style};
use serde::Serialize;
use serde_json::{Value, json};

use super::chosen::engines_of;
use super::passes::{ready, serially};
use super::replay_args::{Common, ReplayArgs};
use super::rows::Replays;
use super::{machine, notes, sample, zones};

/// What came of one trace, with what a mode prints beside the replay.
#[derive(Serialize)]
pub struct Done<M> {
    #[serde(flatten)]
    pub replay: Replay,
    pub about: About,
    /// Those of the machine's other zones.
    #[serde(rename = "other_zones", skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Replay>,
    #[serde(flatten)]
    pub more: M,
}

/// Which engine is best at what, and what several zones come to.
#[derive(Serialize)]
pub(super) struct Answered {
    /// Where the rows lie, if not all in one zone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rows_by_zone: Vec<RowsOf>,
    /// The counts of all zones that were replayed together, if several were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sum: Vec<zones::Sum>,
    answer: Answer,
    /// Of the other zones, for rows.
    #[serde(skip)]
    others: Vec<Answer>,
}

pub(super) fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let ReplayArgs { common, machine: wanted, .. } = args;
    let model = Model::standard();
    let jobs = given::jobs(args.jobs);
    let replayed = |trace: &TraceFile| {
        let chosen = engines_of(common, trace, &engines::COMPARED)?;
        let mut choice = machine::choose(common, wanted, trace)?;
        let zones = choice.zones(args.zone.as_ref(), trace)?;
        let mut replays = Vec::new();
        let rows_lie_apart = zones.rows.iter().filter(|of| of.rows > 0).count() > 1;
        let all = choice.all_zones().to_vec();
        for zone in zones.replayed {
            let at = zone.filter(|_| rows_lie_apart);
            let part = at.map(|at| OfZone { trace, zones: &all, at });
            let rows: &dyn Trace = part.as_ref().map_or(trace, |part| part);
            let rows = (trace.shown(), rows);
            let ready = ready(common, wanted, &mut choice, (trace, zone), rows)?;
            if replays.is_empty() {
                chosen.say();
            }
            replays.push(serially(common, &chosen.specs, rows, ready, jobs)?);
        }
        let replay = replays.remove(0);
        let more = Answered {
            rows_by_zone: if rows_lie_apart { zones.rows } else { Vec::new() },
            sum: zones::sum(&replay, &replays),
            answer: answer::of(&replay, &model),
            others: replays.iter().map(|replay| answer::of(replay, &model)).collect(),
        };
        Ok(Done { replay, about: trace.about()?, beside: replays, more })
    };
    let answers = |done: &Done<Answered>| {
        let all = [&done.more.answer].into_iter().chain(&done.more.others);
        all.cloned().collect()
    };
    each_trace(common, replayed, answers, |done, style| {
        let lie = zones::rows_line(done, style);
        let tables = [&done.replay].into_iter().chain(&done.beside);
        let tables: Vec<String> = tables.map(|replay| table::render(replay, style)).collect();
        let sum = zones::sum_table(&done.more.sum, style);
        format!("{lie}{}{sum}\n{}", tables.join("\n"), answer::render(&done.more.answer, style))
    })
}

/// Replays each of the traces that are named, or the sample, and prints what comes of it. `answers`
/// are of each zone, as far as the mode has any.
pub fn each_trace<M: Serialize>(
    common: &Common,
    replayed: impl Fn(&TraceFile) -> Result<Done<M>, CliError>,
    answers: impl Fn(&Done<M>) -> Vec<Answer>,
    render: impl Fn(&Done<M>, Style) -> String,
) -> Result<Outcome, CliError> {
    let printed = &common.shown.printed;
    let to = common.output.as_deref();
    let mut rows = printed.rows().map(Replays::new);
    check_output(common)?;
    let mut results: Vec<Result<Done<M>, (String, CliError)>> = Vec::new();
    let mut outcome = Outcome::Fine;
    let arguments: Vec<Option<&PathBuf>> = if common.traces.is_empty() {
        vec![None]
    } else {
        common.traces.iter().map(Some).collect()
    };
    let mut is_first = true;
    for argument in arguments {
        let (name, done) = match opened(common, argument) {
            Ok(trace) => (trace.shown().to_owned(), replayed(&trace)),
            Err((name, error)) => (name, Err(error)),
        };
        match &done {
            Ok(done) => {
                let all: Vec<&Replay> = [&done.replay].into_iter().chain(&done.beside).collect();
                for replay in &all {
                    notes::of_engines(&name, replay);
                    if !replay.is_whole() && outcome == Outcome::Fine {
                        outcome = Outcome::NotWhole;
                    }
                }
                if let Some(rows) = &mut rows {
                    let answers = answers(done);
                    let zones = all.iter().enumerate().map(|(at, zone)| (*zone, answers.get(at)));
                    rows.add(&done.about, &zones.collect::<Vec<_>>())?;
                } else if !printed.json {
                    let text = render(done, output::style(printed));
                    output::print(&if is_first { text } else { format!("\n{text}") })?;
                    is_first = false;
                }
            }
            Err(error) => {
                output::error(error);
                outcome = Outcome::Unreadable;
                if let Some(rows) = &mut rows {
                    rows.add_unreadable(argument.map_or(Path::new(""), |path| path), error);
                }
            }
        }
        rows.as_mut().map_or(Ok(()), |rows| rows.flush(to))?;
        if printed.json {
            results.push(done.map_err(|error| (name, error)));
        }
    }
    rows.map_or(Ok(()), |rows| rows.finish(to))?;
    // Nothing at all is no document; the errors have been said.
    if printed.json && results.iter().any(Result::is_ok) {
        print_json(&results)?;
    }
    Ok(outcome)
}

/// Asks before the work whether rows can go where they are to go.
fn check_output(common: &Common) -> Result<(), CliError> {
    let is_terminal = || std::io::stdout().is_terminal();
    let form = common.shown.printed.rows();
    match &common.output {
        Some(_) if form.is_none() => {
            Err(CliError::new("--output takes rows").hint("--format csv, jsonl or parquet"))
        }
        None if form == Some(Form::Parquet) && is_terminal() => {
            Err(CliError::new("Parquet is no text for a terminal").hint("--output FILE takes it"))
        }
        to => Target::ROWS.check(to.as_ref()),
    }
}

/// The trace that an argument names, or the sample; its name comes with what is wrong with it.
fn opened(common: &Common, argument: Option<&PathBuf>) -> Result<TraceFile, (String, CliError)> {
    let Some(path) = argument else { return Ok(sample::trace()) };
    TraceFile::named(path, common.skip_bad, common.kernel)
        .map_err(|error| (path.display().to_string(), error))
}

fn print_json<M: Serialize>(
    results: &[Result<Done<M>, (String, CliError)>],
) -> Result<(), CliError> {
    let documents: Vec<Document<'_, M>> = results
        .iter()
        .map(|result| match result {
            Ok(done) => Document::Replayed(done),
            Err((name, error)) => {
                Document::Unreadable(json!({"trace": {"name": name}, "error": error.message()}))
            }
        })
        .collect();
    match &documents[..] {
        [document] => output::print_json(document),
        traces => output::print_json(&BTreeMap::from([("traces", traces)])),
    }
}

/// What `--json` prints of a trace.
#[derive(Serialize)]
#[serde(untagged)]
enum Document<'a, M> {
    Replayed(&'a Done<M>),
    Unreadable(Value),
}
