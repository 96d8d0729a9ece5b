//! The two passes over a trace: what is in it, and the replay.

use super::notes;
use super::replay_args::Common;
use freehold_labkit::cli::error::CliError;
use freehold_labkit::cli::input::TraceFile;
use freehold_labkit::cli::progress::Progress;
use freehold_labkit::engines::{self, EngineSpec, MachineConfig};
use freehold_labkit::replay::{
    self, Beginning, NamedEngine, Replay, ReplayOptions, SAMPLES, Survey, Trace, TraceFacts,
    sizing, threads,
};

/// A trace, or a part of its rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// What the user called it.
    pub(super) shown: &'a str,
    pub(super) trace: &'a dyn Trace,
}

impl<'a> From<&'a TraceFile> for Rows<'a> {
    fn from(file: &'a TraceFile) -> Self {
        Self { shown: file.shown(), trace: file }
    }
}

/// How the engines are called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum How {
    /// In the order of the trace, `jobs` engines at a time, with maps of every pageblock at so many
    /// moments.
    Serial { jobs: usize, memory_maps: u32 },
    /// By a thread for each CPU, this share of single frees inside another call.
    Threads { interrupts: f64 },
}

/// The first pass.
pub(super) fn survey<'a>(
    common: &Common,
    warm: bool,
    rows: impl Into<Rows<'a>>,
) -> Result<Survey, CliError> {
    let Rows { shown, trace } = rows.into();
    let progress = Progress::new(&format!("reading {shown}"), None, common.shown.no_progress);
    let survey = replay::survey(trace, warm, |events, reader| {
        progress.update(events, reader);
    })?;
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
pub(super) fn cpus(common: &Common, survey: &Survey) -> Result<u16, CliError> {
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

/// The second pass.
pub(super) fn drive(
    common: &Common,
    specs: &[EngineSpec],
    Rows { shown, trace }: Rows<'_>,
    survey: &Survey,
    warm: bool,
    (machine, beginning): (MachineConfig, Beginning),
    how: How,
) -> Result<Replay, CliError> {
    let on_threads = matches!(how, How::Threads { .. });
    if on_threads && machine.cpus > threads::CPUS_MAX {
        let (cpus, most) = (machine.cpus, threads::CPUS_MAX);
        return Err(CliError::new(format!(
            "{cpus} CPUs are too many for threads: {most} is the most"
        ))
        .hint(format!("fold them onto fewer: --cpus {most}")));
    }
    let build = |spec: &EngineSpec| {
        Ok(NamedEngine {
            name: spec.name().to_owned(),
            engine: engines::build_for(spec, &machine, on_threads)?,
        })
    };
    let engines: Result<Vec<NamedEngine>, engines::EngineError> = specs.iter().map(build).collect();
    let engines = engines.map_err(|error| CliError::new(format!("{shown}: {error}")))?;
    let (jobs, memory_maps) = match how {
        How::Serial { jobs, memory_maps } => (jobs, memory_maps),
        How::Threads { .. } => (1, 0),
    };
    let options = ReplayOptions { cpus: machine.cpus, warm, jobs, samples: SAMPLES, memory_maps };
    let frames = machine.memory_frames;
    if let How::Threads { interrupts } = how {
        return Ok(threads::replay_on_threads(
            beginning, trace, survey, &engines, frames, options, interrupts,
        )?);
    }
    let what = format!("replaying {shown}");
    let progress = Progress::new(&what, Some(survey.facts.events), common.shown.no_progress);
    let mut told = |events, reader| progress.update(events, reader);
    Ok(replay::replay(beginning, trace, survey, &engines, frames, options, &mut told)?)
}
