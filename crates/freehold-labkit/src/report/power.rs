//! Which kernels a comparison with the recording one can tell from it, on which recordings.

use comfy_table::Cell;

use super::table::{Style, rendered, right};
use super::unique;
use crate::replay::against_kernel::{AgainstKernel, EngineComparison};

/// One line a kernel, one column a recording: the farthest difference, and whether that tells it
/// from the recording kernel. The last column counts the recordings that do.
pub fn render<'a>(
    comparisons: impl Iterator<Item = (&'a str, &'a AgainstKernel)>,
    style: Style,
) -> String {
    let comparisons: Vec<_> = comparisons.collect();
    let names = comparisons.iter().map(|(name, _)| (*name).to_owned());
    let header = ["kernel".to_owned()].into_iter().chain(names).chain(["told apart on".to_owned()]);
    let key = |engine: &EngineComparison| (engine.engine.clone(), engine.starting_lists);
    let rows = unique(comparisons.iter().flat_map(|(_, all)| &all.engines).map(key))
        .into_iter()
        .map(|kernel| {
            let of = |all: &AgainstKernel| {
                all.engines.iter().find(|engine| key(engine) == kernel).cloned()
            };
            let of: Vec<_> = comparisons.iter().map(|(_, all)| of(all)).collect();
            let told = of.iter().flatten().filter(|comparison| !comparison.within).count();
            let cells = of.iter().map(|comparison| cell(comparison.as_ref()));
            let last = right(format!("{told} of {}", of.len()));
            [Cell::new(&kernel.0)].into_iter().chain(cells).chain([last]).collect::<Vec<_>>()
        });
    format!(
        "{}\n\nA number is the farthest difference from the recording kernel's own counts; 'as it' means within 15% in both\n\
         totals and 25% in every order that carries over 5% of the frames: not told apart.\n",
        rendered(style, header.collect::<Vec<_>>(), rows)
    )
}

fn cell(comparison: Option<&EngineComparison>) -> Cell {
    let text = match comparison {
        None => "-".to_owned(),
        Some(comparison) if comparison.within => {
            format!("as it ({:+.1}%)", comparison.largest_difference())
        }
        Some(comparison) if comparison.largest_difference().is_infinite() => "from 0".to_owned(),
        Some(comparison) => format!("{:+.0}%", comparison.largest_difference()),
    };
    right(text)
}
