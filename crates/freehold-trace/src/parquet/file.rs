//! What a file says of itself: its end and its description.

use std::path::Path;

use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};

use super::super::error::TraceError;
use super::super::input::Input;
use super::super::packed::{FILES_KEY, NAMES, Packed};
use super::super::schema::METADATA_KEY;
use super::corrupt;

/// Checks that the file has an end, and that the index before it can be in the file.
pub(super) fn check_footer(path: &Path, input: &Input) -> Result<(), TraceError> {
    let cut = |at: &str| TraceError::Truncated {
        path: path.to_owned(),
        at: at.to_owned(),
        hint: "copy it again: without its end a Parquet file cannot be read, not even with --skip-bad",
    };
    if input.len < 12 {
        return Err(cut("a Parquet file has at least 12 bytes"));
    }
    let tail = input.get_bytes(input.len - 8, 8).map_err(|e| corrupt(path, "its end", &e))?;
    if &tail[4..] != b"PAR1" {
        return Err(cut("the end of a Parquet file, with its index, is missing"));
    }
    let footer = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if footer + 12 > input.len {
        return Err(cut(&format!(
            "its index is said to have {footer} bytes, the whole file has {}",
            input.len
        )));
    }
    Ok(())
}

/// The JSON that the file carries about itself, if it carries any.
pub(super) fn description(file: &SerializedFileReader<Input>) -> Option<serde_json::Value> {
    serde_json::from_str(value_of(file, METADATA_KEY)?).ok()
}

pub(super) fn value_of<'f>(file: &'f SerializedFileReader<Input>, key: &str) -> Option<&'f str> {
    let pairs = file.metadata().file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

/// The machine's files that are packed into a file.
pub(super) fn files(path: &Path, file: &SerializedFileReader<Input>) -> Result<Packed, TraceError> {
    let described = description(file).unwrap_or_default();
    Packed::decoded(value_of(file, FILES_KEY), described.get(NAMES))
        .map_err(|why| corrupt(path, "its index", &why))
}
