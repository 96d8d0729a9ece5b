//! The rows of a replay's table: what is counted, and whether more or less of it is better. The
//! table prints them, and the answer below it looks for wins and losses in them.

use super::number::decimal;
use super::number::thousands;
use crate::engine::CmaCounts;
use crate::replay::{EngineOutcome, Replay};
use crate::tables::better::Better::{self, Less, More, Neither};

use Of::{Count, Order, Real, Share, Trace};

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

/// How a row's figure is found.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Count(fn(&EngineOutcome) -> u64),
    Real(fn(&EngineOutcome) -> f64),
    Share(fn(&EngineOutcome) -> f64),
    Order(fn(&EngineOutcome) -> Option<u8>),
    /// A count of the trace, the same for all engines.
    Trace(fn(&Replay) -> u64),
}

/// A row.
#[derive(Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) better: Better,
    of: Of,
}

impl Metric {
    pub(super) fn value(&self, replay: &Replay, engine: &EngineOutcome) -> Value {
        match self.of {
            Count(of) => Value::Count(of(engine)),
            Real(of) => Value::Real(of(engine)),
            Share(of) => Value::Share(of(engine)),
            Order(of) => Value::Order(of(engine)),
            Trace(of) => Value::Count(of(replay)),
        }
    }
}

const fn row(name: &'static str, better: Better, of: Of) -> Metric {
    Metric { name, better, of }
}

/// The rows, in groups.
pub(super) const GROUPS: [(&str, &[Metric]); 5] = [
    (
        "replayed",
        &[
            row("allocations", Neither, Count(|e| e.counters.allocs)),
            row("frees", Neither, Count(|e| e.counters.frees)),
            row("failures", Less, Count(|e| e.counters.failed)),
            row(
                "freed on another CPU, in the trace",
                Neither,
                Trace(|r| r.survey.facts.remote_frees),
            ),
        ],
    ),
    (
        "zone lock",
        &[
            row("zone locks / 1,000 events", Less, Real(|e| e.zone_locks_per_1000)),
            row("shared writes / 1,000 events", Less, Real(|e| e.shared_writes_per_1000)),
            row("zone steps / 1,000 events", Less, Real(|e| rate(e, e.counters.zone_lock_work))),
            row("steps per hold, mean", Less, Real(|e| e.zone_lock_work_mean)),
            row("steps per hold, p99", Less, Count(|e| e.counters.zone_lock_work_p99)),
            row("steps per hold, max", Less, Count(|e| e.counters.zone_lock_work_max)),
            row("merges under the zone lock", Less, Count(|e| e.counters.merges_zone)),
            row("merges under a PCP lock", Neither, Count(|e| e.counters.merges_pcp)),
        ],
    ),
    (
        "per-CPU lists",
        &[
            row(
                "PCP locks / 1,000 events",
                Less,
                Real(|e| rate(e, e.counters.pcp_lock_acquisitions)),
            ),
            row("PCP steps / 1,000 events", Less, Real(|e| rate(e, e.counters.pcp_lock_work))),
            row("PCP hit rate", More, Share(|e| e.pcp_hit_rate)),
            row("refills", Less, Count(|e| e.counters.refills)),
            row("drains", Less, Count(|e| e.counters.drains)),
            row("frees outside the CPU's own lists", Neither, Count(|e| e.counters.remote_frees)),
        ],
    ),
    (
        "fragmentation",
        &[
            row("fallbacks", Less, Count(|e| e.counters.fallbacks)),
            row("mixed blocks at the end", Less, Count(|e| e.mixed_blocks)),
            row("wholly free blocks at the end", More, Count(|e| e.free_blocks_end)),
            row("largest free order at the end", Neither, Order(|e| e.largest_free_order_end)),
            row("unusable index, order 9, min", Less, Real(|e| e.unusable_index_min)),
            row("unusable index, order 9, mean", Less, Real(|e| e.unusable_index_mean)),
            row("lost frames", Less, Count(|e| e.lost_frames)),
        ],
    ),
    ("cost", &[row(NS_PER_EVENT, Less, Real(|e| e.ns_per_event))]),
];

/// The group of machines with CMA. Free frames are counted in the zone and in CPUs.
pub(super) const CMA: (&str, &[Metric]) = (
    "CMA",
    &[
        row("movable requests served by it", Neither, Share(|e| cma(e).share())),
        row("free frames, lowest", Neither, Count(|e| cma(e).free_lowest)),
        row("free frames at the end", Neither, Count(|e| cma(e).free_end)),
        row("failures while it was free", Less, Count(|e| cma(e).failed_while_free)),
        row("of these, movable requests", Less, Count(|e| cma(e).failed_movable)),
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
