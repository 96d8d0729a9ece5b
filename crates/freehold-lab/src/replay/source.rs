//! Where events come from. A replay reads a trace twice (first to size the machine, then to drive
//! it), so it takes something that can be opened again, not a stream.

use freehold_trace::{Checksums, Event, TraceError};
use serde::Serialize;

/// Any error of a reader, already worded for the user.
pub type SourceError = TraceError;

/// What a trace says of itself. The names of the fields are those of `--json` and stay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Description {
    /// What to call it: the file's name without folders and ending.
    pub name: String,
    pub format: String,
    /// The kernel whose meaning its numbers are given: what was asked for, else what it says.
    pub kernel: Option<String>,
    /// CPUs of the machine that recorded it.
    #[serde(skip)]
    pub cpus: Option<u16>,
    /// Events that the recorder lost, where it says so.
    pub lost_events: Option<u64>,
    /// What protects its contents against damage: "all" (pages, columns and description), "pages",
    /// or "none"; `None` where the format has nothing of the kind.
    pub checksums: Option<Checksums>,
}

/// What a reader passed over, and what cannot be as it says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Oddities {
    /// Malformed lines or rows left out.
    pub skipped: u64,
    /// Where the first of them was, and what was wrong with it.
    #[serde(skip)]
    pub first_skipped: Option<String>,
    /// Silences of more than an hour, which no machine at work has: what depends on time is wrong
    /// from there on.
    pub long_gaps: u64,
    /// Where the first of them is, with its line or row.
    #[serde(skip)]
    pub first_long_gap: Option<String>,
    /// What is odd about the trace as a whole.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Lines of other kinds of events passed over.
    pub ignored: u64,
}

pub trait Events {
    /// What the trace says of itself.
    fn description(&self) -> Description;

    /// Replaces the contents of `events` with the next few; false at the end, when `events` is left
    /// empty.
    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError>;

    /// What was unusual so far.
    fn oddities(&self) -> Oddities {
        Oddities::default()
    }

    /// How far the reader is: done and total, in a unit of its own; a total of 0 means unknown.
    fn progress(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A trace that can be read from its start as often as needed.
pub trait Trace {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError>;
}

/// Calls `f` with every event of a trace.
pub fn each_event(trace: &dyn Trace, mut f: impl FnMut(&Event)) -> Result<(), SourceError> {
    let mut reader = trace.open()?;
    let mut events = Vec::new();
    while reader.next_batch(&mut events)? {
        events.iter().for_each(&mut f);
    }
    Ok(())
}

/// Events in memory: for tests and for programs that make their own.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub name: String,
    /// The events, in the order of time.
    pub events: Vec<Event>,
}

impl Trace for Recorded {
    fn open(&self) -> Result<Box<dyn Events + '_>, SourceError> {
        Ok(Box::new(RecordedEvents { recorded: self, at: 0 }))
    }
}

struct RecordedEvents<'a> {
    recorded: &'a Recorded,
    at: usize,
}

impl Events for RecordedEvents<'_> {
    fn description(&self) -> Description {
        Description {
            name: self.recorded.name.clone(),
            format: "memory".into(),
            ..Description::default()
        }
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, SourceError> {
        events.clear();
        let end = self.recorded.events.len().min(self.at + 4096);
        events.extend_from_slice(&self.recorded.events[self.at..end]);
        self.at = end;
        Ok(!events.is_empty())
    }

    fn progress(&self) -> (u64, u64) {
        (self.at as u64, self.recorded.events.len() as u64)
    }
}
