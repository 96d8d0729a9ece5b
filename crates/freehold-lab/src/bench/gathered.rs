//! Figures of all runs of one benchmark as they come in, by metric and engine, and the rows made of them.

use std::collections::{HashMap, HashSet};

use hdrhistogram::Histogram;

use super::figures::Figures;
use super::kind::Kind;
use super::result::{Report, Row, Spread};

/// Of one benchmark.
pub(super) struct Gathered {
    kind: Kind,
    /// The first is the one that others are compared with.
    engines: Vec<String>,
    spreads: HashMap<(&'static str, usize), Spread>,
    /// Every sample of a metric that is a percentile of many.
    samples: HashMap<(&'static str, usize), Histogram<u64>>,
    /// What was counted on one thread.
    exact: HashSet<(&'static str, usize)>,
    unavailable: Vec<String>,
}

impl Gathered {
    /// Of engines that are known already; others join when their first figure comes.
    pub(super) fn new(kind: Kind, engines: Vec<String>) -> Self {
        Self {
            kind,
            engines,
            spreads: HashMap::new(),
            samples: HashMap::new(),
            exact: HashSet::new(),
            unavailable: Vec::new(),
        }
    }

    fn place(&mut self, engine: &str) -> usize {
        self.engines.iter().position(|known| known == engine).unwrap_or_else(|| {
            self.engines.push(engine.to_owned());
            self.engines.len() - 1
        })
    }

    /// What was counted on one thread, on an engine just built.
    pub(super) fn add_counted(&mut self, engine: &str, figures: Figures) {
        let at = self.place(engine);
        let names: Vec<_> = figures.values.iter().map(|&(name, _)| (name, at)).collect();
        self.add_run(engine, figures);
        self.exact.extend(names);
    }

    /// One run's figure.
    pub(super) fn add(&mut self, engine: &str, metric: &'static str, figure: f64) {
        let at = self.place(engine);
        // Runs that say it as well may each say something else.
        self.exact.remove(&(metric, at));
        self.spreads.entry((metric, at)).or_default().add(figure);
    }

    pub(super) fn add_run(&mut self, engine: &str, figures: Figures) {
        for metric in self.kind.about().metrics {
            figures.get(metric.name).into_iter().for_each(|figure| self.add(engine, metric.name, figure));
        }
        if let Some((metric, latencies)) = figures.latencies {
            let at = self.place(engine);
            match self.samples.get_mut(&(metric, at)) {
                // The same bounds in every run.
                Some(all) => all.add(latencies).unwrap_or_default(),
                None => drop(self.samples.insert((metric, at), latencies)),
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
            let base = self.spreads.get(&(metric.name, 0)).cloned();
            for (at, engine) in self.engines.iter().enumerate() {
                let Some(spread) = self.spreads.remove(&(metric.name, at)) else { continue };
                let baseline = base.as_ref().filter(|_| at > 0).map(|base| (self.engines[0].as_str(), base));
                let Some(mut row) = Row::new(self.kind, metric, engine, &spread, baseline) else { continue };
                row.exact = self.exact.contains(&(metric.name, at));
                row.histogram = self.samples.get(&(metric.name, at)).map(samples);
                report.rows.push(row);
            }
        }
        debug_assert!(self.spreads.is_empty(), "figures that the catalogue does not know");
        report.unavailable.append(&mut self.unavailable);
    }
}

/// Values and counts, rising; what is above the last bound counts as that.
fn samples(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    latencies.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
}
