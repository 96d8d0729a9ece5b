//! `kernel-build-like`: short processes, and what they leave behind.
//!
//! A process faults in anonymous memory and needs page tables and slabs; with it come pages of the
//! page cache and inodes, which stay when it exits. Those are kept in two rows of limited length;
//! the oldest goes when a new one comes, as under reclaim, so that after a while as much is freed
//! as is allocated. One process in four exits on another CPU than it ran on.

use std::collections::VecDeque;

use freehold::{Migratetype, Order, Pfn};

use super::{About, BATCH, Io, MESSAGE, Message, Program, Setting, Step, frames, request};
use crate::trials::random::Random;

pub(super) const KERNEL_BUILD_LIKE: About = About {
    name: "kernel-build-like",
    what: "Each CPU runs processes of 256 to 8,192 frames: 78 % zeroed anonymous memory, 12 % page \
           tables and slabs, 6 % page cache and 3 % inodes that outlive them, 1 % of order 1 to 3; \
           one exit in four is on another CPU; frees are in batches of 31.",
    source: "the pcp-buddy proposal's kernel builds; the shares are chosen, not measured",
    fewest_cpus: 1,
    frames_a_cpu: MOST as u64,
    think_ns: 2000.0,
};

/// The smallest and the largest process, in chunks.
const LEAST: usize = 256;
pub(super) const MOST: usize = 8192;
/// Pages of the page cache and of inodes that a CPU's processes leave behind at most.
const CACHE: usize = 1024;
const INODES: usize = 256;

pub(super) struct KernelBuild {
    random: Random,
    cpu: u16,
    cpus: u16,
    think_ns: f64,
    /// The smallest process, and what stays in the page cache and of inodes: less where memory is
    /// short.
    least: usize,
    most_cache: usize,
    most_inodes: usize,
    wanted: usize,
    process: Vec<(Pfn, Order)>,
    cache: VecDeque<(Pfn, Order)>,
    inodes: VecDeque<(Pfn, Order)>,
    /// What exits here: own processes and those of others.
    exiting: Vec<(Pfn, Order)>,
    /// A process that is to exit elsewhere, in messages, and where.
    moving: Vec<Message>,
    to: u16,
    /// Fed by this CPU's next look at its messages.
    patience: u32,
}

impl KernelBuild {
    /// A CPU with its first process, of random size.
    pub(super) fn new(setting: &Setting, cpu: u16) -> Self {
        let mut program = Self {
            random: setting.random(cpu),
            cpu,
            cpus: setting.cpus,
            think_ns: setting.think_ns,
            least: setting.scaled(LEAST),
            most_cache: setting.scaled(CACHE),
            most_inodes: setting.scaled(INODES),
            wanted: 0,
            process: Vec::new(),
            cache: VecDeque::new(),
            inodes: VecDeque::new(),
            exiting: Vec::new(),
            moving: Vec::new(),
            to: 0,
            patience: 0,
        };
        program.wanted = program.size();
        program
    }

    /// Between the smallest and the largest, each doubling as likely as the next.
    fn size(&mut self) -> usize {
        let doublings = u64::from((MOST / LEAST).ilog2());
        let base = self.least << self.random.below(doublings);
        base + self.random.below(base as u64) as usize
    }

    fn exit(&mut self) {
        let process = std::mem::take(&mut self.process);
        self.wanted = self.size();
        if self.cpus > 1 && self.random.below(4) == 0 {
            let other = 1 + self.random.below(u64::from(self.cpus - 1)) as u16;
            self.to = (self.cpu + other) % self.cpus;
            self.moving = process.chunks(MESSAGE).rev().map(<[_]>::to_vec).collect();
        } else {
            self.exiting.extend(process);
        }
    }

    /// Frees a batch of what exits here; whether there was any.
    fn free_some(&mut self, io: &mut dyn Io) -> bool {
        if self.exiting.is_empty() {
            return false;
        }
        let from = self.exiting.len().saturating_sub(BATCH);
        io.free(&self.exiting[from..]);
        self.exiting.truncate(from);
        true
    }

    fn fault(&mut self, io: &mut dyn Io) {
        let kind = self.random.below(100);
        let (order, migratetype) = match kind {
            0..78 | 90..96 => (Order::ZERO, Migratetype::Movable),
            78..90 => (Order::ZERO, Migratetype::Unmovable),
            96..99 => (Order::ZERO, Migratetype::Reclaimable),
            _ => (
                Order::new(1 + self.random.below(3) as u8).unwrap_or(Order::ZERO),
                Migratetype::Unmovable,
            ),
        };
        let Some(pfn) = io.alloc(request(order, migratetype)) else {
            // No memory: this process exits early.
            self.wanted = self.process.len();
            return;
        };
        io.zero_frame();
        io.think(self.think_ns);
        let row = match kind {
            90..96 => Some((&mut self.cache, self.most_cache)),
            96..99 => Some((&mut self.inodes, self.most_inodes)),
            _ => None,
        };
        match row {
            None => self.process.push((pfn, order)),
            Some((row, most)) => {
                row.push_back((pfn, order));
                // A small share of memory is not kept by a batch on top.
                let batch = BATCH.min(most + 1);
                if row.len() > most + batch {
                    let old: Vec<(Pfn, Order)> = row.drain(..batch).collect();
                    io.free(&old);
                }
            }
        }
    }
}

impl Program for KernelBuild {
    fn step(&mut self, io: &mut dyn Io) -> Step {
        if self.free_some(io) {
            return Step::Done;
        }
        if let Some(message) = self.moving.pop() {
            if let Err(message) = io.send(self.to, message) {
                // Nobody takes it: it exits here after all.
                self.exiting.extend(message);
            }
            return Step::Done;
        }
        self.patience += 1;
        if self.patience.is_multiple_of(32)
            && let Some(message) = io.receive()
        {
            self.patience -= 1;
            self.exiting.extend(message);
            return Step::Done;
        }
        if self.process.len() >= self.wanted {
            self.exit();
            return Step::Done;
        }
        self.fault(io);
        Step::Done
    }

    fn live(&self) -> u64 {
        let rows =
            self.cache.iter().chain(&self.inodes).map(|(_, order)| order.frames()).sum::<u64>();
        let moving: u64 = self.moving.iter().map(|message| frames(message)).sum();
        rows + moving + frames(&self.process) + frames(&self.exiting)
    }
}
