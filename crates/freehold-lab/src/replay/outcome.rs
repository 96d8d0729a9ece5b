//! What a replay found out about one engine. The names of the fields are those of `--json` and stay.

use freehold::Order;
use serde::Serialize;

use super::by_order::ByOrder;
use super::memory_map::MemoryMap;
use super::op::SamplePoint;
use super::threads::Met;
use crate::engine::{CmaCounts, Counters, ListFlow, Memory, Paths};
use crate::one_line::one_line;

/// The state of an engine at one moment of the trace.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, and how much is live in the trace.
    pub point: SamplePoint,
    /// Free memory.
    pub memory: Memory,
    /// Totals so far.
    pub counters: Counters,
}

/// The result of one engine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EngineOutcome {
    /// The engine as named on the command line.
    pub engine: String,
    /// Chunks allocated.
    pub allocs: u64,
    /// Chunks freed while the trace ran.
    pub frees: u64,
    /// Allocations of the trace that failed in this engine.
    pub failed: u64,
    /// Allocations that failed before the trace began: of those put in for memory in use by then.
    pub set_up_failed: u64,
    /// Times a zone lock was taken.
    pub zone_lock_acquisitions: u64,
    /// Steps of work done under zone locks.
    pub zone_lock_work: u64,
    /// Steps per hold, on average.
    pub zone_lock_work_mean: f64,
    /// 99 % of holds did at most this many steps.
    pub zone_lock_work_p99: u64,
    /// The most steps in one hold.
    pub zone_lock_work_max: u64,
    /// Times a lock was taken that a group of CPUs shares; 0 for designs without groups.
    pub group_lock_acquisitions: u64,
    /// Buddies merged under a zone lock.
    pub merges_zone: u64,
    /// Buddies merged under a CPU's own lock.
    pub merges_pcp: u64,
    /// Chunks split under a zone lock.
    pub splits_zone: u64,
    /// Chunks split under a CPU's own lock.
    pub splits_pcp: u64,
    /// Allocations served without the zone lock.
    pub pcp_hits: u64,
    /// Their share of all allocations.
    pub pcp_hit_rate: f64,
    /// Times a CPU went to the zone for more.
    pub refills: u64,
    /// Refills that gave something, by phase: recover, claim, fragment, fallback.
    pub refills_by_phase: [u64; 4],
    /// Frames handed by zones to CPUs.
    pub refilled_frames: u64,
    /// Times a CPU gave frames back.
    pub drains: u64,
    /// Frames given back.
    pub drained_frames: u64,
    /// Lists looked at while draining.
    pub lists_looked_at: u64,
    /// Frees that went to another CPU's holdings.
    pub remote_frees: u64,
    /// Allocations that took memory of another migratetype.
    pub fallbacks: u64,
    /// Frames in all zones.
    pub managed_frames: u64,
    /// Free frames at the end of the trace.
    pub free_frames_end: u64,
    /// Of these, held by CPUs.
    pub pcp_frames_end: u64,
    /// Pageblocks with more than one type of allocation, at the end of the trace.
    pub mixed_blocks: u64,
    /// Pageblocks with no frame in use, at the end of the trace.
    pub free_blocks_end: u64,
    /// The largest order of which a chunk is free at the end of the trace, up to the engine's own largest (10 in the kernel's
    /// designs, 18 in Freehold); null if nothing is free.
    pub largest_free_order_end: Option<u8>,
    /// Unusable-free-space index for order 9, by frames free next to each other, over the trace's time: the mean.
    pub unusable_index_mean: f64,
    /// The smallest.
    pub unusable_index_min: f64,
    /// The largest.
    pub unusable_index_max: f64,
    /// The mean of the same index by chunks as they lie on the engine's lists, neighbours on different lists apart.
    pub unusable_index_lists_mean: f64,
    /// Frames missing after everything was given back; must be 0.
    pub lost_frames: u64,
    /// CPU time per allocation or free. Noisy: it depends on the machine and what else runs on it.
    pub ns_per_event: f64,
    /// Whether the engine was whole after everything was given back.
    pub whole: bool,
    /// What was wrong, in words.
    pub errors: Vec<String>,
    /// Holds of the zone lock by the steps of work done in them: the fewest and the most steps that an entry stands
    /// for, and how many holds.
    #[serde(serialize_with = "one_line")]
    pub zone_lock_work_histogram: Vec<[u64; 3]>,
    /// Allocations, refills, drains and fallbacks by order and migratetype.
    pub by_order: ByOrder,
    /// The state over time, as `--json` has it.
    pub timeline: Timeline,
    /// Every pageblock over time, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_map: Option<MemoryMap>,
    /// What CMA served until the end of the trace, where the machine has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cma: Option<CmaCounts>,
    /// How often each of the engine's ways was taken, where it says that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Paths>,
    /// What the threads met, where the trace was replayed on threads.
    #[serde(rename = "threads", skip_serializing_if = "Option::is_none")]
    pub met: Option<Met>,
    /// Frames between the zone and the CPUs' lists, by list, where an engine has lists.
    #[serde(skip)]
    pub flow: Option<ListFlow>,
    /// The state over time.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// The part of the samples that `--json` has: one entry a moment in each list. `--timeline` writes all of them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Timeline {
    /// The moments, on the trace's clock.
    #[serde(serialize_with = "one_line")]
    pub ts_ns: Vec<u64>,
    /// Frames allocated in the trace.
    #[serde(serialize_with = "one_line")]
    pub live_frames: Vec<u64>,
    /// Free frames in the engine.
    #[serde(serialize_with = "one_line")]
    pub free_frames: Vec<u64>,
    /// Of these, held by CPUs.
    #[serde(serialize_with = "one_line")]
    pub pcp_frames: Vec<u64>,
    /// Pageblocks with no frame in use.
    #[serde(serialize_with = "one_line")]
    pub free_blocks: Vec<u64>,
    /// Pageblocks with more than one type of allocation.
    #[serde(serialize_with = "one_line")]
    pub mixed_blocks: Vec<u64>,
    /// The unusable-free-space index for order 9, to six decimals.
    #[serde(serialize_with = "one_line")]
    pub unusable_index_order9: Vec<f64>,
    /// Times a zone lock was taken so far.
    #[serde(serialize_with = "one_line")]
    pub zone_lock_acquisitions: Vec<u64>,
    /// Steps of work done under zone locks so far.
    #[serde(serialize_with = "one_line")]
    pub zone_lock_work: Vec<u64>,
    /// Times a lock was taken so far that a group of CPUs shares.
    #[serde(serialize_with = "one_line")]
    pub group_lock_acquisitions: Vec<u64>,
    /// Allocations so far that took memory of another migratetype.
    #[serde(serialize_with = "one_line")]
    pub fallbacks: Vec<u64>,
}

impl From<&[Sample]> for Timeline {
    fn from(samples: &[Sample]) -> Self {
        let column = |of: fn(&Sample) -> u64| samples.iter().map(of).collect();
        let index = |sample: &Sample| (sample.memory.unusable_index(Order::PAGEBLOCK) * 1e6).round() / 1e6;
        Self {
            ts_ns: column(|sample| sample.point.ts_ns),
            live_frames: column(|sample| sample.point.live_frames),
            free_frames: column(|sample| sample.memory.free_frames),
            pcp_frames: column(|sample| sample.memory.pcp_frames),
            free_blocks: column(|sample| sample.memory.free_blocks),
            mixed_blocks: column(|sample| sample.memory.mixed_blocks),
            unusable_index_order9: samples.iter().map(index).collect(),
            zone_lock_acquisitions: column(|sample| sample.counters.zone_lock_acquisitions),
            zone_lock_work: column(|sample| sample.counters.zone_lock_work),
            group_lock_acquisitions: column(|sample| sample.counters.group_lock_acquisitions),
            fallbacks: column(|sample| sample.counters.fallbacks),
        }
    }
}

impl EngineOutcome {
    /// Sums up: `counters` and `end` as they were at the end of the trace, `lost_frames` after everything was given
    /// back, `findings` whatever was not as it must be.
    #[allow(clippy::too_many_arguments)] // a constructor of a record; each argument is one column's source
    pub(super) fn new(
        name: &str,
        counters: &Counters,
        end: &Memory,
        samples: Vec<Sample>,
        failed: u64,
        lost_frames: u64,
        ns_per_event: f64,
        findings: Vec<String>,
    ) -> Self {
        let index: Vec<f64> = samples.iter().map(|sample| sample.memory.unusable_index(Order::PAGEBLOCK)).collect();
        let of_lists = samples.iter().map(|sample| sample.memory.unusable_index_of_lists(Order::PAGEBLOCK));
        // Of nothing `sum` makes -0.0, which the JSON would say of a replay on threads.
        let lists = of_lists.fold(0.0, |sum, index| sum + index);
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self {
            engine: name.to_owned(),
            allocs: counters.allocs,
            frees: counters.frees,
            failed,
            zone_lock_acquisitions: counters.zone_lock_acquisitions,
            zone_lock_work: counters.zone_lock_work,
            zone_lock_work_mean: share(counters.zone_lock_work, counters.zone_lock_acquisitions),
            zone_lock_work_p99: counters.zone_lock_work_p99,
            zone_lock_work_max: counters.zone_lock_work_max,
            group_lock_acquisitions: counters.group_lock_acquisitions,
            merges_zone: counters.merges_zone,
            merges_pcp: counters.merges_pcp,
            splits_zone: counters.splits_zone,
            splits_pcp: counters.splits_pcp,
            pcp_hits: counters.pcp_hits,
            pcp_hit_rate: share(counters.pcp_hits, counters.allocs),
            refills: counters.refills,
            refills_by_phase: counters.refills_by_phase,
            refilled_frames: counters.refilled_frames,
            drains: counters.drains,
            drained_frames: counters.drained_frames,
            lists_looked_at: counters.lists_looked_at,
            remote_frees: counters.remote_frees,
            fallbacks: counters.fallbacks,
            managed_frames: end.managed_frames,
            free_frames_end: end.free_frames,
            pcp_frames_end: end.pcp_frames,
            mixed_blocks: end.mixed_blocks,
            free_blocks_end: end.free_blocks,
            largest_free_order_end: end.largest_free_order,
            unusable_index_mean: if index.is_empty() { 0.0 } else { index.iter().sum::<f64>() / index.len() as f64 },
            unusable_index_min: index.iter().copied().reduce(f64::min).unwrap_or(0.0),
            unusable_index_max: index.iter().copied().reduce(f64::max).unwrap_or(0.0),
            unusable_index_lists_mean: lists / samples.len().max(1) as f64,
            lost_frames,
            ns_per_event,
            whole: findings.is_empty(),
            errors: findings,
            timeline: Timeline::from(&samples[..]),
            samples,
            ..Self::default()
        }
    }
}
