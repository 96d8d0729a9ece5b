//! What is said of a benchmark: what it is, and the figures that it gives, whose names say what
//! is timed or counted.

use serde::Serialize;

use crate::tables::better::Better;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct About {
    pub what: &'static str,
    pub threads: u16,
    /// With how few it still runs where there are not so many CPUs.
    pub fewest_threads: u16,
    pub metrics: &'static [Metric],
}

impl About {
    /// What runs on one thread says nothing of threads.
    pub(super) const ONE_THREAD: Self =
        Self { what: "", threads: 1, fewest_threads: 1, metrics: &[] };
}

/// One figure of a benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Metric {
    pub name: &'static str,
    pub unit: &'static str,
}

impl Metric {
    /// What more of it means: that an engine is better, worse, or neither.
    pub fn better(&self) -> Better {
        match self.unit {
            "times" | "uses" => Better::More,
            _ => Better::Less,
        }
    }
}

pub(super) const fn ns(name: &'static str) -> Metric {
    Metric { name, unit: "ns" }
}

pub(super) const fn metric(name: &'static str, unit: &'static str) -> Metric {
    Metric { name, unit }
}
