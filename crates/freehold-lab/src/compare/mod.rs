//! Two results beside each other: what `freehold compare` prints.
//!
//! ```text
//!  JSON of two runs ──> figures  every figure, by what it was measured on: command, place, engine,
//!                                metric, seed
//!                       verdict  pairs of the same, the mean of their seeds, and what their
//!                                difference means
//!                       output   table and JSON
//! ```
//!
//! Only the same is compared with the same: a trace on a machine, a simulated machine. What only
//! one of the results has is named and left out. All of it was counted, so that any difference is
//! one. Times of two runs of benchmarks are not compared: engines are measured side by side in one
//! run.

mod command;
mod figures;
pub mod output;
mod verdict;

use serde::Serialize;

use crate::cli::error::CliError;
use crate::results::{Kind, Source};

pub(crate) use command::{CompareArgs, run};
use figures::Found;
pub use figures::Place;
pub use verdict::{Compared, Verdict};

/// Two results, figure by figure. The names of the fields are those of `--json` and stay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub before: String,
    pub after: String,
    /// By how many per cent a figure may differ and still count as the same.
    pub tolerance_percent: f64,
    /// What both have, in the order of the newer result.
    pub figures: Vec<Compared>,
    pub only_before: Vec<Place>,
    pub only_after: Vec<Place>,
}

/// Why two results cannot be compared, and what to do about it.
fn incomparable<T>(message: String, hint: &str) -> Result<T, CliError> {
    Err(CliError::new(message).hint(hint))
}

/// Compares two results, each the documents of one file or of several.
pub fn compare(
    (before, older): (&str, &[Source]),
    (after, newer): (&str, &[Source]),
    tolerance_percent: f64,
) -> Result<Comparison, CliError> {
    let (older, newer) = (Found::of(before, older)?, Found::of(after, newer)?);
    if !older.kinds.iter().any(|kind| newer.kinds.contains(kind)) {
        let (a, b) = (names(&older.kinds), names(&newer.kinds));
        return incomparable(
            format!("{before} is a result of {a}, {after} of {b}"),
            "only results of one command can be compared with each other",
        );
    }
    if let (Some(a), Some(b)) = (&older.model, &newer.model)
        && a != b
    {
        return incomparable(
            format!("{before} and {after} were simulated with different constants"),
            "simulate both with one program",
        );
    }
    let (figures, only_before, only_after) =
        verdict::pair(&older.figures, &newer.figures, tolerance_percent);
    if figures.is_empty() {
        let (a, b) = (&older.figures[0].place, &newer.figures[0].place);
        return incomparable(
            format!(
                "{before} and {after} have no figure in common: the first has {a}, the second {b}"
            ),
            "run the same command with the same arguments twice, once before a change and once \
             after it",
        );
    }
    let (before, after) = (before.to_owned(), after.to_owned());
    Ok(Comparison { before, after, tolerance_percent, figures, only_before, only_after })
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.command()).collect::<Vec<_>>().join(" and ")
}

impl Comparison {
    /// How many figures have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.figures.iter().filter(|figure| figure.verdict == verdict).count()
    }
}
