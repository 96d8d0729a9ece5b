//! Figures of several runs, and what `--json` prints of them.

use serde::{Serialize, Serializer};

use super::kind::Kind;
use super::metric::Metric;
use crate::one_line::one_line;
use crate::tables::better::Better;

/// Figures of the runs so far, of one thing, rising.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    pub fn add(&mut self, figure: f64) {
        let at = self.sorted.partition_point(|other| other.total_cmp(&figure).is_lt());
        self.sorted.insert(at, figure);
    }

    pub fn runs(&self) -> usize {
        self.sorted.len()
    }

    /// The middle one, or the mean of the two in the middle; `None` before the first run.
    pub fn median(&self) -> Option<f64> {
        let upper = *self.sorted.get(self.sorted.len() / 2)?;
        let lower = *self.sorted.get(self.sorted.len().saturating_sub(1) / 2)?;
        Some(f64::midpoint(lower, upper))
    }

    pub fn min(&self) -> Option<f64> {
        self.sorted.first().copied()
    }

    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }
}

/// What is printed of one: the median.
impl Serialize for Spread {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.median().serialize(serializer)
    }
}

/// What the machine itself costs, in nanoseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Yardstick {
    /// One uncontended atomic read-modify-write.
    #[serde(rename = "rmw_ns")]
    pub rmw: Spread,
}

/// A metric of a benchmark, for one engine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub benchmark: &'static str,
    pub engine: String,
    pub metric: &'static str,
    pub unit: &'static str,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Each of them, rising. Nothing where there is one.
    #[serde(skip_serializing_if = "<[f64]>::is_empty", serialize_with = "one_line")]
    pub values: Vec<f64>,
    /// 1 of what is counted once because each run would count the same.
    pub runs: usize,
    /// Whether it was counted on one thread, so that every run would say the same; what threads do
    /// at the same time is counted, too, and is not.
    pub exact: bool,
    pub better: Better,
    /// How it compares with the first engine; nothing for the first engine itself, and where that
    /// has no figure.
    #[serde(flatten)]
    pub comparison: Option<Comparison>,
}

impl Row {
    /// Of an engine's runs, beside those of the first engine; `None` before the first run.
    pub fn new(
        kind: Kind,
        metric: &Metric,
        engine: &str,
        runs: &Spread,
        baseline: Option<(&str, &Spread)>,
    ) -> Option<Self> {
        Some(Self {
            benchmark: kind.name(),
            engine: engine.to_owned(),
            metric: metric.name,
            unit: metric.unit,
            median: runs.median()?,
            min: runs.min()?,
            max: runs.max()?,
            values: if runs.runs() > 1 { runs.sorted().to_vec() } else { Vec::new() },
            runs: runs.runs(),
            exact: false,
            better: metric.better(),
            comparison: baseline.and_then(|(name, base)| Comparison::of(runs, name, base)),
        })
    }
}

/// Runs of each of two engines without which no difference is clear: of so many of one engine all
/// lie on one side by chance in 3 of 100 cases.
pub const CLEAR_RUNS: usize = 4;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub baseline: String,
    #[serde(skip)]
    pub base: f64,
    /// How much more than its median, in percent; negative for less. Nothing where that is 0.
    pub percent: Option<f64>,
    /// Whether all runs lie above all of the first engine's, or all below: [`CLEAR_RUNS`] of each
    /// at least.
    pub clear: bool,
}

impl Comparison {
    /// Of one engine's runs with the first's.
    pub fn of(spread: &Spread, baseline: &str, base: &Spread) -> Option<Self> {
        let (from, to) = (base.median()?, spread.median()?);
        let percent = (from != 0.0).then(|| (to - from) / from * 100.0);
        let apart = spread.min()? > base.max()? || spread.max()? < base.min()?;
        let clear = apart && spread.runs().min(base.runs()) >= CLEAR_RUNS;
        Some(Self { baseline: baseline.to_owned(), base: from, percent, clear })
    }
}

/// All that a run of the benchmarks found, and what `--json` prints of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// In what to read the rows.
    pub yardstick: Yardstick,
    /// The CPUs that the threads stayed on, as the system numbers them.
    #[serde(serialize_with = "one_line")]
    pub cpus: Vec<usize>,
    /// Whether the system let them.
    pub pinned: bool,
    /// Whether the system has `membarrier(2)`: without it Freehold's owners take an ordinary lock.
    pub barrier: bool,
    pub interrupted: bool,
    /// What was left out, and why: in words.
    pub left_out: Vec<String>,
    /// The figures: by benchmark, then metric, then engine.
    pub rows: Vec<Row>,
}

impl Report {
    pub fn row(&self, benchmark: &str, metric: &str, engine: &str) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.benchmark == benchmark && row.metric == metric && row.engine == engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_clear_where_four_runs_and_four_do_not_overlap() {
        let of = |figures: &[f64]| {
            let mut spread = Spread::default();
            figures.iter().for_each(|&figure| spread.add(figure));
            spread
        };
        let is_clear =
            |of: &Spread, base: &Spread| Comparison::of(of, "vanilla", base).unwrap().clear;
        let (low, high) = (of(&[1.0, 2.0, 3.0, 4.0]), of(&[5.0, 6.0, 7.0, 8.0]));
        assert!(is_clear(&low, &high) && is_clear(&high, &low) && !is_clear(&low, &low));
        assert!(!is_clear(&high, &of(&[2.0, 3.0, 4.0, 5.0])), "one is as high");
        assert!(!is_clear(&of(&[5.0, 6.0, 7.0]), &low), "three may be chance");
        let half = Comparison::of(&low, "vanilla", &of(&[5.0])).unwrap();
        assert_eq!((half.percent, half.base), (Some(-50.0), 5.0));
    }

    #[test]
    fn medians() {
        let mut spread = Spread::default();
        assert_eq!((spread.median(), spread.min(), spread.max()), (None, None, None));
        for (figure, median) in [(3.0, 3.0), (1.0, 2.0), (10.0, 3.0), (2.0, 2.5)] {
            spread.add(figure);
            assert_eq!(spread.median(), Some(median));
        }
        assert_eq!((spread.min(), spread.max(), spread.runs()), (Some(1.0), Some(10.0), 4));
    }
}
