//! Rows as a table for people, as JSON, and as Parquet.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

use comfy_table::Cell;
use parquet::basic::{Compression, ConvertedType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde::Serialize;

use super::model::Model;
use super::run::Row;
use super::validate::ValidationRow;
use crate::engine::CmaCounts;
use crate::report::table::{Style, new_table, right, trim_lines};
use crate::report::thousands;

/// What `--json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    /// Always `simulate`.
    pub command: &'static str,
    /// The seed, or the first of them.
    pub seed: u64,
    /// The constants.
    pub model: &'a Model,
    /// The results.
    pub rows: &'a [Row],
    /// Simulated beside measured, with `--validate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<&'a [ValidationRow]>,
}

impl<'a> Document<'a> {
    /// The document of a run.
    #[must_use]
    pub fn new(seed: u64, model: &'a Model, rows: &'a [Row], validation: Option<&'a [ValidationRow]>) -> Self {
        Self { command: "simulate", seed, model, rows, validation }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Nanoseconds as people read them.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{} ns", thousands(ns)),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// Bytes as people name memory.
#[must_use]
pub fn memory(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => format!("{} {unit}", bytes >> shift),
        Some((shift, unit)) => {
            format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << 20) / f64::from(1u32 << (shift - 20)))
        }
        None => format!("{bytes} B"),
    }
}

fn rate(per_second: f64) -> String {
    if per_second >= 1e9 {
        format!("{:.2} G", per_second / 1e9)
    } else if per_second >= 1e6 {
        format!("{:.1} M", per_second / 1e6)
    } else {
        thousands(per_second.round() as u64)
    }
}

/// A table for each workload and size of memory.
#[must_use]
pub fn table(rows: &[Row], model: &Model, style: Style) -> String {
    let mut text = String::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let group =
            |row: &Row| (row.workload.clone(), row.memory_bytes, row.seed, row.nodes, row.cma.map(|cma| cma.frames));
        let (part, more) = rest.split_at(rest.iter().take_while(|row| group(row) == group(first)).count());
        rest = more;
        let think = if first.think_ns > 0.0 {
            format!(", {} ns between", thousands(first.think_ns as u64))
        } else {
            String::new()
        };
        let memory = memory(first.memory_bytes);
        let nodes = if first.nodes > 1 { format!(" on {} nodes", first.nodes) } else { String::new() };
        let cma = first
            .cma
            .map_or_else(String::new, |cma| format!(", {} of it CMA", self::memory(cma.frames * freehold::FRAME_SIZE)));
        let _ = writeln!(text, "{}, {memory} of memory{nodes}{cma}, seed {}{think}", first.workload, first.seed);
        let _ = writeln!(text, "{}\n", trim_lines(&group_table(part, style)));
        if first.cma.is_some() {
            let _ = writeln!(text, "{}\n", trim_lines(&cma_table(part, style)));
        }
    }
    let bystanders =
        if rows.iter().any(|row| row.bystander_p999_ns.is_some()) { "; with bystanders, of their calls" } else { "" };
    let _ = writeln!(
        text,
        "Waits are shares of all CPUs' time: for the zone lock, for CPUs' and groups' own locks, and for lines on their way to\n\
         others. Bound: what most of all CPUs' time goes into, or the lock that is full; frames/s of rows bound by think are\n\
         the think time's. p99.9 is of single calls{bystanders}. Simulated by the constants of: {}",
        model.machine
    );
    text.push_str(&validation_note(rows));
    text
}

fn group_table(rows: &[Row], style: Style) -> String {
    let mut table = new_table(style);
    table.set_header([
        "CPUs",
        "engine",
        "frames/s",
        "zone wait",
        "CPU wait",
        "line wait",
        "bound",
        "zone holds",
        "longest",
        "p99.9",
        "fallbacks",
        "free blocks",
        "unusable",
    ]);
    let mut before = None;
    for row in rows {
        let cpus = if before == Some(row.cpus) { String::new() } else { row.cpus.to_string() };
        before = Some(row.cpus);
        let mut cells = vec![right(cpus), Cell::new(&row.engine)];
        let p999 = row.bystander_p999_ns.unwrap_or(row.latency_p999_ns);
        let numbers = [
            format!("{}{}", rate(row.frames_per_second), if row.is_off() { " *" } else { "" }),
            percent(row.zone_lock_wait_share),
            percent(row.pcp_lock_wait_share + row.group_lock_wait_share),
            percent(row.line_wait_share),
            row.bound.text().to_owned(),
            thousands(row.zone_lock_acquisitions),
            time(row.longest_hold_ns),
            time(p999),
            thousands(row.fallbacks),
            thousands(row.free_blocks),
            format!("{:.4}", row.unusable_index),
        ];
        cells.extend(numbers.into_iter().map(right));
        table.add_row(cells);
    }
    table.to_string()
}

/// What CMA served, from the start on.
fn cma_table(rows: &[Row], style: Style) -> String {
    let mut table = new_table(style);
    table.set_header([
        "CPUs",
        "engine",
        "movable by CMA",
        "CMA free, lowest",
        "at the end",
        "failed while free",
        "movable",
    ]);
    for row in rows {
        let cma = row.cma.unwrap_or_default();
        let numbers = [
            percent(cma.share()),
            thousands(cma.free_lowest),
            thousands(cma.free_end),
            thousands(cma.failed_while_free),
            thousands(cma.failed_movable),
        ];
        let mut cells = vec![right(row.cpus), Cell::new(&row.engine)];
        cells.extend(numbers.into_iter().map(right));
        table.add_row(cells);
    }
    table.to_string()
}

/// How far the rows with a star were off where they were compared with real threads.
fn validation_note(rows: &[Row]) -> String {
    let mut said: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| row.is_off()) {
        let off = row.validation_difference_percent.unwrap_or_default();
        let one = format!("{} with {} {off:+.0} %", row.workload, row.engine);
        if !said.contains(&one) {
            said.push(one);
        }
    }
    if said.is_empty() {
        return String::new();
    }
    format!("* Beside real threads on 2 CPUs the simulated frames/s were off by: {}.\n", said.join(", "))
}

/// The table of a validation.
#[must_use]
pub fn validation_table(rows: &[ValidationRow], style: Style) -> String {
    let mut table = new_table(style);
    table.set_header([
        "workload",
        "engine",
        "CPUs",
        "measured frames/s",
        "simulated frames/s",
        "difference",
        "within 20 %",
    ]);
    for row in rows {
        let off = row.simulated / row.measured - 1.0;
        table.add_row([
            Cell::new(&row.workload),
            Cell::new(&row.engine),
            right(row.cpus),
            right(rate(row.measured)),
            right(rate(row.simulated)),
            right(format!("{:+.1} %", off * 100.0)),
            Cell::new(if row.agrees() { "yes" } else { "no" }),
        ]);
    }
    let good = rows.iter().filter(|row| row.agrees()).count();
    format!("{}\n\n{good} of {} agree within 20 %.\n", trim_lines(&table.to_string()), rows.len())
}

type Text = (&'static str, fn(&Row) -> &str);
type Count = (&'static str, fn(&Row) -> u64);
type Real = (&'static str, fn(&Row) -> f64);

const TEXTS: [Text; 3] = [("engine", |r| &r.engine), ("workload", |r| &r.workload), ("bound", |r| r.bound.text())];

const COUNTS: [Count; 33] = [
    ("cpus", |r| u64::from(r.cpus)),
    ("nodes", |r| u64::from(r.nodes)),
    ("memory_bytes", |r| r.memory_bytes),
    ("seed", |r| r.seed),
    ("simulated_ns", |r| r.simulated_ns),
    ("frames", |r| r.frames),
    ("zone_lock_acquisitions", |r| r.zone_lock_acquisitions),
    ("longest_hold_ns", |r| r.longest_hold_ns),
    ("pcp_busy", |r| r.pcp_busy),
    ("line_transfers", |r| r.line_transfers),
    ("latency_p50_ns", |r| r.latency_p50_ns),
    ("latency_p999_ns", |r| r.latency_p999_ns),
    // 0 where there are no bystanders.
    ("bystander_p999_ns", |r| r.bystander_p999_ns.unwrap_or(0)),
    ("fallbacks", |r| r.fallbacks),
    ("failed", |r| r.failed),
    ("remote_frees", |r| r.remote_frees),
    ("merges_zone", |r| r.merges_zone),
    ("merges_pcp", |r| r.merges_pcp),
    ("ticks", |r| r.ticks),
    ("heavy_barriers", |r| r.heavy_barriers),
    ("group_lock_acquisitions", |r| r.group_lock_acquisitions),
    ("group_lock_charged", |r| r.group_lock_charged),
    ("free_frames", |r| r.free_frames),
    ("free_blocks", |r| r.free_blocks),
    ("mixed_blocks", |r| r.mixed_blocks),
    ("off_node", |r| r.off_node),
    // 0, all of them, where there is no CMA.
    ("cma_frames", |r| cma(r).frames),
    ("cma_free_end", |r| cma(r).free_end),
    ("cma_free_lowest", |r| cma(r).free_lowest),
    ("cma_movable_requests", |r| cma(r).movable_requests),
    ("cma_movable_by_cma", |r| cma(r).movable_by_cma),
    ("cma_failed_while_free", |r| cma(r).failed_while_free),
    ("cma_failed_movable", |r| cma(r).failed_movable),
];

fn cma(row: &Row) -> CmaCounts {
    row.cma.unwrap_or_default()
}

const REALS: [Real; 11] = [
    ("think_ns", |r| r.think_ns),
    ("frames_per_second", |r| r.frames_per_second),
    ("zone_lock_wait_share", |r| r.zone_lock_wait_share),
    ("pcp_lock_wait_share", |r| r.pcp_lock_wait_share),
    ("zone_lock_busy_share", |r| r.zone_lock_busy_share),
    ("group_lock_wait_share", |r| r.group_lock_wait_share),
    ("group_lock_busy_share", |r| r.group_lock_busy_share),
    ("line_wait_share", |r| r.line_wait_share),
    ("think_share", |r| r.think_share),
    ("used_block_density", |r| r.used_block_density),
    ("unusable_index", |r| r.unusable_index),
];

fn column(name: &str, physical: PhysicalType, logical: ConvertedType) -> Result<Arc<Type>, ParquetError> {
    let column =
        Type::primitive_type_builder(name, physical).with_converted_type(logical).with_repetition(Repetition::REQUIRED);
    Ok(Arc::new(column.build()?))
}

/// Writes the rows, and the model as the file's metadata `model`.
///
/// # Errors
///
/// Whatever writing ran into.
pub fn parquet(output: impl Write + Send, rows: &[Row], model: &Model) -> Result<(), ParquetError> {
    let mut fields = Vec::new();
    for (name, _) in TEXTS {
        fields.push(column(name, PhysicalType::BYTE_ARRAY, ConvertedType::UTF8)?);
    }
    for (name, _) in COUNTS {
        fields.push(column(name, PhysicalType::INT64, ConvertedType::UINT_64)?);
    }
    for (name, _) in REALS {
        fields.push(column(name, PhysicalType::DOUBLE, ConvertedType::NONE)?);
    }
    let schema = Arc::new(Type::group_type_builder("simulate").with_fields(fields).build()?);
    let constants = serde_json::to_string(model).map_err(|error| ParquetError::General(error.to_string()))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![KeyValue::new("model".to_owned(), constants)]))
        .build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, value) in TEXTS {
        let values: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(value(row))).collect();
        next::<ByteArrayType>(&mut group, &values)?;
    }
    for (_, value) in COUNTS {
        // Parquet stores unsigned numbers as the signed ones of the same bits.
        let values: Vec<i64> = rows.iter().map(|row| value(row) as i64).collect();
        next::<Int64Type>(&mut group, &values)?;
    }
    for (_, value) in REALS {
        let values: Vec<f64> = rows.iter().map(value).collect();
        next::<DoubleType>(&mut group, &values)?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn next<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("more columns than fields".into()))?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}
