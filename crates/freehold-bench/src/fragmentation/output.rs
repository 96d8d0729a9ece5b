//! Cells as a table for people, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::cell::Workload;
use super::figure::{About, Cell, Figure};
use freehold_labkit::report::table::{Cell as TableCell, Room, Style, Table, right, wrap};
use freehold_labkit::report::verdict::{Question, sentence};
use freehold_labkit::report::{thousands, unique};

/// What `--json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    /// Which engine does best: see [`verdict`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    pub cells: &'a [Cell],
}

impl<'a> Document<'a> {
    pub fn new(cells: &'a [Cell]) -> Self {
        Self { verdict: verdict(cells), cells }
    }
}

/// Cells of one workload, machine, level and order: what is compared.
fn same_place(a: &Cell, b: &Cell) -> bool {
    let level = |cell: &Cell| cell.order.is_none().then_some(cell.used_percent);
    (a.workload, a.cpus, a.memory_mib, a.order) == (b.workload, b.cpus, b.memory_mib, b.order)
        && level(a) == level(b)
}

fn mean(cells: &[&Cell], figure: &Figure) -> Option<f64> {
    let values: Vec<f64> = cells.iter().filter_map(|cell| (figure.value)(cell)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Engines in the order in which they come.
fn engines(cells: &[Cell]) -> Vec<&str> {
    unique(cells.iter().map(|cell| cell.engine.as_str()))
}

/// Which engine does best, by the first figure of each workload, on each machine at each level: one
/// sentence, the mean of the seeds. `None` for one engine.
pub fn verdict(cells: &[Cell]) -> Option<String> {
    let engines = engines(cells);
    let cases: Vec<_> = cells
        .chunk_by(same_place)
        .filter_map(|place| {
            let workload: Workload = place[0].workload.parse().ok()?;
            let About { figures, best, .. } = workload.about();
            let figure = figures.first()?;
            let of = |engine: &&str| {
                mean(
                    &place.iter().filter(|cell| cell.engine == **engine).collect::<Vec<_>>(),
                    figure,
                )
            };
            Some((Question { best, better: figure.better }, engines.iter().map(of).collect()))
        })
        .collect();
    sentence(&engines, &cases, "Best by the first figure of each workload")
}

/// The verdict, and a table for each workload; the mean of the seeds.
pub fn table(cells: &[Cell], style: Style) -> String {
    let mut text = verdict(cells).map_or_else(String::new, |verdict| format!("{verdict}\n\n"));
    for workload in Workload::ALL {
        let of: Vec<&Cell> = cells.iter().filter(|cell| cell.workload == workload.name()).collect();
        if of.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "{}",
            wrap(&format!("{workload}: {}", workload.about().what), style, "")
        );
        let _ = writeln!(text, "{}\n", one(workload, &of, &engines(cells), style));
    }
    let seeds = cells.iter().map(|cell| cell.seed).collect::<std::collections::BTreeSet<_>>().len();
    let _ = writeln!(
        text,
        "Counts, the same on every machine; the mean of {seeds} seed{}.",
        if seeds == 1 { "" } else { "s" }
    );
    text
}

fn one(workload: Workload, cells: &[&Cell], engines: &[&str], style: Style) -> String {
    let figures = workload.about().figures;
    let place = ["CPUs", "memory", "", "engine"].map(|name| (name, Room::Always));
    // The first figures are what the workload is for.
    let ranked = figures.iter().enumerate();
    let figure_columns = ranked.map(|(at, figure)| (figure.name, Room::GivesWay(at as u8)));
    let mut table = Table::new(place.into_iter().chain(figure_columns));
    let mut rest = cells;
    while let Some(first) = rest.first() {
        let (place, more) =
            rest.split_at(rest.iter().take_while(|cell| same_place(cell, first)).count());
        rest = more;
        for (n, engine) in engines.iter().enumerate() {
            let of: Vec<&Cell> =
                place.iter().copied().filter(|cell| cell.engine == *engine).collect();
            if of.is_empty() {
                continue;
            }
            let named = if n == 0 { place_name(first) } else { Default::default() };
            let mut row: Vec<TableCell> = named.map(right).into();
            row.push(TableCell::new(engine));
            row.extend(figures.iter().map(|figure| {
                right(mean(&of, figure).map_or_else(|| "-".to_owned(), figure.text))
            }));
            table.row(row);
        }
    }
    table.render(style)
}

/// CPUs, memory, and the level or the order.
fn place_name(cell: &Cell) -> [String; 3] {
    let level = match (cell.order, cell.used_percent) {
        (Some(order), _) => format!("order {order}"),
        (None, Some(percent)) => format!("{percent:.0} %"),
        (None, None) => String::new(),
    };
    [thousands(u64::from(cell.cpus)), memory(cell.memory_mib), level]
}

fn memory(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) {
        format!("{} GiB", mib / 1024)
    } else {
        format!("{} MiB", thousands(mib))
    }
}
