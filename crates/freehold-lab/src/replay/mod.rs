//! Replaying a trace of one kernel's page allocator through other designs.
//!
//! A replay reads its trace twice. The `survey` counts what is in it, which says how large a
//! machine is needed ([`sizing`]) and what to put in for allocations the trace does not show. Then
//! the trace is decoded once more and every engine carries out the same operations side by side
//! ([`replay`]). At its end everything still live is given back, and each engine must be whole
//! again.
//!
//! Memory is in proportion to what is live at once in the trace and to the frames that it names, not
//! to its length, but for a bit for each free.

pub mod account;
pub mod applier;
mod broadcast;
mod driver;
mod errors;
mod facts;
pub mod fill;
pub mod frame_set;
mod frames;
pub mod mapper;
pub mod of_zone;
pub mod op;
pub mod outcome;
pub mod sizing;
mod source;
mod survey;
pub mod whole;

pub use driver::Driver;
pub use facts::TraceFacts;
pub use frames::{Found, FrameIndex};
pub use mapper::{Batched, Injection, Mapper, MapperOptions, Schedule, TICK_PHASE_NS};
pub use op::{Batch, FREE_BATCH_MAX, Op, SamplePoint};
pub use outcome::{EngineOutcome, Sample};
pub use source::{Description, Events, Oddities, Recorded, SourceError, Trace, each_event};
pub use survey::{Survey, survey};

use std::sync::Arc;

use freehold::{FrameRange, Order};
use freehold_trace::ticks::Tick;
use serde::Serialize;

use crate::engine::Engine;

/// Samples of memory taken over the time of a trace, unless asked for otherwise.
pub const SAMPLES: u32 = 200;

pub struct NamedEngine {
    /// As on the command line.
    pub name: String,
    pub engine: Box<dyn Engine>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayOptions {
    /// CPUs of the machine; CPUs of the trace beyond are folded onto these.
    pub cpus: u16,
    /// Whether to put in what must have been allocated before the trace; the survey was made with
    /// the same.
    pub warm: bool,
    /// Engines at work at the same time.
    pub jobs: usize,
    pub samples: u32,
}

/// The result of replaying one trace. As in `--json`: fields may be added, none renamed or removed.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    #[serde(rename = "trace")]
    pub survey: Survey,
    pub machine: Machine,
    /// Allocations and frees that each engine was asked for while the trace ran: the events of "per
    /// event".
    #[serde(rename = "replayed_events")]
    pub replayed: u64,
    /// Allocations put in that the trace does not show.
    pub injected: u64,
    #[serde(skip)]
    pub beginning: Beginning,
    /// What came of each engine, in the order given.
    pub engines: Vec<EngineOutcome>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub memory_frames: u64,
    pub cpus: u16,
    /// Where it comes from: "recorded", "described" (by files of any machine), "assumed" (sized
    /// by the trace's needs) or "given".
    pub origin: Origin,
    /// The zone of the recorded machine that was replayed, and its node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Bytes of a page. Every amount of this machine is in such pages.
    pub page_size: u64,
    /// Whether that is known; assumed of a machine of which nothing says it.
    pub page_size_told: bool,
    /// The order of a pageblock of the recorded machine; the engines' own is 9.
    pub pageblock_order: u8,
    /// Free when the recording began, by the files beside the trace; null without any.
    pub free_frames_recorded: Option<u64>,
    /// Free in the zone at the beginning, without what CPUs' lists hold.
    pub free_frames_begin: u64,
    /// Frames recorded as free that are in use here, since the pageblocks of their type have no
    /// place for them.
    pub free_frames_left_out: u64,
    /// Frames on CPUs' lists when the recording began, beside `free_frames_begin`. An engine
    /// without lists has them free in the zone.
    pub list_frames_begin: u64,
    pub cma_frames: u64,
    /// Whether free memory lies where it was recorded to lie, page by page; else places were found
    /// for chunks that were counted.
    pub by_page: bool,
    /// What no file says of the machine, and what is taken instead, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guessed: Vec<String>,
}

impl Machine {
    pub fn new(beginning: &Beginning, memory_frames: u64, cpus: u16) -> Self {
        let account = beginning.account.as_ref();
        let of_trace = || beginning.page_size.unwrap_or(4096);
        Self {
            memory_frames,
            cpus,
            origin: beginning.origin,
            zone: account.map(|account| account.zone.clone()),
            node: account.map(|account| account.node),
            page_size: account.map_or_else(of_trace, |account| account.page_size),
            page_size_told: account
                .map_or(beginning.page_size.is_some(), |account| account.page_size_told),
            pageblock_order: account
                .map_or(Order::PAGEBLOCK.get(), |account| account.pageblock_order),
            free_frames_recorded: account.map(|account| account.free),
            free_frames_begin: beginning
                .layout
                .as_ref()
                .map_or(memory_frames, fill::Layout::free_frames),
            free_frames_left_out: beginning.layout.as_ref().map_or(0, |layout| layout.left_out),
            list_frames_begin: beginning.layout.as_ref().map_or(0, fill::Layout::listed_frames),
            cma_frames: beginning.cma.iter().map(FrameRange::len).sum(),
            by_page: account.is_some_and(|account| account.by_page),
            guessed: account.map_or_else(Vec::new, |account| account.guessed.clone()),
        }
    }
}

impl Replay {
    pub fn is_whole(&self) -> bool {
        self.engines.iter().all(|engine| engine.whole)
    }
}

/// Where the machine and the contents of its memory come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// As recorded: the zone's size, marks and CPU settings, and what was free and in use.
    Recorded,
    /// As files say, which need not be of the machine that recorded the trace.
    Described,
    /// Sized by the trace's needs, all memory free: nothing was recorded beside it.
    #[default]
    Assumed,
    /// Of the size asked for, all memory free.
    Given,
}

/// From then on memory is being reclaimed, or no longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimChange {
    /// When, on the trace's clock.
    pub ts_ns: u64,
    pub active: bool,
}

/// The state that every engine begins in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Beginning {
    pub origin: Origin,
    /// The zone's contents; `None`: all of it is free.
    pub layout: Option<fill::Layout>,
    /// What the files beside the trace say of the zone.
    pub account: Option<account::Account>,
    /// Bytes of a page without such files, where that is known.
    pub page_size: Option<u64>,
    /// Which of the memory is CMA.
    pub cma: Vec<FrameRange>,
    /// When within a second the periodic work runs, where `ticks` does not say when it ran; `None`:
    /// at [`TICK_PHASE_NS`].
    pub tick_phase_ns: Option<u64>,
    pub ticks: Option<Vec<Tick>>,
    /// When memory was being reclaimed.
    pub reclaim: Vec<ReclaimChange>,
}

/// Replays a surveyed trace through `engines`, all of which were built for the same machine and
/// have all memory free; each is put into the state it begins in first.
///
/// `progress` is called now and then with the events so far and the reader's own progress (done,
/// total).
pub fn replay(
    beginning: Beginning,
    trace: &dyn Trace,
    survey: &Survey,
    engines: &[NamedEngine],
    memory_frames: u64,
    options: ReplayOptions,
    progress: &mut dyn FnMut(u64, (u64, u64)),
) -> Result<Replay, SourceError> {
    let samples = options.samples.max(1);
    let mapper = MapperOptions {
        schedule: Some(Schedule {
            cpus: options.cpus,
            first_ts_ns: survey.facts.first_ts_ns,
            sample_every_ns: sample_every_ns(survey, samples),
            samples,
            tick_phase_ns: beginning.tick_phase_ns.unwrap_or(TICK_PHASE_NS),
        }),
        warm: if options.warm { survey.warm.clone() } else { Vec::new() },
        batched: Arc::clone(&survey.batched),
        ticks: beginning.ticks.clone(),
        reclaim: beginning.reclaim.clone(),
    };
    let (mapper, engines) =
        broadcast::broadcast(trace, engines, mapper, options, &beginning, progress)?;
    Ok(Replay {
        survey: survey.clone(),
        replayed: mapper.replayed,
        injected: mapper.facts.injected,
        machine: Machine::new(&beginning, memory_frames, options.cpus),
        beginning,
        engines,
    })
}

/// Between two of so many samples over the time of a trace.
pub fn sample_every_ns(survey: &Survey, samples: u32) -> u64 {
    survey.facts.span_ns().div_ceil(u64::from(samples)).max(1)
}
