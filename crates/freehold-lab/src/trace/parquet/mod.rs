//! Reading Parquet traces, column by column, a few thousand rows at a time.
//!
//! ```text
//!  row group ─┬─ ts_ns ──> pages ──> 4,096 values ─┐
//!             ├─ cpu   ──> pages ──> 4,096 values ─┼──> 4,096 events, checked one by one
//!             ┆                                    ┆
//!             └─ flag  ──> pages ──> 4,096 values ─┘
//! ```
//!
//! Only one page of each column is in memory, never a row group. Columns are found by name and may be wider or
//! narrower than they are written here; the optional ones may be missing.
//!
//! The `parquet` crate checks less than a hostile file can break: some damaged pages make it panic (an index out of
//! range, an assertion). Such a panic is caught and becomes [`TraceError::Corrupt`], and the range of every read is
//! checked against the file's length before anything of that size is allocated. Damage that decodes all the same is
//! found by what the file says of its own contents: see [`integrity`](super::integrity).

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use freehold::{CpuId, Migratetype, Order, Pfn};
use parquet::basic::{LogicalType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};

use super::error::TraceError;
use super::gfp::{self, Translation};
use super::input::{Input, guarded};
use super::integrity::{CHECK_KEY, Checksums, Integrity};
use super::line::{CPU_MAX, PFN_MAX};
use super::pages;
use super::reader::{BATCH, Compression, Format, Tally, TraceInfo};
use super::schema::{COLUMNS, Column, FLAG_NONE, GFP_NONE, METADATA_KEY, NONE, PFN_FAILED, WITH_SUMS};
use super::{Event, EventKind};

/// Rows decoded at a time: eleven columns of them stay in the second-level cache.
const ROWS: usize = 4096;

/// A Parquet trace being read.
pub(super) struct ParquetReader {
    path: PathBuf,
    file: SerializedFileReader<Input>,
    columns: [Option<ColumnPlace>; COLUMNS.len()],
    values: [Vec<u64>; COLUMNS.len()],
    scratch: Scratch,
    translation: Option<Translation>,
    integrity: Integrity,
    /// The next row group to open.
    next_group: usize,
    group: Option<Group>,
    done: u64,
    rows: u64,
}

/// Where a column is and how to read its numbers.
#[derive(Clone, Copy, Debug)]
struct ColumnPlace {
    leaf: usize,
    /// Narrow values are widened without a sign.
    unsigned: bool,
}

/// A row group being read.
struct Group {
    index: usize,
    left: usize,
    readers: [Option<ColumnReader>; COLUMNS.len()],
}

#[derive(Default)]
struct Scratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
    levels: Vec<i16>,
}

impl ParquetReader {
    pub(super) fn from_file(path: PathBuf, file: File) -> Result<Self, TraceError> {
        let len = file.metadata().map_err(|source| TraceError::Io { path: path.clone(), source })?.len();
        Self::open(path, Input { bytes: None, file: Some(Arc::new(file)), len })
    }

    pub(super) fn from_bytes(path: PathBuf, bytes: &'static [u8]) -> Result<Self, TraceError> {
        Self::open(path, Input { bytes: Some(Bytes::from_static(bytes)), file: None, len: bytes.len() as u64 })
    }

    fn open(path: PathBuf, input: Input) -> Result<Self, TraceError> {
        let cut = |at: &str| TraceError::Truncated {
            path: path.clone(),
            at: at.to_owned(),
            hint: "copy it again: without its end a Parquet file cannot be read, not even with --skip-bad",
        };
        if input.len < 12 {
            return Err(cut("a Parquet file has at least 12 bytes"));
        }
        let tail = input.get_bytes(input.len - 8, 8).map_err(|e| corrupt(&path, "its end", &e))?;
        if &tail[4..] != b"PAR1" {
            return Err(cut("the end of a Parquet file, with its index, is missing"));
        }
        let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if footer + 12 > input.len {
            return Err(cut(&format!("its index is said to have {footer} bytes, the whole file has {}", input.len)));
        }
        let file =
            guarded(|| SerializedFileReader::new(input.clone())).map_err(|why| corrupt(&path, "its index", &why))?;

        let metadata = file.metadata();
        let mut rows = 0u64;
        for (index, group) in metadata.row_groups().iter().enumerate() {
            let count = u64::try_from(group.num_rows())
                .map_err(|_| corrupt(&path, &format!("row group {index}"), &"a negative number of rows"))?;
            rows = rows.saturating_add(count);
        }
        let schema = metadata.file_metadata().schema_descr();
        let mut columns = [None; COLUMNS.len()];
        for (at, def) in COLUMNS.iter().enumerate() {
            let found = schema.columns().iter().position(|c| matches!(c.path().parts(), [name] if name == def.name));
            let Some(leaf) = found else {
                if def.required {
                    let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).take(30).collect();
                    return Err(TraceError::MissingColumn { path, column: def.name, found: names.join(", ") });
                }
                continue;
            };
            let column = schema.column(leaf);
            let bad = |found: String| TraceError::BadColumn { path: path.clone(), column: def.name, found };
            if column.max_rep_level() > 0 {
                return Err(bad("a list".into()));
            }
            if !matches!(column.physical_type(), PhysicalType::INT32 | PhysicalType::INT64) {
                return Err(bad(column.physical_type().to_string()));
            }
            let unsigned = match column.logical_type_ref() {
                None => matches!(
                    column.converted_type(),
                    parquet::basic::ConvertedType::UINT_8
                        | parquet::basic::ConvertedType::UINT_16
                        | parquet::basic::ConvertedType::UINT_32
                        | parquet::basic::ConvertedType::UINT_64
                ),
                Some(LogicalType::Integer { is_signed, .. }) => !is_signed,
                Some(other) => return Err(bad(format!("{other:?}"))),
            };
            columns[at] = Some(ColumnPlace { leaf, unsigned });
        }
        if rows == 0 {
            return Err(TraceError::Empty { path, what: "a Parquet file of 0 rows".into() });
        }
        let translation = description(&file).and_then(|json| {
            let bits = json.get("gfp_bits")?.as_object()?;
            Translation::from_names(bits.iter().filter_map(|(name, bits)| Some((name.as_str(), bits.as_u64()?))))
        });
        let checksums = pages_have_checksums(&file, &input).map_err(|why| corrupt(&path, "its pages", &why))?;
        let integrity = Integrity::new(value_of(&file, METADATA_KEY), value_of(&file, CHECK_KEY), checksums)
            .map_err(|why| corrupt(&path, "its index", &why))?;
        // A file of ours whose description was lost as a whole: what is left would do without CPUs and sums.
        if schema.root_schema().name() == WITH_SUMS && integrity.checksums() != Checksums::All {
            return Err(corrupt(&path, "its index", &"its description of itself is missing"));
        }
        let values = std::array::from_fn(|at| vec![COLUMNS[at].default; ROWS]);
        Ok(Self {
            path,
            file,
            columns,
            values,
            scratch: Scratch::default(),
            translation,
            integrity,
            next_group: 0,
            group: None,
            done: 0,
            rows,
        })
    }

    pub(super) fn info(&self, name: String) -> TraceInfo {
        let json = description(&self.file).unwrap_or_default();
        let text = |key: &str| json.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        let number = |key: &str| json.get(key).and_then(serde_json::Value::as_u64);
        TraceInfo {
            name,
            recorded_as: text("name"),
            format: Format::Parquet,
            compression: Compression::None,
            rows: Some(self.rows),
            kernel: text("kernel"),
            cpus: number("cpus").and_then(|n| u16::try_from(n).ok()),
            lost_events: number("lost_events"),
            checksums: Some(self.integrity.checksums()),
        }
    }

    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done, self.rows)
    }

    pub(super) fn next_batch(&mut self, out: &mut Vec<Event>, tally: &mut Tally) -> Result<bool, TraceError> {
        while out.len() + ROWS <= BATCH {
            let Some(rows) = self.decode()? else {
                let ended = self.integrity.ends(tally.skipped);
                ended.map_err(|why| corrupt(&self.path, "as a whole", &why))?;
                break;
            };
            let first_row = self.done;
            for i in 0..rows {
                match self.checked_event(i) {
                    Ok(event) => out.push(event),
                    Err(bad) => {
                        let row = first_row + i as u64;
                        if !tally.skip_bad {
                            let BadValue { column, value, why } = bad;
                            let column = COLUMNS[column as usize].name;
                            return Err(TraceError::BadRow { path: self.path.clone(), row, column, value, why });
                        }
                        tally.skip(|| {
                            format!(
                                "row {row}: column `{}`: {} {}",
                                COLUMNS[bad.column as usize].name, bad.value, bad.why
                            )
                        });
                    }
                }
            }
            self.done += rows as u64;
        }
        if out.is_empty() && self.rows == tally.skipped {
            let first = tally.first_skipped.as_deref().unwrap_or_default();
            let what = format!("all {} rows are bad, first {first}", self.rows);
            return Err(TraceError::Empty { path: self.path.clone(), what });
        }
        Ok(!out.is_empty())
    }

    /// Decodes the next rows into `values`; how many, or `None` at the end.
    fn decode(&mut self) -> Result<Option<usize>, TraceError> {
        loop {
            if let Some(group) = self.group.as_mut().filter(|group| group.left > 0) {
                let rows = group.left.min(ROWS);
                let (values, scratch, columns) = (&mut self.values, &mut self.scratch, &self.columns);
                let integrity = &mut self.integrity;
                let decoded = guarded(|| {
                    for (at, (reader, place)) in group.readers.iter_mut().zip(columns).enumerate() {
                        if let (Some(reader), Some(place)) = (reader, place) {
                            read_column(reader, *place, rows, &mut values[at], scratch, at).map_err(|why| {
                                ParquetError::General(format!("column `{}`: {why}", COLUMNS[at].name))
                            })?;
                            integrity.values(at, &values[at]).map_err(ParquetError::General)?;
                        }
                    }
                    if group.left == rows { integrity.group_ends().map_err(ParquetError::General) } else { Ok(()) }
                });
                if let Err(why) = decoded {
                    let place = format!("row group {}, after row {}", group.index, self.done);
                    return Err(corrupt(&self.path, &place, &why));
                }
                group.left -= rows;
                return Ok(Some(rows));
            }
            if self.next_group == self.file.num_row_groups() {
                return Ok(None);
            }
            let index = self.next_group;
            self.next_group += 1;
            let (file, columns, integrity) = (&self.file, &self.columns, &mut self.integrity);
            let opened = guarded(|| {
                let group = file.get_row_group(index)?;
                let mut readers: [Option<ColumnReader>; COLUMNS.len()] = std::array::from_fn(|_| None);
                for (at, (reader, place)) in readers.iter_mut().zip(columns).enumerate() {
                    if let Some(place) = place {
                        *reader = Some(group.get_column_reader(place.leaf)?);
                        integrity.chunk(at, group.metadata().column(place.leaf), place.unsigned);
                    }
                }
                let left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
                Ok(Group { index, left, readers })
            });
            self.group = Some(opened.map_err(|why| corrupt(&self.path, &format!("row group {index}"), &why))?);
        }
    }

    /// Row `i` of what was decoded last, also held against the rows before and what the file says of itself.
    #[inline]
    fn checked_event(&mut self, i: usize) -> Result<Event, BadValue> {
        let event = self.event(i)?;
        let cpu = self.values[Column::Cpu as usize][i];
        if self.integrity.checks_rows()
            && let Some((column, why)) = self.integrity.row(event.ts_ns, cpu)
        {
            return Err(BadValue::new(column, self.values[column as usize][i], why));
        }
        self.integrity.event(self.values[Column::Event as usize][i]);
        Ok(event)
    }

    /// Row `i` of what was decoded last, checked.
    #[inline]
    fn event(&self, i: usize) -> Result<Event, BadValue> {
        let value = |column: Column| self.values[column as usize][i];
        let bad = |column: Column, why: &'static str| BadValue::new(column, value(column), why);

        if value(Column::TsNs) == NULL {
            return Err(bad(Column::TsNs, "is no time"));
        }
        let cpu = value(Column::Cpu);
        if cpu > CPU_MAX {
            return Err(bad(Column::Cpu, "is above 4095, the largest CPU number"));
        }
        let order = |column: Column| {
            let narrow = u8::try_from(value(column)).ok();
            narrow.and_then(Order::new).ok_or_else(|| bad(column, "is no order (0 to 18)"))
        };
        let pfn = || match value(Column::Pfn) {
            pfn @ 0..=PFN_MAX => Ok(Pfn::new(pfn)),
            _ => Err(bad(Column::Pfn, "is no frame number (0 to 2^52 - 1)")),
        };
        let is_request = |mt: u64| mt < Migratetype::PCP.len() as u64;
        let list_type = || match value(Column::Migratetype) {
            mt if mt < Migratetype::ALL.len() as u64 => Ok(mt as u8),
            // Without the column nothing is known; most memory is movable.
            NONE if self.columns[Column::Migratetype as usize].is_none() => Ok(Migratetype::Movable as u8),
            _ => Err(bad(Column::Migratetype, "is no type (0 to 5)")),
        };
        let flag = |default: bool| match value(Column::Flag) {
            0 => Ok(false),
            1 => Ok(true),
            FLAG_NONE => Ok(default),
            _ => Err(bad(Column::Flag, "is neither 0 nor 1")),
        };

        let kind = match value(Column::Event) {
            0 => {
                let pfn = if value(Column::Pfn) == PFN_FAILED { None } else { Some(pfn()?) };
                let (migratetype, gfp_flags) = match (value(Column::Migratetype), value(Column::GfpFlags)) {
                    (NONE, GFP_NONE) => (Migratetype::Unmovable as u8, gfp::GFP_KERNEL),
                    (NONE, gfp_flags) => {
                        let gfp_flags = self.gfp(gfp_flags)?;
                        (gfp::migratetype(gfp_flags) as u8, gfp_flags)
                    }
                    // Without flags: an ordinary request of that type, which may wait.
                    (mt, GFP_NONE) if is_request(mt) => {
                        (mt as u8, gfp::GFP_KERNEL | [0, gfp::GFP_MOVABLE, gfp::GFP_RECLAIMABLE][mt as usize])
                    }
                    (mt, gfp_flags) if is_request(mt) => (mt as u8, self.gfp(gfp_flags)?),
                    _ => return Err(bad(Column::Migratetype, "is no type of a request (0 to 2)")),
                };
                EventKind::Alloc { pfn, order: order(Column::Order)?, migratetype, gfp_flags }
            }
            1 => EventKind::Free { pfn: pfn()?, order: order(Column::Order)? },
            2 => EventKind::FreeBatched { pfn: pfn()? },
            3 => EventKind::PcpuDrain { pfn: pfn()?, order: order(Column::Order)?, migratetype: list_type()? },
            4 => {
                let (order_asked, migratetype) = (order(Column::Order)?, list_type()?);
                // Not given: the least that can have happened, a chunk of the size asked for from the first other type.
                let fallback_order =
                    if value(Column::FallbackOrder) == NONE { order_asked } else { order(Column::FallbackOrder)? };
                let fallback_migratetype = match value(Column::FallbackMigratetype) {
                    mt if mt < Migratetype::ALL.len() as u64 => mt as u8,
                    NONE => Migratetype::from_index(usize::from(migratetype))
                        .and_then(|mt| mt.fallbacks().first().copied())
                        .unwrap_or(Migratetype::Movable) as u8,
                    _ => return Err(bad(Column::FallbackMigratetype, "is no type (0 to 5)")),
                };
                EventKind::Extfrag {
                    pfn: pfn()?,
                    order: order_asked,
                    migratetype,
                    fallback_order,
                    fallback_migratetype,
                    change_ownership: flag(false)?,
                }
            }
            5 => {
                let order = order(Column::Order)?;
                EventKind::ZoneLocked {
                    pfn: pfn()?,
                    order,
                    migratetype: list_type()?,
                    percpu_refill: flag(order <= Order::COSTLY || order == Order::PAGEBLOCK)?,
                }
            }
            _ => return Err(bad(Column::Event, "is no event number (0 to 5)")),
        };
        let pid = u32::try_from(value(Column::Pid)).map_err(|_| bad(Column::Pid, "is no thread id"))?;
        Ok(Event { ts_ns: value(Column::TsNs), cpu: CpuId::new(cpu as u16), pid, kind })
    }

    #[inline]
    fn gfp(&self, value: u64) -> Result<u32, BadValue> {
        let bits =
            u32::try_from(value).map_err(|_| BadValue::new(Column::GfpFlags, value, "does not fit into 32 bits"))?;
        Ok(match &self.translation {
            None => bits,
            Some(translation) => translation.apply(bits),
        })
    }
}

/// What is wrong with a row.
struct BadValue {
    column: Column,
    value: String,
    why: &'static str,
}

impl BadValue {
    #[cold]
    fn new(column: Column, value: u64, why: &'static str) -> Self {
        let value = if value == NULL { "null".to_owned() } else { value.to_string() };
        Self { column, value, why }
    }
}

/// Stands for a null in a column that must have a value. No column has it as a valid value; as a time it would be 584
/// years after the machine started.
const NULL: u64 = u64::MAX - 1;

/// Reads `rows` values of a column and widens them. A null becomes the column's default, or [`NULL`] where there is
/// none.
fn read_column(
    reader: &mut ColumnReader,
    place: ColumnPlace,
    rows: usize,
    out: &mut Vec<u64>,
    scratch: &mut Scratch,
    at: usize,
) -> Result<(), ParquetError> {
    let Scratch { narrow, wide, levels } = scratch;
    let nulls_as = if COLUMNS[at].required { NULL } else { COLUMNS[at].default };
    out.clear();
    let got = match reader {
        ColumnReader::Int32ColumnReader(reader) => {
            let got = read_values::<Int32Type>(reader, rows, narrow, levels)?;
            if place.unsigned {
                out.extend(narrow.iter().map(|&v| u64::from(v as u32)));
            } else {
                out.extend(narrow.iter().map(|&v| i64::from(v) as u64));
            }
            got
        }
        ColumnReader::Int64ColumnReader(reader) => {
            let got = read_values::<Int64Type>(reader, rows, wide, levels)?;
            out.extend(wide.iter().map(|&v| v as u64));
            got
        }
        _ => return Err(ParquetError::General("the pages have another type than the index says".into())),
    };
    if got != rows {
        return Err(ParquetError::General(format!("{rows} more rows are promised, {got} are there")));
    }
    if out.len() == rows {
        return Ok(());
    }
    // Some are null: spread the values that are there over the rows that have one, from the back.
    let mut from = out.len();
    out.resize(rows, nulls_as);
    for row in (0..rows).rev() {
        let present = levels.get(row).is_some_and(|&level| level > 0);
        out[row] = if present && from > 0 {
            from -= 1;
            out[from]
        } else {
            nulls_as
        };
    }
    Ok(())
}

/// Fills `values` (without the nulls) and `levels` (0 for a null); the number of rows, nulls included.
fn read_values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    values: &mut Vec<T::T>,
    levels: &mut Vec<i16>,
) -> Result<usize, ParquetError> {
    values.clear();
    levels.clear();
    let (records, _, _) = reader.read_records(rows, Some(levels), None, values)?;
    Ok(records)
}

/// The JSON that the file carries about itself, if it carries any.
fn description(file: &SerializedFileReader<Input>) -> Option<serde_json::Value> {
    serde_json::from_str(value_of(file, METADATA_KEY)?).ok()
}

fn value_of<'f>(file: &'f SerializedFileReader<Input>, key: &str) -> Option<&'f str> {
    let pairs = file.metadata().file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// Whether pages have checksums: the first of each column chunk stands for those behind it. One that has none among
/// others that have is damaged.
fn pages_have_checksums(file: &SerializedFileReader<Input>, input: &Input) -> Result<bool, ParquetError> {
    let chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
    let (mut with, mut without) = (0u64, 0u64);
    for chunk in chunks {
        let start = u64::try_from(chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset()))
            .map_err(|_| ParquetError::General("a page is said to begin before the file".into()))?;
        // Type, two sizes and the mark of a checksum: a byte each, the sizes and the type with up to five more.
        let length = input.len.saturating_sub(start).min(32);
        let bytes = input.get_bytes(start, length as usize)?;
        *if pages::has_checksum(&bytes) { &mut with } else { &mut without } += 1;
    }
    match (with, without) {
        (0, _) => Ok(false),
        (_, 0) => Ok(true),
        _ => Err(ParquetError::General(format!("{without} columns have no checksums, {with} have"))),
    }
}

fn corrupt(path: &std::path::Path, place: &str, why: &dyn std::fmt::Display) -> TraceError {
    // One line, whatever the library says.
    let why = format!("{place}: {why}").replace(['\n', '\r'], " ");
    TraceError::Corrupt { path: path.to_owned(), why }
}
