//! The report for people.

use std::fmt::Write as _;

use super::report::{Report, Row};
use freehold_lab::tables::number::{counted, duration, memory_of, thousands};
use freehold_lab::tables::table::{Cell, Room, Style, Table, right, wrap_lines};

pub(crate) fn table(report: &Report, style: Style) -> String {
    let mut text = String::new();
    for (alone, title) in [(false, "all threads"), (true, "one thread alone")] {
        let rows: Vec<_> = report.rows.iter().filter(|row| row.alone == alone).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "{title}\n{}\n", one(&rows, alone, style));
        }
    }
    text.push_str(&wrap_lines(&summary(report), style));
    text.push('\n');
    text
}

/// The greatest seen and the bound.
fn of(seen: Option<u64>, bound: Option<u64>) -> Cell {
    let seen = seen.unwrap_or(0);
    right(match bound {
        Some(bound) => format!("{} of {}", thousands(seen), thousands(bound)),
        None => thousands(seen),
    })
}

fn one(rows: &[&Row], alone: bool, style: Style) -> String {
    let mut header = vec![
        ("call", Room::Always),
        ("count", Room::GivesWay(3)),
        ("refused", Room::GivesWay(2)),
        ("p50", Room::GivesWay(1)),
        ("p99", Room::GivesWay(1)),
        ("p99.9", Room::GivesWay(1)),
        ("max", Room::GivesWay(0)),
        ("barriers", Room::Always),
    ];
    header.extend(if alone {
        [("shared writes", Room::Always)]
    } else {
        [("waits", Room::Always)]
    });
    let cells = |row: &&Row| {
        let name = if row.owner { format!("{} (owner)", row.call) } else { row.call.to_owned() };
        let mut cells =
            vec![Cell::new(name), right(thousands(row.count)), right(thousands(row.refused))];
        cells.extend(
            [row.p50_ns, row.p99_ns, row.p999_ns, row.max_ns].map(|ns| right(duration(ns))),
        );
        cells.push(of(row.barriers, row.barriers_bound));
        if alone {
            cells.push(of(row.shared_writes, row.shared_writes_bound));
        } else {
            cells.push(of(row.waits, row.waits_bound));
        }
        cells
    };
    let mut table = Table::new(header);
    rows.iter().for_each(|row| table.row(cells(row)));
    table.render(style)
}

fn summary(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} in {:.0} s by {} on {}, {}, {}, seed {}",
        counted(report.calls, "call"),
        report.seconds,
        counted(u64::from(report.threads), "thread"),
        counted(report.cpus, "CPU"),
        counted(report.zones, "zone"),
        memory_of(report.memory_bytes >> 10, 1 << 10),
        report.seed
    );
    let _ = writeln!(
        text,
        "{} stopped, {} of them in mid-call; {} in which every invariant was checked; {} of what CPUs hold; {} of a \
         zone's pressure; at most {} in a zone",
        counted(report.stops.threads, "thread"),
        thousands(report.stops.in_call),
        counted(report.pauses, "pause"),
        counted(report.recalls, "recall"),
        counted(report.pressures, "change"),
        counted(report.high_atomic_blocks, "HIGHATOMIC block"),
    );
    if !report.heavy_barrier {
        text.push_str("no membarrier(2) on this system: owners of CPUs took an ordinary lock\n");
    }
    text.push_str(
        "Barriers, waits and shared writes: the most in one call, of the most that one may have (docs/bounds.md)\n",
    );
    let wrong = report.troubles.len() + report.stuck.len();
    let verdict = if report.ok {
        "verdict: nothing was wrong\n".to_owned()
    } else {
        format!("verdict: WRONG, {}, printed above the table\n", counted(wrong as u64, "finding"))
    };
    text.push_str(verdict.trim_end());
    text
}
