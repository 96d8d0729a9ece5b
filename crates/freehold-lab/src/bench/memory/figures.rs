//! Figures as they come in, by metric and engine, and the rows made of them.

use std::collections::HashMap;

use crate::bench::catalogue::Kind;
use crate::bench::result::{Comparison, Report, Row, Spread};

/// Of one benchmark.
pub(super) struct Figures {
    kind: Kind,
    /// In the order in which they came.
    engines: Vec<String>,
    spreads: HashMap<(&'static str, usize), Spread>,
    unavailable: Vec<String>,
}

impl Figures {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, engines: Vec::new(), spreads: HashMap::new(), unavailable: Vec::new() }
    }

    /// One run's figure.
    pub(super) fn add(&mut self, engine: &str, metric: &'static str, figure: f64) {
        let at = self.engines.iter().position(|known| known == engine).unwrap_or_else(|| {
            self.engines.push(engine.to_owned());
            self.engines.len() - 1
        });
        self.spreads.entry((metric, at)).or_default().add(figure);
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
            // Beside the first engine that has this figure.
            let mut first: Option<(&str, Spread)> = None;
            for (at, engine) in self.engines.iter().enumerate() {
                let Some(spread) = self.spreads.remove(&(metric.name, at)) else { continue };
                let (Some(median), Some(min), Some(max)) = (spread.median(), spread.min(), spread.max()) else {
                    continue;
                };
                report.rows.push(Row {
                    benchmark: self.kind.name(),
                    engine: engine.clone(),
                    metric: metric.name,
                    unit: metric.unit,
                    median,
                    min,
                    max,
                    runs: spread.runs(),
                    better: metric.better(),
                    comparison: first.as_ref().and_then(|(name, base)| Comparison::of(&spread, name, base)),
                    histogram: None,
                });
                first.get_or_insert((engine, spread));
            }
        }
        debug_assert!(self.spreads.is_empty(), "figures that the catalogue does not know");
        report.unavailable.append(&mut self.unavailable);
    }
}
