//! The kernel's own counts beside an engine's.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment};

use super::number::thousands;
use super::table::{Style, header_lines, new_table, trim_lines};
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
    table.set_header(["", "", "kernel", "engine", "difference", "within 15%"]);
    for engine in &against.engines {
        for (what, comparison) in [
            ("frames refilled under the zone lock", &engine.refilled_frames),
            ("frames drained", &engine.drained_frames),
        ] {
            table.add_row(row(&engine.engine, what, comparison));
        }
    }
    format!("{text}\n{}\n", trim_lines(&table.to_string()))
}

fn row(engine: &str, what: &str, comparison: &Comparison) -> Vec<Cell> {
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let difference = comparison.difference_percent.map_or("-".to_owned(), |percent| format!("{percent:+.1}%"));
    vec![
        Cell::new(engine),
        Cell::new(what),
        right(thousands(comparison.kernel)),
        right(thousands(comparison.engine)),
        right(difference),
        right(if comparison.within { "yes" } else { "no" }.to_owned()),
    ]
}
