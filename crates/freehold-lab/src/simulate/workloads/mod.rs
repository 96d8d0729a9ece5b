//! What CPUs do: small programs, one for each CPU, that allocate, free, think, and pass frames to
//! one another.
//!
//! A program is a state machine that does one call a step, so that simulated CPUs interleave call
//! by call. It speaks to the world through [`Io`] only, which is the simulator (`super::run`) or,
//! without a notion of time, `freehold contiguity`.

mod avalanche;
mod kernel_build;
mod pair;
mod pass;

use freehold::{AllocFlags, Migratetype, Order, Pfn};
use serde::Serialize;

use crate::engine::Request;
use crate::trials::kinds::kinds;
use crate::trials::random::Random;

/// Frames in a message from CPU to CPU.
pub const MESSAGE: usize = 64;
/// Messages that wait for a CPU at most, from each sender.
pub const DEPTH: usize = 64;
/// Chunks in a batch of frees.
pub const BATCH: usize = 31;

/// Chunks handed from one CPU to another.
pub type Message = Vec<(Pfn, Order)>;

/// A CPU's view of the world.
pub trait Io {
    fn alloc(&mut self, request: Request) -> Option<Pfn>;
    fn free(&mut self, chunks: &[(Pfn, Order)]);
    /// Works for that long on something else.
    fn think(&mut self, ns: f64);
    fn zero_frame(&mut self);
    /// Hands chunks to another CPU; gives them back where too many wait for it already.
    fn send(&mut self, to: u16, message: Message) -> Result<(), Message>;
    /// The oldest message that waits for this CPU.
    fn receive(&mut self) -> Option<Message>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Done,
    Empty,
    /// The CPU it wants to send to has no room.
    Full(u16),
    /// It waits for all that take part in the barrier.
    Barrier,
}

pub trait Program: Send {
    fn step(&mut self, io: &mut dyn Io) -> Step;

    fn has_barrier(&self) -> bool {
        false
    }

    /// Frames that it has and will free.
    fn live(&self) -> u64;
}

kinds! {
    Kind, About, ("workload", "simulate --list"):
    Pair: pair::PAIR,
    ManyAllocFewFree: pass::MANY_ALLOC_FEW_FREE,
    FewAllocManyFree: pass::FEW_ALLOC_MANY_FREE,
    ExitAvalanche: avalanche::EXIT_AVALANCHE,
    KernelBuildLike: kernel_build::KERNEL_BUILD_LIKE,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct About {
    pub name: &'static str,
    pub what: &'static str,
    pub source: &'static str,
    /// The fewest CPUs that it makes sense with.
    pub fewest_cpus: u16,
    /// Frames that a CPU has at once, at most.
    pub frames_a_cpu: u64,
    /// Nanoseconds of other work per allocation, unless told otherwise.
    pub think_ns: f64,
}

impl Kind {
    /// Frames to allocate before measuring begins, and while it lasts, on so many CPUs with so many
    /// frames of memory.
    pub const fn stretch(self, cpus: u16, memory: u64) -> (u64, u64) {
        let set = avalanche::set(cpus, memory);
        let cpus = cpus as u64;
        let (warm, measured, least) = match self {
            Self::Pair => (512, 2048, 1 << 18),
            Self::ExitAvalanche => (set, set, 1 << 18),
            Self::KernelBuildLike => (8192, 8192, 1 << 19),
            Self::ManyAllocFewFree | Self::FewAllocManyFree => (4096, 6144, 1 << 19),
        };
        let (warm, measured) = (warm * cpus, measured * cpus);
        (
            if warm < least / 2 { least / 2 } else { warm },
            if measured < least { least } else { measured },
        )
    }
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub kind: Kind,
    pub cpus: u16,
    pub frames: u64,
    /// The seed; each CPU draws numbers of its own from it.
    pub seed: u64,
    /// Nanoseconds of other work per allocation.
    pub think_ns: f64,
}

impl Setting {
    /// A number of frames or chunks of this workload that suits the machine: as it is where each
    /// CPU has memory for all that the workload has at once, less in proportion where it has not,
    /// never 0.
    pub fn scaled(&self, natural: usize) -> usize {
        // Watermarks and blocks that are begun: a ninth, and one of the largest chunks.
        let room = self.frames.saturating_sub(Order::LINUX_MAX.frames()) * 8
            / 9
            / u64::from(self.cpus.max(1));
        let most = self.kind.about().frames_a_cpu;
        if room >= most {
            return natural;
        }
        let scaled = natural as u128 * u128::from(room) / u128::from(most);
        usize::try_from(scaled).unwrap_or(natural).max(1)
    }

    fn random(&self, cpu: u16) -> Random {
        Random::split(self.seed, cpu.into())
    }
}

pub fn programs(setting: &Setting) -> Vec<Box<dyn Program>> {
    let cpus = setting.cpus;
    (0..cpus)
        .map(|cpu| -> Box<dyn Program> {
            match setting.kind {
                Kind::Pair => Box::new(pair::Pair::new(setting)),
                Kind::ManyAllocFewFree => pass::many_to_few(setting, cpu),
                Kind::FewAllocManyFree => pass::one_to_many(setting, cpu),
                Kind::ExitAvalanche => avalanche::program(setting, cpu),
                Kind::KernelBuildLike => Box::new(kernel_build::KernelBuild::new(setting, cpu)),
            }
        })
        .collect()
}

/// A movable frame: what a page fault asks for.
const MOVABLE: Request =
    Request { order: Order::ZERO, migratetype: Migratetype::Movable, flags: AllocFlags::empty() };

fn request(order: Order, migratetype: Migratetype) -> Request {
    Request { order, migratetype, flags: AllocFlags::empty() }
}

pub(super) fn frames(chunks: &[(Pfn, Order)]) -> u64 {
    chunks.iter().map(|(_, order)| order.frames()).sum()
}
