//! The same programs on real threads and real engines: what a simulation is compared with, and what the model's
//! constants are measured by.
//!
//! Calls go through trait objects, as the simulator's do, so that a program is one piece of code; what that costs is
//! measured with an engine that does nothing ([`with_nothing`]) and is part of the model (`caller_ns`).

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use freehold::{AllocFlags, CpuId, FrameRange, Freehold, Order, Owned, Pfn, ZoneConfig};
use freehold_classic::{Classic, Config, Design};

use super::engine::Marks;
use super::workloads::{DEPTH, Io, MESSAGE, Message, Program, Step};
use crate::bench::calls::START;
use crate::bench::clock::Cpus;
use crate::bench::engines::HostThreads;
use crate::bench::yardstick::Line;
use crate::engine::Request;
use crate::engines::EngineSpec;

/// One CPU of a real engine.
pub trait RealCpu {
    /// Allocates.
    fn alloc(&mut self, request: Request) -> Option<Pfn>;
    /// Frees chunks by one call.
    fn free(&mut self, chunks: &[(Pfn, Order)]);
}

/// A real engine.
pub trait RealMachine: Sync {
    /// Becomes a CPU. One at a time for each.
    fn cpu(&self, cpu: u16) -> Box<dyn RealCpu + '_>;
    /// What has been done so far.
    fn marks(&self, cpu: u16) -> Marks;
    /// Gives everything back.
    fn drain(&self);
}

struct ClassicReal(Classic);

struct ClassicRealCpu<'a>(&'a Classic, CpuId);

/// A benchmark cannot go on without its engine.
fn refused(error: impl std::fmt::Display) -> ! {
    panic!("the engine refused a frame it had given out: {error}")
}

impl RealCpu for ClassicRealCpu<'_> {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        let Request { order, migratetype, flags } = request;
        self.0.alloc(self.1, freehold_classic::Request { order, migratetype, flags }).ok()
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        let done = match chunks {
            [(pfn, order)] => self.0.free(self.1, *pfn, *order).map(drop),
            _ => self.0.free_folios(self.1, chunks).map(drop),
        };
        done.unwrap_or_else(|error| refused(error));
    }
}

impl RealMachine for ClassicReal {
    fn cpu(&self, cpu: u16) -> Box<dyn RealCpu + '_> {
        Box::new(ClassicRealCpu(&self.0, CpuId::new(cpu)))
    }

    fn marks(&self, cpu: u16) -> Marks {
        let work = self.0.work(0, CpuId::new(cpu)).unwrap_or_default();
        Marks {
            holds: work.zone_holds,
            steps: work.zone_steps,
            changes: work.pcp_changes,
            merge_steps: work.pcp_merge_steps,
            refilled: work.refilled_frames,
        }
    }

    fn drain(&self) {
        self.0.drain_all();
    }
}

struct FreeholdReal<'m>(Freehold<'m, HostThreads>);

struct FreeholdRealCpu<'a, 'm>(Owned<'a, 'm, HostThreads>);

impl RealCpu for FreeholdRealCpu<'_, '_> {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        if request.flags == AllocFlags::empty() {
            return self.0.alloc(freehold::Request::new(request.order, request.migratetype)).ok();
        }
        self.0.alloc(freehold::Request::new(request.order, request.migratetype).flags(request.flags)).ok()
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        if let [(pfn, order)] = chunks {
            return self.0.free(*pfn, *order).unwrap_or_else(|error| refused(error));
        }
        let mut singles = [Pfn::default(); 64];
        for part in chunks.chunks(singles.len()) {
            let mut n = 0;
            for &(pfn, order) in part {
                if order == Order::ZERO {
                    singles[n] = pfn;
                    n += 1;
                } else {
                    self.0.free(pfn, order).unwrap_or_else(|error| refused(error));
                }
            }
            self.0.free_bulk(&singles[..n]).unwrap_or_else(|error| refused(error.error));
        }
    }
}

impl RealMachine for FreeholdReal<'_> {
    fn cpu(&self, cpu: u16) -> Box<dyn RealCpu + '_> {
        match self.0.own(CpuId::new(cpu)) {
            Ok(owned) => Box::new(FreeholdRealCpu(owned)),
            Err(error) => panic!("CPU {cpu} is to be had: {error}"),
        }
    }

    fn marks(&self, cpu: u16) -> Marks {
        let (holds, steps) = self.0.zone_lock_counts(0).unwrap_or_default();
        let changes = self.0.cpu_stats(CpuId::new(cpu)).map_or(0, |stats| stats.refills);
        Marks { holds, steps, changes, ..Marks::default() }
    }

    fn drain(&self) {
        self.0.drain_all();
    }
}

struct Nothing;

struct NothingCpu(u64);

impl RealCpu for NothingCpu {
    fn alloc(&mut self, request: Request) -> Option<Pfn> {
        self.0 += request.order.frames();
        Some(Pfn::new(START.get() + self.0))
    }

    fn free(&mut self, chunks: &[(Pfn, Order)]) {
        std::hint::black_box(chunks);
    }
}

impl RealMachine for Nothing {
    fn cpu(&self, _: u16) -> Box<dyn RealCpu + '_> {
        Box::new(NothingCpu(0))
    }

    fn marks(&self, _: u16) -> Marks {
        Marks::default()
    }

    fn drain(&self) {}
}

/// Lends an engine that does nothing but count.
pub fn with_nothing<R>(run: impl FnOnce(&dyn RealMachine) -> R) -> R {
    run(&Nothing)
}

/// Builds an engine for real threads and lends it.
///
/// # Errors
///
/// Where it cannot be built.
pub fn with_real<R>(
    spec: &EngineSpec,
    cpus: u16,
    frames: u64,
    run: impl FnOnce(&dyn RealMachine) -> R,
) -> Result<R, String> {
    if spec.name() == "freehold" {
        let range = [FrameRange::new(START, frames).ok_or("the zone is too large")?];
        let zones = [ZoneConfig::new(&range)];
        let config = freehold::Config::new(cpus, &zones);
        let size = Freehold::<HostThreads>::metadata_size(&config).map_err(|error| error.to_string())?;
        let mut metadata = vec![MaybeUninit::uninit(); size];
        let engine = Freehold::new(&config, &mut metadata, HostThreads::new()).map_err(|error| error.to_string())?;
        return Ok(run(&FreeholdReal(engine)));
    }
    let design = Design::parse(spec.name()).map_err(|error| error.to_string())?;
    let config = Config::single_zone(design, cpus, frames);
    Ok(run(&ClassicReal(Classic::new(config).map_err(|error| error.to_string())?)))
}

/// One sender, one receiver.
struct Ring {
    head: Line,
    tail: Line,
    slots: Vec<Slot>,
}

#[repr(align(64))]
struct Slot {
    len: AtomicU64,
    chunks: [AtomicU64; MESSAGE],
}

impl Ring {
    fn new() -> Self {
        let slot = |_| Slot { len: AtomicU64::new(0), chunks: std::array::from_fn(|_| AtomicU64::new(0)) };
        Self { head: Line::default(), tail: Line::default(), slots: (0..DEPTH).map(slot).collect() }
    }

    fn send(&self, message: Message) -> Result<(), Message> {
        // Relaxed: only the sender writes it.
        let head = self.head.0.load(Ordering::Relaxed);
        // Acquire: the receiver has read the slot that is filled again.
        if head - self.tail.0.load(Ordering::Acquire) >= DEPTH as u64 {
            return Err(message);
        }
        let slot = &self.slots[head as usize % DEPTH];
        // Relaxed slots: `head` orders them.
        slot.len.store(message.len() as u64, Ordering::Relaxed);
        for (place, (pfn, order)) in slot.chunks.iter().zip(&message) {
            place.store(pfn.get() << 5 | u64::from(order.get()), Ordering::Relaxed);
        }
        // Release: the slot is filled.
        self.head.0.store(head + 1, Ordering::Release);
        Ok(())
    }

    fn receive(&self) -> Option<Message> {
        // Relaxed: only the receiver writes it.
        let tail = self.tail.0.load(Ordering::Relaxed);
        // Acquire: the slot is filled.
        if self.head.0.load(Ordering::Acquire) == tail {
            return None;
        }
        let slot = &self.slots[tail as usize % DEPTH];
        // Relaxed slots: `head` ordered them.
        let len = slot.len.load(Ordering::Relaxed) as usize;
        let chunk = |word: &AtomicU64| {
            let word = word.load(Ordering::Relaxed);
            (Pfn::new(word >> 5), Order::new((word & 31) as u8).unwrap_or(Order::ZERO))
        };
        let message = slot.chunks[..len.min(MESSAGE)].iter().map(chunk).collect();
        // Release: it has been read.
        self.tail.0.store(tail + 1, Ordering::Release);
        Some(message)
    }
}

/// Bytes that a thread zeroes in turn: 1 MiB stays in its core's cache.
const ZEROED: usize = 1 << 20;
const FRAME: usize = 4096;

/// What a frame's worth of zeros is written to.
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { bytes: vec![1; ZEROED], at: 0 }
    }
}

impl Frames {
    /// Zeroes the next frame.
    pub fn zero(&mut self) {
        self.at = (self.at + FRAME) % ZEROED;
        let frame = &mut self.bytes[self.at..self.at + FRAME];
        frame.fill(0);
        std::hint::black_box(frame);
    }
}

struct Thread<'a> {
    index: u16,
    cpu: Box<dyn RealCpu + 'a>,
    rings: &'a [Vec<Ring>],
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
pub fn throughput(machine: &dyn RealMachine, cpus: &Cpus, programs: Vec<Box<dyn Program>>) -> f64 {
    let n = programs.len();
    let rings: Vec<Vec<Ring>> = (0..n).map(|_| (0..n).map(|_| Ring::new()).collect()).collect();
    let counted: Vec<Line> = (0..n).map(|_| Line::default()).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, mut program) in programs.into_iter().enumerate() {
            let (rings, counted, stop) = (&rings, &counted[index], &stop);
            scope.spawn(move || {
                cpus.pin(index);
                let cpu = machine.cpu(index as u16);
                let zeroed = Frames::default();
                let mut thread = Thread { index: index as u16, cpu, rings, next: 0, frames: 0, zeroed };
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
