//! The state of every engine over the time of a trace, as Parquet: one row for each sample and
//! engine.

use std::io::Write;

use freehold::{Migratetype, Order};
use parquet::errors::ParquetError;

use super::columns::{self, Values};
use crate::replay::outcome::{COLUMNS, INDEX};
use crate::replay::{Replay, Sample};

struct Row<'a> {
    trace: &'a str,
    engine: &'a str,
    sample: &'a Sample,
}

fn blocks_name(migratetype: Migratetype) -> String {
    format!("blocks_{}", migratetype.name().to_lowercase())
}

/// Writes the samples of all `replays` to `file`.
pub fn write<'a>(
    file: impl Write + Send,
    replays: impl IntoIterator<Item = &'a Replay>,
) -> Result<(), ParquetError> {
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
    columns.extend(
        COLUMNS.iter().map(|(name, _, of)| ((*name).to_owned(), Values::counts(samples().map(of)))),
    );
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
    columns.push((INDEX.to_owned(), Values::Reals(index)));
    columns::write(file, "timeline", None, &columns)
}
