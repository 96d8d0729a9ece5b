//! Loops of one thread that holds about as much all the time: stacks and queues of a fixed depth,
//! and churn.
//!
//! ```text
//!  depth   allocate D, free the same D in one of three orders, over and over
//!  churn   hold a share of memory; a step frees one held frame at random and allocates one
//!  mixed   the same with chunks of orders 0 to 9; what an engine has no room for is a failure
//!  used    churn of few chunks where half of the frames around them is in use
//! ```
//!
//! What [`super::loops`] says about honesty holds here. The order in which frames are freed is
//! drawn before the clock starts where that can be (`depth`); where it cannot (`churn`, `mixed`),
//! drawing a number is a part of each step that is the same for all engines, about ten
//! instructions.

use std::hint::black_box;

use freehold::{CpuId, Order, Pfn};

use super::calls::{Calls, Machine, Refused};
use super::clock::timed;
use super::loops::{alloc_all, free_all, per, shuffle};
use crate::trials::random::Random;

const CPU: CpuId = CpuId::new(0);

/// The largest order that `mixed` allocates.
const LARGEST: u32 = 9;

/// Different orders of random frees of a depth: enough that a branch predictor does not know them
/// by heart.
const DRAWN: usize = 16;

/// In which order what is held is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// The last first: a stack.
    Lifo,
    /// The first first: a queue.
    Fifo,
    Random,
}

/// A thread's frames and the orders to free them in.
#[derive(Clone, Debug)]
pub struct Depth {
    frames: Vec<Pfn>,
    freed: Freed,
    /// `DRAWN` orders one after the other; none where they are freed as they lie.
    places: Vec<u16>,
    /// Which of them is next.
    turn: usize,
}

impl Depth {
    pub fn new(depth: u16, freed: Freed, seed: u64) -> Self {
        let mut places: Vec<u16> = Vec::new();
        if freed == Freed::Random {
            for n in 0..DRAWN as u64 {
                let mut one: Vec<u16> = (0..depth).collect();
                shuffle(&mut one, seed ^ (n + 1));
                places.append(&mut one);
            }
        }
        Self { frames: vec![Pfn::default(); usize::from(depth)], freed, places, turn: 0 }
    }

    /// Allocates all and frees all, so often.
    #[inline(never)]
    pub fn rounds<C: Calls>(&mut self, cpu: &mut C, rounds: u64) -> Result<(), Refused> {
        let depth = self.frames.len();
        for _ in 0..rounds {
            alloc_all(cpu, &mut self.frames)?;
            match self.freed {
                Freed::Lifo => free_all(cpu, self.frames.iter().rev())?,
                Freed::Fifo => free_all(cpu, self.frames.iter())?,
                Freed::Random => {
                    let places = &self.places[self.turn * depth..][..depth];
                    self.turn = (self.turn + 1) % DRAWN;
                    free_all(cpu, places.iter().map(|&place| &self.frames[usize::from(place)]))?;
                }
            }
        }
        Ok(())
    }
}

/// Nanoseconds a pair, so many frames at a time, about `pairs` of them.
pub fn depth<M: Machine>(
    machine: &M,
    depth: u16,
    freed: Freed,
    pairs: u64,
    seed: u64,
) -> Result<f64, Refused> {
    let mut cpu = machine.cpu(CPU)?;
    let mut held = Depth::new(depth, freed, seed);
    let rounds = pairs / u64::from(depth) + 1;
    held.rounds(&mut cpu, rounds / 16 + 1)?;
    let time = timed(|| held.rounds(black_box(&mut cpu), rounds))?;
    Ok(per(time, rounds * u64::from(depth)))
}

/// Chunks of one order held, for churn.
#[derive(Clone, Debug)]
pub struct Churn<const ORDER: u8> {
    held: Vec<Pfn>,
    random: Random,
}

impl<const ORDER: u8> Churn<ORDER> {
    /// A constant of the loops, as it is where kernels call their allocators.
    const ORDER: Order = Order::new(ORDER).expect("an order there is");

    /// Allocates so many chunks, which are held from then on. Where there are not so many, none is
    /// held.
    pub fn start<C: Calls>(cpu: &mut C, chunks: u64, seed: u64) -> Result<Self, Refused> {
        let held = Vec::with_capacity(chunks as usize);
        let mut churn = Self { held, random: Random::new(seed) };
        for _ in 0..chunks {
            match cpu.alloc(Self::ORDER) {
                Ok(pfn) => churn.held.push(pfn),
                Err(refused) => return churn.end(cpu).and(Err(refused)),
            }
        }
        Ok(churn)
    }

    /// Where an allocation fails, one chunk less is held.
    #[inline(never)]
    pub fn steps<C: Calls>(&mut self, cpu: &mut C, steps: u64) -> Result<(), Refused> {
        let Self { held, random } = self;
        for _ in 0..steps {
            let place = random.scaled(held.len() as u64) as usize;
            cpu.free(held[place], Self::ORDER)?;
            match cpu.alloc(Self::ORDER) {
                Ok(pfn) => held[place] = pfn,
                Err(refused) => {
                    held.swap_remove(place);
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    pub fn end<C: Calls>(self, cpu: &mut C) -> Result<(), Refused> {
        self.held.into_iter().try_for_each(|pfn| cpu.free(pfn, Self::ORDER))
    }
}

/// Nanoseconds a step with so many chunks held, after so many steps.
pub fn churn<M: Machine, const ORDER: u8>(
    machine: &M,
    chunks: u64,
    steps: (u64, u64),
    seed: u64,
) -> Result<f64, Refused> {
    churned::<_, ORDER>(&mut machine.cpu(CPU)?, chunks, steps, seed)
}

fn churned<C: Calls, const ORDER: u8>(
    cpu: &mut C,
    chunks: u64,
    (before, steps): (u64, u64),
    seed: u64,
) -> Result<f64, Refused> {
    let mut churn = Churn::<ORDER>::start(cpu, chunks, seed)?;
    let done =
        churn.steps(cpu, before).and_then(|()| timed(|| churn.steps(black_box(&mut *cpu), steps)));
    churn.end(cpu)?;
    Ok(per(done?, steps))
}

/// Single frames allocated before half of them, drawn at random, is freed again; and chunks held
/// then.
pub const USED: u64 = 100_000;
pub const HELD: u64 = 100;

/// Has half of the single frames in use, so many, that were allocated first: what a CPU finds on a
/// machine that has run for a while. Returns those in use.
pub fn half_used<C: Calls>(cpu: &mut C, frames: u64, seed: u64) -> Result<Vec<Pfn>, Refused> {
    let mut frames = vec![Pfn::default(); frames as usize];
    alloc_all(cpu, &mut frames)?;
    let mut random = Random::new(seed);
    let (freed, kept): (Vec<Pfn>, Vec<Pfn>) =
        frames.into_iter().partition(|_| random.scaled(2) == 0);
    free_all(cpu, freed.iter())?;
    Ok(kept)
}

/// Nanoseconds a step of churn of [`HELD`] chunks on a half-used machine.
pub fn used<M: Machine, const ORDER: u8>(
    machine: &M,
    steps: u64,
    seed: u64,
) -> Result<f64, Refused> {
    let mut cpu = machine.cpu(CPU)?;
    let kept = half_used(&mut cpu, USED, seed)?;
    let found = churned::<_, ORDER>(&mut cpu, HELD, (HELD, steps), seed)?;
    free_all(&mut cpu, kept.iter())?;
    Ok(found)
}

/// Chunks of orders 0 to 9 held, for churn.
#[derive(Clone, Debug)]
pub struct Mixed {
    held: Vec<(Pfn, Order)>,
    frames: u64,
    most: u64,
    random: Random,
    failures: u64,
}

impl Mixed {
    /// Nothing held yet, and so many frames at most.
    pub fn new(most: u64, seed: u64) -> Self {
        // No more chunks than frames: the list never grows while a clock runs.
        Self {
            held: Vec::with_capacity(most as usize),
            frames: 0,
            most,
            random: Random::new(seed),
            failures: 0,
        }
    }

    /// So many steps: each allocates a chunk of random order, each order half as likely as the one
    /// below it, after freeing as many chunks at random as must make room for it below the most;
    /// that is one on average once the most is held.
    #[inline(never)]
    pub fn steps<C: Calls>(&mut self, cpu: &mut C, steps: u64) -> Result<(), Refused> {
        for _ in 0..steps {
            let zeros = self.random.scaled(1 << 63).trailing_zeros();
            let Some(order) = Order::new(zeros.min(LARGEST) as u8) else { continue };
            while self.frames + order.frames() > self.most && !self.held.is_empty() {
                let place = self.random.scaled(self.held.len() as u64) as usize;
                let (pfn, order) = self.held.swap_remove(place);
                cpu.free(pfn, order)?;
                self.frames -= order.frames();
            }
            match cpu.alloc(order) {
                Ok(pfn) => {
                    self.held.push((pfn, order));
                    self.frames += order.frames();
                }
                Err(refused) if refused.is_shortage() => self.failures += 1,
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    pub fn end<C: Calls>(self, cpu: &mut C) -> Result<(), Refused> {
        self.held.iter().try_for_each(|&(pfn, order)| cpu.free(pfn, order))
    }
}

/// Frames of a chunk on average: half a frame by each order, a whole one by the largest.
const MEAN: u64 = 5;

/// Churn of chunks of mixed orders, with so many frames held at most: nanoseconds a step, and how
/// many of 1,000 allocations failed.
pub fn mixed<M: Machine>(
    machine: &M,
    frames: u64,
    steps: u64,
    seed: u64,
) -> Result<(f64, f64), Refused> {
    let mut cpu = machine.cpu(CPU)?;
    let mut mixed = Mixed::new(frames, seed);
    // Each chunk has been replaced a few times.
    mixed.steps(&mut cpu, 4 * frames / MEAN)?;
    mixed.failures = 0;
    let time = timed(|| mixed.steps(black_box(&mut cpu), steps))?;
    let failures = mixed.failures as f64;
    mixed.end(&mut cpu)?;
    Ok((per(time, steps), failures * 1000.0 / steps as f64))
}
