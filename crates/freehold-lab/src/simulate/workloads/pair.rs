//! `pair`: allocate a frame, free it.

use freehold::{Order, Pfn};

use super::{About, Io, MOVABLE, Program, Setting, Step};

pub(super) const PAIR: About = About {
    name: "pair",
    what: "Each CPU allocates a frame and frees it, over and over.",
    source: "will-it-scale style micro-benchmarks; the repeat test of LLFree's authors (USENIX ATC \
             2023)",
    fewest_cpus: 1,
    frames_a_cpu: 1,
    think_ns: 0.0,
};

#[derive(Debug)]
pub(super) struct Pair {
    held: Option<Pfn>,
    think_ns: f64,
}

impl Pair {
    pub(super) fn new(setting: &Setting) -> Self {
        Self { held: None, think_ns: setting.think_ns }
    }
}

impl Program for Pair {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        match self.held.take() {
            Some(pfn) => io.free(&[(pfn, Order::ZERO)]),
            None => {
                self.held = io.alloc(MOVABLE);
                io.think(self.think_ns);
            }
        }
        Step::Done
    }

    fn live(&self) -> u64 {
        u64::from(self.held.is_some())
    }
}
