//! `aging`: long use with chunks of many orders, types and lifetimes.
//!
//! ```text
//!  of 1,000 allocations  600 order 0 movable      60 orders 1 and 2 unmovable   30 order 4 movable
//!                        100 order 0 unmovable    60 order 2 movable             6 order 6 movable
//!                         80 order 0 reclaimable  60 order 3 unmovable           4 order 9 movable
//!
//!  of 100   80 short-lived: a FIFO a CPU           freed by their own CPU, one in five by any
//!           18 die at random: one pool             freed by any CPU
//!            2 long-lived: one FIFO                freed by any CPU
//! ```
//!
//! Of the memory in use 40 % is short-lived, 40 % dies at random and 20 % is long-lived, so a
//! long-lived chunk lives 20 times as long as a short-lived one. A third of the CPUs allocates at a
//! time; the third wanders over all CPUs four times. Each CPU ticks 64 times, in turn. First memory
//! is filled, with frees of what is more than a CPU's share; then so many chunks are allocated as
//! the scenario says, and only these are counted.

use std::collections::VecDeque;

use freehold::{Migratetype, Order};

use super::books::{Books, Chunk};
use super::figure::{
    About, FAILURES9, Figures, LOCKS, MIXED, ORDER9, SHARED_WRITES, UNUSABLE3, UNUSABLE4,
};
use crate::trials::random::Random;

pub(super) const ABOUT: About = About {
    name: "aging",
    what: "Allocations of orders 0 to 9 and three types with much of memory in use, short-lived, \
           random and long-lived; a third of the CPUs is active at a time, one third after \
           another.",
    levels: &[Some(50), Some(60), Some(70)],
    figures: &[ORDER9, UNUSABLE3, UNUSABLE4, LOCKS, SHARED_WRITES, FAILURES9, MIXED],
};

/// Times that the active third goes round all CPUs, and that each CPU ticks.
const ROUNDS: u64 = 4;
const TICKS: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Short,
    Random,
    Long,
}

/// Chunks of one kind of life and the frames in them.
#[derive(Default)]
struct Held {
    chunks: VecDeque<Chunk>,
    frames: u64,
}

impl Held {
    fn push(&mut self, chunk: Chunk) {
        self.frames += chunk.1.frames();
        self.chunks.push_back(chunk);
    }

    /// The oldest, where there are more frames than `most`; never the only one.
    fn pop(&mut self, most: u64) -> Option<Chunk> {
        let chunk =
            (self.frames > most && self.chunks.len() > 1).then(|| self.chunks.pop_front())??;
        self.frames -= chunk.1.frames();
        Some(chunk)
    }

    /// One at random, in the same way.
    fn pop_random(&mut self, most: u64, random: &mut Random) -> Option<Chunk> {
        let last = self.chunks.len().checked_sub(1)?;
        if self.frames > most && last > 0 {
            self.chunks.swap(random.scaled(last as u64 + 1) as usize, 0);
        }
        self.pop(most)
    }
}

struct Aging<'b, 'e> {
    books: &'b mut Books<'e>,
    /// Chunks allocated, and how many will have been when a round of ticks and turns is over.
    n: u64,
    allocations: u64,
    short: Vec<Held>,
    scattered: Held,
    long: Held,
    /// Frames to hold at most: a CPU's short-lived, those that die at random, the long-lived.
    most: [u64; 3],
}

pub(super) fn run(books: &mut Books<'_>, used_percent: u8, allocations: u64) -> Figures {
    let cpus = books.cpus;
    let target = books.managed() * u64::from(used_percent) / 100;
    let mut aging = Aging {
        books,
        n: 0,
        allocations,
        short: (0..cpus).map(|_| Held::default()).collect(),
        scattered: Held::default(),
        long: Held::default(),
        most: [target * 2 / 5 / u64::from(cpus), target * 2 / 5, target / 5],
    };
    aging.fill(target);
    aging.books.begin();
    for _ in 0..allocations {
        let life = match aging.books.random.scaled(100) {
            0..80 => Life::Short,
            80..98 => Life::Random,
            _ => Life::Long,
        };
        let cpu = aging.active_cpu();
        aging.tick();
        aging.allocate(cpu, life);
    }
    aging.books.figures()
}

fn kind(random: &mut Random) -> (Order, Migratetype) {
    let (order, migratetype) = match random.scaled(1000) {
        0..600 => (0, Migratetype::Movable),
        600..700 => (0, Migratetype::Unmovable),
        700..780 => (0, Migratetype::Reclaimable),
        780..810 => (1, Migratetype::Unmovable),
        810..840 => (2, Migratetype::Unmovable),
        840..900 => (2, Migratetype::Movable),
        900..960 => (3, Migratetype::Unmovable),
        960..990 => (4, Migratetype::Movable),
        990..996 => (6, Migratetype::Movable),
        _ => (9, Migratetype::Movable),
    };
    (Order::new(order).unwrap_or(Order::ZERO), migratetype)
}

impl Aging<'_, '_> {
    /// Until each kind of life has about its share, on all CPUs alike.
    fn fill(&mut self, target: u64) {
        // An engine that cannot give so much is not asked for ever.
        for _ in 0..target {
            if self.books.live >= target - target / 32 {
                return;
            }
            let wanted = match self.books.random.scaled(5) {
                0 if self.long.frames < self.most[2] => Life::Long,
                1 | 2 if self.scattered.frames < self.most[1] => Life::Random,
                _ => Life::Short,
            };
            let cpu = self.books.any_cpu();
            self.allocate(cpu, wanted);
        }
    }

    /// One of the CPUs that are active now.
    fn active_cpu(&mut self) -> u16 {
        let cpus = u64::from(self.books.cpus);
        let active = cpus.div_ceil(3);
        let first = self.n * ROUNDS * cpus / self.allocations.max(1);
        ((first + self.books.random.scaled(active)) % cpus) as u16
    }

    /// The ticks that are due, in turn: as many as have been when `n` chunks have been allocated.
    fn tick(&mut self) {
        let cpus = u64::from(self.books.cpus);
        let due = |n: u64| n * TICKS * cpus / self.allocations.max(1);
        for tick in due(self.n)..due(self.n + 1) {
            self.books.tick((tick % cpus) as u16);
        }
        self.n += 1;
    }

    /// Allocates a chunk and frees what has become too much of its kind.
    fn allocate(&mut self, cpu: u16, life: Life) {
        let (order, migratetype) = kind(&mut self.books.random);
        let Some(chunk) = self.books.alloc(cpu, order, migratetype) else {
            // No memory: as under reclaim, one chunk that dies at random goes early, or the machine
            // would stand still.
            if let Some(old) = self.scattered.pop_random(0, &mut self.books.random) {
                let freer = self.books.any_cpu();
                self.books.free(freer, old);
            }
            return;
        };
        match life {
            Life::Short => self.short[usize::from(cpu)].push(chunk),
            Life::Random => self.scattered.push(chunk),
            Life::Long => self.long.push(chunk),
        }
        while let Some(old) = match life {
            Life::Short => self.short[usize::from(cpu)].pop(self.most[0]),
            Life::Random => self.scattered.pop_random(self.most[1], &mut self.books.random),
            Life::Long => self.long.pop(self.most[2]),
        } {
            let freer =
                if life == Life::Short { self.books.freer(cpu) } else { self.books.any_cpu() };
            self.books.free(freer, old);
        }
    }
}
