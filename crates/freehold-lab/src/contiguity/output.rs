//! Cells as a table for people, and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::beside::{Comparison, Row, Tally, is_below};
use super::cell::Workload;
use super::figure::{ByOrder, Cell, Figure, MOVED, engines, same_place};
use crate::tables::number::counted;
use crate::tables::table::{Cell as TableCell, Color, Room, Style, Table, rendered, right, wrap};
use crate::tables::{thousands, unique};

/// What `--json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    pub command: &'static str,
    /// Whether the user stopped it before all was done.
    pub interrupted: bool,
    /// What the cells were drawn from, where they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random: Option<Random>,
    /// Engines beside the first, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<&'a Comparison>,
    pub cells: &'a [Cell],
}

/// What brings the same cells again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Random {
    pub cells: u16,
    pub seed: u64,
    pub quick: bool,
}

fn mean(cells: &[&Cell], figure: &Figure) -> Option<f64> {
    let values: Vec<f64> = cells.iter().filter_map(|cell| (figure.value)(cell)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// In how many cells engines are not below the first, and a table for each workload; the mean of
/// the seeds.
pub fn table(cells: &[Cell], style: Style) -> String {
    let mut text =
        Comparison::of(cells).map_or_else(String::new, |of| tallied(&of, style, |_| true) + "\n");
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
    let legend = format!(
        "Counts, the same on every machine; the mean of {}. Free as order 9: the share of free \
         memory that can serve a request of order 9; more is better. Unusable: the share that \
         cannot serve one of that order; less is better, and so it is of locks, writes, failures \
         and mixed blocks. Shared writes: writes to memory that all CPUs of a zone write.",
        counted(seeds as u64, "seed")
    );
    let _ = writeln!(text, "{}", wrap(&legend, style, ""));
    text
}

/// What is a guess in the engines of these cells.
pub fn guesses(cells: &[Cell], style: Style) -> String {
    let all = unique(cells.iter().filter_map(|cell| cell.guesses));
    all.into_iter().map(|guess| format!("\n{}\n", wrap(&format!("{guess}."), style, ""))).collect()
}

fn one(workload: Workload, cells: &[&Cell], engines: &[&str], style: Style) -> String {
    let figures = match cells.iter().any(|cell| cell.movement.is_some()) {
        true => &MOVED[..],
        false => workload.about().figures,
    };
    let place = ["CPUs", "memory", "in use", "engine"].map(|name| (name, Room::Always));
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

/// CPUs, memory, and the level.
fn place_name(cell: &Cell) -> [String; 3] {
    let level = cell.used_percent.map_or_else(String::new, |percent| format!("{percent:.0} %"));
    [thousands(u64::from(cell.cpus)), memory(cell.memory_mib), level]
}

fn memory(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) {
        format!("{} GiB", mib / 1024)
    } else {
        format!("{} MiB", thousands(mib))
    }
}

/// Tables narrower than this leave out the differences, which can be told from what stands beside.
const DIFFERENCES_FROM: u16 = 100;

/// Each engine beside the first, worst first, and in how many of all cells it is not below the
/// first.
pub fn beside(comparison: &Comparison, style: Style) -> String {
    let engines = unique(comparison.rows.iter().map(|row| row.engine.as_str()));
    let parts: Vec<String> =
        engines.iter().map(|engine| beside_first(comparison, engine, style)).collect();
    parts.join("\n")
}

/// One engine beside the first.
fn beside_first(comparison: &Comparison, engine: &str, style: Style) -> String {
    let Comparison { baseline, rows, .. } = comparison;
    let rows: Vec<&Row> = rows.iter().filter(|row| row.engine == engine).collect();
    let wide = style.width >= DIFFERENCES_FROM;
    let about = format!(
        "The share of free memory that can serve a request of an order: first {baseline}'s, then \
         {engine}'s{}. More is better; worst first; means of the seeds.",
        if wide { ", then the difference" } else { "" },
    );
    let mut header = vec![TableCell::new("workload, in use")];
    header.extend(["CPUs", "memory"].map(right));
    header.extend(ByOrder::ORDERS.map(|order| right(format!("order {order}"))));
    let table = rendered(style, header, rows.iter().map(|row| beside_row(row, wide)));
    let mut text = format!("{}\n\n{table}\n\n", wrap(&about, style, ""));
    if let Some(worst) = rows.first().filter(|row| is_below(row.worst())) {
        let _ = writeln!(text, "To run the worst cell again: freehold contiguity {worst}\n");
    }
    text + &tallied(comparison, style, |of| of == engine)
}

/// In how many cells these engines are not below the first, a line for each order.
fn tallied(comparison: &Comparison, style: Style, is_told: impl Fn(&str) -> bool) -> String {
    let Comparison { baseline, tallies, tolerance, .. } = comparison;
    let line = |tally: &Tally| {
        let Tally { engine, order, not_below, cells } = tally;
        let tolerance = pointed(*tolerance);
        let line = format!(
            "order {order}: {engine} is above {baseline}, or within {tolerance} of it, in \
             {not_below} of {cells} cells"
        );
        wrap(&line, style, "  ") + "\n"
    };
    tallies.iter().filter(|tally| is_told(&tally.engine)).map(line).collect()
}

fn beside_row(row: &Row, wide: bool) -> Vec<TableCell> {
    let used = row.used_percent.map_or_else(String::new, |used| format!(", {used:.0} %"));
    let mut cells = vec![TableCell::new(format!("{}{used}", row.workload))];
    cells.extend([thousands(u64::from(row.cpus)), memory(row.memory_mib)].map(right));
    cells.extend(ByOrder::ORDERS.map(|order| {
        let [base, mine] =
            [row.baseline_contiguity, row.contiguity].map(|all| pointed(all.at(order)));
        let difference = row.difference.at(order);
        let sign = if difference < 0.0 { '-' } else { '+' };
        let far =
            if wide { format!(" {sign}{}", pointed(difference.abs())) } else { String::new() };
        let cell = right(format!("{base} {mine}{far}"));
        if is_below(difference) { cell.fg(Color::Red) } else { cell }
    }));
    cells
}

/// A share in three digits without the 0 before the point, so that three stand beside each other.
fn pointed(share: f64) -> String {
    let text = format!("{share:.3}");
    text.strip_prefix('0').map_or(text.clone(), str::to_owned)
}
