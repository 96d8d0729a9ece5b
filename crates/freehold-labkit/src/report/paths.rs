//! How often each of an engine's ways was taken, engines side by side.

use comfy_table::Cell;

use super::table::{Style, rendered, right};
use super::thousands;
use crate::engine::Paths;

/// A table with a column for each of them; empty where none says its ways. Shares are of the calls
/// of a row's kind.
pub fn render(columns: &[(String, Paths)], style: Style) -> String {
    if columns.is_empty() {
        return "None of these engines says which ways its calls took; freehold does.\n".to_owned();
    }
    let header =
        [Cell::new("times")].into_iter().chain(columns.iter().map(|(name, _)| right(name)));
    let ways: Vec<_> = columns.iter().map(|(_, paths)| paths.named()).collect();
    let rows = Paths::default().named().into_iter().enumerate().map(|(row, (name, ..))| {
        let counts = ways.iter().map(|ways| right(with_share(ways[row].1, ways[row].2)));
        [Cell::new(name)].into_iter().chain(counts).collect::<Vec<_>>()
    });
    format!("{}\n", rendered(style, header.collect::<Vec<_>>(), rows))
}

fn with_share(count: u64, of: Option<u64>) -> String {
    match of {
        Some(all) if all > 0 => {
            format!("{} ({:.1}%)", thousands(count), count as f64 * 100.0 / all as f64)
        }
        _ => thousands(count),
    }
}
