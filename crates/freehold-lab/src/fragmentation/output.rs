//! Cells as a table for people, and as JSON.

use std::fmt::Write as _;

use comfy_table::Cell as TableCell;
use serde::Serialize;

use super::cell::{About, Cell, Workload};
use crate::report::table::{Style, new_table, right, trim_lines};
use crate::report::verdict::{Question, sentence};
use crate::report::{thousands, unique};

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

/// A figure of a cell: what it is called, what it is, and how it is written. More of it is worse unless said otherwise.
#[derive(Clone, Copy)]
pub struct Figure {
    pub name: &'static str,
    pub value: fn(&Cell) -> Option<f64>,
    pub text: fn(f64) -> String,
    /// More of it is better.
    pub more_is_better: bool,
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { thousands(value as u64) } else { format!("{value:.1}") }
}

fn rate(value: f64) -> String {
    format!("{value:.2}")
}

fn number(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

const fn figure(name: &'static str, value: fn(&Cell) -> Option<f64>, text: fn(f64) -> String) -> Figure {
    Figure { name, value, text, more_is_better: false }
}

const fn better(figure: Figure) -> Figure {
    Figure { more_is_better: true, ..figure }
}

pub(super) const UNUSABLE3: Figure = figure("unusable, order 3", |c| c.figures.unusable.map(|u| u.order3), share);
pub(super) const UNUSABLE4: Figure = figure("unusable, order 4", |c| c.figures.unusable.map(|u| u.order4), share);
pub(super) const UNUSABLE9: Figure = figure("unusable, order 9", |c| c.figures.unusable.map(|u| u.order9), share);
pub(super) const LOCKS: Figure = figure("zone locks/1,000 frames", |c| c.figures.zone_locks_per_1000, rate);
pub(super) const GROUP_LOCKS: Figure = figure("group locks/1,000 frames", |c| c.figures.group_locks_per_1000, rate);
pub(super) const ORDER9: Figure = better(figure("free as order 9", |c| c.figures.order9_share, share));
pub(super) const FAILURES9: Figure = figure("order-9 failures", |c| number(c.figures.order9_failures), count);
pub(super) const MIXED: Figure = figure("mixed blocks", |c| number(c.figures.mixed_blocks), count);
pub(super) const IDLE: Figure = figure("held by idle CPUs", |c| c.figures.idle_share, share);
pub(super) const FREE: Figure = better(figure("free blocks", |c| number(c.figures.free_blocks), count));
pub(super) const FULL: Figure = better(figure("full at, %", |c| c.used_percent, rate));
pub(super) const FALSE: Figure = figure("false failures", |c| number(c.figures.false_failures), count);

/// Cells of one workload, machine, level and order: what is compared.
pub(super) fn same_place(a: &Cell, b: &Cell) -> bool {
    let level = |cell: &Cell| cell.order.is_none().then_some(cell.used_percent);
    (a.workload, a.cpus, a.memory_mib, a.order) == (b.workload, b.cpus, b.memory_mib, b.order) && level(a) == level(b)
}

/// The mean of a figure over the seeds.
pub(super) fn mean(cells: &[&Cell], figure: &Figure) -> Option<f64> {
    let values: Vec<f64> = cells.iter().filter_map(|cell| (figure.value)(cell)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Engines in the order in which they come.
pub(super) fn engines(cells: &[Cell]) -> Vec<&str> {
    unique(cells.iter().map(|cell| cell.engine.as_str()))
}

/// Which engine does best, by the first figure of each workload, on each machine at each level: one sentence, the mean of
/// the seeds. `None` for one engine.
pub fn verdict(cells: &[Cell]) -> Option<String> {
    let engines = engines(cells);
    let cases: Vec<_> = cells
        .chunk_by(same_place)
        .filter_map(|place| {
            let workload: Workload = place[0].workload.parse().ok()?;
            let About { figures, best, .. } = workload.about();
            let figure = figures.first()?;
            let of =
                |engine: &&str| mean(&place.iter().filter(|cell| cell.engine == **engine).collect::<Vec<_>>(), figure);
            Some((Question { best, more_is_better: figure.more_is_better }, engines.iter().map(of).collect()))
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
        let _ = writeln!(text, "{workload}: {}", workload.about().what);
        let _ = writeln!(text, "{}\n", trim_lines(&one(workload, &of, &engines(cells), style)));
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
    let mut table = new_table(style);
    let head = ["CPUs", "memory", "", "engine"].into_iter().chain(figures.iter().map(|figure| figure.name));
    table.set_header(head.collect::<Vec<_>>());
    let mut rest = cells;
    while let Some(first) = rest.first() {
        let (place, more) = rest.split_at(rest.iter().take_while(|cell| same_place(cell, first)).count());
        rest = more;
        for (n, engine) in engines.iter().enumerate() {
            let of: Vec<&Cell> = place.iter().copied().filter(|cell| cell.engine == *engine).collect();
            if of.is_empty() {
                continue;
            }
            let named = if n == 0 { place_name(first) } else { Default::default() };
            let mut row: Vec<TableCell> = named.map(right).into();
            row.push(TableCell::new(engine));
            row.extend(
                figures.iter().map(|figure| right(mean(&of, figure).map_or_else(|| "-".to_owned(), figure.text))),
            );
            table.add_row(row);
        }
    }
    table.to_string()
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

/// As people name memory.
pub(super) fn memory(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) {
        format!("{} GiB", mib / 1024)
    } else {
        format!("{} MiB", thousands(mib))
    }
}
