//! Reading back what the other commands printed with `--json`.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::cli::error::CliError;
use crate::cli::target::is_dash;

/// A JSON document and where it came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    /// What to call it: a file's name.
    pub name: String,
    pub value: serde_json::Value,
}

/// What to call a file in tables.
pub(crate) fn shown_name(path: &Path) -> String {
    if is_dash(path) {
        return "standard input".to_owned();
    }
    path.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The documents in a file: one, or several one after the other.
pub(crate) fn read(path: &Path) -> Result<Vec<Source>, CliError> {
    let (shown, bytes) = bytes(path)?;
    documents(path, &shown, &bytes)
}

/// What to call a file, and all of it.
pub(crate) fn bytes(path: &Path) -> Result<(String, Vec<u8>), CliError> {
    let shown =
        if is_dash(path) { "standard input".to_owned() } else { path.display().to_string() };
    let read = if is_dash(path) {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    let bytes = read.map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(CliError::new(format!("{shown} is empty")).hint(
            "a command that fails prints no JSON; what was wrong it said on standard error",
        ));
    }
    Ok((shown, bytes))
}

/// The documents in what [`bytes`] read.
pub(crate) fn documents(path: &Path, shown: &str, bytes: &[u8]) -> Result<Vec<Source>, CliError> {
    // A byte-order mark, as some editors and shells put before text.
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let name = shown_name(path);
    let documents: Result<Vec<serde_json::Value>, _> =
        serde_json::Deserializer::from_slice(text).into_iter().collect();
    let documents = documents.map_err(|error| not_json(path, shown, text, &error))?;
    let several = documents.len() > 1;
    let named = documents.into_iter().enumerate();
    Ok(named
        .map(|(n, value)| Source {
            name: if several { format!("{name}, document {}", n + 1) } else { name.clone() },
            value,
        })
        .collect())
}

pub(super) fn not_json(
    path: &Path,
    shown: &str,
    text: &[u8],
    error: &serde_json::Error,
) -> CliError {
    let problem = CliError::new(format!("{shown} is not JSON: {error}"));
    let is_html = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("html"));
    if text.starts_with(b"PAR1") {
        problem.hint(format!("this is Parquet: freehold replay --json {shown} | freehold report -"))
    } else if is_html {
        problem.hint(format!(
            "to name the file to write, put -o before it: freehold report -o {shown} ..."
        ))
    } else {
        problem.hint(
            "give what replay, contiguity or simulate print with --json; without it they print \
                      tables for people",
        )
    }
}
