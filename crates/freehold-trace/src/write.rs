//! Writing Parquet traces: the format that [`TraceReader`](super::TraceReader) reads fastest and
//! that takes the least space (2 to 4 bytes an event).
//!
//! Events are gathered by column until there are 2^20 of them, then written as one row group. Times
//! are stored as differences; frame numbers byte by byte, which zstd finds more repetition in than
//! in their differences; the rest has few distinct values and goes into dictionaries. Columns have
//! sums, and the description of the whole a checksum: see [`integrity`](super::integrity).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freehold::{Order, Pfn};
use parquet::basic::{
    Compression, ConvertedType, Encoding, Repetition, Type as PhysicalType, ZstdLevel,
};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use serde_json::{Map, Value, json};

use super::error::TraceError;
use super::info::TraceInfo;
use super::integrity::{self, ColumnSum};
use super::packed::{FILES_KEY, NAMES, Packed};
use super::schema::{
    COLUMNS, Column, ColumnDef, EVENTS, FORMAT, METADATA_KEY, NONE, PFN_FAILED, WITH_SUMS,
};
use super::{Event, EventKind, gfp};

/// Rows in a row group: small enough to gather in memory (50 MB), large enough to compress well.
const GROUP_ROWS: usize = 1 << 20;

/// What a file says about itself.
#[derive(Clone, Debug, Default)]
pub struct TraceMeta {
    /// What was recorded.
    pub name: String,
    /// The kernel that recorded it, as `uname -srv` prints it.
    pub kernel: Option<String>,
    /// The CPUs of the machine.
    pub cpus: Option<u16>,
    /// Events that the recorder lost.
    pub lost_events: Option<u64>,
    /// Files of the machine, which a replay reads.
    pub files: Packed,
    /// Anything else worth knowing, such as the command that ran or what the file was cut from. A
    /// `page_size` is the machine's, [`freehold::FRAME_SIZE`] without one.
    pub extra: Map<String, Value>,
}

impl TraceMeta {
    /// What a copy of a trace says about itself, with these files in it.
    #[must_use]
    pub fn of_copy(info: &TraceInfo, files: Packed) -> Self {
        let mut extra = info.description.as_object().cloned().unwrap_or_default();
        if info.page_size.is_none() {
            // What is not known is not made up.
            extra.insert("page_size".into(), Value::Null);
        }
        Self {
            name: info.recorded_as.clone().unwrap_or_else(|| info.name.clone()),
            kernel: info.kernel.clone(),
            cpus: info.cpus,
            lost_events: info.lost_events,
            files,
            extra,
        }
    }
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Rows.
    pub rows: u64,
    /// Rows by kind of event: alloc, free, free_batched, pcpu_drain, extfrag, zone_locked.
    pub event_counts: [u64; 6],
}

/// Writes a Parquet trace. Nothing is readable before [`TraceWriter::finish`]: the index is written
/// last.
pub struct TraceWriter<W: Write + Send> {
    path: PathBuf,
    file: SerializedFileWriter<W>,
    meta: TraceMeta,
    columns: Vec<Values>,
    sums: [ColumnSum; COLUMNS.len()],
    buffered: usize,
    written: Written,
}

enum Values {
    Narrow(Vec<i32>),
    Wide(Vec<i64>),
}

impl Values {
    fn push(&mut self, value: u64) {
        match self {
            Self::Narrow(values) => values.push(value as u32 as i32),
            Self::Wide(values) => values.push(value as i64),
        }
    }
}

impl TraceWriter<BufWriter<File>> {
    /// Creates (or replaces) a file. `zstd_level` is 1 to 22; 3 is quick, 19 is for files that are
    /// kept.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`] where the file cannot be created, [`TraceError::Write`] for a level out
    /// of range.
    pub fn create(path: &Path, meta: TraceMeta, zstd_level: i32) -> Result<Self, TraceError> {
        let file = File::create(path)
            .map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
        Self::new(BufWriter::new(file), path, meta, zstd_level)
    }
}

impl<W: Write + Send> TraceWriter<W> {
    /// Writes to anything; `path` is for messages only.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn new(
        output: W,
        path: &Path,
        meta: TraceMeta,
        zstd_level: i32,
    ) -> Result<Self, TraceError> {
        let file = start(output, zstd_level).map_err(|e| failed(path, &e))?;
        let values = |def: &ColumnDef| match def.bits {
            64 => Values::Wide(Vec::new()),
            _ => Values::Narrow(Vec::new()),
        };
        let columns = COLUMNS.iter().map(values).collect();
        let (path, sums) = (path.to_owned(), [ColumnSum::default(); COLUMNS.len()]);
        Ok(Self { path, file, meta, columns, sums, buffered: 0, written: Written::default() })
    }

    /// Appends events, in the order of time.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`].
    pub fn write(&mut self, events: &[Event]) -> Result<(), TraceError> {
        for event in events {
            let row = row_of(event);
            self.written.event_counts[row[Column::Event as usize] as usize] += 1;
            self.columns.iter_mut().zip(row).for_each(|(values, value)| values.push(value));
            self.buffered += 1;
            if self.buffered == GROUP_ROWS {
                self.flush()?;
            }
        }
        self.written.rows += events.len() as u64;
        Ok(())
    }

    /// Says that the recorder lost so many events, which a text tells only as it is read.
    pub fn set_lost_events(&mut self, lost: u64) {
        self.meta.lost_events = Some(lost);
    }

    /// The files to be packed in, which are written last.
    pub(crate) fn files_mut(&mut self) -> &mut Packed {
        &mut self.meta.files
    }

    /// Writes what is left and the index.
    ///
    /// # Errors
    ///
    /// [`TraceError::Write`], also for a trace of no events: nobody could read it.
    pub fn finish(mut self) -> Result<Written, TraceError> {
        if self.written.rows == 0 {
            let why = "there is no event to write".to_owned();
            return Err(TraceError::Write { path: self.path, why });
        }
        self.flush()?;
        let description = self.description().to_string();
        self.file.append_key_value_metadata(integrity::check_of(&description));
        self.file.append_key_value_metadata(KeyValue::new(METADATA_KEY.to_owned(), description));
        if !self.meta.files.is_empty() {
            let files = KeyValue::new(FILES_KEY.to_owned(), self.meta.files.encoded());
            self.file.append_key_value_metadata(files);
        }
        let mut output = self.file.into_inner().map_err(|e| failed(&self.path, &e))?;
        output.flush().map_err(|source| TraceError::Io { path: self.path, source })?;
        Ok(self.written)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        if self.buffered == 0 {
            return Ok(());
        }
        for (sum, values) in self.sums.iter_mut().zip(&self.columns) {
            match values {
                Values::Narrow(values) => {
                    sum.add(values.iter().map(|&value| u64::from(value as u32)))
                }
                Values::Wide(values) => sum.add(values.iter().map(|&value| value as u64)),
            }
        }
        write_group(&mut self.file, &mut self.columns).map_err(|e| failed(&self.path, &e))?;
        self.buffered = 0;
        Ok(())
    }

    fn description(&self) -> Value {
        let numbered = |names: &[&str]| -> Map<String, Value> {
            names.iter().enumerate().map(|(n, name)| (n.to_string(), json!(name))).collect()
        };
        let counts = EVENTS.iter().zip(self.written.event_counts);
        let counts: Map<String, Value> =
            counts.map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
        let gfp_bits: Map<String, Value> =
            gfp::NAMES.iter().map(|(name, bits)| ((*name).to_owned(), json!(bits))).collect();
        let mut all = self.meta.extra.clone();
        all.entry("page_size").or_insert_with(|| json!(freehold::FRAME_SIZE));
        all.remove(NAMES);
        if !self.meta.files.is_empty() {
            all.insert(NAMES.into(), self.meta.files.names().collect());
        }
        let known = json!({
            "format": FORMAT,
            "name": self.meta.name,
            "rows": self.written.rows,
            "event_counts": counts,
            "events": numbered(&EVENTS),
            "migratetypes": numbered(&["Unmovable", "Movable", "Reclaimable", "HighAtomic"]),
            "none_value": NONE,
            "pfn_failed": PFN_FAILED.to_string(),
            "gfp_bits": gfp_bits,
            (integrity::SUMS): integrity::described(&self.sums),
        });
        if let Value::Object(known) = known {
            all.extend(known);
        }
        let TraceMeta { kernel, cpus, lost_events, .. } = &self.meta;
        let said = [
            ("kernel", kernel.as_deref().map(Value::from)),
            ("cpus", cpus.map(Value::from)),
            ("lost_events", lost_events.map(Value::from)),
        ];
        all.extend(said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Value::Object(all)
    }
}

/// One event in the file's own numbers, in the order of [`COLUMNS`].
fn row_of(event: &Event) -> [u64; COLUMNS.len()] {
    let none = (NONE, NONE);
    let ((kind, pfn), order, (migratetype, gfp_flags), fallback, flag) = match event.kind {
        EventKind::Alloc { pfn, order, migratetype, gfp_flags } => {
            let pfn = pfn.map_or(PFN_FAILED, Pfn::get);
            ((0, pfn), order, (migratetype.into(), gfp_flags), none, false)
        }
        EventKind::Free { pfn, order } => ((1, pfn.get()), order, (NONE, 0), none, false),
        EventKind::FreeBatched { pfn } => ((2, pfn.get()), Order::ZERO, (NONE, 0), none, false),
        EventKind::PcpuDrain { pfn, order, migratetype } => {
            ((3, pfn.get()), order, (migratetype.into(), 0), none, false)
        }
        EventKind::Extfrag {
            pfn,
            order,
            migratetype,
            fallback_order,
            fallback_migratetype,
            change_ownership,
        } => {
            let fallback = (fallback_order.get().into(), fallback_migratetype.into());
            ((4, pfn.get()), order, (migratetype.into(), 0), fallback, change_ownership)
        }
        EventKind::ZoneLocked { pfn, order, migratetype, percpu_refill } => {
            ((5, pfn.get()), order, (migratetype.into(), 0), none, percpu_refill)
        }
    };
    [
        event.ts_ns,
        event.cpu.get().into(),
        kind,
        pfn,
        order.get().into(),
        migratetype,
        gfp_flags.into(),
        event.pid.into(),
        fallback.0,
        fallback.1,
        flag.into(),
    ]
}

fn start<W: Write + Send>(
    output: W,
    zstd_level: i32,
) -> Result<SerializedFileWriter<W>, ParquetError> {
    let mut fields = Vec::new();
    for def in &COLUMNS {
        let (physical, logical) = match def.bits {
            64 => (PhysicalType::INT64, ConvertedType::UINT_64),
            32 => (PhysicalType::INT32, ConvertedType::UINT_32),
            16 => (PhysicalType::INT32, ConvertedType::UINT_16),
            _ => (PhysicalType::INT32, ConvertedType::UINT_8),
        };
        // Optional although never null: that is how Arrow writes them, and how the traces that
        // exist are.
        let field = Type::primitive_type_builder(def.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(parquet::basic::LogicalType::Integer {
                bit_width: def.bits,
                is_signed: false,
            }))
            .with_converted_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder(WITH_SUMS).with_fields(fields).build()?;
    let path = |column: Column| ColumnPath::from(COLUMNS[column as usize].name);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(zstd_level)?))
        .set_created_by(format!("freehold {}", env!("CARGO_PKG_VERSION")))
        .set_column_dictionary_enabled(path(Column::TsNs), false)
        .set_column_encoding(path(Column::TsNs), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(path(Column::Pfn), false)
        .set_column_encoding(path(Column::Pfn), Encoding::BYTE_STREAM_SPLIT)
        .build();
    SerializedFileWriter::new(output, Arc::new(schema), Arc::new(properties))
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &mut [Values],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    let mut levels = Vec::new();
    for values in columns {
        let missing = || ParquetError::General("a column more than the schema has".into());
        let mut column = group.next_column()?.ok_or_else(missing)?;
        match values {
            Values::Narrow(values) => {
                levels.resize(values.len(), 1i16);
                column.typed::<Int32Type>().write_batch(values, Some(&levels), None)?;
                values.clear();
            }
            Values::Wide(values) => {
                levels.resize(values.len(), 1i16);
                column.typed::<Int64Type>().write_batch(values, Some(&levels), None)?;
                values.clear();
            }
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

fn failed(path: &Path, error: &ParquetError) -> TraceError {
    let why = match error {
        ParquetError::External(error) => error.to_string(),
        error => error.to_string(),
    };
    TraceError::Write { path: path.to_owned(), why }
}
