//! How often each of an engine's ways was taken, engines side by side.

use super::table::{Cell, Room, Style, Table, right};
use super::thousands;
use crate::engine::Paths;

/// A table with a column for each of them; empty where none says its ways. Shares are of the calls
/// of a row's kind.
pub fn render(columns: &[(String, Paths)], style: Style) -> String {
    if columns.is_empty() {
        return "None of these engines counts which paths its calls took; freehold does.\n"
            .to_owned();
    }
    let header = std::iter::once((Cell::new("times"), Room::Always));
    let names = columns.iter().map(|(name, _)| (right(name), Room::Wraps));
    let mut table = Table::new(header.chain(names)).in_blocks(1);
    let ways: Vec<_> = columns.iter().map(|(_, paths)| paths.named()).collect();
    for (row, (name, ..)) in Paths::default().named().into_iter().enumerate() {
        let counts = ways.iter().map(|ways| right(with_share(ways[row].1, ways[row].2)));
        table.row(std::iter::once(Cell::new(name)).chain(counts));
    }
    format!("{}\n", table.render(style))
}

fn with_share(count: u64, of: Option<u64>) -> String {
    match of {
        Some(all) if all > 0 => {
            format!("{} ({:.1}%)", thousands(count), count as f64 * 100.0 / all as f64)
        }
        _ => thousands(count),
    }
}
