//! The state of every engine over the time of a trace, as Parquet: one row for each sample and engine.

use std::io::Write;

use freehold::{Migratetype, Order};
use parquet::errors::ParquetError;

use super::columns::{self, Values};
use crate::replay::{Replay, Sample};

/// One row.
struct Row<'a> {
    trace: &'a str,
    engine: &'a str,
    sample: &'a Sample,
}

/// A column of counts.
type Count = (&'static str, fn(&Sample) -> u64);

/// The columns of counts, in order. `largest_free_order` (nullable), `unusable_index_order9` and the names come
/// besides.
const COUNTS: [Count; 15] = [
    ("ts_ns", |s| s.point.ts_ns),
    ("live_frames", |s| s.point.live_frames),
    ("managed_frames", |s| s.memory.managed_frames),
    ("free_frames", |s| s.memory.free_frames),
    ("pcp_frames", |s| s.memory.pcp_frames),
    ("free_blocks", |s| s.memory.free_blocks),
    ("mixed_blocks", |s| s.memory.mixed_blocks),
    ("zone_lock_acquisitions", |s| s.counters.zone_lock_acquisitions),
    ("zone_lock_work", |s| s.counters.zone_lock_work),
    ("group_lock_acquisitions", |s| s.counters.group_lock_acquisitions),
    ("merges_zone", |s| s.counters.merges_zone),
    ("merges_pcp", |s| s.counters.merges_pcp),
    ("refilled_frames", |s| s.counters.refilled_frames),
    ("drained_frames", |s| s.counters.drained_frames),
    ("fallbacks", |s| s.counters.fallbacks),
];

fn blocks_name(migratetype: Migratetype) -> String {
    format!("blocks_{}", migratetype.name().to_lowercase())
}

/// Writes the samples of all `replays` to `file`.
///
/// # Errors
///
/// Whatever writing the file ran into.
pub fn write<'a>(file: impl Write + Send, replays: impl IntoIterator<Item = &'a Replay>) -> Result<(), ParquetError> {
    let rows: Vec<Row<'a>> = replays
        .into_iter()
        .flat_map(|replay| replay.engines.iter().map(move |engine| (replay, engine)))
        .flat_map(|(replay, engine)| {
            let trace = replay.survey.description.name.as_str();
            engine.samples.iter().map(move |sample| Row { trace, engine: &engine.engine, sample })
        })
        .collect();
    let samples = || rows.iter().map(|row| row.sample);
    let mut columns = vec![
        ("trace".to_owned(), Values::texts(rows.iter().map(|row| row.trace))),
        ("engine".to_owned(), Values::texts(rows.iter().map(|row| row.engine))),
    ];
    columns.extend(COUNTS.iter().map(|(name, of)| ((*name).to_owned(), Values::counts(samples().map(of)))));
    columns.extend(Migratetype::ALL.iter().map(|&migratetype| {
        let blocks = |sample: &Sample| sample.memory.blocks_by_type[migratetype.index()];
        (blocks_name(migratetype), Values::counts(samples().map(blocks)))
    }));
    columns.extend((0..=10).map(|order| {
        let chunks = samples().map(|sample| sample.memory.free_chunks[order]);
        (format!("free_chunks_order{order}"), Values::counts(chunks))
    }));
    let largest = samples().map(|sample| sample.memory.largest_free_order).collect();
    columns.push(("largest_free_order".to_owned(), Values::Small(largest)));
    let index = samples().map(|sample| sample.memory.unusable_index(Order::PAGEBLOCK)).collect();
    columns.push(("unusable_index_order9".to_owned(), Values::Reals(index)));
    columns::write(file, "timeline", None, &columns)
}
