//! What one run of a benchmark found: figures by the metric's name.

use hdrhistogram::Histogram;

/// The figures of a run, by the metric's name. A metric without one gets no row.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub values: Vec<(&'static str, f64)>,
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

    pub fn get(&self, metric: &str) -> Option<f64> {
        self.values.iter().find(|(name, _)| *name == metric).map(|(_, value)| *value)
    }
}

/// Up to 10 s, three digits: every latency that can be looked at.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("bounds that suit each other")
}
