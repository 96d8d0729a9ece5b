//! Reading Parquet traces, column by column, a few thousand rows at a time.
//!
//! ```text
//!  row group ─┬─ ts_ns ──> pages ──> 4,096 values ─┐
//!             ├─ cpu   ──> pages ──> 4,096 values ─┼──> 4,096 events, checked one by one
//!             ┆                                    ┆
//!             └─ flag  ──> pages ──> 4,096 values ─┘
//! ```
//!
//! Only one page of each column is in memory, never a row group. Columns are found by name and may
//! be wider or narrower than they are written here; the optional ones may be missing.
//!
//! The `parquet` crate checks less than a hostile file can break: some damaged pages make it panic
//! (an index out of range, an assertion). Such a panic is caught and becomes
//! a [`TraceError`], and the range of every read is checked against the file's length before
//! anything of that size is allocated. Damage that decodes all the same is found by what the file
//! says of its own contents: see [`integrity`](super::integrity).

mod column;
mod file;
mod row;

use std::path::{Path, PathBuf};

use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::error::{DAMAGED, TraceError};
use super::gfp::Translation;
use super::info::{Compression, Format, TraceInfo};
use super::input::{Input, guarded};
use super::integrity::{CHECK_KEY, Checksums, Integrity};
use super::kernel::Kernel;
use super::meaning::{Flags, Meaning};
use super::packed::Packed;
use super::schema::{COLUMNS, Column, METADATA_KEY, WITH_SUMS};
use super::tally::{BATCH, Tally};
use super::{Event, OpenOptions};
use column::{ColumnPlace, Scratch, check_codecs, find_columns, read_column};
use file::{check_footer, description, value_of};
use row::BadValue;

/// Rows decoded at a time: eleven columns of them stay in the second-level cache.
const ROWS: usize = 4096;

/// A Parquet trace being read.
pub(super) struct ParquetReader {
    path: PathBuf,
    file: SerializedFileReader<Input>,
    columns: [Option<ColumnPlace>; COLUMNS.len()],
    values: [Vec<u64>; COLUMNS.len()],
    scratch: Scratch,
    meaning: Meaning,
    kernel: Option<String>,
    /// What to say of its numbers.
    note: Option<String>,
    integrity: Integrity,
    /// The next row group to open.
    next_group: usize,
    group: Option<Group>,
    done: u64,
    rows: u64,
}

/// A row group being read.
struct Group {
    index: usize,
    left: usize,
    readers: [Option<ColumnReader>; COLUMNS.len()],
}

impl ParquetReader {
    pub(super) fn open(
        path: PathBuf,
        input: Input,
        options: OpenOptions,
    ) -> Result<Self, TraceError> {
        let file = indexed(&path, &input)?;
        file::files(&path, &file)?;
        let metadata = file.metadata();
        let mut rows = 0u64;
        for (index, group) in metadata.row_groups().iter().enumerate() {
            let count = u64::try_from(group.num_rows()).map_err(|_| {
                corrupt(&path, &format!("row group {index}"), &"a negative number of rows")
            })?;
            rows = rows.saturating_add(count);
        }
        let schema = metadata.file_metadata().schema_descr();
        let columns = find_columns(&path, schema)?;
        check_codecs(&path, metadata, &columns)?;
        if rows == 0 {
            return Err(TraceError::empty(path, "a Parquet file of 0 rows"));
        }
        let (meaning, kernel, note) = meaning(&file, options);
        if matches!(meaning.flags, Flags::Unknown) && columns[Column::GfpFlags as usize].is_some() {
            let flags = "and the file names no bits";
            return Err(TraceError::unknown_kernel(path, "column `gfp_flags`", flags));
        }
        let integrity = Integrity::new(value_of(&file, METADATA_KEY), value_of(&file, CHECK_KEY))
            .map_err(|why| corrupt(&path, "its index", &why))?;
        // A file of ours whose description was lost as a whole: what is left would do without CPUs
        // and sums.
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
            meaning,
            kernel,
            note,
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
            kernel: self.kernel.clone(),
            notes: self.note.iter().cloned().collect(),
            page_size: number("page_size")
                .filter(|bytes| bytes.is_power_of_two() && (4096..=1 << 20).contains(bytes)),
            cpus: number("cpus").and_then(|n| u16::try_from(n).ok()),
            lost_events: number("lost_events"),
            checksums: Some(self.integrity.checksums()),
            description: json,
        }
    }

    pub(super) fn progress(&self) -> (u64, u64) {
        (self.done, self.rows)
    }

    pub(super) fn next_batch(
        &mut self,
        out: &mut Vec<Event>,
        tally: &mut Tally,
    ) -> Result<bool, TraceError> {
        while out.len() + ROWS <= BATCH {
            let Some(rows) = self.decode()? else {
                let ended = self.integrity.ends(tally.skipped);
                ended.map_err(|why| corrupt(&self.path, "as a whole", &why))?;
                break;
            };
            let first_row = self.done;
            for i in 0..rows {
                match self.checked_event(i) {
                    Ok(event) => tally
                        .take(event, out, &self.path, || format!("row {}", first_row + i as u64))?,
                    Err(BadValue { column, value, why }) => {
                        let (row, column) = (first_row + i as u64, COLUMNS[column as usize].name);
                        let what = format!("row {row}: column `{column}`: {value} {why}");
                        if !tally.skip_bad {
                            let hint = "--skip-bad leaves such rows out and counts them";
                            return Err(TraceError::bad(&self.path, what, hint));
                        }
                        tally.skip(|| what);
                    }
                }
            }
            self.done += rows as u64;
        }
        if out.is_empty() && self.rows == tally.skipped {
            let first = tally.first_skipped.as_deref().unwrap_or_default();
            let what = format!("all {} rows are bad, first {first}", self.rows);
            return Err(TraceError::empty(self.path.clone(), what));
        }
        Ok(!out.is_empty())
    }

    /// Decodes the next rows into `values`; how many, or `None` at the end.
    fn decode(&mut self) -> Result<Option<usize>, TraceError> {
        loop {
            if let Some(group) = self.group.as_mut().filter(|group| group.left > 0) {
                let rows = group.left.min(ROWS);
                let (values, scratch, columns) =
                    (&mut self.values, &mut self.scratch, &self.columns);
                let integrity = &mut self.integrity;
                let decoded = guarded(|| {
                    for (at, (reader, place)) in group.readers.iter_mut().zip(columns).enumerate() {
                        if let (Some(reader), Some(place)) = (reader, place) {
                            read_column(reader, *place, rows, &mut values[at], scratch, at)
                                .map_err(|why| {
                                    ParquetError::General(format!(
                                        "column `{}`: {why}",
                                        COLUMNS[at].name
                                    ))
                                })?;
                            integrity.values(at, &values[at]);
                        }
                    }
                    Ok(())
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
            let (file, columns) = (&self.file, &self.columns);
            let opened = guarded(|| {
                let group = file.get_row_group(index)?;
                let mut readers: [Option<ColumnReader>; COLUMNS.len()] =
                    std::array::from_fn(|_| None);
                for (reader, place) in readers.iter_mut().zip(columns) {
                    if let Some(place) = place {
                        *reader = Some(group.get_column_reader(place.leaf)?);
                    }
                }
                let left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
                Ok(Group { index, left, readers })
            });
            self.group = Some(
                opened.map_err(|why| corrupt(&self.path, &format!("row group {index}"), &why))?,
            );
        }
    }
}

/// Reads a file's index.
fn indexed(path: &Path, input: &Input) -> Result<SerializedFileReader<Input>, TraceError> {
    check_footer(path, input)?;
    guarded(|| SerializedFileReader::new(input.clone()))
        .map_err(|why| corrupt(path, "its index", &why))
}

/// The machine's files that are packed into a Parquet file.
pub(super) fn packed(path: &Path, input: &Input) -> Result<Packed, TraceError> {
    file::files(path, &indexed(path, input)?)
}

/// What the file's numbers mean, the kernel that recorded it, and what to say of it. A file whose
/// names of its flags' bits are those of 6.18, as every file that is written here, has its types as
/// 6.18 has them, too.
fn meaning(
    file: &SerializedFileReader<Input>,
    options: OpenOptions,
) -> (Meaning, Option<String>, Option<String>) {
    let json = description(file).unwrap_or_default();
    let said = json.get("kernel").and_then(serde_json::Value::as_str).map(str::to_owned);
    let known = options.kernel.or_else(|| Kernel::parse(said.as_deref()?));
    let shown = options.kernel.map(|kernel| format!("Linux {kernel}")).or(said);
    let bits = json.get("gfp_bits").and_then(serde_json::Value::as_object);
    let Some(bits) = bits else { return (Meaning::of(known, options.types), shown, None) };
    let names = bits.iter().filter_map(|(name, bits)| Some((name.clone(), bits.as_u64()?)));
    let names: Vec<_> = names.collect();
    if Translation::is_needless(&names) {
        return (Meaning { is_told: true, ..Meaning::default() }, shown, None);
    }
    let note = "its names of flags are not those of Linux 6.18: its numbers are read as its kernel \
                has them";
    (Meaning::of(known, options.types), shown, Some(note.to_owned()))
}

fn corrupt(path: &std::path::Path, place: &str, why: &dyn std::fmt::Display) -> TraceError {
    // One line, whatever the library says.
    let why = format!("{place}: {why}").replace(['\n', '\r'], " ");
    TraceError::bad(path, format!("damaged Parquet file: {why}"), DAMAGED)
}
