//! Everything that can be wrong with a trace, with the place, the offending value and what to do
//! about it.
//!
//! Every message is one readable line; where there is something the reader of it can do, a second
//! line starting with `hint: ` says what. Nothing in this module is ever a panic: traces come from
//! other machines, half-finished copies and full disks.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a trace could not be read (or written).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file, or `<stdin>`.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },

    /// There is nothing in it to replay.
    #[error("{path}: {what}\nhint: record with the kmem:mm_page_* events enabled", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What there was instead of events.
        what: String,
    },

    /// The content is no format that is read here.
    #[error(
        "{path}: not a page-allocator trace: {looks_like}\nhint: {hint}",
        path = path.display(),
        hint = hint.as_deref().unwrap_or(ACCEPTED)
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        looks_like: String,
        /// What to do with that kind of file, where there is something better than the list of
        /// accepted formats.
        hint: Option<String>,
    },

    /// It ends in the middle of something.
    #[error("{path}: truncated: {at}\nhint: {hint}", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What it ends in the middle of, and where.
        at: String,
        /// What to do.
        hint: &'static str,
    },

    /// A line of a text trace makes no sense.
    #[error("{path}: line {line}: {why}: `{text}`\nhint: {SKIP_LINES}", path = path.display())]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// The beginning of the line.
        text: String,
        /// What is wrong, with the offending value.
        why: String,
    },

    /// A GFP flag that no kernel known here has.
    #[error(
        "{path}: line {line}: unknown GFP flag `{flag}`\nhint: the flags of Linux 3.3 to 7.1 are known; {SKIP_LINES}",
        path = path.display()
    )]
    UnknownFlag {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// The name.
        flag: String,
    },

    /// Flags are numbers, and whose is not known.
    #[error(
        "{path}: {place}: gfp_flags are a number, {flags}, and its kernel is not known\nhint: say which kernel recorded it, \
         as `uname -r` prints it: --kernel VERSION; bits have other meanings before 5.1, 4.18, 4.10 and 4.4",
        path = path.display()
    )]
    UnknownKernel {
        /// The file.
        path: PathBuf,
        /// The line, or the column.
        place: String,
        /// The number.
        flags: String,
    },

    /// Times that are no times.
    #[error("{path}: line {line}: {what}\nhint: {hint}", path = path.display())]
    NoClock {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// What they are.
        what: String,
        /// What to do.
        hint: &'static str,
    },

    /// A row of a Parquet trace makes no sense.
    #[error(
        "{path}: row {row}: column `{column}`: {value} {why}\nhint: --skip-bad leaves such rows out and counts them",
        path = path.display()
    )]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The row's number, from 0.
        row: u64,
        /// The column.
        column: &'static str,
        /// The offending value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },

    /// An event lies far before the one in front of it.
    #[error(
        "{path}: {place}: {how_far}: time goes back\nhint: sort the events by time, and give each recording a file of its \
         own; --skip-bad leaves such events out and counts them",
        path = path.display()
    )]
    TimeGoesBack {
        /// The file.
        path: PathBuf,
        /// The line or row.
        place: String,
        /// How far before the latest event it lies.
        how_far: String,
    },

    /// A Parquet file without a column that a trace must have.
    #[error(
        "{path}: no column `{column}`; the columns are {found}\nhint: a trace needs ts_ns, cpu, event, pfn and order",
        path = path.display()
    )]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The missing column.
        column: &'static str,
        /// The columns there are.
        found: String,
    },

    /// A Parquet column that holds something else than whole numbers.
    #[error(
        "{path}: column `{column}` is {found}\nhint: a trace's columns are plain INT32 or INT64, signed or not",
        path = path.display()
    )]
    BadColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// What it is.
        found: String,
    },

    /// A Parquet column packed in a way that is not built in.
    #[error(
        "{path}: column `{column}` is compressed with {codec}, which is not read here\nhint: write it with zstd, snappy, \
         gzip, lz4 or without compression; with pyarrow: pq.write_table(pq.read_table(OLD).replace_schema_metadata(), NEW, \
         compression='zstd')",
        path = path.display()
    )]
    UnknownCodec {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The name of the compression.
        codec: &'static str,
    },

    /// Compressed data that does not decompress.
    #[error(
        "{path}: damaged {what} data: {source}\nhint: copy or record it again; --skip-bad cannot help here",
        path = path.display()
    )]
    Compression {
        /// The file.
        path: PathBuf,
        /// `gzip` or `zstd`.
        what: &'static str,
        /// What the decompressor said.
        source: io::Error,
    },

    /// A Parquet file whose own structure is damaged.
    #[error(
        "{path}: damaged Parquet file: {why}\nhint: copy or record it again; --skip-bad cannot help here",
        path = path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is damaged, and where.
        why: String,
    },

    /// A trace could not be written.
    #[error("{path}: cannot write the trace: {why}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// Why a description of a machine's memory could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A line makes no sense.
    #[error("{file}: line {line}: {why}")]
    BadLine {
        /// The file, or the kind of text.
        file: String,
        /// The line's number, from 1.
        line: u64,
        /// What is wrong, with the offending value.
        why: String,
    },
    /// Two files that cannot be of one machine at one time.
    #[error("{what}")]
    Contradiction {
        /// What differs, with both values.
        what: String,
    },
}

impl StateError {
    /// Reads a file and parses it; errors name the file.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, and those of `parse`.
    pub fn in_file<T>(
        path: &std::path::Path,
        parse: impl FnOnce(&str) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let bytes =
            std::fs::read(path).map_err(|source| Self::Io { path: path.to_owned(), source })?;
        Self::in_text(&path.display().to_string(), &String::from_utf8_lossy(&bytes), parse)
    }

    /// Parses a text; errors name it.
    ///
    /// # Errors
    ///
    /// Those of `parse`.
    pub fn in_text<T>(
        name: &str,
        text: &str,
        parse: impl FnOnce(&str) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        parse(text.strip_prefix('\u{feff}').unwrap_or(text)).map_err(|error| match error {
            Self::BadLine { line, why, .. } => Self::BadLine { file: name.to_owned(), line, why },
            error => error,
        })
    }
}

/// What can be read: the hint wherever nothing more helpful is known.
pub(super) const ACCEPTED: &str = "accepted are Parquet with columns ts_ns, cpu, event, pfn and order, and the text of \
                                   tracefs (trace, trace_pipe), `trace-cmd report`, `perf script` and bpftrace, \
                                   plain, gzip or zstd";

const SKIP_LINES: &str = "--skip-bad leaves such lines out and counts them";

/// At most this many bytes of an offending line are shown.
const SNIPPET: usize = 120;

/// The beginning of a line, as text that can be printed on one line of a terminal.
pub(super) fn snippet(line: &[u8]) -> String {
    let cut = line.len() > SNIPPET;
    let shown = String::from_utf8_lossy(&line[..line.len().min(SNIPPET)]);
    let mut text: String =
        shown.trim().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if cut {
        text.push_str("...");
    }
    text
}

/// Why one line or row is bad, before it is known which file and line it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Bad {
    /// In words.
    Because(String),
    /// An unknown GFP flag.
    Flag(String),
    /// A number for GFP flags, and no kernel to read it by.
    Number(String),
    /// A time in units that nobody knows.
    Ticks(String),
}

impl Bad {
    pub(super) fn because(why: impl Into<String>) -> Self {
        Self::Because(why.into())
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::Flag(flag) => write!(f, "unknown GFP flag `{flag}`"),
            Self::Number(flags) => write!(f, "gfp_flags are a number of some kernel, {flags}"),
            Self::Ticks(time) => write!(f, "time `{time}` is no seconds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_are_short_and_printable() {
        assert_eq!(snippet(b"  a b\r\n"), "a b");
        assert_eq!(snippet(b"a\x1b[31mb\x00\xff"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        let long = snippet(&[b'x'; 500]);
        assert_eq!(long.len(), SNIPPET + 3);
        assert!(long.ends_with("..."));
    }

    #[test]
    fn messages_are_one_line_and_perhaps_a_hint() {
        let all = [
            TraceError::Empty { path: "t".into(), what: "the file is empty".into() },
            TraceError::NotATrace {
                path: "t".into(),
                looks_like: "an ELF program".into(),
                hint: None,
            },
            TraceError::BadLine {
                path: "t".into(),
                line: 7,
                text: "x".into(),
                why: "no CPU".into(),
            },
            TraceError::UnknownFlag { path: "t".into(), line: 7, flag: "__GFP_X".into() },
            TraceError::UnknownKernel {
                path: "t".into(),
                place: "line 7".into(),
                flags: "0xcc0".into(),
            },
            TraceError::NoClock {
                path: "t".into(),
                line: 7,
                what: "no time".into(),
                hint: "again",
            },
            TraceError::BadRow {
                path: "t".into(),
                row: 9,
                column: "order",
                value: "77".into(),
                why: "is too large",
            },
            TraceError::TimeGoesBack {
                path: "t".into(),
                place: "row 9".into(),
                how_far: "1 s earlier".into(),
            },
            TraceError::UnknownCodec { path: "t".into(), column: "pfn", codec: "brotli" },
            TraceError::MissingColumn { path: "t".into(), column: "pfn", found: "a, b".into() },
            TraceError::Io { path: "t".into(), source: io::Error::other("no") },
        ];
        for error in all {
            let text = error.to_string();
            let mut lines = text.lines();
            assert!(lines.next().unwrap().starts_with("t: "), "{text}");
            assert!(lines.next().is_none_or(|hint| hint.starts_with("hint: ")), "{text}");
            assert_eq!(lines.next(), None, "{text}");
        }
    }
}
