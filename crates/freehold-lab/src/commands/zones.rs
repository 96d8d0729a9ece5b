//! A trace whose rows lie in several zones: where they lie, and what the replays of the zones come
//! to together.

use serde::Serialize;

use super::replay::{Answered, Done};
use crate::engine::{Count, Counters};
use crate::replay::of_zone::RowsOf;
use crate::replay::{Machine, Replay};
use crate::tables::table::{Style, left, rendered, right, wrap};
use crate::tables::thousands;

/// The counts of an engine in all zones that were replayed.
#[derive(Serialize)]
pub(super) struct Sum {
    engine: String,
    #[serde(flatten)]
    counters: Counters,
    /// At the end of the trace, with what CPUs hold.
    free_frames_end: u64,
    /// Pageblocks with no frame in use, at the end of the trace.
    free_blocks_end: u64,
}

/// Of each engine; empty where one zone was replayed.
pub(super) fn sum(first: &Replay, others: &[Replay]) -> Vec<Sum> {
    let engines = if others.is_empty() { &[][..] } else { &first.engines[..] };
    let of = |(at, engine): (usize, &crate::replay::EngineOutcome)| {
        let mut sum = Sum {
            engine: engine.engine.clone(),
            counters: engine.counters.clone(),
            free_frames_end: engine.free_frames_end,
            free_blocks_end: engine.free_blocks_end,
        };
        for other in others.iter().filter_map(|replay| replay.engines.get(at)) {
            sum.counters.add(&other.counters);
            sum.free_frames_end += other.free_frames_end;
            sum.free_blocks_end += other.free_blocks_end;
        }
        sum
    };
    engines.iter().enumerate().map(of).collect()
}

/// Where the rows lie, and which of them were replayed; empty where all lie in one zone.
pub(super) fn rows_line(done: &Done<Answered>, style: Style) -> String {
    let rows = &done.more.rows_by_zone;
    if rows.is_empty() {
        return String::new();
    }
    let lie: Vec<String> = rows.iter().filter(|of| of.rows > 0).map(RowsOf::told).collect();
    let replays = [&done.replay].into_iter().chain(&done.beside);
    let of = |replay: &Replay| {
        let Machine { zone, node, .. } = &replay.machine;
        format!("{} of node {}", zone.as_deref().unwrap_or("?"), node.unwrap_or(0))
    };
    let replayed: Vec<String> = replays.map(of).collect();
    let line = format!(
        "rows by zone: {}; replayed, each with its own requests and frees: {}",
        lie.join(", "),
        replayed.join(", ")
    );
    format!("{}\n", wrap(&line, style, "  "))
}

pub(super) fn sum_table(sums: &[Sum], style: Style) -> String {
    if sums.is_empty() {
        return String::new();
    }
    let header =
        ["all zones", "allocations", "failures", "zone locks", "fallbacks", "whole blocks"];
    let header = header
        .iter()
        .enumerate()
        .map(|(at, name)| if at == 0 { left(*name) } else { right(*name) });
    let row = |sum: &Sum| {
        let Counters { allocs, failed, zone_lock_acquisitions, fallbacks, .. } = sum.counters;
        let counts = [allocs, failed, zone_lock_acquisitions, fallbacks, sum.free_blocks_end];
        [left(sum.engine.clone())].into_iter().chain(counts.map(|n| right(thousands(n))))
    };
    format!("\n{}\n", rendered(style, header, sums.iter().map(row)))
}
