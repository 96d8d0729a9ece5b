//! Rows as a table for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::model::Model;
use super::row::{Row, rate};
use crate::tables::number::{duration, memory_of};
use crate::tables::table::{Cell, Room, Style, Table, right, wrap};
use crate::tables::thousands;

/// What `--json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    pub command: &'static str,
    /// Whether the user stopped it before all was done.
    pub interrupted: bool,
    /// The seed; `None` of several, which the rows have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    pub model: &'a Model,
    pub rows: &'a [Row],
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Rows of one workload, machine and seed: what one table shows.
fn groups(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    let group = |row: &Row| (row.workload.clone(), row.memory_bytes, row.seed);
    rows.chunk_by(move |a, b| group(a) == group(b))
}

/// A table for each workload and size of memory.
pub fn table(rows: &[Row], model: &Model, style: Style) -> String {
    let mut text = String::new();
    for part in groups(rows) {
        let first = &part[0];
        let think = if first.think_ns > 0.0 {
            format!(", {} ns of other work between allocations", thousands(first.think_ns as u64))
        } else {
            String::new()
        };
        let memory = memory_of(first.memory_bytes >> 12, 4096);
        let title = format!("{}, {memory} of memory, seed {}{think}", first.workload, first.seed);
        let _ = writeln!(text, "{}", wrap(&title, style, ""));
        let _ = writeln!(text, "{}\n", group_table(part, style));
    }
    let legend = format!(
        "More frames/s and free blocks are better; of waits, holds, times, fallbacks and unusable \
         less is. Wait columns: the share of CPU time spent waiting for the zone lock, for CPUs' \
         own locks, and for cache lines. Bound: what limits the row; 'think' means that the \
         workload itself does, so frames/s says nothing about the allocator. Longest: the longest \
         hold of a zone lock. Unusable: the share of free memory that cannot serve order 9, at the \
         end. Simulated by the constants of: {}",
        model.machine
    );
    let _ = writeln!(text, "{}", wrap(&legend, style, ""));
    text
}

fn group_table(rows: &[Row], style: Style) -> String {
    let mut table = Table::new([
        ("CPUs", Room::Always),
        ("engine", Room::Always),
        ("frames/s", Room::Always),
        ("zone wait", Room::Always),
        ("CPU wait", Room::GivesWay(1)),
        ("line wait", Room::GivesWay(2)),
        ("bound", Room::GivesWay(0)),
        ("zone holds", Room::GivesWay(3)),
        ("PCP holds", Room::GivesWay(6)),
        ("longest", Room::GivesWay(5)),
        ("fell back", Room::GivesWay(4)),
        ("free blocks", Room::GivesWay(4)),
        ("unusable", Room::GivesWay(0)),
    ]);
    let mut before = None;
    for row in rows {
        let cpus = if before == Some(row.cpus) { String::new() } else { row.cpus.to_string() };
        before = Some(row.cpus);
        let mut cells = vec![right(cpus), Cell::new(&row.engine)];
        let numbers = [
            rate(row.frames_per_second),
            percent(row.zone_lock_wait_share),
            percent(row.pcp_lock_wait_share),
            percent(row.line_wait_share),
            row.bound.text().to_owned(),
            thousands(row.zone_lock_acquisitions),
            thousands(row.pcp_lock_acquisitions),
            duration(row.longest_hold_ns),
            thousands(row.fallbacks),
            thousands(row.free_blocks),
            format!("{:.4}", row.unusable_index),
        ];
        cells.extend(numbers.into_iter().map(right));
        table.row(cells);
    }
    table.render(style)
}
