//! Rows that `freehold replay --format jsonl|parquet` wrote, read back: of any number of files, and
//! also after another program has put them into one.

use std::path::Path;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

use super::read::not_json;
use crate::cli::error::CliError;
use crate::cli::provenance::sha256;

/// A recording, zone and engine: the columns that were asked for, by their names. What is null is
/// not there.
pub(crate) type Row = Map<String, Value>;

/// A table of rows, and where it came from.
pub(crate) struct Table {
    /// What to call it.
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) rows: Vec<Row>,
}

/// The table in a file, with these columns of it; nothing where the file is something else. `name`
/// and `bytes` are as [`bytes`](super::read::bytes) has them.
///
/// # Errors
///
/// Where the table is damaged, or of something else.
pub(crate) fn table(
    path: &Path,
    (name, bytes): (&str, &[u8]),
    columns: &[&str],
) -> Result<Option<Table>, CliError> {
    let rows = if bytes.starts_with(b"PAR1") {
        let rows = of_parquet(bytes.to_vec(), columns);
        rows.map_err(|error| {
            let hint = "a trace is replayed first: freehold replay --json";
            CliError::new(format!("{name}: {error}"))
                .hint(format!("{hint} {name} | freehold report -"))
        })?
    } else if is_lines(bytes) {
        let rows = serde_json::Deserializer::from_slice(bytes).into_iter().map(|row| {
            let mut row: Row = row?;
            row.retain(|name, value| !value.is_null() && columns.contains(&&**name));
            Ok(row)
        });
        let rows = rows.collect::<Result<_, serde_json::Error>>();
        rows.map_err(|error| not_json(path, name, bytes, &error))?
    } else {
        return Ok(None);
    };
    Ok(Some(Table { name: name.to_owned(), sha256: sha256(bytes)?, rows }))
}

/// Whether the first line is a row.
fn is_lines(bytes: &[u8]) -> bool {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice::<Row>(first)
        .is_ok_and(|row| row.contains_key("schema") && row.contains_key("status"))
}

fn of_parquet(bytes: Vec<u8>, columns: &[&str]) -> Result<Vec<Row>, ParquetError> {
    let file = SerializedFileReader::new(Bytes::from(bytes))?;
    let schema = file.metadata().file_metadata().schema();
    let wanted = schema.get_fields().iter().filter(|field| columns.contains(&field.name()));
    let wanted: Vec<_> = wanted.cloned().collect();
    if !wanted.iter().any(|field| field.name() == "status") {
        let what = "these are no rows of replays; freehold replay --format parquet writes them";
        return Err(ParquetError::General(what.to_owned()));
    }
    let wanted = Type::group_type_builder(schema.name()).with_fields(wanted).build()?;
    let row = |row: Result<parquet::record::Row, ParquetError>| {
        let columns = row?.into_columns().into_iter();
        Ok(columns.filter_map(|(name, field)| Some((name, value(field)?))).collect())
    };
    file.get_row_iter(Some(wanted))?.map(row).collect()
}

/// What programs that write tables again may have made of a value.
fn value(field: Field) -> Option<Value> {
    Some(match field {
        Field::Bool(value) => value.into(),
        Field::Int(value) => value.into(),
        Field::Long(value) => value.into(),
        Field::UInt(value) => value.into(),
        Field::ULong(value) => value.into(),
        Field::Float(value) => value.into(),
        Field::Double(value) => value.into(),
        Field::Str(text) => text.into(),
        Field::Bytes(text) => text.as_utf8().ok()?.into(),
        _ => return None,
    })
}
