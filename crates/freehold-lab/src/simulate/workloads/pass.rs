//! Workloads in which one CPU allocates and another frees.
//!
//! ```text
//!  producer-consumer      0 -> 1   2 -> 3   4 -> 5            netperf-like: the same, order 3
//!  many-alloc-few-free    0 .. 14 -> 15   16 .. 30 -> 31      the last of 16, or of what is left, frees
//!  few-alloc-many-free    0 -> 1, 2, 3, ... in turn
//! ```

use freehold::{Migratetype, Order, Pfn};

use super::{About, BATCH, DEPTH, Io, MESSAGE, Message, Program, Setting, Step, frames, request};
use crate::engine::Request;

/// Frames under way from a sender at most: in messages that wait, in the one being filled and the
/// one being freed.
const RING: u64 = ((DEPTH + 2) * MESSAGE) as u64;

pub(super) const PRODUCER_CONSUMER: About = About {
    name: "producer-consumer",
    what: "CPUs in pairs: one allocates frames and sends them on, 64 a message, the other frees \
           them one by \
           one; at most 64 messages wait.",
    source: "the 2022 high-order PCP series; xmalloc-test of malloc families",
    fewest_cpus: 2,
    frames_a_cpu: RING,
    think_ns: 0.0,
};

pub(super) const NETPERF_LIKE: About = About {
    name: "netperf-like",
    what: "As producer-consumer, with unmovable chunks of order 3, 8 a message: socket buffers.",
    source: "the 2022 high-order PCP series: netperf on localhost",
    fewest_cpus: 2,
    frames_a_cpu: 8 * RING,
    think_ns: 0.0,
};

pub(super) const MANY_ALLOC_FEW_FREE: About = About {
    name: "many-alloc-few-free",
    what: "Of 16 CPUs 15 allocate, zero and collect frames, and one frees what they hand it, in \
           batches of \
           31.",
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

/// A socket buffer's chunk.
pub(super) const SOCKET: Order = Order::new(3).expect("below the largest");
/// CPUs that share one that frees.
const GROUP: u16 = 16;

/// Allocates and sends, to each of its receivers in turn.
struct Sender {
    receivers: std::ops::Range<u16>,
    next: u16,
    request: Request,
    chunks: usize,
    zero: bool,
    think_ns: f64,
    filling: Message,
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
        match io.alloc(self.request) {
            Some(pfn) => self.filling.push((pfn, self.request.order)),
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

/// Frees what it is sent.
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

/// A CPU that has nobody to work with.
struct Idle;

impl Program for Idle {
    fn step(&mut self, _: &mut dyn Io) -> Step {
        Step::Finished
    }

    fn live(&self) -> u64 {
        0
    }
}

fn sender(
    setting: &Setting,
    receivers: std::ops::Range<u16>,
    request: Request,
    zero: bool,
) -> Sender {
    let chunks = setting.scaled(if request.order == Order::ZERO { MESSAGE } else { 8 });
    Sender {
        next: receivers.start,
        receivers,
        request,
        chunks,
        zero,
        think_ns: setting.think_ns,
        filling: Vec::new(),
    }
}

fn receiver(batch: usize) -> Box<dyn Program> {
    Box::new(Receiver { batch, message: Vec::<(Pfn, Order)>::new(), freed: 0 })
}

/// Even CPUs allocate for the odd ones.
pub(super) fn pairs(
    setting: &Setting,
    cpu: u16,
    order: Order,
    migratetype: Migratetype,
) -> Box<dyn Program> {
    if cpu % 2 == 1 {
        receiver(1)
    } else if cpu + 1 == setting.cpus {
        Box::new(Idle)
    } else {
        Box::new(sender(setting, cpu + 1..cpu + 2, request(order, migratetype), false))
    }
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
    Box::new(sender(setting, last..end, request(Order::ZERO, Migratetype::Movable), true))
}

/// CPU 0 allocates for all others.
pub(super) fn one_to_many(setting: &Setting, cpu: u16) -> Box<dyn Program> {
    if cpu != 0 {
        return receiver(1);
    }
    Box::new(sender(setting, 1..setting.cpus, request(Order::ZERO, Migratetype::Movable), false))
}
