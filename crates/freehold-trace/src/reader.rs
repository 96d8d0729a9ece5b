//! One reader for every format.

use std::fmt;

use super::Event;
use super::error::TraceError;
use super::info::TraceInfo;
use super::kernel::{Kernel, TypeNumbers};
use super::packed::Packed;
use super::parquet::{self, ParquetReader};
use super::source::{self, Opened, Source};
use super::tally::Tally;
use super::text::{self, TextReader};

/// How to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenOptions {
    /// Leave bad lines and rows out and count them, instead of stopping at the first.
    pub skip_bad: bool,
    /// The kernel that recorded it, whatever its header says.
    pub kernel: Option<Kernel>,
    /// What its migratetype numbers are, as a pagetypeinfo beside it says.
    pub types: Option<TypeNumbers>,
}

/// A trace being read, in batches of about 65,000 events; memory does not grow with its length.
///
/// ```no_run
/// use freehold_trace::{OpenOptions, Source, TraceReader};
///
/// let source = Source::from_arg("thp.parquet");
/// let mut reader = TraceReader::open(&source, OpenOptions::default())?;
/// let mut events = Vec::new();
/// while reader.next_batch(&mut events)? {
///     println!("{} events, first at {} ns", events.len(), events[0].ts_ns);
/// }
/// # Ok::<(), freehold_trace::TraceError>(())
/// ```
pub struct TraceReader {
    info: TraceInfo,
    tally: Tally,
    kind: Kind,
}

/// The machine's files that are packed into a trace, whatever else is in it; none of a text.
///
/// # Errors
///
/// Where the source cannot be opened, is no trace, or its packed files are damaged.
pub fn packed_files(source: &Source) -> Result<Packed, TraceError> {
    match source::open(source)?.0 {
        Opened::Parquet(input) => parquet::packed(&source.shown(), &input),
        Opened::Text { .. } => Ok(Packed::default()),
    }
}

enum Kind {
    Parquet(Box<ParquetReader>),
    Text(Box<TextReader>),
}

impl TraceReader {
    /// Opens a trace and finds out what it is by its content.
    ///
    /// The standard input is read in a stream where it is text; Parquet has its index at the end
    /// and is copied to a temporary file first.
    ///
    /// # Errors
    ///
    /// Every variant of [`TraceError`] that does not name a line or row.
    pub fn open(source: &Source, options: OpenOptions) -> Result<Self, TraceError> {
        let (opened, total) = source::open(source)?;
        let (info, kind) = match opened {
            Opened::Parquet(input) => {
                let reader = ParquetReader::open(source.shown(), input, options)?;
                (reader.info(source.name()), Kind::Parquet(Box::new(reader)))
            }
            Opened::Text { input, head, format, compression, consumed } => {
                let mut info = text::info(source.name(), &head, format, compression);
                let meaning = text::meaning(&mut info, &head, options);
                let path = source.shown();
                let reader = TextReader::new(path, &info, meaning, input, consumed, total);
                (info, Kind::Text(Box::new(reader)))
            }
        };
        let tally = Tally { skip_bad: options.skip_bad, ..Tally::default() };
        Ok(Self { info, tally, kind })
    }

    /// What is known about the trace.
    #[must_use]
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Replaces the content of `out` by the next events, about 65,000 of them; `false` at the end
    /// of the trace, with `out` empty.
    ///
    /// Events come in the order of the file. Times may be equal, and between CPUs go back by up to
    /// 1 ms, which the merging of CPUs' buffers explains; more is an error, whatever the format.
    /// Sums can be verified only at the end: until `false` is returned, nothing that was read is
    /// certain.
    ///
    /// # Errors
    ///
    /// What is wrong with the trace, and where. After an error the reader is of no use any more.
    pub fn next_batch(&mut self, out: &mut Vec<Event>) -> Result<bool, TraceError> {
        out.clear();
        match &mut self.kind {
            Kind::Parquet(reader) => reader.next_batch(out, &mut self.tally),
            Kind::Text(reader) => reader.next_batch(out, &mut self.tally),
        }
    }

    /// Bad lines or rows left out so far; 0 without [`OpenOptions::skip_bad`].
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.tally.skipped
    }

    /// Where the first of them was, and what was wrong with it.
    #[must_use]
    pub fn first_skipped(&self) -> Option<String> {
        self.tally.first_skipped.clone()
    }

    /// Well-formed lines of other tracepoints and stack traces so far. They are no errors.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.tally.ignored
    }

    /// Events that the recorder says it lost: what the header says, and lines like
    /// `CPU:1 [LOST 12 EVENTS]` so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.tally.lost.max(self.tally.overrun).saturating_add(self.info.lost_events.unwrap_or(0))
    }

    /// Events so far that come more than an hour after the one before them: no silence of a machine
    /// at work.
    #[must_use]
    pub fn long_gaps(&self) -> u64 {
        self.tally.clock.long_gaps
    }

    /// Where the first of them was, with its line or row.
    #[must_use]
    pub fn first_long_gap(&self) -> Option<String> {
        self.tally.clock.first.clone()
    }

    /// How far it is: done and total, in rows (Parquet) or bytes of the file (text). A total of 0
    /// is unknown.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        match &self.kind {
            Kind::Parquet(reader) => reader.progress(),
            Kind::Text(reader) => reader.progress(),
        }
    }
}

impl fmt::Debug for TraceReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceReader")
            .field("info", &self.info)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

/// Readers can move to another thread.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<(TraceReader, Source, TraceError)>();
};
