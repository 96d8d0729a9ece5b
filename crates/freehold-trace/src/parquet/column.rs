//! Columns: where they are in a file, and reading their numbers.

use std::path::Path;

use parquet::basic::{Compression, ConvertedType, LogicalType, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use super::super::error::TraceError;
use super::super::schema::COLUMNS;

/// Where a column is and how to read its numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnPlace {
    pub(super) leaf: usize,
    /// Narrow values are widened without a sign.
    pub(super) unsigned: bool,
}

#[derive(Default)]
pub(super) struct Scratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
    levels: Vec<i16>,
}

/// Stands for a null in a column that must have a value. No column has it as a valid value; as a
/// time it would be 584 years after the machine started.
pub(super) const NULL: u64 = u64::MAX - 1;

/// Finds the columns of a trace by their names, and whether their numbers can be read.
pub(super) fn find_columns(
    path: &Path,
    schema: &SchemaDescriptor,
) -> Result<[Option<ColumnPlace>; COLUMNS.len()], TraceError> {
    let mut columns = [None; COLUMNS.len()];
    for (at, def) in COLUMNS.iter().enumerate() {
        let found = schema
            .columns()
            .iter()
            .position(|c| matches!(c.path().parts(), [name] if name == def.name));
        let Some(leaf) = found else {
            if def.required {
                let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).take(30).collect();
                let (name, found) = (def.name, names.join(", "));
                let hint = "a trace needs ts_ns, cpu, event, pfn and order";
                let what = format!("no column `{name}`; the columns are {found}");
                return Err(TraceError::bad(path, what, hint));
            }
            continue;
        };
        let column = schema.column(leaf);
        let bad = |found: String| {
            let hint = "a trace's columns are plain INT32 or INT64, signed or not";
            TraceError::bad(path, format!("column `{}` is {found}", def.name), hint)
        };
        if column.max_rep_level() > 0 {
            return Err(bad("a list".into()));
        }
        if !matches!(column.physical_type(), PhysicalType::INT32 | PhysicalType::INT64) {
            return Err(bad(column.physical_type().to_string()));
        }
        let unsigned = is_unsigned(&column).map_err(bad)?;
        columns[at] = Some(ColumnPlace { leaf, unsigned });
    }
    Ok(columns)
}

/// Refuses compression that the `parquet` crate has not been built with: what it says of it reads
/// as damage.
pub(super) fn check_codecs(
    path: &Path,
    file: &ParquetMetaData,
    columns: &[Option<ColumnPlace>; COLUMNS.len()],
) -> Result<(), TraceError> {
    for group in file.row_groups() {
        for (place, def) in
            columns.iter().zip(&COLUMNS).filter_map(|(place, def)| place.zip(Some(def)))
        {
            let codec = match group.column(place.leaf).compression() {
                Compression::BROTLI(_) => "brotli",
                Compression::LZO => "LZO",
                _ => continue,
            };
            let column = def.name;
            let what =
                format!("column `{column}` is compressed with {codec}, which is not read here");
            let hint = "write it with zstd, snappy, gzip, lz4 or without compression; with \
                        pyarrow: pq.write_table(pq.read_table(OLD).replace_schema_metadata(), \
                        NEW, compression='zstd')";
            return Err(TraceError::bad(path, what, hint));
        }
    }
    Ok(())
}

/// Whether the numbers of a column have no sign; what they are instead where they are no numbers.
fn is_unsigned(column: &ColumnDescriptor) -> Result<bool, String> {
    match column.logical_type_ref() {
        // Files of older writers have only the type that was there before: of times, dates and
        // decimals, too.
        None => match column.converted_type() {
            ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64 => Ok(false),
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => Ok(true),
            other => Err(other.to_string()),
        },
        Some(LogicalType::Integer { is_signed, .. }) => Ok(!is_signed),
        Some(other) => Err(format!("{other:?}")),
    }
}

/// Reads `rows` values of a column and widens them. A null becomes the column's default, or
/// [`NULL`] where there is none.
pub(super) fn read_column(
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
        _ => {
            return Err(ParquetError::General(
                "the pages have another type than the index says".into(),
            ));
        }
    };
    if got != rows {
        return Err(ParquetError::General(format!(
            "{rows} more rows are promised, {got} are there"
        )));
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

/// Fills `values` (without the nulls) and `levels` (0 for a null); the number of rows, nulls
/// included.
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
