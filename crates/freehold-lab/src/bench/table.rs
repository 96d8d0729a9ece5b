//! The table: metrics as rows, engines as columns, in the style of mmtests' comparisons. The first
//! engine is the baseline; beside every other figure stands how much more or less it is, with a
//! star where the difference is significant.
//!
//! ```text
//!                        freehold         vanilla
//!  PAIR
//!    ns_per_pair_order0  1.82 ±2%   64.1 ±0% x35.2*
//! ```
//!
//! Where that is wider than the terminal, the engines are shown a few at a time, the first one
//! beside each of them.

use std::fmt::Write as _;

use super::kind::Kind;
use super::memory;
use super::result::{Report, Row};
use crate::tables::better::Better;
use crate::tables::number::{counted, thousands};
use crate::tables::table::{Cell, Color, Room, Style, Table, right, wrap};
use crate::tables::unique;
use crate::trials::significance;

pub fn render(report: &Report, style: Style) -> String {
    let mut text = header(report, style);
    let (own, usual): (Vec<Kind>, Vec<Kind>) =
        Kind::ALL.into_iter().partition(|&kind| memory::is_here(kind));
    // Those of memory have engines of their own: a table for each.
    let parts = std::iter::once(usual).chain(own.into_iter().map(|kind| vec![kind]));
    let tables: Vec<String> =
        parts.filter_map(|kinds| Some(part(report, &kinds)?.render(style))).collect();
    if !tables.is_empty() {
        let _ = writeln!(text, "{}", tables.join("\n\n"));
        text.push_str(&legend(report, style));
    }
    text
}

/// Benchmarks of the same engines; `None` where none of them was run.
fn part(report: &Report, kinds: &[Kind]) -> Option<Table> {
    let rows_of = |kind: Kind| report.rows.iter().filter(move |row| row.benchmark == kind.name());
    let engines = unique(kinds.iter().flat_map(|&kind| rows_of(kind)).map(|row| &*row.engine));
    let names = engines.iter().map(|engine| right(engine).bold());
    let head = std::iter::once(Cell::new("median; ns, or as named")).chain(names);
    let mut table = Table::new(head.map(|name| (name, Room::Always))).in_blocks(2);
    for &kind in kinds.iter().filter(|&&kind| rows_of(kind).next().is_some()) {
        let blank = engines.iter().map(|_| Cell::new(""));
        let name = std::iter::once(Cell::new(kind.name().to_uppercase()));
        table.row(name.chain(blank).collect::<Vec<_>>());
        for metric in kind.metrics() {
            let row = |engine: &&str| report.row(kind.name(), metric.name, engine);
            let rows: Vec<Option<&Row>> = engines.iter().map(row).collect();
            // Not every machine has the threads for every metric.
            if rows.iter().any(Option::is_some) {
                let label = Cell::new(format!("  {}", metric.label()));
                let cells = std::iter::once(label).chain(rows.into_iter().map(cell));
                table.row(cells.collect::<Vec<_>>());
            }
        }
    }
    (!engines.is_empty()).then_some(table)
}

fn cell(row: Option<&Row>) -> Cell {
    let Some(row) = row else { return right("-") };
    let parts = parts(row).into_iter().filter(|part| !part.is_empty());
    let cell = right(parts.collect::<Vec<_>>().join(" "));
    match verdict(row) {
        Some(color) => cell.fg(color),
        None => cell,
    }
}

/// Median, spread, change.
fn parts(row: &Row) -> [String; 3] {
    let farthest = (row.max - row.median).max(row.median - row.min) / row.median.abs() * 100.0;
    let spread = if row.runs > 1 && farthest.is_finite() && !matches!(row.better, Better::Neither) {
        format!("±{:.0}%", farthest.min(999.0))
    } else {
        String::new()
    };
    let change = row.comparison.as_ref().filter(|_| !matches!(row.better, Better::Neither)).map(
        |comparison| {
            let star = if comparison.significant { '*' } else { ' ' };
            comparison
                .percent
                .map_or_else(String::new, |percent| format!("{}{star}", changed(percent)))
        },
    );
    let mark = if row.mostly_shared() { "?" } else { "" };
    [format!("{}{mark}", figure(row.median)), spread, change.unwrap_or_default()]
}

/// A change in percent; beyond a thousand per cent a factor says more.
fn changed(percent: f64) -> String {
    match percent.abs() {
        p if p < 0.05 => "0.0%".to_owned(),
        p if p < 10.0 => format!("{percent:+.1}%"),
        p if p < 1000.0 => format!("{percent:+.0}%"),
        _ => format!("x{}", figure(percent / 100.0 + 1.0)),
    }
}

/// Green is better, red worse; only what is significant.
fn verdict(row: &Row) -> Option<Color> {
    let percent = row.comparison.as_ref().filter(|comparison| comparison.significant)?.percent?;
    row.better.color(percent < 0.0)
}

fn legend(report: &Report, style: Style) -> String {
    let mut text = String::from(
        "± is how far the farthest run is from the median. Counted, not timed: zone locks, zone \
         steps, shared writes, \
         distinct and most_reused.",
    );
    if report.rows.iter().any(|row| row.comparison.is_some()) {
        // Of times: counts may have been made once.
        let timed = || {
            report
                .rows
                .iter()
                .filter(|row| ["ns", "us", "ms"].contains(&row.unit))
                .map(|row| row.runs)
        };
        let (fewest, runs) = (timed().min().unwrap_or(0), timed().max().unwrap_or(0));
        let all = counted(runs as u64, "run");
        let each = if fewest == runs { all } else { format!("{fewest} to {all}") };
        text.push_str(
            " Changes are against a table's first engine: -25% is a quarter less, x25 is 25 times \
             as much. ",
        );
        if significance::can_tell(runs, runs) {
            let _ = write!(
                text,
                "* marks a significant change: {}, p < {}, {each} of each engine.",
                significance::NAME,
                significance::LEVEL,
            );
        } else {
            let enough = (runs..1000).find(|&n| significance::can_tell(n, n)).unwrap_or(1000);
            let _ = write!(
                text,
                "No stars: with {each} of each engine no difference can be significant at {:.0} % \
                 ({}), however large; \
                 with --runs {enough} it can.",
                significance::LEVEL * 100.0,
                significance::NAME,
            );
        }
    }
    text.push_str(&shared(report));
    let mut text = format!("{}\n", wrap(&text, style, ""));
    for same in report.unsuited.chunk_by(|a, b| (a.benchmark, a.reason) == (b.benchmark, b.reason))
    {
        let engines =
            same.iter().map(|unsuited| unsuited.engine.as_str()).collect::<Vec<_>>().join(", ");
        let line = format!("- {}, {engines}: {}.", same[0].benchmark, same[0].reason);
        let _ = writeln!(text, "{}", wrap(&line, style, "  "));
    }
    text
}

/// How many samples were not counted, and which figures have too few left.
fn shared(report: &Report) -> String {
    let shares: Vec<f64> = report.rows.iter().filter_map(|row| row.samples_shared).collect();
    let Some(most) = shares.iter().copied().reduce(f64::max) else { return String::new() };
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let mut text = format!(
        " {:.0} % of the samples on one thread were not counted (at most {:.0} % of one figure's), \
         because \
         something else used the core.",
        mean * 100.0,
        most * 100.0
    );
    if report.rows.iter().any(Row::mostly_shared) {
        text.push_str(
            " ? marks a figure for which fewer than a third of the samples were left: it is of all \
             samples, disturbed ones \
             included.",
        );
    }
    text
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

fn header(report: &Report, style: Style) -> String {
    let cpus: Vec<String> = report.cpus.iter().map(usize::to_string).collect();
    let mut text = match (report.pinned, &cpus[..]) {
        (true, [only]) => format!("pinned to CPU {only}"),
        (true, [_, _]) => format!("pinned to CPUs {}", cpus.join(" and ")),
        (true, _) => format!("pinned to CPUs {}", cpus.join(", ")),
        (false, _) => "not pinned: the system does not let threads choose their CPU".to_owned(),
    };
    if let Some(rmw) = report.yardstick.rmw.median() {
        let _ = write!(
            text,
            "; one atomic read-modify-write (RMW) {} ns",
            spread(rmw, &report.yardstick.rmw)
        );
    }
    if let Some(handover) = report.yardstick.handover.median() {
        let _ = write!(
            text,
            "; a cache line to the other core {} ns",
            spread(handover, &report.yardstick.handover)
        );
    }
    if let Some(ring) = report.yardstick.ring_alone.median() {
        let _ = write!(
            text,
            "\nthe ring of producer-consumer alone, without an engine: {} ns a frame",
            spread(ring, &report.yardstick.ring_alone)
        );
    }
    if !report.barrier {
        text.push_str(
            "\nno membarrier(2) on this system: owners of freehold's CPUs take an ordinary lock",
        );
    }
    text.lines().map(|line| wrap(line, style, "") + "\n").collect()
}

fn spread(median: f64, all: &super::Spread) -> String {
    let (min, max) = (all.min().unwrap_or(median), all.max().unwrap_or(median));
    format!("{} ({}-{})", figure(median), figure(min), figure(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metric::{Metric, ZONE_WORK};
    use crate::bench::result::Spread;

    const TIME: (&str, &str) = ("ns_per_pair_order0", "ns");

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
        let (base, metric) = (base.map(spread), Metric { name: metric, unit, what: "" });
        let base = base.as_ref().map(|base| ("freehold", base));
        Row::new(Kind::Pair, &metric, engine, &spread(runs), base).unwrap()
    }

    fn report() -> Report {
        let engines = [
            "freehold",
            "vanilla",
            "buddy_system_allocator",
            "pcp-buddy-fixed,-merge,-route,-claim",
        ];
        let mut report = Report::default();
        report.yardstick.rmw.add(2.0);
        let base = [4.0, 4.1, 4.2, 4.3];
        let times = [base, [60.0, 62.0, 64.0, 70.0], [4.0, 4.1, 4.2, 4.4], [2.0, 2.1, 2.2, 2.3]];
        for (at, (engine, runs)) in engines.iter().zip(&times).enumerate() {
            let base = (at > 0).then_some(&base[..]);
            report.rows.push(row(engine, TIME, runs, base));
            if at < 2 {
                let base = (at > 0).then_some(&[0.0][..]);
                report.rows.push(row(engine, (ZONE_WORK, "steps"), &[12_345.0], base));
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
            for part in [
                "PAIR",
                "ns_per_pair_order0",
                "±4%",
                "±11%",
                "x15.2*",
                "-48%*",
                "0.0%",
                "buddy_system_allocator",
                "pcp-buddy-fixed,-merge,-route,-claim",
                "12,345",
            ] {
                assert!(text.contains(part), "{width}: {part}\n{text}");
            }
        }
    }

    #[test]
    fn what_was_not_counted_is_told_and_figures_with_too_little_left_are_marked() {
        let style = Style::plain(120);
        let mut report = report();
        let text = render(&report, style);
        assert!(!text.contains("neighbour") && !text.contains('?'), "nobody could tell: {text}");

        report.rows[0].samples_shared = Some(0.0);
        report.rows[1].samples_shared = Some(0.5);
        let text = render(&report, style).replace('\n', " ");
        let said =
            "25 % of the samples on one thread were not counted (at most 50 % of one figure's)";
        assert!(text.contains(said) && !text.contains('?'), "{text}");

        report.rows[0].samples_shared = Some(0.7);
        let text = render(&report, style).replace('\n', " ");
        assert!(text.contains("4.15?") && text.contains("? marks a figure"), "{text}");
    }

    #[test]
    fn few_runs_get_no_stars_and_are_told() {
        let mut report = report();
        report.rows.retain(|row| row.unit == "ns");
        for row in &mut report.rows {
            let base = (row.engine != "freehold").then_some(&[4.0, 4.1, 4.2][..]);
            *row = self::row(&row.engine.clone(), TIME, &[60.0, 61.0, 62.0], base);
        }
        let text = render(&report, Style::plain(120));
        // However the lines are broken.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("No stars") && text.contains("--runs 4"), "{text}");
        assert!(!text.contains("%*") && !text.contains("x15.0*"), "{text}");
    }

    #[test]
    fn changes() {
        for (percent, text) in [
            (0.01, "0.0%"),
            (-2.25, "-2.2%"),
            (35.0, "+35%"),
            (-88.2, "-88%"),
            (999.4, "+999%"),
            (2400.0, "x25"),
        ] {
            assert_eq!(changed(percent), text);
        }
    }
}
