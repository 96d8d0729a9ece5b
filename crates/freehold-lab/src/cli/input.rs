//! Traces named on the command line, as something that can be read twice.

use std::path::{Path, PathBuf};

use freehold_trace::buddyinfo::{PageTypeInfo, parse_pagetypeinfo};
use freehold_trace::kernel::Kernel;
use freehold_trace::{Event, OpenOptions, Source, StateError, TraceReader, zoneinfo};

use super::error::CliError;
use crate::replay::{Description, Events, Oddities, SourceError, Trace};

/// A trace that can be opened as often as needed.
pub struct TraceFile {
    source: Source,
    options: OpenOptions,
    /// What the user called it.
    shown: String,
    path: Option<PathBuf>,
    /// What lay beside a built-in trace, by kind.
    beside: &'static [(&'static str, &'static str)],
}

impl TraceFile {
    /// A trace that is built into the program, and what lay beside it when it was recorded: the
    /// kind of each description and its text.
    pub fn built_in(
        name: &str,
        bytes: &'static [u8],
        beside: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            source: Source::Bytes { name: name.to_owned(), bytes },
            options: OpenOptions::default(),
            shown: "the built-in sample".to_owned(),
            path: None,
            beside,
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
        let mut file = Self { source, options, shown, path, beside: &[] };
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
        TraceReader::open(&self.source, self.options).ok()?.info().page_size
    }

    /// The kernel that recorded it, where `--kernel`, a copy of `/proc/version` beside it or its
    /// own header says that.
    pub fn kernel(&self) -> Option<Kernel> {
        let header = || TraceReader::open(&self.source, self.options).ok()?.info().kernel.clone();
        self.options.kernel.or_else(|| Kernel::parse(&header()?))
    }

    /// What the user called it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The description `what` of the machine's memory that lies beside it, if there is one: what it
    /// is called, and what `parse` made of it.
    pub fn state<T>(
        &self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, StateError>,
    ) -> Result<Option<(String, T)>, StateError> {
        let Some(path) = &self.path else {
            let built_in = self.beside.iter().find(|(name, _)| *name == what);
            return built_in.map(|(name, text)| Ok(((*name).to_owned(), parse(text)?))).transpose();
        };
        let Some(beside) = zoneinfo::beside(path, what) else { return Ok(None) };
        Ok(Some((beside.display().to_string(), StateError::in_file(&beside, parse)?)))
    }
}

impl Trace for TraceFile {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError> {
        Ok(Box::new(TraceReader::open(&self.source, self.options)?))
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
