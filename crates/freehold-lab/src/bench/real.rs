//! The simulator's programs on real threads and real engines: what a simulation is compared with,
//! and what the model's constants are measured by.
//!
//! Calls go through trait objects, as the simulator's do, so that a program is one piece of code;
//! what that costs is measured with an engine that does nothing ([`with_nothing`]) and is part of
//! the model (`caller_ns`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold::{CpuId, Migratetype, Order, Pfn};

use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::clock::Cpus;
use crate::bench::engines::{ClassicMachine, FreeholdMachine, HostThreads, RingAlone};
use crate::bench::ring::Ring;
use crate::bench::yardstick::Line;
use crate::engine::Request;
use crate::engines::{EngineSpec, freehold_owned};
use crate::simulate::workloads::{DEPTH, Io, MESSAGE, Message, Program, Step};
use crate::trials::simulated::Marks;

pub(crate) trait RealCpu {
    fn alloc(&mut self, request: Request) -> Option<Pfn>;
    fn free(&mut self, chunks: &[(Pfn, Order)]);
}

pub(crate) trait RealMachine: Sync {
    /// Becomes a CPU. One at a time for each.
    fn cpu(&self, cpu: u16) -> Box<dyn RealCpu + '_>;
    fn marks(&self, cpu: u16) -> Marks;
    fn drain(&self);
}

/// A benchmark cannot go on without its engine.
fn refused(refused: Refused) -> ! {
    panic!("the engine refused a CPU, or a frame it had given out: {refused}")
}

impl<C: Calls> RealCpu for C {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        match request.migratetype {
            Migratetype::Movable => Calls::alloc(self, request.order),
            _ => self.alloc_unmovable(request.order),
        }
        .ok()
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        let done = match chunks {
            [(pfn, order)] => Calls::free(self, *pfn, *order),
            _ => self.free_chunks(chunks),
        };
        done.unwrap_or_else(|error| refused(error));
    }
}

impl<M: Machine> RealMachine for M {
    fn cpu(&self, cpu: u16) -> Box<dyn RealCpu + '_> {
        Box::new(Machine::cpu(self, CpuId::new(cpu)).unwrap_or_else(|error| refused(error)))
    }

    fn marks(&self, cpu: u16) -> Marks {
        self.engine().map_or_else(Marks::default, |engine| engine.marks(0, CpuId::new(cpu)))
    }

    fn drain(&self) {
        Machine::drain(self);
    }
}

/// Lends an engine that does nothing but count.
pub(crate) fn with_nothing<R>(run: impl FnOnce(&dyn RealMachine) -> R) -> R {
    run(&RingAlone)
}

/// Builds an engine for real threads and lends it.
pub(crate) fn with_real<R>(
    spec: &EngineSpec,
    cpus: u16,
    frames: u64,
    run: impl FnOnce(&dyn RealMachine) -> R,
) -> Result<R, String> {
    Ok(match freehold_owned(spec.name()) {
        Some(_) => run(&FreeholdMachine::new(cpus, frames, HostThreads::new())?),
        None => run(&ClassicMachine::new(spec.name(), cpus, frames)?),
    })
}

/// One sender, one receiver: how many chunks a message has, and the chunks.
struct Pipe(Ring<{ 1 + MESSAGE }>);

impl Pipe {
    fn send(&self, message: Message) -> Result<(), Message> {
        let (head, _) = self.0.passed();
        if !self.0.has_room(head) {
            return Err(message);
        }
        // Relaxed slots: the ring's indexes order them.
        let [len, places @ ..] = self.0.message(head);
        len.store(message.len() as u64, Ordering::Relaxed);
        for (place, (pfn, order)) in places.iter().zip(&message) {
            place.store(pfn.get() << 5 | u64::from(order.get()), Ordering::Relaxed);
        }
        self.0.produced(head);
        Ok(())
    }

    fn receive(&self) -> Option<Message> {
        let (_, tail) = self.0.passed();
        if !self.0.is_filled(tail) {
            return None;
        }
        // Relaxed slots: as above.
        let [len, places @ ..] = self.0.message(tail);
        let len = len.load(Ordering::Relaxed) as usize;
        let chunk = |word: &AtomicU64| {
            let word = word.load(Ordering::Relaxed);
            (Pfn::new(word >> 5), Order::new((word & 31) as u8).unwrap_or(Order::ZERO))
        };
        let message = places[..len.min(MESSAGE)].iter().map(chunk).collect();
        self.0.consumed(tail);
        Some(message)
    }
}

/// Bytes that a thread zeroes in turn: 1 MiB stays in its core's cache.
const ZEROED: usize = 1 << 20;
const FRAME: usize = 4096;

/// What a frame's worth of zeros is written to.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { bytes: vec![1; ZEROED], at: 0 }
    }
}

impl Frames {
    pub(crate) fn zero(&mut self) {
        self.at = (self.at + FRAME) % ZEROED;
        let frame = &mut self.bytes[self.at..self.at + FRAME];
        frame.fill(0);
        std::hint::black_box(frame);
    }
}

struct Thread<'a> {
    index: u16,
    cpu: Box<dyn RealCpu + 'a>,
    rings: &'a [Vec<Pipe>],
    next: usize,
    frames: u64,
    zeroed: Frames,
}

impl Io for Thread<'_> {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        let pfn = self.cpu.alloc(request)?;
        self.frames += request.order.frames();
        Some(pfn)
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        self.cpu.free(chunks);
    }

    fn think(&mut self, ns: f64) {
        if ns > 0.0 {
            let (start, wanted) = (Instant::now(), Duration::from_nanos(ns as u64));
            while start.elapsed() < wanted {
                std::hint::spin_loop();
            }
        }
    }

    fn zero_frame(&mut self) {
        self.zeroed.zero();
    }

    fn send(&mut self, to: u16, message: Message) -> Result<(), Message> {
        self.rings[usize::from(to)][usize::from(self.index)].send(message)
    }

    fn receive(&mut self) -> Option<Message> {
        let rings = &self.rings[usize::from(self.index)];
        for _ in 0..rings.len() {
            self.next = (self.next + 1) % rings.len();
            if let Some(message) = rings[self.next].receive() {
                return Some(message);
            }
        }
        None
    }
}

/// How long to run before counting, and how long to count.
const WARM: Duration = Duration::from_millis(60);
const COUNT: Duration = Duration::from_millis(200);

/// Frames allocated per second by these programs, one a thread, each on a CPU of its own.
pub(crate) fn throughput(
    machine: &dyn RealMachine,
    cpus: &Cpus,
    programs: Vec<Box<dyn Program>>,
) -> f64 {
    let n = programs.len();
    let rings: Vec<Vec<Pipe>> =
        (0..n).map(|_| (0..n).map(|_| Pipe(Ring::new(DEPTH))).collect()).collect();
    let counted: Vec<Line> = (0..n).map(|_| Line::default()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, mut program) in programs.into_iter().enumerate() {
            let (rings, counted, stop) = (&rings, &counted[index], &stop);
            scope.spawn(move || {
                cpus.pin(index);
                let cpu = machine.cpu(index as u16);
                let zeroed = Frames::default();
                let mut thread =
                    Thread { index: index as u16, cpu, rings, next: 0, frames: 0, zeroed };
                // Relaxed throughout: counts and a flag that carry nothing.
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        match program.step(&mut thread) {
                            Step::Empty | Step::Full(_) => std::hint::spin_loop(),
                            Step::Done | Step::Barrier => {}
                            Step::Finished => break,
                        }
                    }
                    counted.0.store(thread.frames, Ordering::Relaxed);
                }
            });
        }
        let total = || counted.iter().map(|line| line.0.load(Ordering::Relaxed)).sum::<u64>();
        std::thread::sleep(WARM);
        let (before, since) = (total(), Instant::now());
        std::thread::sleep(COUNT);
        let (after, elapsed) = (total(), since.elapsed());
        stop.store(true, Ordering::Relaxed);
        (after - before) as f64 / elapsed.as_secs_f64()
    })
}
