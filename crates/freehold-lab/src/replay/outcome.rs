//! What a replay found out about one engine. The names of the fields are those of `--json` and
//! stay.

use std::any::Any;

use freehold::Order;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::applier::Applier;
use super::op::SamplePoint;
use super::whole;
use crate::engine::{CmaBook, CmaCounts, Counters, ListFlow, Memory};
use crate::one_line::{OneLine, one_line};

/// The state of an engine at one moment of the trace.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, and how much is live in the trace.
    pub point: SamplePoint,
    pub memory: Memory,
    pub counters: Counters,
}

/// A count of a sample, by its name in `--json`.
type Column = (&'static str, fn(&Sample) -> u64);

/// The counts of a sample.
const COLUMNS: [Column; 10] = [
    ("ts_ns", |s| s.point.ts_ns),
    ("live_frames", |s| s.point.live_frames),
    ("free_frames", |s| s.memory.free_frames),
    ("pcp_frames", |s| s.memory.pcp_frames),
    ("free_blocks", |s| s.memory.free_blocks),
    ("mixed_blocks", |s| s.memory.mixed_blocks),
    ("zone_lock_acquisitions", |s| s.counters.zone_lock_acquisitions),
    ("zone_lock_work", |s| s.counters.zone_lock_work),
    ("shared_writes", |s| s.counters.shared_writes),
    ("fallbacks", |s| s.counters.fallbacks),
];

/// The unusable-free-space index, for order 9.
const INDEX: &str = "unusable_index_order9";

/// The samples as `--json` has them: a list for each count, one entry a moment; the index to six
/// decimals.
fn timeline<S: Serializer>(samples: &[Sample], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, of) in &COLUMNS {
        map.serialize_entry(name, &OneLine(samples.iter().map(of).collect::<Vec<u64>>()))?;
    }
    let index =
        |sample: &Sample| (sample.memory.unusable_index(Order::PAGEBLOCK) * 1e6).round() / 1e6;
    map.serialize_entry(INDEX, &OneLine(samples.iter().map(index).collect::<Vec<f64>>()))?;
    map.end()
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct EngineOutcome {
    /// The engine as named on the command line.
    pub engine: String,
    /// What it had counted at the end of the trace; failures are those of the trace's allocations.
    #[serde(flatten)]
    pub counters: Counters,
    /// [`Counters::zone_lock_acquisitions`] for each 1,000 events, an event being an allocation or
    /// a free that was carried out.
    pub zone_locks_per_1000: f64,
    /// [`Counters::shared_writes`] for each 1,000 events.
    pub shared_writes_per_1000: f64,
    /// Allocations that failed before the trace began: of those put in for memory in use by then.
    pub set_up_failed: u64,
    /// Steps of work in a hold of a zone lock, on average.
    pub zone_lock_work_mean: f64,
    /// The share of allocations served without the zone lock.
    pub pcp_hit_rate: f64,
    /// Frames in all zones.
    pub managed_frames: u64,
    pub free_frames_end: u64,
    /// Of these, held by CPUs.
    pub pcp_frames_end: u64,
    /// Pageblocks with more than one type of allocation, at the end of the trace.
    pub mixed_blocks: u64,
    /// Pageblocks with no frame in use, at the end of the trace.
    pub free_blocks_end: u64,
    /// The largest order of which a chunk is free at the end of the trace, up to the engine's own
    /// largest (10 in the kernel's designs, 18 in Freehold); null if nothing is free.
    pub largest_free_order_end: Option<u8>,
    /// Unusable-free-space index for order 9, by frames free next to each other, over the trace's
    /// time: the mean.
    pub unusable_index_mean: f64,
    pub unusable_index_min: f64,
    pub unusable_index_max: f64,
    /// The mean of the same index by chunks as they lie on the engine's lists, neighbours on
    /// different lists apart.
    pub unusable_index_lists_mean: f64,
    /// Frames missing after everything was given back; must be 0.
    pub lost_frames: u64,
    /// CPU time per allocation or free. Noisy: it depends on the machine and what else runs on it.
    pub ns_per_event: f64,
    /// Whether the engine was whole after everything was given back.
    pub whole: bool,
    /// What was wrong, in words.
    pub errors: Vec<String>,
    /// Holds of the zone lock by the steps of work done in them: the fewest and the most steps that
    /// an entry stands for, and how many holds.
    #[serde(serialize_with = "one_line")]
    pub zone_lock_work_histogram: Vec<[u64; 3]>,
    #[serde(rename = "timeline", serialize_with = "timeline")]
    pub samples: Vec<Sample>,
    /// What CMA served until the end of the trace, where the machine has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cma: Option<CmaCounts>,
    /// Frames between the zone and the CPUs' lists, by list, where an engine has lists.
    #[serde(skip)]
    pub flow: Option<ListFlow>,
}

impl EngineOutcome {
    /// What is known of an engine that panicked.
    pub fn crashed(name: &str, panic: &(dyn Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Self {
            engine: name.to_owned(),
            errors: vec![format!("the engine panicked: {message}")],
            ..Self::default()
        }
    }

    /// As the engine is at the end of the trace, before anything is given back.
    pub fn at_end(applier: &Applier<'_>) -> Self {
        let Applier { engine, made, cma, .. } = applier;
        let (counters, end) = (engine.counters(), engine.memory());
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            zone_lock_work_mean: share(counters.zone_lock_work, counters.zone_lock_acquisitions),
            pcp_hit_rate: share(counters.pcp_hits, counters.allocs),
            zone_locks_per_1000: counters.per_1000_events(counters.zone_lock_acquisitions),
            shared_writes_per_1000: counters.per_1000_events(counters.shared_writes),
            counters: Counters { failed: made.failed, ..counters },
            managed_frames: end.managed_frames,
            free_frames_end: end.free_frames,
            pcp_frames_end: end.pcp_frames,
            mixed_blocks: end.mixed_blocks,
            free_blocks_end: end.free_blocks,
            largest_free_order_end: end.largest_free_order,
            zone_lock_work_histogram: engine.zone_lock_holds(),
            cma: cma.as_ref().map(CmaBook::counts),
            flow: engine.list_flow(),
            ..Self::default()
        }
    }

    pub(super) fn over_time(self, samples: Vec<Sample>) -> Self {
        let index: Vec<f64> =
            samples.iter().map(|sample| sample.memory.unusable_index(Order::PAGEBLOCK)).collect();
        let lists =
            samples.iter().map(|sample| sample.memory.unusable_index_of_lists(Order::PAGEBLOCK));
        // Not by `sum`, which makes -0.0 of nothing.
        let mean = |sum: f64| sum / samples.len().max(1) as f64;
        Self {
            unusable_index_mean: mean(index.iter().fold(0.0, |sum, index| sum + index)),
            unusable_index_lists_mean: mean(lists.fold(0.0, |sum, index| sum + index)),
            unusable_index_min: index.iter().copied().reduce(f64::min).unwrap_or(0.0),
            unusable_index_max: index.iter().copied().reduce(f64::max).unwrap_or(0.0),
            samples,
            ..self
        }
    }

    /// With what is found once everything has been given back, and what was not as it must be until
    /// then.
    #[must_use]
    pub fn given_back(self, name: &str, applier: &Applier<'_>, mut findings: Vec<String>) -> Self {
        let engine = applier.engine;
        engine.drain_all();
        let memory = engine.memory();
        findings.extend(whole::check(engine, &memory));
        findings.extend(applier.findings());
        Self {
            engine: name.to_owned(),
            lost_frames: memory.managed_frames.saturating_sub(memory.free_frames),
            whole: findings.is_empty(),
            errors: findings,
            ..self
        }
    }
}
