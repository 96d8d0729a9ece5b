//! A table of results as Parquet: columns by name, each with its values.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

/// The values of a column, a row each.
pub(crate) enum Values {
    Texts(Vec<ByteArray>),
    /// Counts: Parquet stores unsigned numbers as the signed ones of the same bits.
    Counts(Vec<i64>),
    /// Real numbers.
    Reals(Vec<f64>),
    /// Small numbers that some rows do not have.
    Small(Vec<Option<u8>>),
}

impl Values {
    pub(crate) fn texts<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        Self::Texts(values.map(ByteArray::from).collect())
    }

    pub(crate) fn counts(values: impl Iterator<Item = u64>) -> Self {
        Self::Counts(values.map(|value| value as i64).collect())
    }

    fn field(&self, name: &str) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical, repetition) = match self {
            Self::Texts(_) => (PhysicalType::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED),
            Self::Counts(_) => (PhysicalType::INT64, ConvertedType::UINT_64, Repetition::REQUIRED),
            Self::Reals(_) => (PhysicalType::DOUBLE, ConvertedType::NONE, Repetition::REQUIRED),
            Self::Small(_) => (PhysicalType::INT32, ConvertedType::UINT_8, Repetition::OPTIONAL),
        };
        let column = Type::primitive_type_builder(name, physical).with_converted_type(logical);
        Ok(Arc::new(column.with_repetition(repetition).build()?))
    }

    fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    ) -> Result<(), ParquetError> {
        let more = || ParquetError::General("more columns than fields".into());
        let mut column = group.next_column()?.ok_or_else(more)?;
        match self {
            Self::Texts(values) => {
                column.typed::<ByteArrayType>().write_batch(values, None, None)?
            }
            Self::Counts(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
            Self::Reals(values) => column.typed::<DoubleType>().write_batch(values, None, None)?,
            Self::Small(values) => {
                let present: Vec<i16> =
                    values.iter().map(|value| i16::from(value.is_some())).collect();
                let values: Vec<i32> = values.iter().flatten().copied().map(i32::from).collect();
                column.typed::<Int32Type>().write_batch(&values, Some(&present), None)?
            }
        };
        column.close()
    }
}

/// Writes the columns of the table `name`, with something said of it beside them or not.
pub(crate) fn write(
    output: impl Write + Send,
    name: &str,
    about: Option<KeyValue>,
    columns: &[(String, Values)],
) -> Result<(), ParquetError> {
    let fields: Result<Vec<_>, _> =
        columns.iter().map(|(name, values)| values.field(name)).collect();
    let schema = Arc::new(Type::group_type_builder(name).with_fields(fields?).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(about.map(|about| vec![about]))
        .build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    columns.iter().try_for_each(|(_, values)| values.write(&mut group))?;
    group.close()?;
    writer.close()?;
    Ok(())
}
