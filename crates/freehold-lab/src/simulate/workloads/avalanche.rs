//! `exit-avalanche`: many free all they have at the same moment, and a few who only pass by suffer
//! for it.

use freehold::{Order, Pfn};

use super::{About, BATCH, Io, MOVABLE, Program, Setting, Step};

pub(super) const EXIT_AVALANCHE: About = About {
    name: "exit-avalanche",
    what: "Of 8 CPUs 7 allocate their share of half of memory (512 MiB each at most), wait for one \
           another, and free all of it at once in batches of 31; the eighth allocates and frees 8 \
           frames now and then.",
    source: "the pcp-buddy proposal: concurrent exits",
    fewest_cpus: 2,
    frames_a_cpu: 1024,
    think_ns: 0.0,
};

/// The most and the fewest frames of a worker: 512 MiB and 4 MiB.
const MOST: u64 = 131_072;
const LEAST: u64 = 1024;
/// One CPU of so many is a bystander.
const EVERY: u16 = 8;
/// Frames that a bystander has at once, and how long it does something else between two calls.
const FEW: usize = 8;
const BYSTANDER_THINK_NS: f64 = 2000.0;

/// Frames of a worker: its share of half of memory, or [`MOST`].
pub(super) const fn set(cpus: u16, memory: u64) -> u64 {
    let share = memory / 2 / cpus as u64;
    if share > MOST {
        MOST
    } else if share < LEAST {
        LEAST
    } else {
        share
    }
}

/// Allocates its set, waits for the others, frees all of it, again and again.
struct Worker {
    set: usize,
    wanted: usize,
    think_ns: f64,
    frames: Vec<(Pfn, Order)>,
    /// How many of them are free already, while freeing.
    freed: Option<usize>,
    /// It has still to wait for the others.
    waits: bool,
}

impl Worker {
    fn new(setting: &Setting) -> Self {
        let set = set(setting.cpus, setting.frames) as usize;
        let frames = Vec::with_capacity(set);
        let think_ns = setting.think_ns;
        Self { set, wanted: set, think_ns, frames, freed: None, waits: false }
    }
}

impl Program for Worker {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        let Some(freed) = self.freed else {
            match io.alloc(MOVABLE) {
                Some(pfn) => self.frames.push((pfn, Order::ZERO)),
                // No memory: free what there is.
                None => self.wanted = self.frames.len(),
            }
            io.zero_frame();
            io.think(self.think_ns);
            if self.frames.len() >= self.wanted {
                self.freed = Some(0);
                self.waits = true;
            }
            return Step::Done;
        };
        if std::mem::take(&mut self.waits) {
            return Step::Barrier;
        }
        let end = (freed + BATCH).min(self.frames.len());
        io.free(&self.frames[freed..end]);
        self.freed = Some(end);
        if end == self.frames.len() {
            self.frames.clear();
            self.freed = None;
            self.wanted = self.set;
        }
        Step::Done
    }

    fn has_barrier(&self) -> bool {
        true
    }

    fn live(&self) -> u64 {
        (self.frames.len() - self.freed.unwrap_or(0)) as u64
    }
}

struct Bystander {
    frames: Vec<(Pfn, Order)>,
    freeing: bool,
}

impl Program for Bystander {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        if self.freeing {
            if let Some(chunk) = self.frames.pop() {
                io.free(&[chunk]);
            }
            self.freeing = !self.frames.is_empty();
        } else {
            if let Some(pfn) = io.alloc(MOVABLE) {
                self.frames.push((pfn, Order::ZERO));
            }
            self.freeing = self.frames.len() >= FEW;
        }
        io.think(BYSTANDER_THINK_NS);
        Step::Done
    }

    fn live(&self) -> u64 {
        self.frames.len() as u64
    }
}

/// The last CPU of each eight, or of fewer than eight, stands by.
pub(super) fn program(setting: &Setting, cpu: u16) -> Box<dyn Program> {
    if (cpu + 1).is_multiple_of(EVERY) || (setting.cpus < EVERY && cpu + 1 == setting.cpus) {
        Box::new(Bystander { frames: Vec::with_capacity(FEW), freeing: false })
    } else {
        Box::new(Worker::new(setting))
    }
}
