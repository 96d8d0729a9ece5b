//! Simulated beside measured: what `freehold calibrate --validate` finds.

use crate::tables::table::{Cell, Room, Style, Table, right};
use serde::Serialize;

use super::row::rate;

/// How far off a row may be.
const TOLERANCE: f64 = 0.2;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ValidationRow {
    pub workload: String,
    pub engine: String,
    /// CPUs, and threads.
    pub cpus: u16,
    /// Frames per second of real threads: the median of the runs.
    pub measured: f64,
    /// The least and the greatest of the runs.
    pub measured_range: [f64; 2],
    /// Frames per second by the model.
    pub simulated: f64,
}

impl ValidationRow {
    /// Whether they agree within 20 %.
    pub fn agrees(&self) -> bool {
        (self.simulated / self.measured - 1.0).abs() <= TOLERANCE
    }
}

pub fn validation_table(rows: &[ValidationRow], style: Style) -> String {
    let mut table = Table::new([
        ("workload", Room::Always),
        ("engine", Room::Always),
        ("CPUs", Room::Always),
        ("measured frames/s", Room::GivesWay(0)),
        ("simulated frames/s", Room::GivesWay(0)),
        ("difference", Room::Always),
        ("within 20 %", Room::GivesWay(1)),
    ]);
    let cells = |row: &ValidationRow| {
        let off = row.simulated / row.measured - 1.0;
        [
            Cell::new(&row.workload),
            Cell::new(&row.engine),
            right(row.cpus),
            right(rate(row.measured)),
            right(rate(row.simulated)),
            right(format!("{:+.1} %", off * 100.0)),
            Cell::new(if row.agrees() { "yes" } else { "no" }),
        ]
    };
    rows.iter().for_each(|row| table.row(cells(row)));
    let table = table.render(style);
    let good = rows.iter().filter(|row| row.agrees()).count();
    format!("{table}\n\n{good} of {} agree within 20 %.\n", rows.len())
}
