//! What is to be measured, and why there may be no figures.

use super::budget::Budget;
use super::engines::BenchEngine;
use super::kind::Kind;
use super::scale::Scale;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Benchmarks, in this order.
    pub benchmarks: Vec<Kind>,
    /// Engines, in this order.
    pub engines: Vec<BenchEngine>,
    /// Runs of each, or the most of them where there is a budget.
    pub runs: usize,
    pub budget: Option<Budget>,
    pub scale: Scale,
}

/// Why there are no figures.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    #[error("engine '{engine}' cannot be built: {reason}")]
    Unbuildable { engine: String, reason: String },
    /// An engine refused what it must do, did what it must not, or is not whole afterwards.
    #[error("{benchmark}: engine '{engine}': {reason}")]
    Engine { benchmark: Kind, engine: String, reason: String },
    /// There is no memory for a benchmark that writes some.
    #[error(
        "{benchmark} needs {} MiB of memory: {reason}; name the benchmarks that are to run without it",
        .frames >> 8
    )]
    NoMemory { benchmark: Kind, frames: u64, reason: String },
}

impl BenchError {
    pub(super) fn engine(benchmark: Kind, engine: &str, reason: impl ToString) -> Self {
        Self::Engine { benchmark, engine: engine.to_owned(), reason: reason.to_string() }
    }
}
