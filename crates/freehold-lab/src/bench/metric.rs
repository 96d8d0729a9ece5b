//! What is said of a benchmark: what it is, and each figure that it gives.

use serde::Serialize;

use crate::tables::better::Better;

/// What a benchmark is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct About {
    pub what: &'static str,
    /// Where it comes from and who publishes figures of it.
    pub source: &'static str,
    pub threads: u16,
    /// With how few it still runs where there are not so many CPUs.
    pub fewest_threads: u16,
    pub metrics: &'static [Metric],
}

impl About {
    /// What runs on one thread says nothing of threads.
    pub(super) const ONE_THREAD: Self =
        Self { what: "", source: "", threads: 1, fewest_threads: 1, metrics: &[] };
}

/// One figure of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
    /// What exactly is timed.
    pub what: &'static str,
}

impl Metric {
    /// What more of it means: that an engine is better, worse, or neither.
    pub fn better(&self) -> Better {
        match self.unit {
            "times" | "uses" => Better::More,
            _ => Better::Less,
        }
    }

    /// Its name in tables, which have less room.
    pub fn label(&self) -> &'static str {
        match self.name {
            ZONE_LOCKS => "zone locks / 1,000 frames",
            ZONE_WORK => "zone steps / 1,000 frames",
            SHARED_WRITES => "shared writes / 1,000 frames",
            name => name,
        }
    }
}

pub(super) const fn ns(name: &'static str, what: &'static str) -> Metric {
    Metric { name, unit: "ns", what }
}

pub(super) const fn metric(name: &'static str, unit: &'static str, what: &'static str) -> Metric {
    Metric { name, unit, what }
}

pub const ZONE_LOCKS: &str = "zone_lock_acquisitions_per_1000_frames";
pub const ZONE_WORK: &str = "zone_lock_work_per_1000_frames";

pub const SHARED_WRITES: &str = "shared_writes_per_1000_frames";

pub(super) const OF_LOCKS: [Metric; 3] = [
    metric(
        ZONE_LOCKS,
        "acquisitions",
        "zone-lock acquisitions for each 1,000 frames; engines that count them",
    ),
    metric(
        ZONE_WORK,
        "steps",
        "steps of work under zone locks for each 1,000 frames; engines that count them",
    ),
    metric(
        SHARED_WRITES,
        "writes",
        "writes to cache lines that all CPUs share, for each 1,000 frames; engines that count them",
    ),
];

/// Metrics, and those of locks behind them.
macro_rules! with_locks {
    [$($metric:expr),* $(,)?] => {
        &[
            $($metric,)*
            $crate::bench::metric::OF_LOCKS[0],
            $crate::bench::metric::OF_LOCKS[1],
            $crate::bench::metric::OF_LOCKS[2],
        ]
    };
}
pub(super) use with_locks;
