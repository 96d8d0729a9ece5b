//! The two passes over a trace: what is in it and on which machine it is replayed, and the replay.

use super::replay_args::{Common, MachineArgs};
use super::{machine, notes};
use crate::cli::error::CliError;
use crate::cli::input::TraceFile;
use crate::cli::progress::Progress;
use crate::engines::{self, EngineError, EngineSpec, MachineConfig, RecordedZone};
use crate::replay::{
    self, Beginning, NamedEngine, Replay, ReplayOptions, SAMPLES, Survey, Trace, TraceFacts, sizing,
};

/// What the user called a trace, and the trace or a part of its rows.
pub type Rows<'a> = (&'a str, &'a dyn Trace);

/// What is known before the second pass.
pub struct Ready {
    pub survey: Survey,
    /// Whether frames are there from the beginning that the trace frees without having allocated
    /// them.
    pub warm: bool,
    pub machine: MachineConfig,
    pub beginning: Beginning,
}

/// The first pass over the rows of a zone, and the machine that the arguments and what lies beside
/// the trace say. `rows`: the trace, or a part of its rows.
pub fn ready(
    common: &Common,
    wanted: &MachineArgs,
    choice: &mut machine::Choice,
    (trace, zone): (&TraceFile, Option<usize>),
    rows: Rows<'_>,
) -> Result<Ready, CliError> {
    // Where memory begins with what was in use, what the recording kernel was asked to free of it
    // is freed.
    let warm = wanted.warm || choice.is_filled();
    let survey = survey(common, warm, rows)?;
    let (machine, beginning) = choice.machine(common, wanted, trace, zone, &survey)?;
    Ok(Ready { survey, warm, machine, beginning })
}

/// The first pass.
pub fn survey(common: &Common, warm: bool, (shown, trace): Rows<'_>) -> Result<Survey, CliError> {
    let progress = Progress::new(&format!("reading {shown}"), None, common.shown.no_progress);
    let mut told = |events, reader| progress.update(events, reader);
    let survey = replay::survey(trace, warm, &mut told)?;
    drop(progress);
    let TraceFacts { events, .. } = survey.facts;
    if events == 0 {
        return Err(CliError::new(format!("{shown}: there is no page-allocator event in it"))
            .hint("record the kernel's events kmem:mm_page_*; 'freehold --help' says how"));
    }
    if let Some(why) = survey.nothing_to_replay() {
        return Err(CliError::new(format!(
            "{shown}: nothing of its {events} events can be replayed: {why}"
        ))
        .hint(match survey.facts.unknown_frees {
            0 => "record kmem:mm_page_alloc and kmem:mm_page_free; 'freehold --help' says how",
            _ => "--warm puts in what was allocated before the recording began",
        }));
    }
    notes::of_trace(shown, &survey);
    Ok(survey)
}

/// CPUs of the machine, as the user wants or as the trace has them.
pub fn cpus(common: &Common, survey: &Survey) -> Result<u16, CliError> {
    let shown = sizing::default_cpus(survey);
    if common.cpus.is_none() && shown > sizing::CPUS_MAX {
        let most = sizing::CPUS_MAX;
        return Err(CliError::new(format!(
            "the trace has {shown} CPUs; {most} is the most that can be replayed"
        ))
        .hint(format!("fold them onto fewer: --cpus {most}")));
    }
    Ok(common.cpus.unwrap_or(shown))
}

/// CPUs of a recorded machine: those that have lists in its zone too, unless the user says.
pub fn cpus_of(common: &Common, zone: &RecordedZone, shown: u16) -> u16 {
    let listed = zone.pagesets.iter().map(|set| set.cpu.get().saturating_add(1)).max();
    let cpus = shown.max(listed.unwrap_or(1)).min(sizing::CPUS_MAX);
    common.cpus.unwrap_or(cpus)
}

/// The second pass: every engine in the order of the trace, `jobs` of them at a time.
pub fn serially(
    common: &Common,
    specs: &[EngineSpec],
    (shown, trace): Rows<'_>,
    ready: Ready,
    jobs: usize,
) -> Result<Replay, CliError> {
    let Ready { survey, warm, machine, beginning } = ready;
    let named = |spec: &EngineSpec| {
        let engine = engines::build(spec, &machine)?;
        Ok(NamedEngine { name: spec.name().to_owned(), engine })
    };
    let engines: Result<Vec<_>, EngineError> = specs.iter().map(named).collect();
    let engines = engines.map_err(|error| CliError::new(format!("{shown}: {error}")))?;
    let options = ReplayOptions { cpus: machine.cpus, warm, jobs, samples: SAMPLES };
    let frames = machine.memory_frames;
    let (what, events) = (format!("replaying {shown}"), Some(survey.facts.events));
    let progress = Progress::new(&what, events, common.shown.no_progress);
    let mut told = |events, reader| progress.update(events, reader);
    Ok(replay::replay(beginning, trace, &survey, &engines, frames, options, &mut told)?)
}
