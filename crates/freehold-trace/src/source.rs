//! Where a trace comes from, and telling what it is by its content.
//!
//! ```text
//!  file / embedded bytes / stdin
//!     │  first bytes: 1f 8b = gzip, 28 b5 2f fd = zstd, PAR1 = Parquet, others that are named in the error
//!     ▼
//!  decompressor (if any) ──> first 64 KiB of text: which dialect? ──> lines, in a stream
//!     └── PAR1 ──> a file that can be read at any place (stdin and pipes are spooled to a temporary one)
//! ```
//!
//! File names are never looked at: traces get renamed, and pipes have none.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::NamedTempFile;

use super::error::{DAMAGED, TraceError, snippet};
use super::foreign::{self, Translated};
use super::info::{Compression, Format};
use super::input::Input;
use super::line::{self, LineParser};
use super::schema::COLUMNS;

/// Where a trace comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file.
    Path(PathBuf),
    /// A trace that is part of the program (the sample).
    Bytes {
        /// What to call it.
        name: String,
        /// The content, as it would be in a file.
        bytes: &'static [u8],
    },
    /// The standard input. It can be opened once; [`Source::reopenable`] makes a source of it that
    /// can be opened again.
    Stdin,
    /// A copy of something that could be read only once, removed with the last clone of this value.
    Spooled(Spooled),
}

/// A temporary copy of a stream.
#[derive(Clone, Debug)]
pub struct Spooled {
    name: String,
    file: Arc<NamedTempFile>,
}

impl Spooled {
    /// Where the copy is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Source {
    /// The source that a command-line argument names: `-` is the standard input, everything else a
    /// file.
    #[must_use]
    pub fn from_arg(arg: impl Into<PathBuf>) -> Self {
        let path = arg.into();
        if path.as_os_str() == "-" { Self::Stdin } else { Self::Path(path) }
    }

    /// This trace as a source that can be opened any number of times: the standard input, pipes
    /// and other special files are copied to a temporary file (in `TMPDIR`), everything else is
    /// returned as it is.
    ///
    /// # Errors
    ///
    /// [`TraceError::Io`] where reading or writing fails, for example because the disk is full.
    pub fn reopenable(self) -> Result<Self, TraceError> {
        match self {
            Self::Stdin => spool("<stdin>", &mut io::stdin().lock()),
            Self::Path(path) => {
                let fail = |source| TraceError::Io { path: path.clone(), source };
                let kind = std::fs::metadata(&path).map_err(fail)?.file_type();
                if kind.is_file() || kind.is_dir() {
                    return Ok(Self::Path(path));
                }
                let mut file = File::open(&path).map_err(fail)?;
                spool(&path.to_string_lossy(), &mut file)
            }
            other => Ok(other),
        }
    }

    /// The path to name in messages.
    pub(super) fn shown(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Bytes { name, .. } => name.into(),
            Self::Stdin => "<stdin>".into(),
            Self::Spooled(spooled) => spooled.name.clone().into(),
        }
    }

    /// A short name for tables: the file's name without what only says how it is stored.
    #[must_use]
    pub fn name(&self) -> String {
        let path = match self {
            Self::Stdin => return "stdin".into(),
            Self::Spooled(_) | Self::Path(_) | Self::Bytes { .. } => self.shown(),
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut short = name.trim_matches(['<', '>']);
        for end in [".gz", ".zst", ".parquet", ".txt", ".trace", ".tracefs"] {
            short = short.strip_suffix(end).filter(|rest| !rest.is_empty()).unwrap_or(short);
        }
        short.to_owned()
    }
}

fn spool(name: &str, from: &mut dyn Read) -> Result<Source, TraceError> {
    let fail = |source| TraceError::Io { path: name.into(), source };
    let mut file = NamedTempFile::with_prefix("freehold-").map_err(fail)?;
    io::copy(from, file.as_file_mut()).map_err(fail)?;
    file.flush().map_err(fail)?;
    Ok(Source::Spooled(Spooled { name: name.to_owned(), file: Arc::new(file) }))
}

/// How many bytes have been taken from the file so far, shared with whoever shows a progress bar.
#[derive(Clone, Debug, Default)]
pub(super) struct Consumed(Arc<AtomicU64>);

impl Consumed {
    pub(super) fn get(&self) -> u64 {
        // Relaxed: only a progress bar looks at it; nothing is published through it.
        self.0.load(Ordering::Relaxed)
    }
}

struct Counting<R> {
    inner: R,
    consumed: Consumed,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        // Relaxed: see `Consumed::get`.
        self.consumed.0.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A reader whose first bytes have been looked at already: they come first, then the rest, and an
/// error that came up while looking is reported at its own place.
pub(super) struct Peeked<R> {
    head: Vec<u8>,
    at: usize,
    error: Option<io::Error>,
    rest: R,
}

impl<R: Read> Peeked<R> {
    fn new(mut rest: R, want: usize) -> Self {
        let mut head = Vec::new();
        // What was read before an error is kept.
        let error = rest.by_ref().take(want as u64).read_to_end(&mut head).err();
        Self { head, at: 0, error, rest }
    }
}

impl<R: Read> Read for Peeked<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at < self.head.len() {
            let n = buf.len().min(self.head.len() - self.at);
            buf[..n].copy_from_slice(&self.head[self.at..self.at + n]);
            self.at += n;
            return Ok(n);
        }
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.read(buf),
        }
    }
}

/// What opening a source found.
pub(super) enum Opened {
    /// A file, or one in memory, that can be read at any place.
    Parquet(Input),
    /// A stream of text.
    Text {
        input: Box<dyn Read + Send>,
        head: Vec<u8>,
        format: Format,
        compression: Compression,
        consumed: Consumed,
    },
}

/// Enough for the magic numbers of everything that is recognised.
const MAGIC: usize = 4096;
/// The kernel's own headers are below 2 KiB; more room for `perf script --header` and lines of
/// other tracepoints.
const TEXT_HEAD: usize = 64 * 1024;

/// How a stream that begins so is compressed.
pub(super) fn compression_of(head: &[u8]) -> Compression {
    match head {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        _ => Compression::None,
    }
}

/// What is in a stream that is compressed so.
pub(super) fn decoder<'a>(
    packed: impl Read + Send + 'a,
    compression: Compression,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(packed),
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
    })
}

/// A source as it lies there, how long it is (0 if unknown), and its file if it can be read again.
type Raw = (Box<dyn Read + Send>, u64, Option<File>);

fn raw(source: &Source, path: &Path) -> io::Result<Raw> {
    Ok(match source {
        Source::Bytes { bytes, .. } => (Box::new(*bytes), bytes.len() as u64, None),
        Source::Stdin => (Box::new(io::stdin()), 0, None),
        Source::Path(_) | Source::Spooled(_) => {
            let file = match source {
                Source::Spooled(spooled) => File::open(spooled.path())?,
                _ => File::open(path)?,
            };
            let metadata = file.metadata()?;
            let again = if metadata.is_file() { Some(file.try_clone()?) } else { None };
            (Box::new(file), metadata.len(), again)
        }
    })
}

/// Opens a source, decompresses it and finds out what it is. Also returns the length of the file, 0
/// if unknown.
pub(super) fn open(source: &Source) -> Result<(Opened, u64), TraceError> {
    let path = source.shown();
    let fail = |source| TraceError::Io { path: path.clone(), source };
    if let Some((looks_like, hint)) = folder(source) {
        return Err(TraceError::not_a_trace(path, &looks_like, Some(hint)));
    }
    let consumed = Consumed::default();
    let (raw, total, file) = raw(source, &path).map_err(fail)?;
    let mut raw = Peeked::new(Counting { inner: raw, consumed: consumed.clone() }, MAGIC);
    if raw.head.is_empty() {
        if let Some(error) = raw.error.take() {
            return Err(fail(error));
        }
        return Err(TraceError::empty(path, "the file is empty"));
    }

    if raw.head.starts_with(b"PAR1") {
        let opened = match (source, file) {
            (Source::Bytes { bytes, .. }, _) => Input::of_bytes(bytes),
            (_, Some(file)) => Input::of_file(file).map_err(fail)?,
            (_, None) => {
                // Parquet's index is at its end. The copy has no name, so it is gone however this
                // process ends.
                let mut copy = tempfile::tempfile().map_err(fail)?;
                io::copy(&mut raw, &mut copy).map_err(fail)?;
                copy.seek(SeekFrom::Start(0)).map_err(fail)?;
                Input::of_file(copy).map_err(fail)?
            }
        };
        return Ok((Opened::Parquet(opened), total));
    }

    let compression = compression_of(&raw.head);
    let mut text = Peeked::new(decoder(raw, compression).map_err(fail)?, TEXT_HEAD);
    if text.head.is_empty() {
        return Err(match text.error.take() {
            Some(error) => stream_error(path, compression, error, 1),
            None => TraceError::empty(path, format!("the {compression} stream holds nothing")),
        });
    }
    // Windows tools mark UTF-8 so.
    if text.head.starts_with(b"\xef\xbb\xbf") {
        text.head.drain(..3);
    }
    if text.head.starts_with(ZIP) {
        let (looks_like, hint) = looks_like(&text.head, compression);
        return Err(TraceError::not_a_trace(path, &looks_like, hint));
    }
    if let Some((looks_like, hint)) = other_text(&text.head) {
        return Err(TraceError::not_a_trace(path, &looks_like, Some(hint)));
    }
    let (format, text) = match foreign::format_of(&text.head) {
        Some(format) => {
            let plain: Box<dyn Read + Send> = Box::new(Translated::new(text, format));
            (Some(format), Peeked::new(plain, TEXT_HEAD))
        }
        None => (text_format(&text.head), text),
    };
    let Some(format) = format else {
        let (looks_like, hint) = looks_like(&text.head, compression);
        return Err(TraceError::not_a_trace(path, &looks_like, hint));
    };
    let head = text.head.clone();
    Ok((Opened::Text { input: Box::new(text), head, format, compression, consumed }, total))
}

/// What a folder is, and what makes text of it.
fn folder(source: &Source) -> Option<(String, String)> {
    let Source::Path(path) = source else { return None };
    if !path.is_dir() {
        return None;
    }
    let is_ctf = |room: &Path| {
        let head = File::open(room.join("metadata")).and_then(|file| {
            let mut head = Vec::new();
            file.take(64).read_to_end(&mut head).map(|_| head)
        });
        // As text, or in packets.
        head.is_ok_and(|head| {
            head.starts_with(b"/* CTF")
                || head.starts_with(b"\xc1\x1f\xfc\x75")
                || head.starts_with(b"\x75\xd1\x1d\x57")
        })
    };
    let rooms = std::fs::read_dir(path).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let shown = path.display();
    Some(if is_ctf(path) || rooms.into_iter().any(|room| is_ctf(&room)) {
        let command = format!("turn it into text: babeltrace2 {shown} > trace.txt");
        ("it is the directory of a CTF trace, as LTTng records it".to_owned(), command)
    } else {
        ("it is a directory".to_owned(), format!("name a file in it: {shown}/FILE"))
    })
}

/// What an error of a possibly compressed stream means.
pub(super) fn stream_error(
    path: PathBuf,
    compression: Compression,
    source: io::Error,
    line: u64,
) -> TraceError {
    let what = match compression {
        Compression::None => return TraceError::Io { path, source },
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    };
    if source.raw_os_error().is_some() {
        TraceError::Io { path, source }
    } else if source.kind() == io::ErrorKind::UnexpectedEof {
        TraceError::Truncated {
            path,
            at: format!("the {what} stream ends too early, in line {line} of the text"),
            hint: "copy or record it again, or read as far as it goes with --skip-bad",
        }
    } else {
        TraceError::bad(path, format!("damaged {what} data: {source}"), DAMAGED)
    }
}

/// The dialect of a text, by the first line that only one of them has; `None` if no line is an
/// event of any.
fn text_format(head: &[u8]) -> Option<Format> {
    let mut found = None;
    for text in head.split_inclusive(|&b| b == b'\n') {
        let text = text.trim_ascii_end();
        if text.starts_with(b"# tracer: ") {
            return Some(Format::Tracefs);
        }
        if line::header_cpus(text).is_some() {
            return Some(Format::TraceCmd);
        }
        if let Ok(prefix) = line::prefix(text) {
            if prefix.system.is_some() {
                return Some(Format::PerfScript);
            }
            // trace-cmd pads the event's name to a column, tracefs puts one blank behind it.
            return Some(if prefix.wide { Format::TraceCmd } else { Format::Tracefs });
        }
        if matches!(LineParser::default().parse(text), Ok(line::Line::Lost(_))) {
            found = Some(Format::Tracefs);
        }
    }
    found
}

/// Text with events in it that are not read as they stand: what it is, and the command that makes
/// it readable.
fn other_text(head: &[u8]) -> Option<(String, String)> {
    for line in head.split(|&b| b == b'\n').take(64).map(<[u8]>::trim_ascii) {
        // `host.dat:  cpus=8`, and the name again before every event.
        let file = memchr::memmem::find(line, b"cpus=")
            .filter(|at| line[at + 5..].iter().all(u8::is_ascii_digit))
            .and_then(|at| line[..at].trim_ascii_end().strip_suffix(b":"));
        if let Some(file) = file {
            let file = snippet(file);
            return Some((
                "trace-cmd's report of several files, whose machines have frames and clocks of their own"
                    .to_owned(),
                format!("report one of them: trace-cmd report -i {file} > trace.txt"),
            ));
        }
        let latency = memchr::memmem::find(line, b"latency trace v");
        if line.starts_with(b"# latency:") || line.starts_with(b"#") && latency.is_some() {
            return Some((
                "tracefs text in the latency format, whose times are those since its first line"
                    .to_owned(),
                "record it again after: echo 0 > /sys/kernel/tracing/options/latency-format"
                    .to_owned(),
            ));
        }
    }
    others(head).map(|(what, hint)| (what.to_owned(), hint.to_owned()))
}

/// Output of tools that leave out what a replay needs: what it is, and what to record instead.
const OTHERS: &[(&[u8], &str, &str)] = &[
    (
        b"# tracer: function_graph",
        "text of the function_graph tracer, whose lines name no task and no time",
        "record with no tracer: echo nop > /sys/kernel/tracing/current_tracer",
    ),
    (
        b"# event histogram",
        "a histogram of tracefs (hist), which counts events and keeps none",
        "record the events themselves: freehold record",
    ),
    (
        b"TRACE:",
        "atrace's output",
        "have it printed as text, without -z and through: systrace.py --from-file FILE -o trace.html",
    ),
];

fn others(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let begins = head.trim_ascii_start();
    let named = OTHERS.iter().find(|(begin, ..)| begins.starts_with(begin));
    if let Some((_, what, hint)) = named {
        return Some((what, hint));
    }
    let has = |text: &[u8]| memchr::memmem::find(head, text).is_some();
    if matches!(begins.first(), Some(b'{' | b'[')) && (has(b"\"traceEvents\"") || has(b"\"ph\":")) {
        return Some((
            "JSON of Chrome's trace viewer, which has no page allocator's fields",
            "record on the machine itself: freehold record",
        ));
    }
    let of_perf_trace = |line: &[u8]| {
        let at = memchr::memmem::find(line, b"kmem:mm_page_");
        at.is_some_and(|at| line[at..].contains(&b'(') && !line[..at].contains(&b'['))
    };
    head.split(|&b| b == b'\n').take(64).any(of_perf_trace).then_some((
        "the output of perf trace, which leaves out orders and CPUs",
        "record again: perf record -a -e 'kmem:mm_page_*'; perf script > trace.txt",
    ))
}

/// What to do with text as Windows tools write it.
const UTF_16: &str = "turn it into UTF-8: iconv -f UTF-16 -t UTF-8 FILE | freehold replay -";

/// What to do with what may be a Perfetto trace.
const PERFETTO: &str = "make text of a Perfetto trace: traceconv systrace FILE trace.txt";

/// What to do with a table of a trace's columns that is no Parquet.
const TABLE: &str = "make Parquet of it; with pyarrow: \
                     pq.write_table(csv.read_csv('FILE.csv'), 'FILE.parquet', compression='zstd')";

/// What to do with a description of a machine's memory.
const DESCRIPTION: &str = "freehold look shows such a machine; a replay reads the files beside a \
                           trace by their names, or --machine FILE";

/// A zip archive, whose files may lie in it as they are.
const ZIP: &[u8] = b"PK\x03\x04";

/// Files that are known by how they begin: what they are, and what to do with them. An
/// archive may hold the lines of a trace as they are, and is none all the same.
const KNOWN: &[(&[u8], &str, Option<&str>)] = &[
    (
        b"PAR1",
        "a Parquet file inside",
        Some("decompress it first: Parquet is compressed inside already"),
    ),
    (b"PARE", "an encrypted Parquet file", None),
    (
        b"\x17\x08\x44tracing",
        "a trace-cmd recording",
        Some("turn it into text: trace-cmd report -i FILE"),
    ),
    (b"PERFILE2", "a perf recording", Some("turn it into text: perf script -i FILE")),
    (b"\x1f\x8b", "another gzip stream inside", None),
    (b"\x28\xb5\x2f\xfd", "another zstd stream inside", None),
    (b"\xfd7zXZ", "xz data", Some("decompress it first: xz -d FILE")),
    (b"BZh", "bzip2 data", Some("decompress it first: bzip2 -d FILE")),
    (b"\x04\x22\x4d\x18", "lz4 data", Some("decompress it first: lz4 -d FILE")),
    (ZIP, "a zip archive", Some("unpack it: unzip -p FILE | freehold replay -")),
    (b"\xff\xfe", "UTF-16 text", Some(UTF_16)),
    (b"\xfe\xff", "UTF-16 text", Some(UTF_16)),
    (b"\x7fELF", "an ELF program", None),
    (b"ARROW1", "an Arrow file", None),
    (b"SQLite format 3", "an SQLite database", None),
    (b"{", "JSON", Some("what --json printed is for freehold report and freehold compare")),
    (b"Node 0, zone", "a copy of /proc/zoneinfo or /proc/buddyinfo", Some(DESCRIPTION)),
    (b"Page block order:", "a copy of /proc/pagetypeinfo", Some(DESCRIPTION)),
];

/// What a file that is no trace looks like, and what to do with it.
fn looks_like(head: &[u8], compression: Compression) -> (String, Option<String>) {
    let inside = match compression {
        Compression::None => String::new(),
        other => format!("{other} data with "),
    };
    for (magic, what, hint) in KNOWN {
        if head.starts_with(magic) {
            return (format!("it looks like {inside}{what}"), hint.map(str::to_owned));
        }
    }
    let sample = &head[..head.len().min(1024)];
    // Every other byte of plain letters.
    let nuls = sample.iter().filter(|b| **b == 0).count();
    if nuls > 0 && nuls * 2 + 16 > sample.len() && nuls < sample.len() * 3 / 4 {
        return (format!("it looks like {inside}UTF-16 text"), Some(UTF_16.to_owned()));
    }
    // No text has a control character before the bell; Perfetto's packets begin with a line's end.
    if sample.iter().any(|b| *b < b'\x07') {
        let hint = (head[0] == b'\n').then(|| PERFETTO.to_owned());
        return (format!("it looks like {inside}binary data"), hint);
    }
    let first =
        head.split(|&b| b == b'\n').map(snippet).find(|line| !line.is_empty()).unwrap_or_default();
    if COLUMNS.iter().filter(|column| column.required).all(|column| first.contains(column.name)) {
        return (
            format!("it looks like {inside}a table as text, beginning `{first}`"),
            Some(TABLE.into()),
        );
    }
    if let Some((line, why)) = bad_event(head) {
        return (
            format!(
                "it looks like {inside}text whose events cannot be read, line {line} first: {why}"
            ),
            None,
        );
    }
    (format!("it looks like {inside}text without an event in it, beginning `{first}`"), None)
}

/// The number of the first line that names an event of the page allocator, and why it cannot be
/// read.
fn bad_event(head: &[u8]) -> Option<(usize, String)> {
    let lines = head.split(|&b| b == b'\n').enumerate();
    lines.map(|(at, text)| (at + 1, text.trim_ascii_end())).find_map(|(number, text)| {
        memchr::memmem::find(text, b" mm_page_")?;
        LineParser::default().parse(text).err().map(|bad| (number, bad.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_by_content() {
        let of = |text: &str| text_format(text.as_bytes());
        assert_eq!(of("# tracer: nop\n#\n"), Some(Format::Tracefs));
        assert_eq!(
            of(" a-1 [000] ..... 1.0: mm_page_free: pfn=1 order=0\n"),
            Some(Format::Tracefs)
        );
        assert_eq!(
            of(" a-1 [000] 1.0: mm_page_free:         pfn=1 order=0\n"),
            Some(Format::TraceCmd)
        );
        assert_eq!(of("cpus=2\n a-1 [000] 1.0: x: y\n"), Some(Format::TraceCmd));
        assert_eq!(
            of(" a 1 [000] 1.0: kmem:mm_page_free: pfn=1 order=0\n"),
            Some(Format::PerfScript)
        );
        assert_eq!(
            of("# ========\n# captured on : Sat\n a 1 [000] 1.0: kmem:x: y\n"),
            Some(Format::PerfScript)
        );
        assert_eq!(of("rubbish\n a-1 [000] 1.0: x: y\n"), Some(Format::Tracefs));
        assert_eq!(of("once upon a time\n"), None);
    }

    #[test]
    fn names_are_short() {
        let name = |path: &str| Source::from_arg(path).name();
        assert_eq!(name("/a/b/thp.parquet"), "thp");
        assert_eq!(name("x/compile-c.tracefs.txt"), "compile-c");
        assert_eq!(name("run.txt.zst"), "run");
        assert_eq!(name("v6.18"), "v6.18");
        assert_eq!(name("-"), "stdin");
    }
}
