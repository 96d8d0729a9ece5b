//! Traces named on the command line, as something that can be read twice.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::CliError;
use crate::replay::{Description, Events, SourceError, Trace};
use crate::trace::{Event, OpenOptions, Source, TraceReader};

/// The sample: the first part of a real recording, built in so that an installed `freehold` has something to show.
static SAMPLE: &[u8] = include_bytes!("../../../../data/sample.parquet");
const SAMPLE_NAME: &str = "sample";

/// A trace that can be opened as often as needed.
pub(super) struct TraceFile {
    source: Source,
    options: OpenOptions,
    /// What the user called it.
    shown: String,
    /// Where the trace was a pipe: what came out of it, kept in a file until this is dropped.
    spool: Option<NamedTempFile>,
}

impl TraceFile {
    /// The built-in sample.
    pub(super) fn sample() -> Self {
        Self {
            source: Source::Bytes { name: SAMPLE_NAME.to_owned(), bytes: SAMPLE },
            options: OpenOptions::default(),
            shown: SAMPLE_NAME.to_owned(),
            spool: None,
        }
    }

    /// The trace that an argument names: a path, or `-` for standard input. What cannot be read twice is copied to a
    /// temporary file first.
    pub(super) fn named(argument: &Path, skip_bad: bool) -> Result<Self, CliError> {
        let options = OpenOptions { skip_bad };
        let shown = argument.display().to_string();
        if argument.as_os_str() == "-" {
            let spool = spool(&mut io::stdin().lock())
                .map_err(|error| CliError::new(format!("cannot read standard input: {error}")))?;
            let source = Source::Path(spool.path().to_owned());
            return Ok(Self { source, options, shown: "standard input".into(), spool: Some(spool) });
        }
        let spooled = match fs::metadata(argument) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Some(
                fs::File::open(argument)
                    .and_then(|mut pipe| spool(&mut pipe))
                    .map_err(|error| CliError::new(format!("cannot read {shown}: {error}")))?,
            ),
            // Whatever is wrong with a path, the reader says it best.
            _ => None,
        };
        let source = Source::Path(spooled.as_ref().map_or_else(|| argument.to_owned(), |file| file.path().to_owned()));
        Ok(Self { source, options, shown, spool: spooled })
    }

    /// What the user called it.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Its path, where it has one that files may lie beside.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        match &self.source {
            Source::Path(path) if self.spool.is_none() => Some(path),
            _ => None,
        }
    }

    /// An error of the reader, naming what the user named instead of the temporary file.
    fn reword(&self, error: impl std::fmt::Display) -> SourceError {
        let text = error.to_string();
        match &self.spool {
            Some(spool) => text.replace(&spool.path().display().to_string(), &self.shown).into(),
            None => text.into(),
        }
    }
}

fn spool(from: &mut impl io::Read) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("freehold-")?;
    io::copy(from, &mut file)?;
    file.flush()?;
    Ok(file)
}

impl Trace for TraceFile {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError> {
        let reader = TraceReader::open(&self.source, self.options).map_err(|error| self.reword(error))?;
        Ok(Box::new(FileEvents { file: self, reader }))
    }
}

struct FileEvents<'a> {
    file: &'a TraceFile,
    reader: TraceReader,
}

impl Events for FileEvents<'_> {
    fn description(&self) -> Description {
        let info = self.reader.info();
        Description {
            name: if self.file.spool.is_some() { self.file.shown.clone() } else { info.name.clone() },
            format: info.format.to_string(),
            rows: info.rows,
            kernel: info.kernel.clone(),
            cpus: info.cpus,
            lost_events: info.lost_events,
        }
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError> {
        self.reader.next_batch(events).map_err(|error| self.file.reword(error))
    }

    fn skipped(&self) -> u64 {
        self.reader.skipped()
    }

    fn ignored(&self) -> u64 {
        self.reader.ignored()
    }

    fn progress(&self) -> (u64, u64) {
        self.reader.progress()
    }
}
