//! Which kernels a comparison with the recording one can tell from it, on which recordings.

use std::collections::BTreeMap;

use comfy_table::Cell;

use super::table::{Style, new_table, right, trim_lines};
use crate::replay::against_kernel::{AgainstKernel, EngineComparison};

/// One line a kernel, one column a recording: the farthest difference, and whether that tells it from the recording
/// kernel. The last column counts the recordings that do.
#[must_use]
pub fn render<'a>(comparisons: impl Iterator<Item = (&'a str, &'a AgainstKernel)>, style: Style) -> String {
    let comparisons: Vec<_> = comparisons.collect();
    let mut table = new_table(style);
    let names = comparisons.iter().map(|(name, _)| (*name).to_owned());
    table.set_header(["kernel".to_owned()].into_iter().chain(names).chain(["told apart on".to_owned()]));
    let mut engines: Vec<(&str, &str)> = Vec::new();
    let mut cells: BTreeMap<(&str, &str, usize), &EngineComparison> = BTreeMap::new();
    for (column, (_, comparison)) in comparisons.iter().enumerate() {
        for engine in &comparison.engines {
            let key = (engine.engine.as_str(), engine.starting_lists);
            if !engines.contains(&key) {
                engines.push(key);
            }
            cells.insert((key.0, key.1, column), engine);
        }
    }
    for (engine, lists) in engines {
        let of = |column: usize| cells.get(&(engine, lists, column)).copied();
        let mut row = vec![Cell::new(engine)];
        row.extend((0..comparisons.len()).map(|column| cell(of(column))));
        let told = (0..comparisons.len()).filter_map(of).filter(|comparison| !comparison.within).count();
        row.push(right(format!("{told} of {}", comparisons.len())));
        table.add_row(row);
    }
    format!(
        "{}\n\nA number is the farthest difference from the recording kernel's own counts; 'as it' means within 15% in both\n\
         totals and 25% in every order that carries over 5% of the frames: not told apart.\n",
        trim_lines(&table.to_string())
    )
}

fn cell(comparison: Option<&EngineComparison>) -> Cell {
    let text = match comparison {
        None => "-".to_owned(),
        Some(comparison) if comparison.within => format!("as it ({:+.1}%)", comparison.largest_difference()),
        Some(comparison) if comparison.largest_difference().is_infinite() => "from 0".to_owned(),
        Some(comparison) => format!("{:+.0}%", comparison.largest_difference()),
    };
    right(text)
}
