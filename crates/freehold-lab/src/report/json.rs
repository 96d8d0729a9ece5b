//! The same as the table, for programs. Names are stable: fields may be added, none renamed or removed.

use freehold::FrameRange;
use freehold_trace::Checksums;
use serde::Serialize;

use crate::replay::fill::Layout;
use crate::replay::threads::ThreadsReport;
use crate::replay::{EngineOutcome, Origin, Replay, Survey};

/// What a trace is and holds.
#[derive(Clone, Debug, Serialize)]
pub struct TraceReport {
    /// The file's name without folders and ending.
    pub name: String,
    /// Its format.
    pub format: String,
    /// The kernel that recorded it.
    pub kernel: Option<String>,
    /// Events in it.
    pub events: u64,
    /// CPUs that ran an event.
    pub cpus: u32,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: u64,
    /// Successful allocations.
    pub allocs: u64,
    /// Failed allocations; not replayed.
    pub failed_allocs: u64,
    /// Frees.
    pub frees: u64,
    /// Frees on another CPU than the allocation: affinity violations.
    pub remote_frees: u64,
    /// Their share of the frees whose allocation is in the trace, 0 to 1.
    pub remote_free_share: f64,
    /// The most frames live at once.
    pub peak_live_frames: u64,
    /// Frames live at the end.
    pub live_frames_end: u64,
    /// Frees of frames not allocated in the trace.
    pub unknown_frees: u64,
    /// Frames of these.
    pub unknown_free_frames: u64,
    /// Frees inside a larger live allocation.
    pub split_frees: u64,
    /// Frees over several smaller live allocations.
    pub wide_frees: u64,
    /// Allocations of frames that were live: their free is missing.
    pub lost_frees: u64,
    /// Events above the largest order, left out.
    pub unsupported: u64,
    /// Events that their order cannot start at, left out.
    pub misaligned: u64,
    /// Frees through batches of folios.
    pub free_batched: u64,
    /// The recording kernel's own drains, in chunks.
    pub pcpu_drains: u64,
    /// The recording kernel's own fallbacks.
    pub extfrags: u64,
    /// Chunks that the recording kernel took from a zone under its lock.
    pub zone_locked: u64,
    /// The largest order.
    pub max_order: u8,
    /// Malformed rows left out.
    pub skipped: u64,
    /// Events that come more than an hour after the one before them.
    pub long_gaps: u64,
    /// Lines of other events passed over.
    pub ignored: u64,
    /// Events that the recorder lost, where it says so.
    pub lost_events: Option<u64>,
    /// What protects the file's contents against damage: "all" (pages, columns and description), "pages", or "none";
    /// null for formats that have nothing of the kind.
    pub checksums: Option<Checksums>,
}

impl From<&Survey> for TraceReport {
    fn from(survey: &Survey) -> Self {
        let facts = &survey.facts;
        Self {
            name: survey.description.name.clone(),
            format: survey.description.format.clone(),
            kernel: survey.description.kernel.clone(),
            events: facts.events,
            cpus: facts.cpus_seen,
            span_ns: facts.span_ns(),
            allocs: facts.allocs,
            failed_allocs: facts.failed_allocs,
            frees: facts.frees,
            remote_frees: facts.remote_frees,
            remote_free_share: facts.remote_free_share(),
            peak_live_frames: facts.peak_live_frames,
            live_frames_end: facts.live_frames,
            unknown_frees: facts.unknown_frees,
            unknown_free_frames: facts.unknown_free_frames,
            split_frees: facts.split_frees,
            wide_frees: facts.wide_frees,
            lost_frees: facts.lost_frees,
            unsupported: facts.unsupported,
            misaligned: facts.misaligned,
            free_batched: facts.free_batched,
            pcpu_drains: facts.pcpu_drains,
            extfrags: facts.extfrags,
            zone_locked: facts.zone_locked,
            max_order: facts.max_order,
            skipped: survey.skipped,
            long_gaps: survey.long_gaps.count,
            ignored: survey.ignored,
            lost_events: survey.description.lost_events,
            checksums: survey.description.checksums,
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
    pub trace: TraceReport,
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
