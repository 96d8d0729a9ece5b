//! What one run of a benchmark found: figures by the metric's name.

use hdrhistogram::Histogram;

use super::calls::Machine;
use super::metric::{SHARED_WRITES, ZONE_LOCKS, ZONE_WORK};
use crate::engine::Count;

/// The figures of a run. A metric without one gets no row.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// By the metric's name.
    pub values: Vec<(&'static str, f64)>,
    /// What could not be measured here, and why.
    pub unavailable: Vec<String>,
}

impl Figures {
    #[must_use]
    pub fn with(mut self, metric: &'static str, value: f64) -> Self {
        self.add(metric, value);
        self
    }

    pub fn add(&mut self, metric: &'static str, value: f64) {
        self.values.push((metric, value));
    }

    /// With what a meter has read.
    #[must_use]
    pub fn with_zone_lock(mut self, meter: &Meter) -> Self {
        let known = meter.sum.filter(|_| meter.frames > 0);
        let names = [ZONE_LOCKS, ZONE_WORK, SHARED_WRITES];
        let each =
            known.into_iter().flatten().map(|count| count as f64 * 1000.0 / meter.frames as f64);
        self.values.extend(names.into_iter().zip(each));
        self
    }

    pub fn get(&self, metric: &str) -> Option<f64> {
        self.values.iter().find(|(name, _)| *name == metric).map(|(_, value)| *value)
    }
}

/// Up to 10 s, three digits: every latency that can be looked at.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that suit each other")
}

/// Reads an engine's counters of shared locks around the parts of a workload, so that what lies
/// between them (preparations, drains) is not counted.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    sum: Option<[u64; 3]>,
    frames: u64,
}

impl Meter {
    /// Does `work` on a machine that nobody else uses, in which `frames` frames are allocated or
    /// freed (whichever happens in it; both is once).
    pub fn part<M: Machine, T, E>(
        &mut self,
        machine: &M,
        frames: u64,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = machine.shared_locks();
        let done = work()?;
        if let (Some(before), Some(after)) = (before, machine.shared_locks()) {
            self.sum.get_or_insert_default().add(&after.since(&before));
            self.frames += frames;
        }
        Ok(done)
    }
}
