//! `kernel-build-like`: the programs of `freehold simulate` by turns, for what they do to memory
//! and not for time.
//!
//! All CPUs do one step each, again and again. Where memory is too small for processes as they are,
//! everything about them is smaller by the same share.

use std::collections::VecDeque;

use freehold::Pfn;

use super::books::{Books, Chunk};
use super::figure::{About, Figures, LOCKS, MIXED, SHARED_WRITES, UNUSABLE3, UNUSABLE4, UNUSABLE9};
use crate::engine::Request;
use crate::simulate::Kind;
use crate::simulate::workloads::{DEPTH, Io, Message, Setting, programs};

pub(super) const ABOUT: About = About {
    name: "kernel-build-like",
    what: "Each CPU runs short processes and keeps page cache and inodes that outlive them; a \
           process in four exits on another CPU: the workload of 'freehold simulate', by turns.",
    levels: &[None],
    figures: &[UNUSABLE9, UNUSABLE3, UNUSABLE4, LOCKS, SHARED_WRITES, MIXED],
};

/// After so many rounds in which no CPU got anything memory counts as full for good; the longest
/// exit takes fewer.
const PATIENCE: u32 = 10_000;

/// What a program sees: one CPU's turn.
struct Turn<'t, 'e> {
    cpu: u16,
    books: &'t mut Books<'e>,
    /// For each CPU the messages that wait for it and who sent them.
    boxes: &'t mut [VecDeque<(u16, Message)>],
}

impl Io for Turn<'_, '_> {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        self.books.alloc(self.cpu, request.order, request.migratetype).map(|(pfn, _)| pfn)
    }

    fn free(&mut self, chunks: &[Chunk]) {
        self.books.free_batch(self.cpu, chunks);
    }

    /// There is no time here.
    fn think(&mut self, _: f64) {}

    fn zero_frame(&mut self) {}

    fn send(&mut self, to: u16, message: Message) -> Result<(), Message> {
        let waiting = &mut self.boxes[usize::from(to)];
        if waiting.iter().filter(|(from, _)| *from == self.cpu).count() >= DEPTH {
            return Err(message);
        }
        waiting.push_back((self.cpu, message));
        Ok(())
    }

    fn receive(&mut self) -> Option<Message> {
        self.boxes[usize::from(self.cpu)].pop_front().map(|(_, message)| message)
    }
}

pub(super) fn run(books: &mut Books<'_>, seed: u64) -> Figures {
    let (cpus, frames) = (books.cpus, books.managed());
    let kind = Kind::KernelBuildLike;
    let setting = Setting { kind, cpus, frames, seed, think_ns: 0.0 };
    let mut programs = programs(&setting);
    let mut boxes: Vec<VecDeque<(u16, Message)>> = vec![VecDeque::new(); usize::from(cpus)];
    // As many as the simulation allocates; of smaller processes, fewer in proportion.
    let (warm, measured) = kind.stretch(cpus, frames);
    let scaled = |allocations: u64| (setting.scaled(allocations as usize) as u64).max(1 << 18);
    for (allocations, begin) in [(scaled(warm), false), (scaled(measured), true)] {
        if begin {
            books.begin();
        }
        let end = books.allocated + allocations;
        // Rounds in which no CPU got anything.
        let mut idle = 0;
        while books.allocated < end && idle < PATIENCE {
            let before = books.allocated;
            for (cpu, program) in programs.iter_mut().enumerate() {
                program.step(&mut Turn { cpu: cpu as u16, books, boxes: &mut boxes });
            }
            idle = if books.allocated > before { 0 } else { idle + 1 };
        }
    }
    books.figures()
}
