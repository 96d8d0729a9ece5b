//! The table: metrics as rows, engines as columns. The first engine is the baseline; beside every
//! other figure stands how much more or less it is, with a star where the runs do not overlap.
//!
//! ```text
//!                        freehold         vanilla
//!  ORDERS
//!    ns_per_pair_order0  1.82 ±2%   64.1 ±0% x35*
//! ```

use std::fmt::Write as _;

use super::kind::Kind;
use super::result::{Report, Row};
use crate::tables::better::Better;
use crate::tables::number::{percent, thousands};
use crate::tables::table::{Cell, Style, Table, grouped, right, wrap};
use crate::tables::unique;

pub fn render(report: &Report, style: Style) -> String {
    let mut text = format!("{}\n", wrap(&header(report), style, ""));
    if let Some(table) = table(report) {
        let _ = writeln!(text, "{}\n", table.render(style));
    }
    text + &wrap(LEGEND, style, "") + "\n"
}

const LEGEND: &str = "Figures are medians, in ns or as named; ± is how far the farthest run is \
                      from it. Counted, not timed: zone locks, distinct and most_reused. Changes are against a table's first engine; * marks those whose runs do not \
                      overlap, of 4 runs at least.";

fn header(report: &Report) -> String {
    let cpus: Vec<String> = report.cpus.iter().map(usize::to_string).collect();
    let mut text = if report.pinned {
        format!("pinned to CPUs {}", cpus.join(", "))
    } else {
        "not pinned: the system does not let threads choose their CPU".to_owned()
    };
    if let Some(rmw) = report.yardstick.rmw.median() {
        let _ = write!(text, "; one atomic read-modify-write (RMW) {} ns", figure(rmw));
    }
    if !report.barrier {
        text.push_str("; no membarrier(2): owners of freehold's CPUs take an ordinary lock");
    }
    text
}

/// All benchmarks; `None` where none was run.
fn table(report: &Report) -> Option<Table> {
    let rows_of = |kind: Kind| report.rows.iter().filter(move |row| row.benchmark == kind.name());
    let engines = unique(report.rows.iter().map(|row| &*row.engine));
    let names = engines.iter().map(|engine| right(engine).bold());
    let run = Kind::ALL.into_iter().filter(|&kind| rows_of(kind).next().is_some());
    let groups = run.map(|kind| {
        let rows = kind.metrics().iter().filter_map(|metric| {
            let row = |engine: &&str| report.row(kind.name(), metric.name, engine);
            let rows: Vec<Option<&Row>> = engines.iter().map(row).collect();
            let label = Cell::new(format!("  {}", metric.name));
            let cells = rows.iter().map(|row| row.map_or_else(|| right("-"), cell));
            // Not every machine has the threads for every metric.
            rows.iter().any(Option::is_some).then(|| std::iter::once(label).chain(cells).collect())
        });
        (kind.name().to_uppercase(), rows.collect())
    });
    let head = std::iter::once(Cell::new("")).chain(names).collect();
    (!engines.is_empty()).then(|| grouped(head, 1, groups))
}

/// Median, spread, change; green is better, red worse, where their runs do not overlap.
fn cell(row: &Row) -> Cell {
    let mut text = figure(row.median);
    let farthest = (row.max - row.median).max(row.median - row.min) / row.median.abs() * 100.0;
    let has_better = row.better != Better::Neither;
    if row.runs > 1 && farthest.is_finite() && has_better {
        let _ = write!(text, " ±{:.0}%", farthest.min(999.0));
    }
    let Some(comparison) = row.comparison.as_ref().filter(|_| has_better) else {
        return right(text);
    };
    let star = if comparison.clear { "*" } else { "" };
    if let Some(change) = percent(comparison.base, row.median) {
        let _ = write!(text, " {change}{star}");
    }
    let color = row.better.color(row.median < comparison.base).filter(|_| comparison.clear);
    color.into_iter().fold(right(text), Cell::fg)
}

/// Three digits or so; counts as they are.
fn figure(value: f64) -> String {
    match value {
        v if v >= 0.0 && v.fract() == 0.0 && v < 1e15 => thousands(v as u64),
        v if v < 0.1 => format!("{v:.4}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => thousands(v.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metric::Metric;
    use crate::bench::result::Spread;

    const TIME: (&str, &str) = ("ns_per_pair_order0", "ns");
    const LARGE: (&str, &str) = ("ns_per_pair_order9", "ns");

    fn row(
        engine: &str,
        (metric, unit): (&'static str, &'static str),
        runs: &[f64],
        base: Option<&[f64]>,
    ) -> Row {
        let spread = |runs: &[f64]| {
            let mut spread = Spread::default();
            runs.iter().for_each(|&run| spread.add(run));
            spread
        };
        let (base, metric) = (base.map(spread), Metric { name: metric, unit });
        let base = base.as_ref().map(|base| ("freehold", base));
        Row::new(Kind::Orders, &metric, engine, &spread(runs), base).unwrap()
    }

    fn report() -> Report {
        let longest = "pcp-buddy-fixed,-merge,-route,-claim";
        let engines = ["freehold", "vanilla", "buddy_system_allocator", longest];
        let mut report = Report::default();
        report.yardstick.rmw.add(2.0);
        let base = [4.0, 4.1, 4.2, 4.3];
        let times = [base, [60.0, 62.0, 64.0, 70.0], [4.0, 4.1, 4.2, 4.4], [2.0, 2.1, 2.2, 2.3]];
        for (at, (engine, runs)) in engines.iter().zip(&times).enumerate() {
            let base = (at > 0).then_some(&base[..]);
            report.rows.push(row(engine, TIME, runs, base));
            if at < 2 {
                let base = (at > 0).then_some(&[0.0][..]);
                report.rows.push(row(engine, LARGE, &[12_345.0], base));
            }
        }
        report
    }

    #[test]
    fn lines_fit_every_terminal() {
        for width in [80, 100, 120, 160] {
            let text = render(&report(), Style::plain(width));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}\n{text}");
            }
            let parts = "ORDERS ns_per_pair_order0 ±4% ±11% x15* -48.2%* 0.0% \
                         buddy_system_allocator pcp-buddy-fixed,-merge,-route,-claim 12,345";
            for part in parts.split(' ') {
                assert!(text.contains(part), "{width}: {part}\n{text}");
            }
        }
    }

    #[test]
    fn few_runs_get_no_stars() {
        let mut report = report();
        report.rows.retain(|row| row.metric == TIME.0);
        for row in &mut report.rows {
            let base = (row.engine != "freehold").then_some(&[4.0, 4.1, 4.2][..]);
            *row = self::row(&row.engine.clone(), TIME, &[60.0, 61.0, 62.0], base);
        }
        let text = render(&report, Style::plain(120));
        assert!(text.contains("x15") && !text.contains("x15*"), "{text}");
    }
}
