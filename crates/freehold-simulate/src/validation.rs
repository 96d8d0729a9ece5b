//! Simulated beside measured: what `freehold calibrate --validate` finds.

use comfy_table::Cell;
use freehold_labkit::report::table::{Style, rendered, right};
use serde::Serialize;

use super::output::rate;

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
    let header = [
        "workload",
        "engine",
        "CPUs",
        "measured frames/s",
        "simulated frames/s",
        "difference",
        "within 20 %",
    ];
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
    let table = rendered(style, header, rows.iter().map(cells));
    let good = rows.iter().filter(|row| row.agrees()).count();
    format!("{table}\n\n{good} of {} agree within 20 %.\n", rows.len())
}
