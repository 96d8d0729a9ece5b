//! Results as rows of flat columns: csv for a sheet, JSON lines and Parquet for a table of many.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use super::error::CliError;
use super::given::Form;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Int,
    Real,
    Text,
    Bool,
}

/// Rows with the same columns; what is not known is null.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rows {
    pub columns: Vec<(String, Kind)>,
    pub rows: Vec<Vec<Value>>,
}

impl Rows {
    /// As text. `is_first`: a csv begins with the columns' names.
    pub fn text(&self, form: Form, is_first: bool) -> String {
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        if form == Form::Csv {
            let head = names.collect::<Vec<_>>().join(",") + "\n";
            let line = |row: &Vec<Value>| row.iter().map(csv).collect::<Vec<_>>().join(",") + "\n";
            let rows = self.rows.iter().map(line).collect::<String>();
            return if is_first { head + &rows } else { rows };
        }
        let names: Vec<Value> = names.map(Value::from).collect();
        let line = |row: &Vec<Value>| {
            let fields = names.iter().zip(row).map(|(name, value)| format!("{name}:{value}"));
            format!("{{{}}}\n", fields.collect::<Vec<_>>().join(","))
        };
        self.rows.iter().map(line).collect()
    }

    /// As one Parquet file.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn parquet(&self, out: impl Write + Send) -> Result<(), ParquetError> {
        let field = |(name, kind): &(String, Kind)| {
            let physical = match kind {
                Kind::Int => Physical::INT64,
                Kind::Real => Physical::DOUBLE,
                Kind::Text => Physical::BYTE_ARRAY,
                Kind::Bool => Physical::BOOLEAN,
            };
            let field =
                Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
            let field = match kind {
                Kind::Text => field
                    .with_logical_type(Some(LogicalType::String))
                    .with_converted_type(ConvertedType::UTF8),
                _ => field,
            };
            field.build().map(Arc::new)
        };
        let fields = self.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("freehold_rows").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(Default::default()))
            .set_created_by(format!("freehold {}", env!("CARGO_PKG_VERSION")))
            .build();
        let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for (at, (_, kind)) in self.columns.iter().enumerate() {
            let missing = || ParquetError::General("a column more than the schema has".into());
            let mut column = group.next_column()?.ok_or_else(missing)?;
            let values = self.rows.iter().map(|row| &row[at]);
            match kind {
                Kind::Int => put::<Int64Type>(&mut column, values.map(Value::as_i64))?,
                Kind::Real => put::<DoubleType>(&mut column, values.map(Value::as_f64))?,
                Kind::Text => {
                    let text = |value: &Value| value.as_str().map(ByteArray::from);
                    put::<ByteArrayType>(&mut column, values.map(text))?;
                }
                Kind::Bool => put::<BoolType>(&mut column, values.map(Value::as_bool))?,
            }
            column.close()?;
        }
        group.close()?;
        file.close().map(drop)
    }
}

/// Writes the values of a column, each where it is of the column's type.
fn put<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: impl Iterator<Item = Option<T::T>>,
) -> Result<(), ParquetError> {
    let values: Vec<_> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let there: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&there, Some(&levels), None).map(drop)
}

/// A value in a line of csv (RFC 4180). What a sheet would take for a formula stays text.
fn csv(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => return other.to_string(),
    };
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
    let is_plain = !text.contains([',', '"', '\n', '\r']);
    if is_plain { text } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// Which lists of documents are rows.
const LISTS: [&str; 5] = ["figures", "cells", "rows", "zones", "presets"];

/// The list of a document as rows: of compare the figures, of contiguity the cells and so on. Texts
/// come first, which say what a row is of. Lists within a row have no column.
///
/// # Errors
///
/// Where the document has no list, and for Parquet.
pub fn of_document(document: &Value, form: Form) -> Result<String, CliError> {
    if form == Form::Parquet {
        return Err(CliError::new("only replay prints Parquet").hint("--format csv or jsonl"));
    }
    let list =
        document.as_array().or_else(|| LISTS.iter().find_map(|name| document[*name].as_array()));
    let list =
        list.ok_or_else(|| CliError::new("this command has no rows").hint("--json has all"))?;
    let flat: Vec<_> = list
        .iter()
        .map(|row| {
            let mut found = serde_json::Map::new();
            flatten(row, "", &mut found);
            found
        })
        .collect();
    let names: BTreeSet<&String> = flat.iter().flat_map(|row| row.keys()).collect();
    let is_text =
        |name: &String| flat.iter().any(|row| row.get(name).is_some_and(Value::is_string));
    let (texts, others): (Vec<&String>, Vec<&String>) =
        names.into_iter().partition(|name| is_text(name));
    let names: Vec<&String> = texts.into_iter().chain(others).collect();
    let row = |row: &serde_json::Map<String, Value>| {
        names.iter().map(|name| row.get(*name).cloned().unwrap_or_default()).collect()
    };
    let rows = flat.iter().map(row).collect();
    let columns = names.iter().map(|name| ((*name).clone(), Kind::Text)).collect();
    Ok(Rows { columns, rows }.text(form, true))
}

fn flatten(value: &Value, name: &str, found: &mut serde_json::Map<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}_{field}") };
                flatten(value, &name, found);
            }
        }
        Value::Array(_) => {}
        plain => drop(found.insert(name.to_owned(), plain.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_becomes_lines_of_the_same_columns() {
        let document = json!({"summary": "x", "figures": [
            {"engine": "a,\"b", "before": 1.5, "runs": [1, 2], "at": {"cpu": 3}},
            {"engine": "-c", "after": null},
        ]});
        let csv = of_document(&document, Form::Csv).unwrap();
        assert_eq!(csv, "engine,after,at_cpu,before\n\"a,\"\"b\",,3,1.5\n'-c,,,\n");
        let lines = of_document(&document, Form::Jsonl).unwrap();
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(first, json!({"engine": "a,\"b", "after": null, "at_cpu": 3, "before": 1.5}));
        assert!(of_document(&json!({"answer": {}}), Form::Csv).is_err());
        assert!(of_document(&document, Form::Parquet).is_err());
    }
}
