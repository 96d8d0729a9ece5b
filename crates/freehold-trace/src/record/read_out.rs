//! Taking events out of the kernel's buffers, as text, line by line: no copy of it is made, and it
//! may go on recording meanwhile.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use super::tracefs::{self, Instance, PIPE, RecordError};
use crate::buddyinfo::parse_pagetypeinfo;
use crate::clock::Clock;
use crate::kernel::Kernel;
use crate::line::{self, Line, LineParser};
use crate::meaning::Meaning;
use crate::ticks::{self, Tick};
use crate::{Event, Packed, TraceError};

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

/// So many lines are read at a time at most, some 40 ms.
const PIECE: usize = 1 << 14;

/// A way through the events of an instance.
pub(super) struct Reading {
    path: PathBuf,
    pipe: BufReader<File>,
    parser: LineParser,
    clock: Clock,
    from_ns: u64,
    end_ns: u64,
    lines: u64,
    /// What was overwritten before the next event.
    gone: u64,
    pub(super) read: ReadOut,
}

impl Instance {
    /// Takes all events up to a time out, in the order of time; those from another time on are
    /// wanted. The last read may take some more out. Recording may have stood still before those,
    /// so nobody wants them. `files`: those of the machine, of which a pagetypeinfo says the order
    /// of the types.
    pub(super) fn read_out(
        &self,
        (from_ns, end_ns): (u64, u64),
        files: &Packed,
    ) -> Result<Reading, RecordError> {
        // As much as the kernel gives at once, so that nothing is left over in it at the end.
        let mut pipe = BufReader::with_capacity(1 << 16, self.pipe()?);
        let kernel = tracefs::kernel().as_deref().and_then(Kernel::parse);
        // An error comes again with the first line. What is said of the kernel's numbers is of a
        // trace that is read; here lines that contradict them are errors.
        let types = files.get("pagetypeinfo").and_then(|(_, text)| parse_pagetypeinfo(text).ok());
        let types = types.and_then(|types| types.numbers());
        let (meaning, _) = Meaning::of_text(kernel, types, pipe.fill_buf().unwrap_or_default());
        let parser = LineParser::new(meaning);
        let (clock, read) = (Clock::default(), ReadOut::default());
        let from_ns = from_ns / 1000 * 1000; // As precise as the text.
        let path = self.path.join(PIPE);
        Ok(Reading { path, pipe, parser, clock, from_ns, end_ns, lines: 0, gone: 0, read })
    }
}

impl Reading {
    /// Reads the next piece and adds its events; whether there may be more.
    pub(super) fn next(&mut self, events: &mut Vec<Event>) -> Result<bool, RecordError> {
        let mut line = Vec::new();
        for _ in 0..PIECE {
            if self.read.latest_ns > self.end_ns && self.pipe.buffer().is_empty() {
                return Ok(false);
            }
            line.clear();
            match self.pipe.read_until(b'\n', &mut line) {
                Ok(0) => return Ok(false),
                Ok(_) => self.lines += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(source) => return Err(RecordError::Kernel { path: self.path.clone(), source }),
            }
            self.take(line.trim_ascii_end(), events)?;
        }
        Ok(true)
    }

    fn take(&mut self, text: &[u8], events: &mut Vec<Event>) -> Result<(), TraceError> {
        let (read, from_ns, end_ns) = (&mut self.read, self.from_ns, self.end_ns);
        let is_wanted = |ts_ns| (from_ns..=end_ns).contains(&ts_ns);
        // What the buffers hold from before may be more than what is wanted.
        let time = (read.latest_ns < from_ns).then(|| line::time(text)).flatten();
        if let Some(ts_ns) = time.filter(|&ts_ns| ts_ns < from_ns) {
            (read.latest_ns, self.gone) = (ts_ns, 0);
            return Ok(());
        }
        let ts_ns = match self.parser.parse(text) {
            Ok(Line::Event(event)) if !is_wanted(event.ts_ns) => event.ts_ns,
            Ok(Line::Event(event)) => {
                match self.clock.see(event.ts_ns, String::new) {
                    Ok(()) => events.push(event),
                    Err(_) => read.too_late += 1,
                }
                event.ts_ns
            }
            // Stands before the event that is older than which some are gone.
            Ok(Line::Lost(count)) => {
                self.gone += count;
                return Ok(());
            }
            Ok(Line::Note | Line::Overrun(_)) => return Ok(()),
            Ok(Line::Other) => {
                let Some(tick) = ticks::in_line(text) else { return Ok(()) };
                read.ticks.extend(Some(tick).filter(|tick| is_wanted(tick.ts_ns)));
                tick.ts_ns
            }
            Err(why) => {
                let text: String = String::from_utf8_lossy(text).chars().take(200).collect();
                let path = self.path.clone();
                return Err(TraceError::bad_line(path, self.lines, &why.to_string(), &text));
            }
        };
        read.overwritten += if ts_ns >= from_ns { self.gone } else { 0 };
        self.gone = 0;
        read.latest_ns = read.latest_ns.max(ts_ns);
        Ok(())
    }
}
