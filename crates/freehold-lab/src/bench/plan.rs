//! What is to be measured.

use super::budget::Budget;
use super::engines::BenchEngine;
use super::kind::Kind;
use super::scale::Scale;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub benchmarks: Vec<Kind>,
    pub engines: Vec<BenchEngine>,
    /// Runs of each, or the most of them where there is a budget.
    pub runs: usize,
    pub budget: Option<Budget>,
    pub scale: Scale,
}

impl Plan {
    /// Whether an engine of that name, without options, is to be measured.
    pub(super) fn has(&self, engine: &str) -> bool {
        self.engines.iter().any(|known| known.name() == engine)
    }
}
