//! Reading trace text line by line, in a stream: memory is one buffer, whatever the length of the
//! trace.
//!
//! A file that ends without a line end was cut: its last line may look complete and still be wrong
//! (`order=1` of an `order=10`, `GFP_HIGHUSER` of a `GFP_HIGHUSER_MOVABLE`), so it is never used.
//!
//! The order of the lines is the order of events. Real traces have ties between CPUs and, depending
//! on the trace clock, small steps back; larger ones are an error ([`super::clock`]).

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use super::error::{Bad, SKIP_LINES, TraceError, snippet};
use super::info::{Compression, Format, TraceInfo};
use super::kernel::Kernel;
use super::line::{self, Line, LineParser};
use super::meaning::Meaning;
use super::source::{Consumed, stream_error};
use super::tally::{BATCH, Tally};
use super::{Event, OpenOptions};

/// The kernel's longest line is about 1 KiB (a stack trace or a long file name); perf's symbols may
/// be longer.
const LONGEST_LINE: usize = 64 * 1024;

/// A text trace being read.
pub(super) struct TextReader {
    path: PathBuf,
    compression: Compression,
    format: Format,
    input: BufReader<Box<dyn Read + Send>>,
    parser: LineParser,
    /// The line that the end of the buffer cut in two.
    partial: Vec<u8>,
    line: u64,
    finished: bool,
    /// Whether any event came out of it: a trace without one is an error.
    any_event: bool,
    consumed: Consumed,
    total: u64,
}

/// Where a line was.
enum Piece {
    /// In the reader's buffer; so many bytes with the line end.
    Buffered(usize),
    /// In `partial`.
    Partial,
    /// Longer than any line may be; its beginning is in `partial`.
    TooLong,
    /// In `partial`, without a line end.
    Unfinished,
    End,
}

impl TextReader {
    pub(super) fn new(
        path: PathBuf,
        info: &TraceInfo,
        meaning: Meaning,
        input: Box<dyn Read + Send>,
        consumed: Consumed,
        total: u64,
    ) -> Self {
        Self {
            path,
            compression: info.compression,
            format: info.format,
            input: BufReader::with_capacity(256 * 1024, input),
            parser: LineParser::new(meaning),
            partial: Vec::new(),
            line: 0,
            finished: false,
            any_event: false,
            consumed,
            total,
        }
    }

    pub(super) fn progress(&self) -> (u64, u64) {
        // Bytes of the file, compressed or not; the few that are buffered here count as done.
        (self.consumed.get(), self.total)
    }

    pub(super) fn next_batch(
        &mut self,
        out: &mut Vec<Event>,
        tally: &mut Tally,
    ) -> Result<bool, TraceError> {
        while out.len() < BATCH && !self.finished {
            match self.next_piece() {
                Ok(piece) => self.read_piece(piece, out, tally)?,
                Err(source) => self.cut_off(source, tally)?,
            }
        }
        self.any_event |= !out.is_empty();
        if !out.is_empty() {
            return Ok(true);
        }
        if !self.any_event {
            return Err(self.empty(tally));
        }
        Ok(false)
    }

    /// No more comes: a file that ends too early may be skipped over, anything else is an error.
    fn cut_off(&mut self, source: std::io::Error, tally: &mut Tally) -> Result<(), TraceError> {
        self.finished = true;
        match stream_error(self.path.clone(), self.compression, source, self.line + 1) {
            TraceError::Truncated { at, .. } if tally.skip_bad => {
                tally.skip(|| at);
                Ok(())
            }
            error => Err(error),
        }
    }

    fn read_piece(
        &mut self,
        piece: Piece,
        out: &mut Vec<Event>,
        tally: &mut Tally,
    ) -> Result<(), TraceError> {
        self.line += u64::from(!matches!(piece, Piece::End));
        match piece {
            Piece::Buffered(len) => {
                // The line stays in the reader's buffer: nothing is copied for the common case.
                let text = &self.input.buffer()[..len];
                let parsed = self.parser.parse(text).map_err(|bad| (bad, snippet(text)));
                self.input.consume(len);
                match parsed {
                    Ok(line) => self.take(line, out, tally),
                    Err((bad, text)) => self.bad(bad, text, tally),
                }
            }
            Piece::Partial => match self.parser.parse(&self.partial) {
                Ok(line) => self.take(line, out, tally),
                Err(bad) => self.bad(bad, snippet(&self.partial), tally),
            },
            Piece::TooLong => {
                let why = format!("longer than {LONGEST_LINE} bytes");
                self.bad(Bad::because(why), snippet(&self.partial), tally)
            }
            Piece::Unfinished => {
                self.finished = true;
                let (line, text) = (self.line, snippet(&self.partial));
                let at = format!(
                    "line {line} ends without a line end, so its last field may be cut: `{text}`"
                );
                if !tally.skip_bad {
                    let hint = "--skip-bad leaves that line out and counts it";
                    return Err(TraceError::Truncated { path: self.path.clone(), at, hint });
                }
                tally.skip(|| at);
                Ok(())
            }
            Piece::End => {
                self.finished = true;
                Ok(())
            }
        }
    }

    fn empty(&self, tally: &Tally) -> TraceError {
        let mut what = format!("no event of the page allocator in {} lines", self.line);
        if tally.ignored > 0 {
            what.push_str(&format!(", {} of other tracepoints", tally.ignored));
        }
        if let Some(first) = &tally.first_skipped {
            what.push_str(&format!(", {} skipped as bad, first {first}", tally.skipped));
        }
        TraceError::empty(self.path.clone(), what)
    }

    fn take(&self, line: Line, out: &mut Vec<Event>, tally: &mut Tally) -> Result<(), TraceError> {
        match line {
            Line::Event(event) => {
                // perf's times are those since the machine started; only its relative ones begin
                // at 0, and differences look like times.
                if event.ts_ns == 0 && self.format == Format::PerfScript && tally.clock.is_new() {
                    let what = "its times begin at 0, so they are relative or differences";
                    let hint = "print it again: perf script without --deltatime and --reltime";
                    return Err(self.no_clock(what.to_owned(), hint));
                }
                tally.take(event, out, &self.path, || format!("line {}", self.line))?
            }
            Line::Other => tally.ignored += 1,
            Line::Lost(n) => tally.lost = tally.lost.saturating_add(n),
            Line::Overrun(n) => tally.overrun = tally.overrun.saturating_add(n),
            Line::Note => {}
        }
        Ok(())
    }

    fn no_clock(&self, what: String, hint: &'static str) -> TraceError {
        TraceError::bad(&self.path, format!("line {}: {what}", self.line), hint)
    }

    fn bad(&self, bad: Bad, text: String, tally: &mut Tally) -> Result<(), TraceError> {
        let line = self.line;
        // What is so of every line is no bad line.
        match bad {
            Bad::Number(flags) => {
                let place = format!("line {line}");
                return Err(TraceError::unknown_kernel(self.path.clone(), &place, &flags));
            }
            Bad::Ticks(time) => {
                let what = format!(
                    "its times are no seconds (`{time}`): the trace clock was counter, uptime, \
                     x86-tsc or another that counts no nanoseconds"
                );
                let hint = "record it again after: echo local > /sys/kernel/tracing/trace_clock \
                            (trace-cmd record -C local)";
                return Err(self.no_clock(what, hint));
            }
            _ => {}
        }
        if tally.skip_bad {
            tally.skip(|| format!("line {line}: {bad}: `{text}`"));
            return Ok(());
        }
        let path = self.path.clone();
        Err(match bad {
            Bad::Flag(_) => {
                let hint = format!("the flags of Linux 3.3 to 7.1 are known; {SKIP_LINES}");
                TraceError::bad(path, format!("line {line}: {bad}"), hint)
            }
            bad => TraceError::bad_line(path, line, &bad.to_string(), &text),
        })
    }

    fn next_piece(&mut self) -> std::io::Result<Piece> {
        self.partial.clear();
        let mut too_long = false;
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if buffer.is_empty() {
                return Ok(match (too_long, self.partial.trim_ascii().is_empty()) {
                    (true, _) => Piece::TooLong,
                    (false, true) => Piece::End,
                    (false, false) => Piece::Unfinished,
                });
            }
            let end = memchr::memchr(b'\n', buffer);
            let len = end.map_or(buffer.len(), |at| at + 1);
            if end.is_some() && self.partial.is_empty() && len <= LONGEST_LINE {
                return Ok(Piece::Buffered(len));
            }
            let room = LONGEST_LINE.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&buffer[..len.min(room)]);
            too_long |= len > room;
            self.input.consume(len);
            if end.is_some() {
                return Ok(if too_long { Piece::TooLong } else { Piece::Partial });
            }
        }
    }
}

/// What the headers say about the recording.
pub(super) fn info(
    name: String,
    head: &[u8],
    format: Format,
    compression: Compression,
) -> TraceInfo {
    let mut info = TraceInfo {
        name,
        recorded_as: None,
        format,
        compression,
        rows: None,
        kernel: None,
        notes: Vec::new(),
        page_size: None,
        cpus: None,
        lost_events: None,
        checksums: None,
        description: serde_json::Value::Null,
    };
    for text in head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii_end) {
        if let Some(cpus) = line::header_cpus(text) {
            info.cpus = Some(cpus);
        }
        let Some(comment) = text.strip_prefix(b"#") else { continue };
        let Ok(comment) = std::str::from_utf8(comment) else { continue };
        let comment = comment.trim();
        if let Some(counts) = comment.strip_prefix("entries-in-buffer/entries-written:") {
            // `kept/written   #P:cpus`: what was written and not kept was overwritten before it was
            // read.
            let (counts, cpus) = counts.split_once("#P:").unwrap_or((counts, ""));
            info.cpus = cpus.trim().parse().ok().or(info.cpus);
            let counts = counts
                .split_once('/')
                .map(|(kept, written)| (kept.trim().parse(), written.trim().parse()));
            if let Some((Ok::<u64, _>(kept), Ok::<u64, _>(written))) = counts {
                info.lost_events = Some(written.saturating_sub(kept));
            }
        } else if let Some(version) = comment.strip_prefix("Linux version ") {
            // A copy of /proc/version, as our bpftrace script begins.
            info.kernel = Some(format!("Linux {version}"));
        } else if let Some((key, value)) = comment.split_once(" : ") {
            // `perf script --header`.
            match key.trim() {
                "os release" => info.kernel = Some(format!("Linux {}", value.trim())),
                "nrcpus online" => info.cpus = value.trim().parse().ok().or(info.cpus),
                _ => {}
            }
        }
    }
    info
}

/// What the numbers of a text mean: by what was asked for, its header and its requests. What is odd
/// goes into `info`.
pub(super) fn meaning(info: &mut TraceInfo, head: &[u8], options: OpenOptions) -> Meaning {
    if let Some(kernel) = options.kernel {
        info.kernel = Some(format!("Linux {kernel}"));
    }
    let kernel = options.kernel.or_else(|| Kernel::parse(info.kernel.as_deref()?));
    let (meaning, note) = Meaning::of_text(kernel, options.types, head);
    info.notes.extend(note);
    meaning
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_say_what_they_know() {
        let of = |head: &str| info("t".into(), head.as_bytes(), Format::Tracefs, Compression::None);
        let tracefs =
            of("# tracer: nop\n#\n# entries-in-buffer/entries-written: 90/100   #P:2\n#\n");
        assert_eq!((tracefs.cpus, tracefs.lost_events), (Some(2), Some(10)));
        let perf = of("# ========\n# os release : 6.18.1\n# nrcpus online : 8\n# ========\n");
        assert_eq!((perf.cpus, perf.kernel.as_deref()), (Some(8), Some("Linux 6.18.1")));
        let copied = of("# Linux version 4.18.0-513.el8.x86_64 (mockbuild@x) #1 SMP\n");
        assert_eq!(
            copied.kernel.as_deref(),
            Some("Linux 4.18.0-513.el8.x86_64 (mockbuild@x) #1 SMP")
        );
        assert_eq!(of("cpus=4\n").cpus, Some(4));
        assert_eq!(of("cpus=x\n# entries-in-buffer/entries-written: x   #P:\n").cpus, None);
    }
}
