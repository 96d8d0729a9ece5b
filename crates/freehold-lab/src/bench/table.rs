//! The table: metrics as rows, engines as columns.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint};

use super::catalogue::About;
use super::result::{Report, Row};
use super::targets::verdicts;
use super::{Kind, memory};
use crate::report::table::{Style, new_table, trim_lines};

/// The header and the table.
#[must_use]
pub fn render(report: &Report, style: Style) -> String {
    let tables = memory::table::render(report, style);
    let mut text = header(report);
    let theirs = |kind: &Kind| memory::is_here(*kind) || report.rows.iter().all(|row| row.benchmark != kind.name());
    if Kind::ALL.iter().all(theirs) {
        text.push_str(&tables);
        return text;
    }
    let mut table = new_table(style);
    let mut names = vec![Cell::new("median, least-greatest; ns")];
    for (at, engine) in report.engines.iter().enumerate() {
        let name = Cell::new(engine).set_alignment(CellAlignment::Right);
        names.push(if style.color { name.add_attribute(Attribute::Bold) } else { name });
        if at == 0 {
            names.push(Cell::new("in RMW").set_alignment(CellAlignment::Right));
        }
    }
    table.set_header(names);
    for kind in Kind::ALL {
        let about = kind.about();
        if theirs(&kind) {
            continue;
        }
        table.add_row([Cell::new(about.name.to_uppercase())]);
        for metric in about.metrics {
            let rows: Vec<Option<&Row>> =
                report.engines.iter().map(|engine| report.row(about.name, metric.name, engine)).collect();
            table.add_row(cells(report, metric.name, &rows));
        }
    }
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    let _ = writeln!(text, "{}", trim_lines(&table.to_string()));
    text + &tables
}

fn cells(report: &Report, metric: &str, rows: &[Option<&Row>]) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let first = rows.first().copied().flatten();
    let mut cells = vec![Cell::new(format!("  {metric}"))];
    for (at, row) in rows.iter().enumerate() {
        let Some(row) = row else {
            cells.push(right("-".to_owned()));
            continue;
        };
        if row.unit != "ns" {
            // A count, the same in each run: nothing to compare.
            cells.push(right(format!("{:.0}", row.median)));
            if at == 0 {
                cells.push(right(String::new()));
            }
            continue;
        }
        let mut text = figure(row.median);
        if let Some(first) = first.filter(|_| at > 0) {
            let _ = write!(text, " (x{})", figure(row.median / first.median));
        }
        let _ = write!(text, "\n{}-{}", figure(row.min), figure(row.max));
        cells.push(right(text));
        if at == 0 {
            cells.push(right(report.rmw.median().map_or_else(String::new, |rmw| figure(row.median / rmw))));
        }
    }
    if first.is_none() && !rows.is_empty() {
        // The column of the first engine's figure in read-modify-writes.
        cells.insert(2, right("-".to_owned()));
    }
    cells
}

/// Three digits or so.
fn figure(value: f64) -> String {
    match value {
        v if v < 0.1 => format!("{v:.4}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn header(report: &Report) -> String {
    let cpus: Vec<String> = report.cpus.iter().map(usize::to_string).collect();
    let mut text = match (report.pinned, &cpus[..]) {
        (true, [only]) => format!("pinned to CPU {only}"),
        (true, [_, _]) => format!("pinned to CPUs {}", cpus.join(" and ")),
        (true, _) => format!("pinned to CPUs {}", cpus.join(", ")),
        (false, _) => "not pinned: the system does not let threads choose their CPU".to_owned(),
    };
    if let Some(rmw) = report.rmw.median() {
        let _ = write!(text, "; one atomic read-modify-write (RMW) {} ns", spread(rmw, &report.rmw));
    }
    if let Some(handover) = report.handover.median() {
        let _ = write!(text, "; a cache line to the other core {} ns", spread(handover, &report.handover));
    }
    if let Some(ring) = report.ring_alone.median() {
        let _ = write!(
            text,
            "\nproducer-consumer's ring without an engine {} ns a frame",
            spread(ring, &report.ring_alone)
        );
    }
    if !report.barrier {
        text.push_str("\nno membarrier(2) here: freehold's owners take an ordinary lock");
    }
    text.push('\n');
    text
}

fn spread(median: f64, all: &super::Spread) -> String {
    let (min, max) = (all.min().unwrap_or(median), all.max().unwrap_or(median));
    format!("{} ({}-{})", figure(median), figure(min), figure(max))
}

/// What is to be reached, and whether it was.
#[must_use]
pub fn render_targets(report: &Report, style: Style) -> String {
    let mut table = new_table(style);
    table.set_header(["freehold's targets", "to reach", "measured", "best run", ""]);
    for verdict in verdicts(report) {
        let word = match verdict.met {
            Some(true) => Cell::new("met"),
            Some(false) => Cell::new("MISSED"),
            None => Cell::new(""),
        };
        let word = match verdict.met {
            Some(met) if style.color => word.fg(if met { Color::Green } else { Color::Red }),
            _ => word,
        };
        table.add_row([
            Cell::new(verdict.work),
            Cell::new(verdict.target),
            Cell::new(verdict.measured),
            Cell::new(verdict.best),
            word,
        ]);
    }
    format!("{}\n", trim_lines(&table.to_string()))
}

/// What can be measured.
#[must_use]
pub fn render_catalogue(all: &[&About], style: Style) -> String {
    let mut text = String::new();
    for about in all {
        let threads = match (about.threads, about.fewest_threads) {
            (1, _) => "1 thread".to_owned(),
            (most, fewest) if fewest < most => format!("{most} threads, or as many as there are CPUs"),
            (most, _) => format!("{most} threads"),
        };
        let _ = writeln!(text, "{} ({threads})", about.name.to_uppercase());
        let _ = writeln!(text, "  {}\n  Source: {}.", wrap(about.what, style), wrap(about.source, style));
        let width = about.metrics.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
        for metric in about.metrics {
            let _ = writeln!(text, "    {:width$}  {}", metric.name, metric.what);
        }
        text.push('\n');
    }
    text.push_str(
        "No timed loop touches the memory of a frame, but in vmalloc on real memory. Before the first run every engine is warmed up with its\n",
    );
    text.push_str("frames stamped; one that hands out a frame twice, or loses one, is an error.\n");
    text
}

/// Lines that fit, each but the first indented by two.
fn wrap(text: &str, style: Style) -> String {
    let most = usize::from(style.width).saturating_sub(4);
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        if used > 0 && used + 1 + word.len() > most {
            lines.push_str("\n  ");
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += word.len();
    }
    lines
}
