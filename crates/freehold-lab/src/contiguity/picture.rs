//! Memory before blocks are emptied, when half of the work is done, and afterwards, as an SVG: a
//! square for each block, line by line from the lowest on.

use super::figure::{Cell, Layout};
use crate::draw::svg::Svg;

/// Squares of a line, and from one to the next.
const LINE: usize = 64;
const STEP: f64 = 14.0;
const SIDE: f64 = 12.0;
const MARGIN: f64 = 20.0;
const WIDTH: f64 = MARGIN * 2.0 + STEP * LINE as f64;
/// Above the squares of each part, and for the legend.
const TITLE: f64 = 34.0;
const LEGEND: f64 = 30.0;

/// The looks of blocks: a place among the series, an opacity, and what they are.
const LOOKS: [(usize, f64, &str); 6] = [
    (4, 1.0, "whole"),
    (2, 0.15, "up to a quarter in use"),
    (2, 0.4, "a half"),
    (2, 0.7, "three quarters"),
    (2, 1.0, "all"),
    (7, 1.0, "cannot move"),
];

/// Which of them a block has.
fn look(used: Option<u64>) -> usize {
    used.map_or(5, |used| used.div_ceil(128) as usize)
}

/// The picture of the first cell whose engine has moved something of its own; `None` without one.
pub(super) fn svg(cells: &[Cell]) -> Option<String> {
    let (cell, layouts) = cells.iter().find_map(|cell| Some((cell, cell.layouts.as_ref()?)))?;
    let of = |layout: &Layout| TITLE + STEP * layout.len().div_ceil(LINE) as f64;
    let height = layouts.iter().map(of).sum::<f64>() + LEGEND;
    let Cell { workload, cpus, memory_mib, engine, .. } = cell;
    let title = format!("{engine} after {workload} on {cpus} CPUs, {memory_mib} MiB");
    let mut svg = Svg::new(&title, (WIDTH, height));
    let mut top = 0.0;
    for (layout, when) in layouts.iter().zip(["before", "half of it done", "after"]) {
        let whole = layout.iter().filter(|used| **used == Some(0)).count();
        let said = format!("{title}: {when}, {whole} of {} blocks whole", layout.len());
        svg.text((MARGIN, top + 24.0), "text", &said);
        for (n, (place, opacity, _)) in LOOKS.iter().enumerate() {
            let blocks = layout.iter().enumerate().filter(|(_, used)| look(**used) == n);
            let corner = |(at, _): (usize, &Option<u64>)| {
                let line = top + TITLE + STEP * (at / LINE) as f64;
                (MARGIN + STEP * (at % LINE) as f64, line)
            };
            svg.squares(*place, *opacity, SIDE, &blocks.map(corner).collect::<Vec<_>>());
        }
        top += of(layout);
    }
    let mut left = MARGIN;
    for (place, opacity, what) in LOOKS {
        svg.squares(place, opacity, SIDE, &[(left, top + 10.0)]);
        svg.text((left + 18.0, top + 21.0), "soft", what);
        left += 40.0 + 8.0 * what.len() as f64;
    }
    Some(svg.finished())
}
