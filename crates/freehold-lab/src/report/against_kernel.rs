//! The kernel's own counts beside an engine's.

use std::fmt::Write as _;

use comfy_table::Cell;
use freehold::Migratetype;

use super::number::thousands;
use super::table::{Style, header_lines, new_table, right, trim_lines};
use crate::replay::Replay;
use crate::replay::against_kernel::{AgainstKernel, Comparison};

/// The header and the comparison of one trace.
#[must_use]
pub fn render(replay: &Replay, against: &AgainstKernel, style: Style) -> String {
    let mut text = header_lines(replay);
    let _ = write!(text, "\n  compared: zone {}", against.zone);
    for counts in against.kernel.iter().filter(|counts| counts.zone != against.zone) {
        if counts.refilled_frames + counts.direct_frames + counts.drained_frames > 0 {
            let _ = write!(
                text,
                "; besides, {} frames refilled and {} drained in {}",
                thousands(counts.refilled_frames),
                thousands(counts.drained_frames),
                counts.zone
            );
        }
    }
    let mut table = new_table(style);
    table.set_header(["", "lists", "", "kernel", "engine", "difference", "within"]);
    for engine in &against.engines {
        let name = [engine.engine.as_str(), engine.starting_lists];
        for (what, comparison) in [
            ("frames refilled under the zone lock", &engine.refilled_frames),
            ("frames drained", &engine.drained_frames),
            ("  refilled, second half of the time", &engine.late_refilled_frames),
            ("  drained, second half of the time", &engine.late_drained_frames),
        ] {
            table.add_row(row(name, what, comparison, "15%"));
        }
        for list in engine.lists.iter().filter(|list| list.migratetype.is_none()) {
            let held =
                [("refilled", &list.refilled, list.carries_refills), ("drained", &list.drained, list.carries_drains)];
            for (what, comparison, _) in held.into_iter().filter(|(_, _, carries)| *carries) {
                table.add_row(row(name, &format!("  {what}, order {}", list.order), comparison, "25%"));
            }
        }
        table.add_row(row(name, "fallbacks to another type", &engine.fallbacks, "15%"));
        for types in &engine.fallback_types {
            let name_of = |number: u8| Migratetype::ALL.get(usize::from(number)).map_or("?", |of| of.name());
            let what = format!("  order {}, {} from {}", types.order, name_of(types.migratetype), name_of(types.from));
            let counts = [types.kernel, types.engine].map(|count| right(thousands(count)));
            table.add_row([name[0], name[1], &what].map(Cell::new).into_iter().chain(counts));
        }
        let verdict = if engine.within { "as the kernel did" } else { "not as the kernel did" };
        table.add_row([name[0], name[1], verdict]);
    }
    format!("{text}\n{}\n", trim_lines(&table.to_string()))
}

fn row(name: [&str; 2], what: &str, comparison: &Comparison, bound: &str) -> Vec<Cell> {
    let difference = comparison.difference_percent.map_or("-".to_owned(), |percent| format!("{percent:+.1}%"));
    vec![
        Cell::new(name[0]),
        Cell::new(name[1]),
        Cell::new(what),
        right(thousands(comparison.kernel)),
        right(thousands(comparison.engine)),
        right(difference),
        right(format!("{bound}: {}", if comparison.within { "yes" } else { "no" })),
    ]
}
