//! How often each of an engine's ways was taken, engines side by side.

use comfy_table::{Cell, CellAlignment};

use super::table::{Style, new_table, trim_lines};
use super::thousands;
use crate::engine::Paths;

/// A table with a column for each of them; empty where none says its ways. Shares are of the calls of a row's kind.
#[must_use]
pub fn render(columns: &[(String, Paths)], style: Style) -> String {
    if columns.is_empty() {
        return "None of these engines says which ways its calls took; freehold does.\n".to_owned();
    }
    let mut table = new_table(style);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let mut header = vec![Cell::new("times")];
    header.extend(columns.iter().map(|(name, _)| right(name.clone())));
    table.set_header(header);
    let counts: Vec<_> = columns.iter().map(|(_, paths)| (paths.named(), paths)).collect();
    for (row, (name, _)) in Paths::default().named().into_iter().enumerate() {
        let mut cells = vec![Cell::new(name)];
        cells.extend(counts.iter().map(|(named, paths)| right(with_share(named[row].1, of(row, paths)))));
        table.add_row(cells);
    }
    format!("{}\n", trim_lines(&table.to_string()))
}

/// What a row is a share of: its first rows are allocations, then looks for a block, then frees.
fn of(row: usize, paths: &Paths) -> Option<u64> {
    match row {
        0 | 1 => Some(paths.alloc_in_hand + paths.alloc_slow),
        3..=6 => Some(paths.refills),
        8..=10 => Some(paths.free_own_group + paths.free_other_group + paths.free_state_in_use),
        _ => None,
    }
}

fn with_share(count: u64, of: Option<u64>) -> String {
    match of {
        Some(all) if all > 0 => format!("{} ({:.1}%)", thousands(count), count as f64 * 100.0 / all as f64),
        _ => thousands(count),
    }
}
