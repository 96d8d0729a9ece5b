//! Figures of all runs of one benchmark as they come in, by metric and engine, and the rows made of
//! them.

use std::collections::HashMap;

use hdrhistogram::Histogram;

use super::figures::Figures;
use super::kind::Kind;
use super::result::{Report, Row, Spread};
use super::sampler::Samples;

/// Of one benchmark.
pub(super) struct Gathered {
    kind: Kind,
    /// The first is the one that others are compared with. Those not known yet join when their
    /// first figure comes.
    pub(super) engines: Vec<String>,
    found: HashMap<(&'static str, usize), Found>,
    unavailable: Vec<String>,
}

/// Of one metric and engine.
#[derive(Default)]
struct Found {
    spread: Spread,
    /// Every sample of a metric that is a percentile of many.
    samples: Option<Histogram<u64>>,
    /// How many samples there were of a metric that is sampled, in all runs.
    sampled: Samples,
    /// Counted on one thread, once: runs would say the same.
    exact: bool,
}

impl Gathered {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, engines: Vec::new(), found: HashMap::new(), unavailable: Vec::new() }
    }

    fn of(&mut self, engine: &str, metric: &'static str) -> &mut Found {
        if !self.engines.iter().any(|known| known == engine) {
            self.engines.push(engine.to_owned());
        }
        let at = self.engines.iter().position(|known| known == engine).unwrap_or_default();
        self.found.entry((metric, at)).or_default()
    }

    /// What was counted on one thread, on an engine just built.
    pub(super) fn add_counted(&mut self, engine: &str, figures: &Figures) {
        for &(metric, figure) in &figures.values {
            self.add(engine, metric, figure);
            self.of(engine, metric).exact = true;
        }
    }

    /// One run's figure.
    pub(super) fn add(&mut self, engine: &str, metric: &'static str, figure: f64) {
        let found = self.of(engine, metric);
        if !found.exact {
            found.spread.add(figure);
        }
    }

    pub(super) fn add_run(&mut self, engine: &str, figures: Figures) {
        figures.values.iter().for_each(|&(metric, figure)| self.add(engine, metric, figure));
        for (metric, samples) in figures.samples {
            self.of(engine, metric).sampled.add(samples);
        }
        if let Some((metric, latencies)) = figures.latencies {
            match &mut self.of(engine, metric).samples {
                // Histograms of all runs have the same bounds: nothing falls out.
                Some(all) => all.add(latencies).unwrap_or_default(),
                none => *none = Some(latencies),
            }
        }
    }

    /// What cannot be measured here, and why. Said once, however often it is found.
    pub(super) fn unavailable(&mut self, what: String) {
        let what = format!("{}: {what}", self.kind);
        if !self.unavailable.contains(&what) {
            self.unavailable.push(what);
        }
    }

    /// By metric, then engine.
    pub(super) fn report(mut self, report: &mut Report) {
        for metric in self.kind.about().metrics {
            let mut base = None;
            for (at, engine) in self.engines.iter().enumerate() {
                let Some(found) = self.found.remove(&(metric.name, at)) else { continue };
                let baseline = base.as_ref().map(|base| (self.engines[0].as_str(), base));
                let Some(mut row) = Row::new(self.kind, metric, engine, &found.spread, baseline)
                else {
                    continue;
                };
                row.exact = found.exact;
                row.samples_shared = found.sampled.shared_share();
                row.histogram = found.samples.as_ref().map(samples);
                report.rows.push(row);
                if at == 0 {
                    base = Some(found.spread);
                }
            }
        }
        debug_assert!(self.found.is_empty(), "figures that the catalogue does not know");
        report.unavailable.append(&mut self.unavailable);
    }
}

/// Values and counts, rising; what is above the last bound counts as that.
fn samples(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    latencies
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}
