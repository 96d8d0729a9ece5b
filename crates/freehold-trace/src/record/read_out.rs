//! Taking events out of the kernel's buffers, as text, line by line: no copy of it is made, and it
//! may go on recording meanwhile.

use std::io::{self, BufRead, BufReader};

use super::tracefs::{self, Instance, PIPE, RecordError};
use crate::clock::Clock;
use crate::kernel::Kernel;
use crate::line::{self, Line, LineParser};
use crate::meaning::Meaning;
use crate::ticks::{self, Tick};
use crate::{Event, TraceError};

/// What was read besides events.
#[derive(Debug, Default)]
pub(super) struct ReadOut {
    pub(super) ticks: Vec<Tick>,
    /// The time of the last event.
    pub(super) latest_ns: u64,
    /// What the kernel had overwritten before events that were wanted.
    pub(super) overwritten: u64,
    /// Events so late that no reader would take them.
    pub(super) too_late: u64,
}

impl Instance {
    /// Takes all events up to a time out, in the order of time; those from another time on are
    /// written. The last read may bring some more, which are written, too.
    pub(super) fn read_out(
        &self,
        (from_ns, end_ns): (u64, u64),
        mut write: impl FnMut(Event) -> Result<(), TraceError>,
    ) -> Result<ReadOut, RecordError> {
        // As much as the kernel gives at once, so that nothing is left over in it at the end.
        let mut pipe = BufReader::with_capacity(1 << 16, self.pipe()?);
        let mut parser = LineParser::new(meaning(&mut pipe));
        let (mut read, mut clock) = (ReadOut::default(), Clock::default());
        let (mut line, mut number, mut gone) = (Vec::new(), 0, 0);
        let from_ns = from_ns / 1000 * 1000; // As precise as the text.
        while read.latest_ns <= end_ns || !pipe.buffer().is_empty() {
            line.clear();
            match pipe.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => number += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(source) => return Err(self.failed(PIPE, source)),
            }
            let text = line.trim_ascii_end();
            // What the buffers hold from before may be more than what is wanted.
            let time = (read.latest_ns < from_ns).then(|| line::time(text)).flatten();
            if let Some(ts_ns) = time.filter(|&ts_ns| ts_ns < from_ns) {
                (read.latest_ns, gone) = (ts_ns, 0);
                continue;
            }
            let ts_ns = match parser.parse(text) {
                Ok(Line::Event(event)) if event.ts_ns < from_ns => event.ts_ns,
                Ok(Line::Event(event)) => {
                    match clock.see(event.ts_ns, String::new) {
                        Ok(()) => write(event)?,
                        Err(_) => read.too_late += 1,
                    }
                    event.ts_ns
                }
                // Stands before the event that is older than which some are gone.
                Ok(Line::Lost(count)) => {
                    gone += count;
                    continue;
                }
                Ok(Line::Note) => continue,
                Ok(Line::Other) => {
                    let Some(tick) = ticks::in_line(text) else { continue };
                    read.ticks.extend(Some(tick).filter(|tick| tick.ts_ns >= from_ns));
                    tick.ts_ns
                }
                Err(why) => {
                    let (path, why) = (self.path.join(PIPE), why.to_string());
                    let text = String::from_utf8_lossy(text).chars().take(200).collect();
                    return Err(TraceError::BadLine { path, line: number, text, why }.into());
                }
            };
            read.overwritten += if ts_ns >= from_ns { gone } else { 0 };
            gone = 0;
            read.latest_ns = read.latest_ns.max(ts_ns);
        }
        // Lines of several CPUs may be out of order by what their clocks differ.
        read.ticks.sort_by_key(|tick| tick.ts_ns);
        Ok(read)
    }
}

/// What numbers mean in the text of the kernel that runs, of which the beginning is asked.
fn meaning(pipe: &mut impl BufRead) -> Meaning {
    let kernel = tracefs::kernel().as_deref().and_then(Kernel::parse);
    let mut meaning = Meaning::of(kernel, None);
    // An error comes again with the first line.
    let head = pipe.fill_buf().unwrap_or_default();
    let flags = meaning.flags.clone();
    let lines = head.split(|&byte| byte == b'\n');
    let requests = lines.filter_map(|one| line::request_numbers(one, &flags));
    // What it says is of a trace that is read; here lines that contradict it are errors.
    let _ = meaning.settle(requests, kernel.is_some());
    meaning
}
