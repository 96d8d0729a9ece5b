//! Workloads in which one CPU allocates and another frees.
//!
//! ```text
//!  many-alloc-few-free    0 .. 14 -> 15   16 .. 30 -> 31   the last of 16, or of the rest, frees
//!  few-alloc-many-free    0 -> 1, 2, 3, ... in turn
//! ```

use freehold::{Order, Pfn};

use super::{About, BATCH, DEPTH, Io, MESSAGE, MOVABLE, Message, Program, Setting, Step, frames};

/// Frames under way from a sender to a receiver at most: in messages that wait, in the one being
/// filled and the one being freed.
const RING: u64 = ((DEPTH + 2) * MESSAGE) as u64;

pub(super) const MANY_ALLOC_FEW_FREE: About = About {
    name: "many-alloc-few-free",
    what: "Of 16 CPUs 15 allocate, zero and collect frames, and one frees what they hand it, in \
           batches of 31.",
    source: "the pcp-buddy proposal: jemalloc's purger threads",
    fewest_cpus: 2,
    frames_a_cpu: RING,
    think_ns: 250.0,
};

pub(super) const FEW_ALLOC_MANY_FREE: About = About {
    name: "few-alloc-many-free",
    what: "One CPU allocates for all others, which free what they are handed, one by one.",
    source: "the pcp-buddy proposal: the worst case that its author and reviewer name",
    fewest_cpus: 2,
    frames_a_cpu: RING,
    think_ns: 0.0,
};

/// CPUs that share one that frees.
const GROUP: u16 = 16;

/// Allocates and sends, to each of its receivers in turn.
struct Sender {
    receivers: std::ops::Range<u16>,
    next: u16,
    /// In a message.
    chunks: usize,
    zero: bool,
    think_ns: f64,
    filling: Message,
}

impl Sender {
    fn new(setting: &Setting, receivers: std::ops::Range<u16>, zero: bool) -> Self {
        Self {
            next: receivers.start,
            receivers,
            chunks: setting.scaled(MESSAGE),
            zero,
            think_ns: setting.think_ns,
            filling: Vec::new(),
        }
    }
}

impl Program for Sender {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        if self.filling.len() >= self.chunks {
            let message = std::mem::take(&mut self.filling);
            match io.send(self.next, message) {
                Ok(()) => {
                    self.next = if self.next + 1 == self.receivers.end {
                        self.receivers.start
                    } else {
                        self.next + 1
                    };
                    return Step::Done;
                }
                Err(message) => {
                    self.filling = message;
                    return Step::Full(self.next);
                }
            }
        }
        if self.filling.is_empty() {
            self.filling.reserve_exact(self.chunks);
        }
        match io.alloc(MOVABLE) {
            Some(pfn) => self.filling.push((pfn, Order::ZERO)),
            // No memory: whoever frees has it.
            None => io.think(1000.0),
        }
        if self.zero {
            io.zero_frame();
        }
        io.think(self.think_ns);
        Step::Done
    }

    fn live(&self) -> u64 {
        frames(&self.filling)
    }
}

struct Receiver {
    batch: usize,
    message: Message,
    freed: usize,
}

impl Program for Receiver {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        if self.freed == self.message.len() {
            let Some(message) = io.receive() else { return Step::Empty };
            self.message = message;
            self.freed = 0;
            return Step::Done;
        }
        let end = (self.freed + self.batch).min(self.message.len());
        io.free(&self.message[self.freed..end]);
        self.freed = end;
        Step::Done
    }

    fn live(&self) -> u64 {
        frames(&self.message[self.freed..])
    }
}

fn receiver(batch: usize) -> Box<dyn Program> {
    Box::new(Receiver { batch, message: Vec::<(Pfn, Order)>::new(), freed: 0 })
}

/// The last CPU of each group frees for the others.
pub(super) fn many_to_few(setting: &Setting, cpu: u16) -> Box<dyn Program> {
    // A last group of one joins the group before it.
    let groups = setting.cpus.div_ceil(GROUP);
    let alone = setting.cpus % GROUP == 1 && groups > 1;
    let group = (cpu / GROUP).min(if alone { groups - 2 } else { groups - 1 });
    let end = if group + 1 == groups || (alone && group + 2 == groups) {
        setting.cpus
    } else {
        (group + 1) * GROUP
    };
    let last = end - 1;
    if cpu == last {
        return receiver(BATCH);
    }
    Box::new(Sender::new(setting, last..end, true))
}

/// CPU 0 allocates for all others.
pub(super) fn one_to_many(setting: &Setting, cpu: u16) -> Box<dyn Program> {
    if cpu != 0 {
        return receiver(1);
    }
    Box::new(Sender::new(setting, 1..setting.cpus, false))
}
