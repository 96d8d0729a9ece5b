//! The picture of memory: each pageblock as a cell, lighter the more of it is free.
//!
//! ```text
//!  ■ 6.18     ▓▓▒░ ...   128 cells a row, by rising address
//! ```
//!
//! A replay with `--memory-map` has each block at several moments; drawn is the last one.

use std::fmt::Write as _;

use serde_json::Value;

use super::planes::decode;

/// Cells in a row.
const ACROSS: usize = 128;
/// Pixels of a cell.
const CELL: usize = 6;
/// Shades between in use and free.
const SHADES: u64 = 4;

/// The picture of one engine's memory at the end, or nothing where the JSON has no map.
pub(super) fn picture(engine: &Value) -> Option<String> {
    let map = engine.get("memory_map")?;
    let cells = usize::try_from(map["cells"].as_u64()?).ok()?;
    let plane = |name: &str| {
        let mut values = vec![0; cells];
        for moment in map[name].as_array()? {
            decode(moment.as_str()?, &mut values).ok()?;
        }
        Some(values)
    };
    let free = plane("free")?;
    let mut frames = vec![0; cells];
    decode(map["frames"].as_str()?, &mut frames).ok()?;
    Some(svg(&free, &frames))
}

/// Runs of equal shades are one rectangle each.
fn svg(free: &[u64], frames: &[u64]) -> String {
    let rows = free.len().div_ceil(ACROSS);
    let (width, height) = (ACROSS * CELL, rows * CELL);
    let mut html = format!(
        "<svg class=\"memory\" viewBox=\"0 0 {width} {height}\" role=\"img\">\
         <title>Pageblocks by rising address; light: free</title>\n"
    );
    for (row, (free, frames)) in free.chunks(ACROSS).zip(frames.chunks(ACROSS)).enumerate() {
        let shades: Vec<Option<u64>> =
            free.iter().zip(frames).map(|(&free, &all)| shade(free, all)).collect();
        let mut at = 0;
        while at < shades.len() {
            let run = shades[at..].iter().take_while(|&&shade| shade == shades[at]).count();
            if let Some(shade) = shades[at] {
                let _ = write!(
                    html,
                    "<rect class=\"m{shade}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                    at * CELL,
                    row * CELL,
                    run * CELL,
                    CELL - 1
                );
            }
            at += run;
        }
    }
    html + "</svg>\n"
}

/// 0: all of it in use; the most: all of it free; none: there is no memory.
fn shade(free: u64, all: u64) -> Option<u64> {
    match (free, all) {
        (_, 0) => None,
        (0, _) => Some(0),
        (free, all) if free >= all => Some(SHADES),
        (free, all) => Some(1 + free * (SHADES - 1) / all),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_block_is_lighter_the_more_of_it_is_free() {
        assert_eq!(shade(0, 512), Some(0));
        assert_eq!(shade(1, 512), Some(1));
        assert_eq!(shade(511, 512), Some(3));
        assert_eq!(shade(512, 512), Some(4));
        assert_eq!(shade(0, 0), None);
    }

    #[test]
    fn the_last_moment_is_drawn() {
        let engine = json!({"memory_map": {
            "cells": 3, "frames": "0 3 512", "free": ["0 3 512", "1 1 0"],
        }});
        let drawn = picture(&engine).expect("it has a map");
        assert_eq!(drawn.matches("class=\"m4\"").count(), 2, "{drawn}");
        assert_eq!(drawn.matches("class=\"m0\"").count(), 1, "{drawn}");
        assert_eq!(picture(&json!({})), None);
    }
}
