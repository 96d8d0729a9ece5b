//! How often each of an engine's ways was taken, engines side by side.

use comfy_table::Cell;

use super::table::{Style, new_table, right, trim_lines};
use super::thousands;
use crate::engine::Paths;

/// A table with a column for each of them; empty where none says its ways. Shares are of the calls of a row's kind.
#[must_use]
pub fn render(columns: &[(String, Paths)], style: Style) -> String {
    if columns.is_empty() {
        return "None of these engines says which ways its calls took; freehold does.\n".to_owned();
    }
    let mut table = new_table(style);
    let mut header = vec![Cell::new("times")];
    header.extend(columns.iter().map(|(name, _)| right(name.clone())));
    table.set_header(header);
    let ways: Vec<_> = columns.iter().map(|(_, paths)| paths.named()).collect();
    for (row, (name, ..)) in Paths::default().named().into_iter().enumerate() {
        let mut cells = vec![Cell::new(name)];
        cells.extend(ways.iter().map(|ways| right(with_share(ways[row].1, ways[row].2))));
        table.add_row(cells);
    }
    format!("{}\n", trim_lines(&table.to_string()))
}

fn with_share(count: u64, of: Option<u64>) -> String {
    match of {
        Some(all) if all > 0 => format!("{} ({:.1}%)", thousands(count), count as f64 * 100.0 / all as f64),
        _ => thousands(count),
    }
}
