//! The rows of a replay's table: what is counted, and whether more or less of it is better. The
//! table prints them, and the answer below it looks for wins and losses in them.

use super::number::decimal;
use super::number::thousands;
use crate::better::Better;
use crate::engine::CmaCounts;
use crate::replay::{EngineOutcome, Replay};

/// A figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Count(u64),
    Real(f64),
    Share(f64),
    /// An order, or none.
    Order(Option<u8>),
}

impl Value {
    pub(super) fn number(&self) -> Option<f64> {
        match *self {
            Self::Count(n) => Some(n as f64),
            Self::Real(x) | Self::Share(x) => Some(x),
            Self::Order(_) => None,
        }
    }

    pub(super) fn text(&self) -> String {
        match *self {
            Self::Count(n) => thousands(n),
            Self::Real(x) => decimal(x),
            Self::Share(x) => format!("{:.2}%", x * 100.0),
            Self::Order(Some(order)) => order.to_string(),
            Self::Order(None) => "none".to_owned(),
        }
    }
}

/// A row.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) better: Better,
    pub(super) value: fn(&Replay, &EngineOutcome) -> Value,
}

const fn metric(
    name: &'static str,
    better: Better,
    value: fn(&Replay, &EngineOutcome) -> Value,
) -> Metric {
    Metric { name, better, value }
}

/// The rows, in groups.
pub(super) const GROUPS: [(&str, &[Metric]); 5] = [
    (
        "replayed",
        &[
            metric("allocations", Better::Neither, |_, e| Value::Count(e.counters.allocs)),
            metric("frees", Better::Neither, |_, e| Value::Count(e.counters.frees)),
            metric("failures", Better::Less, |_, e| Value::Count(e.counters.failed)),
            metric("freed on another CPU, in the trace", Better::Neither, |r, _| {
                Value::Count(r.survey.facts.remote_frees)
            }),
        ],
    ),
    (
        "zone lock",
        &[
            metric("zone locks / 1,000 events", Better::Less, |_, e| {
                Value::Real(e.zone_locks_per_1000)
            }),
            metric("shared writes / 1,000 events", Better::Less, |_, e| {
                Value::Real(e.shared_writes_per_1000)
            }),
            metric("zone steps / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.zone_lock_work))
            }),
            metric("steps per hold, mean", Better::Less, |_, e| Value::Real(e.zone_lock_work_mean)),
            metric("steps per hold, p99", Better::Less, |_, e| {
                Value::Count(e.counters.zone_lock_work_p99)
            }),
            metric("steps per hold, max", Better::Less, |_, e| {
                Value::Count(e.counters.zone_lock_work_max)
            }),
            metric("merges under the zone lock", Better::Less, |_, e| {
                Value::Count(e.counters.merges_zone)
            }),
            metric("merges under a PCP lock", Better::Neither, |_, e| {
                Value::Count(e.counters.merges_pcp)
            }),
        ],
    ),
    (
        "per-CPU lists",
        &[
            metric("PCP locks / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.pcp_lock_acquisitions))
            }),
            metric("PCP steps / 1,000 events", Better::Less, |_, e| {
                Value::Real(rate(e, e.counters.pcp_lock_work))
            }),
            metric("PCP hit rate", Better::More, |_, e| Value::Share(e.pcp_hit_rate)),
            metric("refills", Better::Less, |_, e| Value::Count(e.counters.refills)),
            metric("drains", Better::Less, |_, e| Value::Count(e.counters.drains)),
            metric("frees outside the CPU's own lists", Better::Neither, |_, e| {
                Value::Count(e.counters.remote_frees)
            }),
        ],
    ),
    (
        "fragmentation",
        &[
            metric("fallbacks", Better::Less, |_, e| Value::Count(e.counters.fallbacks)),
            metric("mixed blocks at the end", Better::Less, |_, e| Value::Count(e.mixed_blocks)),
            metric("wholly free blocks at the end", Better::More, |_, e| {
                Value::Count(e.free_blocks_end)
            }),
            metric("largest free order at the end", Better::Neither, |_, e| {
                Value::Order(e.largest_free_order_end)
            }),
            metric("unusable index, order 9, min", Better::Less, |_, e| {
                Value::Real(e.unusable_index_min)
            }),
            metric("unusable index, order 9, mean", Better::Less, |_, e| {
                Value::Real(e.unusable_index_mean)
            }),
            metric("lost frames", Better::Less, |_, e| Value::Count(e.lost_frames)),
        ],
    ),
    ("cost", &[metric(NS_PER_EVENT, Better::Less, |_, e| Value::Real(e.ns_per_event))]),
];

/// The group of machines with CMA. Free frames are frames, whoever holds them.
pub(super) const CMA: (&str, &[Metric]) = (
    "CMA",
    &[
        metric("movable requests served by it", Better::Neither, |_, e| {
            Value::Share(cma(e).share())
        }),
        metric("free frames, lowest", Better::Neither, |_, e| Value::Count(cma(e).free_lowest)),
        metric("free frames at the end", Better::Neither, |_, e| Value::Count(cma(e).free_end)),
        metric("failures while it was free", Better::Less, |_, e| {
            Value::Count(cma(e).failed_while_free)
        }),
        metric("of these, movable requests", Better::Less, |_, e| {
            Value::Count(cma(e).failed_movable)
        }),
    ],
);

pub fn cma(engine: &EngineOutcome) -> CmaCounts {
    engine.cma.unwrap_or_default()
}

/// The row that differs from run to run.
pub(super) const NS_PER_EVENT: &str = "ns per event (noisy)";

/// A total for each 1,000 events.
pub fn rate(engine: &EngineOutcome, total: u64) -> f64 {
    engine.counters.per_1000_events(total)
}
