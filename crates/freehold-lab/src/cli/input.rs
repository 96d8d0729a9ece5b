//! Traces named on the command line, as something that can be read twice.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use freehold_trace::buddyinfo::{PageTypeInfo, parse_pagetypeinfo};
use freehold_trace::kernel::Kernel;
use freehold_trace::{
    Event, OpenOptions, Packed, Source, StateError, TraceError, TraceReader, zoneinfo,
};

use super::error::CliError;
use super::provenance::{About, PROGRAM, command_line, sha256};
use crate::replay::{Description, Events, Oddities, SourceError, Trace};

/// A trace that can be opened as often as needed.
pub struct TraceFile {
    source: Source,
    options: OpenOptions,
    /// What the user called it.
    shown: String,
    path: Option<PathBuf>,
    /// The machine's files that are packed into it.
    files: Packed,
}

impl TraceFile {
    /// A trace that is built into the program, and what lay beside it when it was recorded: the
    /// kind of each description and its text.
    pub fn built_in(
        name: &str,
        bytes: &'static [u8],
        beside: &'static [(&'static str, &'static str)],
    ) -> Self {
        let mut files = Packed::default();
        beside.iter().for_each(|(kind, text)| files.insert(format!("{kind}.before.txt"), *text));
        Self {
            source: Source::Bytes { name: name.to_owned(), bytes },
            options: OpenOptions::default(),
            shown: "the built-in sample".to_owned(),
            path: None,
            files,
        }
    }

    /// The trace that an argument names: a path, or `-` for standard input. What can be read only
    /// once is copied to a temporary file.
    ///
    /// Its numbers are read as `kernel` has them, else the kernel of a copy of `/proc/version`
    /// beside it, else that of its own header; migratetypes as a pagetypeinfo beside it orders
    /// them.
    pub fn named(
        argument: &Path,
        skip_bad: bool,
        kernel: Option<Kernel>,
    ) -> Result<Self, CliError> {
        let source = Source::from_arg(argument);
        let path = matches!(source, Source::Path(_)).then(|| argument.to_owned());
        let shown = if path.is_some() {
            argument.display().to_string()
        } else {
            "standard input".to_owned()
        };
        let source = source.reopenable()?;
        let options = OpenOptions { skip_bad, kernel, types: None };
        let files = freehold_trace::packed_files(&source)?;
        let mut file = Self { source, options, shown, path, files };
        let version = |text: &str| Ok(Kernel::parse(text));
        if file.options.kernel.is_none() {
            file.options.kernel = file.state("version", version)?.and_then(|(_, kernel)| kernel);
        }
        // What is wrong with it is said where the machine is read from it.
        let types = file.state("pagetypeinfo", parse_pagetypeinfo).ok().flatten();
        file.options.types = types.and_then(|(_, types)| PageTypeInfo::numbers(&types));
        Ok(file)
    }

    /// Bytes of a page of the machine that recorded it, where the trace says.
    pub fn page_size(&self) -> Option<u64> {
        self.reader().ok()?.info().page_size
    }

    /// The kernel that recorded it, where `--kernel`, a copy of `/proc/version` beside it or its
    /// own header says that.
    pub fn kernel(&self) -> Option<Kernel> {
        let header = || self.reader().ok()?.info().kernel.clone();
        self.options.kernel.or_else(|| Kernel::parse(&header()?))
    }

    /// What the user called it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The description `what` of the machine's memory that is packed into it or lies beside it, if
    /// there is one: what it is called, and what `parse` made of it. A trace with packed files is
    /// whole: what lies beside it may be of another.
    pub fn state<T>(
        &self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, StateError>,
    ) -> Result<Option<(String, T)>, StateError> {
        if let Some((name, text)) = self.files.get(what) {
            let name = format!("{name} of {}", self.shown);
            let parsed = StateError::in_text(&name, text, parse)?;
            return Ok(Some((name, parsed)));
        }
        let beside = self.path.as_ref().filter(|_| self.files.is_empty());
        let Some(beside) = beside.and_then(|path| zoneinfo::beside(path, what)) else {
            return Ok(None);
        };
        Ok(Some((beside.display().to_string(), StateError::in_file(&beside, parse)?)))
    }

    /// Everything that `state` finds, to be packed into a copy.
    pub fn files(&self) -> io::Result<Packed> {
        match &self.path {
            Some(path) if self.files.is_empty() => Packed::beside(path),
            _ => Ok(self.files.clone()),
        }
    }

    /// What made a result of it.
    pub fn about(&self) -> io::Result<About> {
        let sha256 = match &self.source {
            Source::Bytes { bytes, .. } => sha256(*bytes),
            Source::Spooled(copy) => sha256(File::open(copy.path())?),
            Source::Path(path) => sha256(File::open(path)?),
            Source::Stdin => Ok(String::new()),
        }?;
        let path = match (&self.path, &self.source) {
            (Some(path), _) => path.display().to_string(),
            (None, Source::Bytes { name, .. }) => name.clone(),
            (None, _) => "-".to_owned(),
        };
        let said = self.reader().ok();
        let host = said.and_then(|reader| Some(reader.info().description["host"].as_str()?.into()));
        Ok(About { program: PROGRAM.into(), command: command_line(), path, sha256, host })
    }

    pub fn reader(&self) -> Result<TraceReader, TraceError> {
        TraceReader::open(&self.source, self.options)
    }
}

impl Trace for TraceFile {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError> {
        Ok(Box::new(self.reader()?))
    }
}

impl Events for TraceReader {
    fn description(&self) -> Description {
        let (info, lost) = (self.info(), self.lost());
        Description {
            name: info.name.clone(),
            format: info.format.to_string(),
            kernel: info.kernel.clone(),
            cpus: info.cpus,
            checksums: info.checksums,
            lost_events: info.lost_events.map(|_| lost).or((lost > 0).then_some(lost)),
        }
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError> {
        self.next_batch(events)
    }

    fn oddities(&self) -> Oddities {
        Oddities {
            skipped: self.skipped(),
            first_skipped: self.first_skipped(),
            long_gaps: self.long_gaps(),
            first_long_gap: self.first_long_gap(),
            notes: self.info().notes.clone(),
            ignored: self.ignored(),
        }
    }

    fn progress(&self) -> (u64, u64) {
        self.progress()
    }
}
