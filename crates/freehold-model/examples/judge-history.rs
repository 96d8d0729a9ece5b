//! Judges a history that a machine wrote down: `cargo xtask qemu --history FILE`, then this with
//! FILE.
//!
//! ```text
//! judge-history FILE           says how many steps were accepted; exit status 1 where one is refused
//! judge-history FILE altered   alters one step of its beginning after the other, at 50 places: each time it must be refused
//! ```

use std::process::ExitCode;

use freehold::conformance::record::{Record, WORDS};
use freehold::conformance::{Cell, Op, Shape};
use freehold_model::judge::{Call, Event, Judge, Task, What};

/// How many histories with one step altered are judged, and how much of them.
const ALTERED: usize = 50;
const BEGINNING: usize = 300_000;

/// What the records say, or the number of the first that says nothing.
fn read(bytes: &[u8]) -> Result<(Shape, Vec<Event>), usize> {
    let mut shape = Shape { cpus: 0, zones: Vec::new(), memory: Vec::new(), sections: (0, 0) };
    let mut events = Vec::new();
    let word =
        |record: &[u8], n: usize| u64::from_le_bytes(std::array::from_fn(|i| record[n * 8 + i]));
    for (at, record) in bytes.chunks(WORDS * 8).enumerate() {
        if record.len() != WORDS * 8 {
            return Err(at);
        }
        let frames = |range: freehold::FrameRange| match range.len() {
            0 => Vec::new(),
            len => vec![(range.start.get(), len)],
        };
        let (who, what) =
            match Record::decode(std::array::from_fn(|n| word(record, n))).ok_or(at)? {
                Record::Machine(cpus, first, blocks) => {
                    (shape.cpus, shape.sections) = (cpus, (first, blocks));
                    continue;
                }
                Record::Zone(span, first, groups) => {
                    shape.zones.push((span, first, groups));
                    continue;
                }
                Record::Memory(range) => {
                    shape.memory.push(range);
                    continue;
                }
                Record::Step(who, step) => (who, What::Step(step)),
                Record::Begin(who, range) => {
                    let task = if range.is_empty() { Task::Alloc } else { Task::Free };
                    (who, What::Begin(Call { task, frames: frames(range) }))
                }
                Record::End(who, ok, got) => (who, What::End(ok, frames(got))),
                Record::Quiet(who) => (who, What::Quiet),
            };
        events.push(Event { who, what });
    }
    Ok((shape, events))
}

/// Steps that change a word, a lease, a hand or a tag, spread over the history; each is altered in
/// turn. How many of those histories are accepted.
fn altered(shape: &Shape, events: &mut [Event]) -> usize {
    let beginning = events.len().min(BEGINNING);
    let events = &mut events[..beginning];
    let changes = |event: &Event| match &event.what {
        What::Step(step) => {
            let told = matches!(
                step.cell,
                Cell::Word(..) | Cell::Lease(..) | Cell::Mask(..) | Cell::Tag(_)
            );
            told && step.old != step.new && step.op != Op::Initial
        }
        _ => false,
    };
    // What is altered last has to be come back to.
    let places: Vec<usize> = (0..events.len() * 2 / 3).filter(|&at| changes(&events[at])).collect();
    let mut accepted = 0;
    for n in 0..ALTERED.min(places.len()) {
        let at = places[n * places.len() / ALTERED];
        let before = events[at].clone();
        if let What::Step(step) = &mut events[at].what {
            // Another frame, another CPU, another state.
            step.new ^= 1 << (n % 8);
        }
        if Judge::of(shape, events, false).is_ok() {
            println!("accepted with event {at} altered: {before:?}");
            accepted += 1;
        }
        events[at] = before;
    }
    println!(
        "{} histories with one step altered, {accepted} of them accepted",
        ALTERED.min(places.len())
    );
    accepted
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (file, alter) = match arguments.as_slice() {
        [file] => (file, false),
        [file, word] if word == "altered" => (file, true),
        _ => {
            eprintln!("usage: judge-history FILE [altered]");
            return ExitCode::from(2);
        }
    };
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            eprintln!("{file} cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let (shape, mut events) = match read(&bytes) {
        Ok(read) => read,
        Err(at) => {
            eprintln!("record {at} of {file} is none: is it a history of this version?");
            return ExitCode::from(2);
        }
    };
    if alter {
        return ExitCode::from(u8::from(altered(&shape, &mut events) != 0));
    }
    match Judge::of(&shape, &events, false) {
        Ok(judge) => {
            let changes: u64 = judge.kinds.values().sum();
            println!(
                "accepted: {} steps of {} CPUs, {changes} of them changes, {} frames beyond judgement",
                judge.steps, shape.cpus, judge.beyond
            );
            println!("{:?}", judge.kinds);
            ExitCode::SUCCESS
        }
        Err((at, why)) => {
            events[at.saturating_sub(40)..=at].iter().for_each(|event| println!("  {event:?}"));
            println!("refused: {why}, event {at}");
            ExitCode::from(1)
        }
    }
}
