//! `pair`: allocate a frame, free it.

use freehold::{Order, Pfn};

use super::{Io, MOVABLE, Program, Setting, Step};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pair {
    held: Option<Pfn>,
    think_ns: f64,
}

impl Pair {
    /// With nothing in hand.
    #[must_use]
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
