//! The kernel's own counts beside an engine's.

use std::fmt::Write as _;

use crate::replay::Replay;
use crate::tables::table::{Cell, Room, Style, Table, header_lines, right, wrap, wrap_lines};
use crate::tables::thousands;

use super::compare::{AgainstKernel, Comparison};
use super::counts::KernelCounts;

/// The header and the comparison of one trace.
pub(super) fn render(replay: &Replay, against: &AgainstKernel, style: Style) -> String {
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
    let past = |counts: &&KernelCounts| counts.zone == against.zone && counts.freed_past_lists > 0;
    if let Some(counts) = against.kernel.iter().find(past) {
        let frames = thousands(counts.freed_past_lists);
        let _ = write!(text, "; {frames} frames or more were freed past the CPUs' lists");
    }
    let mut table = Table::new([
        ("engine", Room::Always),
        ("lists", Room::Always),
        ("what", Room::Wraps),
        ("kernel", Room::Always),
        ("engine's", Room::GivesWay(1)),
        ("differs", Room::Always),
        ("within", Room::GivesWay(0)),
        ("drawn starts", Room::GivesWay(2)),
    ]);
    for engine in &against.engines {
        let name = [engine.engine.as_str(), engine.starting_lists];
        for (what, comparison, bound) in [
            ("frames refilled under the zone lock", &engine.refilled_frames, "15%"),
            ("frames drained", &engine.drained_frames, "15%"),
            ("  refilled, second half of the time", &engine.late_refilled_frames, ""),
            ("  drained, second half of the time", &engine.late_drained_frames, ""),
        ] {
            table.row(row(name, what, comparison, bound));
        }
        for list in &engine.lists {
            let held = [("refilled", &list.refilled), ("drained", &list.drained)];
            for (what, comparison) in
                held.into_iter().filter(|(_, comparison)| comparison.within.is_some())
            {
                table.row(row(name, &format!("  {what}, order {}", list.order), comparison, "25%"));
            }
        }
        table.row(row(name, "fallbacks to another type", &engine.fallbacks, ""));
        let verdict =
            if engine.within { "verdict: within the goal" } else { "verdict: outside the goal" };
        table.row([name[0], name[1], verdict]);
    }
    let (header, table) = (wrap_lines(&text, style), table.render(style));
    format!("{header}\n{table}\n{}\n", wrap(WORDS, style, "  "))
}

/// What the columns say.
const WORDS: &str = "lists: where the frames on CPUs' lists lay when the recording began. \
                     zoneinfo: all movable single frames, which is a prediction; trace: as far as \
                     the recording's own rows show it. kernel: what the recording kernel counted; \
                     engine's: what the engine did. within: the difference that is the goal, and \
                     whether it is met; the verdict rests on the rows that have one. drawn starts: \
                     the least and the most of what the engine does from them (--starts).";

/// One number of the table; `bound` is what it is held to, where it is.
fn row(name: [&str; 2], what: &str, comparison: &Comparison, bound: &str) -> Vec<Cell> {
    let difference =
        comparison.difference_percent.map_or("-".to_owned(), |percent| format!("{percent:+.1}%"));
    let within = comparison
        .within
        .map_or(String::new(), |within| format!("{bound}: {}", if within { "yes" } else { "no" }));
    vec![
        Cell::new(name[0]),
        Cell::new(name[1]),
        Cell::new(what),
        right(thousands(comparison.kernel)),
        right(thousands(comparison.engine)),
        right(difference),
        right(within),
        right(comparison.starts.map_or(String::new(), |[least, most]| {
            format!("{} to {}", thousands(least), thousands(most))
        })),
    ]
}
