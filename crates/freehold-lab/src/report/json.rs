//! The same as the table, for programs. Names are stable: fields may be added, none renamed or removed.

use freehold::FrameRange;
use serde::Serialize;

use crate::replay::fill::Layout;
use crate::replay::threads::ThreadsReport;
use crate::replay::{Description, EngineOutcome, Origin, Replay, Survey, TraceFacts};

/// What a trace is and holds.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport<'a> {
    #[serde(flatten)]
    description: &'a Description,
    #[serde(flatten)]
    facts: &'a TraceFacts,
    /// From the first event to the last, in nanoseconds.
    span_ns: u64,
    /// The share of remote frees in the frees whose allocation is in the trace, 0 to 1.
    remote_free_share: f64,
    /// Malformed rows left out.
    skipped: u64,
    /// Events that come more than an hour after the one before them.
    long_gaps: u64,
    /// Lines of other events passed over.
    ignored: u64,
}

impl<'a> From<&'a Survey> for TraceReport<'a> {
    fn from(survey: &'a Survey) -> Self {
        let Survey { description, facts, oddities, .. } = survey;
        Self {
            description,
            facts,
            span_ns: facts.span_ns(),
            remote_free_share: facts.remote_free_share(),
            skipped: oddities.skipped,
            long_gaps: oddities.long_gaps,
            ignored: oddities.ignored,
        }
    }
}

/// The machine that engines were built for.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MachineReport {
    /// Frames of memory.
    pub memory_frames: u64,
    /// CPUs.
    pub cpus: u16,
    /// Where it comes from: "recorded", "pristine" (recorded, all memory free), "assumed" (sized by the trace's needs) or
    /// "given".
    pub origin: Origin,
    /// Frames free at the beginning.
    pub free_frames_begin: u64,
    /// Frames of CMA.
    pub cma_frames: u64,
}

/// One trace through all engines.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport<'a> {
    /// The trace.
    pub trace: TraceReport<'a>,
    /// The machine.
    pub machine: MachineReport,
    /// Allocations and frees that each engine was asked for while the trace ran: the events of "per event".
    pub replayed_events: u64,
    /// Allocations put in that the trace does not show.
    pub injected: u64,
    /// How it was shared out, where each CPU had a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadsReport>,
    /// The engines, in the order of the command line.
    pub engines: &'a [EngineOutcome],
}

impl<'a> From<&'a Replay> for ReplayReport<'a> {
    fn from(replay: &'a Replay) -> Self {
        Self {
            trace: TraceReport::from(&replay.survey),
            machine: MachineReport {
                memory_frames: replay.memory_frames,
                cpus: replay.cpus,
                origin: replay.beginning.origin,
                free_frames_begin: replay.beginning.layout.as_ref().map_or(replay.memory_frames, Layout::free_frames),
                cma_frames: replay.beginning.cma.iter().map(FrameRange::len).sum(),
            },
            replayed_events: replay.replayed,
            injected: replay.injected,
            threads: replay.threads,
            engines: &replay.engines,
        }
    }
}
