//! The rows of a replay's table: what is counted, and whether more or less of it is better. The
//! table prints them, and the answer below it looks for wins and losses in them.

use super::number::decimal;
use super::number::thousands;
use crate::engine::CmaCounts;
use crate::replay::{EngineOutcome, Replay};
use crate::tables::better::Better::{self, Less, More, Neither};

use Value::{Count, Order, Real, Share};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Count(u64),
    Real(f64),
    Share(f64),
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

#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) better: Better,
    pub(super) value: Of,
}

/// How a row's figure is found.
type Of = fn(&Replay, &EngineOutcome) -> Value;

const fn row(name: &'static str, better: Better, of: Of) -> Metric {
    Metric { name, better, value: of }
}

pub(super) const GROUPS: [(&str, &[Metric]); 5] = [
    (
        "replayed",
        &[
            row("allocations", Neither, |_, e| Count(e.counters.allocs)),
            row("frees", Neither, |_, e| Count(e.counters.frees)),
            row("failures", Less, |_, e| Count(e.counters.failed)),
            row("freed on another CPU, in the trace", Neither, |r, _| {
                Count(r.survey.facts.remote_frees)
            }),
        ],
    ),
    (
        "zone lock",
        &[
            row("zone locks / 1,000 events", Less, |_, e| Real(e.zone_locks_per_1000)),
            row("shared writes / 1,000 events", Less, |_, e| Real(e.shared_writes_per_1000)),
            row("zone steps / 1,000 events", Less, |_, e| Real(rate(e, e.counters.zone_lock_work))),
            row("steps per hold, mean", Less, |_, e| Real(e.zone_lock_work_mean)),
            row("steps per hold, p99", Less, |_, e| Count(e.counters.zone_lock_work_p99)),
            row("steps per hold, max", Less, |_, e| Count(e.counters.zone_lock_work_max)),
            row("merges under the zone lock", Less, |_, e| Count(e.counters.merges_zone)),
            row("merges under a PCP lock", Neither, |_, e| Count(e.counters.merges_pcp)),
        ],
    ),
    (
        "per-CPU lists",
        &[
            row("PCP locks / 1,000 events", Less, |_, e| {
                Real(rate(e, e.counters.pcp_lock_acquisitions))
            }),
            row("PCP steps / 1,000 events", Less, |_, e| Real(rate(e, e.counters.pcp_lock_work))),
            row("PCP hit rate", More, |_, e| Share(e.pcp_hit_rate)),
            row("refills", Less, |_, e| Count(e.counters.refills)),
            row("drains", Less, |_, e| Count(e.counters.drains)),
            row("frees outside the CPU's own lists", Neither, |_, e| {
                Count(e.counters.remote_frees)
            }),
        ],
    ),
    (
        "fragmentation",
        &[
            row("fallbacks", Less, |_, e| Count(e.counters.fallbacks)),
            row("mixed blocks at the end", Less, |_, e| Count(e.mixed_blocks)),
            row("wholly free blocks at the end", More, |_, e| Count(e.free_blocks_end)),
            row("largest free order at the end", Neither, |_, e| Order(e.largest_free_order_end)),
            row("unusable index, order 9, min", Less, |_, e| Real(e.unusable_index_min)),
            row("unusable index, order 9, mean", Less, |_, e| Real(e.unusable_index_mean)),
            row("lost frames", Less, |_, e| Count(e.lost_frames)),
        ],
    ),
    ("cost", &[row(NS_PER_EVENT, Less, |_, e| Real(e.ns_per_event))]),
];

/// The group of machines with CMA. Free frames are counted in the zone and in CPUs.
pub(super) const CMA: (&str, &[Metric]) = (
    "CMA",
    &[
        row("movable requests served by it", Neither, |_, e| Share(cma(e).share())),
        row("free frames, lowest", Neither, |_, e| Count(cma(e).free_lowest)),
        row("free frames at the end", Neither, |_, e| Count(cma(e).free_end)),
        row("failures while it was free", Less, |_, e| Count(cma(e).failed_while_free)),
        row("of these, movable requests", Less, |_, e| Count(cma(e).failed_movable)),
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
