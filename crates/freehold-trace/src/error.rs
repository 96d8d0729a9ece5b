//! Everything that can be wrong with a trace, with the place, the offending value and what to do
//! about it.
//!
//! Every message is one readable line; where there is something the reader of it can do, a second
//! line starting with `hint: ` says what. Nothing in this module is ever a panic: traces come from
//! other machines, half-finished copies and full disks.

use std::borrow::Cow;
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

    /// Something in it makes no sense, or is not read here.
    #[error("{path}: {what}\nhint: {hint}", path = path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place and the offending value.
        what: String,
        /// What to do.
        hint: Cow<'static, str>,
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

impl TraceError {
    pub(super) fn bad(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Bad { path: path.into(), what: what.into(), hint: hint.into() }
    }

    /// There is nothing in it to replay.
    pub(super) fn empty(path: PathBuf, what: impl Into<String>) -> Self {
        Self::bad(path, what, "record with the kmem:mm_page_* events enabled")
    }

    /// The content is no format that is read here.
    pub(super) fn not_a_trace(path: PathBuf, looks_like: &str, hint: Option<String>) -> Self {
        let hint = hint.map_or(Cow::Borrowed(ACCEPTED), Cow::Owned);
        Self::bad(path, format!("not a page-allocator trace: {looks_like}"), hint)
    }

    /// A line of a text trace makes no sense.
    pub(super) fn bad_line(path: PathBuf, line: u64, why: &str, text: &str) -> Self {
        Self::bad(path, format!("line {line}: {why}: `{text}`"), SKIP_LINES)
    }

    /// Flags are numbers, and whose is not known.
    pub(super) fn unknown_kernel(path: PathBuf, place: &str, flags: &str) -> Self {
        let what = format!("{place}: gfp_flags are a number, {flags}, and its kernel is not known");
        Self::bad(path, what, SAY_KERNEL)
    }
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
        parse(text.strip_prefix('\u{feff}').unwrap_or(text)).map_err(|error| error.of(name))
    }

    /// A line of a file, or of a kind of text, makes no sense.
    pub(super) fn bad_line(file: &str, line: u64, why: impl Into<String>) -> Self {
        Self::BadLine { file: file.to_owned(), line, why: why.into() }
    }

    /// It is of a text of that name.
    pub(super) fn of(self, name: &str) -> Self {
        match self {
            Self::BadLine { line, why, .. } => Self::bad_line(name, line, why),
            error => error,
        }
    }
}

/// What can be read: the hint wherever nothing more helpful is known.
pub(super) const ACCEPTED: &str = "accepted are Parquet with columns ts_ns, cpu, event, pfn and order, and the text of \
                                   tracefs (trace, trace_pipe), `trace-cmd report`, `perf script` \
                                   and bpftrace, plain, gzip or zstd";

pub(super) const SKIP_LINES: &str = "--skip-bad leaves such lines out and counts them";

const SAY_KERNEL: &str = "say which kernel recorded it, as `uname -r` prints it: --kernel VERSION; \
                          bits have other meanings before 5.1, 4.18, 4.10 and 4.4";

/// Where nothing helps but another copy.
pub(super) const DAMAGED: &str = "copy or record it again; --skip-bad cannot help here";

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
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Bad {
    /// In words.
    #[error("{0}")]
    Because(String),
    #[error("unknown GFP flag `{0}`")]
    Flag(String),
    /// And no kernel to read it by.
    #[error("gfp_flags are a number of some kernel, {0}")]
    Number(String),
    #[error("time `{0}` is no seconds")]
    Ticks(String),
}

impl Bad {
    pub(super) fn because(why: impl Into<String>) -> Self {
        Self::Because(why.into())
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
}
