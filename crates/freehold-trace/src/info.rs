//! What a trace is, by its content and its header.

use std::fmt;

use super::integrity::Checksums;

/// The format of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Columns, compressed inside.
    Parquet,
    /// The text of `trace` and `trace_pipe` in tracefs.
    Tracefs,
    /// What `trace-cmd report` prints.
    TraceCmd,
    /// What `perf script` prints.
    PerfScript,
    /// What babeltrace prints of an LTTng trace.
    Lttng,
    /// A page that systrace made.
    Systrace,
    /// What `perf data convert --to-json` writes.
    PerfJson,
    /// What a kernel printed of its buffers as it died.
    FtraceDump,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parquet => "Parquet",
            Self::Tracefs => "tracefs text",
            Self::TraceCmd => "trace-cmd report",
            Self::PerfScript => "perf script",
            Self::Lttng => "LTTng text",
            Self::Systrace => "systrace page",
            Self::PerfJson => "perf JSON",
            Self::FtraceDump => "ftrace dump",
        })
    }
}

/// How the file around a text is compressed. Parquet is compressed inside and counts as `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip, one or several members.
    Gzip,
    /// zstd, one or several frames.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "uncompressed",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        })
    }
}

/// What is known about a trace before its first event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceInfo {
    /// The file's name without directories and endings.
    pub name: String,
    /// What the recorder called it, where the file says.
    pub recorded_as: Option<String>,
    /// Its format.
    pub format: Format,
    /// Its compression.
    pub compression: Compression,
    /// Rows, events of every kind; known for Parquet only.
    pub rows: Option<u64>,
    /// The kernel that recorded it: what was asked for, else what the file says.
    pub kernel: Option<String>,
    /// What is odd about it as a whole, for the user.
    pub notes: Vec<String>,
    /// Bytes of a page of the machine that recorded it, where the file says.
    pub page_size: Option<u64>,
    /// The CPUs of the machine that recorded it, where the file says.
    pub cpus: Option<u16>,
    /// Events that the recorder lost, where the file says so in its header.
    pub lost_events: Option<u64>,
    /// What protects the file's contents; `None` for text, which has nothing of the kind.
    pub checksums: Option<Checksums>,
    /// All that the file says of itself: the JSON under `pagetrace` of a Parquet file, null
    /// elsewhere.
    pub description: serde_json::Value,
}
