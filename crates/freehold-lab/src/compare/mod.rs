//! Two results beside each other: what `freehold compare` prints, and what a report takes a baseline for.
//!
//! ```text
//!  JSON of two runs ──> figures  every figure, by what it was measured on: command, place, engine, metric, seed
//!                       verdict  pairs of the same, the mean of their seeds, and what their difference means
//!                       output   table and JSON
//! ```
//!
//! Only the same is compared with the same: a trace on a machine, a benchmark, a simulated machine. What only one of
//! the results has is named and left out. Counts are exact, so that any difference of theirs is one; of benchmarks that
//! were run several times a difference counts where it is significant ([`crate::bench::significance`]).

mod figures;
pub mod output;
mod verdict;

use serde::Serialize;

use crate::html::{Kind, Source, UnknownDocument};

pub use crate::better::Better;
pub use figures::{Place, Spread};
pub use verdict::{Compared, Verdict};

/// Two results, figure by figure. The names of the fields are those of `--json` and stay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// What the older result is called.
    pub before: String,
    /// What the newer result is called.
    pub after: String,
    /// By how many per cent a figure may differ and still count as the same.
    pub tolerance_percent: f64,
    /// What both have, in the order of the newer result.
    pub figures: Vec<Compared>,
    /// What only the older has.
    pub only_before: Vec<Place>,
    /// What only the newer has.
    pub only_after: Vec<Place>,
    /// What a reader should know before the figures.
    pub notes: Vec<String>,
}

/// Which figures are wanted; an empty list stands for all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Engines.
    pub engines: Vec<String>,
    /// Metrics.
    pub metrics: Vec<String>,
}

/// Why two results cannot be compared.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A document that no command writes.
    #[error("{name}: {problem}")]
    Unknown {
        /// The document.
        name: String,
        /// What is wrong with it.
        problem: UnknownDocument,
    },
    /// Results of different commands.
    #[error("{before} is a result of {before_kinds}, {after} of {after_kinds}")]
    DifferentKinds {
        /// The older one.
        before: String,
        /// Its commands.
        before_kinds: String,
        /// The newer one.
        after: String,
        /// Its commands.
        after_kinds: String,
    },
    /// One figure twice in one result.
    #[error("{name} has {metric} of {engine} twice: {place}")]
    Twice {
        /// The document.
        name: String,
        /// The metric.
        metric: String,
        /// The engine.
        engine: String,
        /// Where.
        place: String,
    },
    /// A result without a figure.
    #[error("there is no figure in {name}")]
    Empty {
        /// The document.
        name: String,
    },
    /// Nothing that both have.
    #[error("{before} and {after} have nothing in common: the one has {first_before}, the other {first_after}")]
    NothingInCommon {
        /// The older one.
        before: String,
        /// The newer one.
        after: String,
        /// Something that the older one has.
        first_before: String,
        /// Something that the newer one has.
        first_after: String,
    },
    /// Simulated by other constants.
    #[error("{before} and {after} were simulated by different constants")]
    DifferentModels {
        /// The older one.
        before: String,
        /// The newer one.
        after: String,
    },
    /// A name that is asked for and in neither.
    #[error("no figure of the {what} '{name}' is in both results")]
    NoSuch {
        /// `engine` or `metric`.
        what: &'static str,
        /// The name.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
}

/// Compares two results, each the documents of one file or of several.
///
/// # Errors
///
/// [`CompareError`].
pub fn compare(
    (before_name, before): (&str, &[Source]),
    (after_name, after): (&str, &[Source]),
    wanted: &Wanted,
    tolerance_percent: f64,
) -> Result<Comparison, CompareError> {
    let older = figures::Found::of(before_name, before)?;
    let newer = figures::Found::of(after_name, after)?;
    let (before, after) = (before_name.to_owned(), after_name.to_owned());
    if !older.kinds.iter().any(|kind| newer.kinds.contains(kind)) {
        let (before_kinds, after_kinds) = (names(&older.kinds), names(&newer.kinds));
        return Err(CompareError::DifferentKinds { before, before_kinds, after, after_kinds });
    }
    for (name, found) in [(&before, &older), (&after, &newer)] {
        if found.figures.is_empty() {
            return Err(CompareError::Empty { name: name.clone() });
        }
    }
    if let (Some(a), Some(b)) = (&older.model, &newer.model)
        && a != b
    {
        return Err(CompareError::DifferentModels { before, after });
    }
    let mut notes = Vec::new();
    notes.extend(machines_differ(older.rmw_ns, newer.rmw_ns));
    let (figures, only_before, only_after) = verdict::pair(&older.figures, &newer.figures, tolerance_percent);
    if figures.is_empty() {
        let first =
            |found: &figures::Found| found.figures.first().map_or_else(String::new, |one| one.place.to_string());
        let (first_before, first_after) = (first(&older), first(&newer));
        return Err(CompareError::NothingInCommon { before, after, first_before, first_after });
    }
    let figures = filter(figures, wanted)?;
    Ok(Comparison { before, after, tolerance_percent, figures, only_before, only_after, notes })
}

/// A difference of an atomic operation's time by more than this factor makes two machines of two runs.
const OTHER_MACHINE: f64 = 1.2;

fn machines_differ(before: Option<f64>, after: Option<f64>) -> Option<String> {
    let (a, b) = before.zip(after)?;
    let factor = if a > b { a / b } else { b / a };
    (factor > OTHER_MACHINE).then(|| {
        format!(
            "an uncontended atomic operation took {a:.1} ns and {b:.1} ns: these were two machines, or one that was busy; \
             times say little of the engines"
        )
    })
}

fn filter(mut figures: Vec<Compared>, wanted: &Wanted) -> Result<Vec<Compared>, CompareError> {
    type Name = fn(&Compared) -> &str;
    let parts: [(&'static str, &[String], Name); 2] = [
        ("engine", &wanted.engines, |figure| &figure.place.engine),
        ("metric", &wanted.metrics, |figure| &figure.place.metric),
    ];
    for (what, names, of) in parts {
        for name in names {
            if !figures.iter().any(|figure| of(figure) == name) {
                let mut known: Vec<String> = figures.iter().map(|figure| of(figure).to_owned()).collect();
                known.sort_unstable();
                known.dedup();
                return Err(CompareError::NoSuch { what, name: name.clone(), known });
            }
        }
        figures.retain(|figure| names.is_empty() || names.iter().any(|name| name == of(figure)));
    }
    Ok(figures)
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.command()).collect::<Vec<_>>().join(" and ")
}

impl Comparison {
    /// How many figures have this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.figures.iter().filter(|figure| figure.verdict == verdict).count()
    }
}
