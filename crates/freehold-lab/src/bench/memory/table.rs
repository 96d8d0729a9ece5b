//! A table for each of these benchmarks, whose engines are their own.

use std::fmt::Write as _;

use comfy_table::{Cell, ColumnConstraint};

use super::is_here;
use crate::bench::catalogue::Kind;
use crate::bench::result::{Report, Row};
use crate::report::table::{Style, new_table, right, trim_lines};
use crate::report::unique;

/// The tables of what was measured, or nothing.
pub(in crate::bench) fn render(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for kind in Kind::ALL.into_iter().filter(|&kind| is_here(kind)) {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.benchmark == kind.name()).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", table(kind, &rows, style));
        }
    }
    text
}

fn table(kind: Kind, rows: &[&Row], style: Style) -> String {
    let engines = unique(rows.iter().map(|row| row.engine.as_str()));
    let mut table = new_table(style);
    let name = format!("{}: median, least-greatest", kind.name().to_uppercase());
    table.set_header([Cell::new(name)].into_iter().chain(engines.iter().map(right)));
    for metric in kind.about().metrics {
        let of = |engine: &&str| rows.iter().find(|row| row.metric == metric.name && row.engine == *engine);
        if engines.iter().all(|engine| of(engine).is_none()) {
            continue;
        }
        let figures = engines.iter().map(|engine| of(engine).map_or_else(|| right("-"), |row| right(figure(row))));
        table.add_row([Cell::new(format!("  {}", metric.name))].into_iter().chain(figures));
    }
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    trim_lines(&table.to_string())
}

/// The units of times are in the metrics' names.
fn figure(row: &Row) -> String {
    let text = |value: f64| match value {
        v if v == v.trunc() && v < 10_000.0 => format!("{v:.0}"),
        v if v < 1.0 => format!("{v:.3}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v if v < 1e5 => format!("{v:.0}"),
        v if v < 1e6 => format!("{:.0}k", v / 1e3),
        v => format!("{:.2}M", v / 1e6),
    };
    let unit = if row.unit == "times" { "x" } else { "" };
    if row.min == row.max {
        return format!("{}{unit}", text(row.median));
    }
    format!("{}{unit}\n{}-{}", text(row.median), text(row.min), text(row.max))
}
