//! Figures as they come in, by metric and engine, and the rows made of them.

use std::collections::HashMap;

use crate::bench::catalogue::Kind;
use crate::bench::result::{Report, Row, Spread};

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
                let baseline = first.as_ref().map(|(name, base)| (*name, base));
                report.rows.extend(Row::new(self.kind, metric, engine, &spread, baseline));
                first.get_or_insert((engine, spread));
            }
        }
        debug_assert!(self.spreads.is_empty(), "figures that the catalogue does not know");
        report.unavailable.append(&mut self.unavailable);
    }
}
