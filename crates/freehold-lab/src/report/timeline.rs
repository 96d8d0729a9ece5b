//! The state of every engine over the time of a trace, as Parquet: one row for each sample and engine.

use std::io::Write;
use std::sync::Arc;

use freehold::{Migratetype, Order};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

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
const COUNTS: [Count; 14] = [
    ("ts_ns", |s| s.point.ts_ns),
    ("live_frames", |s| s.point.live_frames),
    ("managed_frames", |s| s.memory.managed_frames),
    ("free_frames", |s| s.memory.free_frames),
    ("pcp_frames", |s| s.memory.pcp_frames),
    ("free_blocks", |s| s.memory.free_blocks),
    ("mixed_blocks", |s| s.memory.mixed_blocks),
    ("zone_lock_acquisitions", |s| s.counters.zone_lock_acquisitions),
    ("zone_lock_work", |s| s.counters.zone_lock_work),
    ("merges_zone", |s| s.counters.merges_zone),
    ("merges_pcp", |s| s.counters.merges_pcp),
    ("refilled_frames", |s| s.counters.refilled_frames),
    ("drained_frames", |s| s.counters.drained_frames),
    ("fallbacks", |s| s.counters.fallbacks),
];

fn column(name: &str, physical: PhysicalType, logical: ConvertedType, repetition: Repetition) -> Arc<Type> {
    let column = Type::primitive_type_builder(name, physical).with_converted_type(logical).with_repetition(repetition);
    Arc::new(column.build().expect("a column of a plain type is valid"))
}

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

    let text = |name| column(name, PhysicalType::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED);
    let count = |name: &str| column(name, PhysicalType::INT64, ConvertedType::UINT_64, Repetition::REQUIRED);
    let mut fields = vec![text("trace"), text("engine")];
    fields.extend(COUNTS.iter().map(|(name, _)| count(name)));
    fields.extend(Migratetype::ALL.iter().map(|&migratetype| count(&blocks_name(migratetype))));
    fields.extend((0..=10).map(|order| count(&format!("free_chunks_order{order}"))));
    fields.push(column("largest_free_order", PhysicalType::INT32, ConvertedType::UINT_8, Repetition::OPTIONAL));
    let real = column("unusable_index_order9", PhysicalType::DOUBLE, ConvertedType::NONE, Repetition::REQUIRED);
    fields.push(real);
    let schema = Arc::new(Type::group_type_builder("timeline").with_fields(fields).build()?);
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();

    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    texts(&mut group, rows.iter().map(|row| row.trace))?;
    texts(&mut group, rows.iter().map(|row| row.engine))?;
    for (_, value) in COUNTS {
        counts(&mut group, rows.iter().map(|row| value(row.sample)))?;
    }
    for migratetype in Migratetype::ALL {
        counts(&mut group, rows.iter().map(|row| row.sample.memory.blocks_by_type[migratetype.index()]))?;
    }
    for order in 0..=10 {
        counts(&mut group, rows.iter().map(|row| row.sample.memory.free_chunks[order]))?;
    }
    let largest = || rows.iter().map(|row| row.sample.memory.largest_free_order);
    let values: Vec<i32> = largest().flatten().map(i32::from).collect();
    let present: Vec<i16> = largest().map(|order| i16::from(order.is_some())).collect();
    next::<Int32Type>(&mut group, &values, Some(&present))?;
    let index: Vec<f64> = rows.iter().map(|row| row.sample.memory.unusable_index(Order::PAGEBLOCK)).collect();
    next::<DoubleType>(&mut group, &index, None)?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn counts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = u64>,
) -> Result<(), ParquetError> {
    // Parquet stores unsigned numbers as the signed ones of the same bits.
    let values: Vec<i64> = values.map(|value| value as i64).collect();
    next::<Int64Type>(group, &values, None)
}

fn texts<'a, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = &'a str>,
) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = values.map(ByteArray::from).collect();
    next::<ByteArrayType>(group, &values, None)
}

fn next<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("more columns than fields".into()))?;
    column.typed::<T>().write_batch(values, present, None)?;
    column.close()
}
