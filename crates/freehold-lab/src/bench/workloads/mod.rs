//! The workloads of the proposals and of the benchmarks they quote: one file each, with what it is
//! and where it comes from.
//!
//! ```text
//!  producer_consumer   rings of every depth, frames reused     exit_avalanche   all exit, a bystander allocates
//!  netperf             order 3, written on one CPU, read on    page_fault       fault, write, unmap
//!                      the other                               trunc            read a large file, truncate it
//!  handoff             many allocate, few free; and back       cma_range        a range that CPUs hold frames of
//!  steady              depths, churn, mixed orders, pairs of   tails            the slowest allocations of four threads
//!                      every order                             start_up         from nothing to the first frame
//!  doors               an engine's ways in                    plain            the loops of bench::loops and threads
//! ```
//!
//! What can be counted is counted on one thread that plays all CPUs in turn, on an engine just
//! built ([`count`]): the same figures on every machine, in every run. What has to be timed is run
//! again and again ([`measure`]).

pub mod cma_range;
pub mod counting;
pub mod doors;
pub mod exit_avalanche;
pub mod handoff;
pub mod netperf;
pub mod page_fault;
mod plain;
pub mod producer_consumer;
pub mod start_up;
pub mod steady;
pub mod tails;
pub mod trunc;

use super::backing::{Backing, Memory};
use super::calls::{Machine, Refused};
use super::clock::Cpus;
use super::figures::Figures;
use super::kind::Kind;
use super::scale::Scale;

/// What a run of a workload is given.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub cpus: &'a Cpus,
    pub threads: u16,
    pub scale: &'a Scale,
    /// How many runs there have been.
    pub number: u64,
    pub frames: u64,
    /// Memory behind frame numbers, where it writes any.
    pub backing: Option<&'a Backing>,
}

impl Run<'_> {
    /// Where the frames of `machine` are, for a workload that writes memory.
    pub fn memory<M: Machine>(&self, machine: &M) -> Memory {
        if machine.is_memory() {
            return Memory::of_addresses();
        }
        self.backing.map(Backing::memory).expect("a workload that writes memory is given some")
    }

    /// The machine with nothing in the CPUs' stocks, as each part of a run begins, and this thread
    /// on the first CPU.
    pub fn drained<'m, M: Machine>(&self, machine: &'m M) -> &'m M {
        self.cpus.pin(0);
        machine.drain();
        machine
    }
}

/// One run, beginning with nothing in the CPUs' stocks.
pub fn measure<M: Machine>(machine: &M, kind: Kind, run: &Run<'_>) -> Result<Figures, Refused> {
    run.drained(machine);
    match kind {
        Kind::ProducerConsumer => producer_consumer::measure(machine, run),
        Kind::Depth => steady::depth(machine, run),
        Kind::Churn => steady::churn(machine, run),
        Kind::Mixed => steady::mixed(machine, run),
        Kind::Orders => steady::orders(machine, run),
        Kind::Doors => doors::measure(machine, run),
        Kind::Tails => tails::measure(machine, run),
        Kind::StartUp => start_up::measure(machine),
        Kind::CmaRange => cma_range::measure(machine, run),
        Kind::ManyAllocFewFree => handoff::many_alloc_few_free(machine, run),
        Kind::FewAllocManyFree => handoff::few_alloc_many_free(machine, run),
        Kind::NetperfLike => netperf::measure(machine, run),
        Kind::ExitAvalanche => exit_avalanche::measure(machine, run),
        Kind::PageFault1 => page_fault::measure(machine, run, false),
        Kind::PageFault2 => page_fault::measure(machine, run, true),
        Kind::Trunc => trunc::measure(machine, run),
        _ => plain::measure(machine, kind, run),
    }
}

/// What can be counted exactly, on a machine just built; `None` where nothing can.
pub fn count<M: Machine>(machine: &M, kind: Kind) -> Result<Option<Figures>, Refused> {
    Ok(Some(match kind {
        Kind::ProducerConsumer => producer_consumer::count(machine)?,
        Kind::NetperfLike => netperf::count(machine)?,
        Kind::CmaRange => cma_range::count(machine)?,
        Kind::Trunc => trunc::count(machine)?,
        Kind::PageFault1 => page_fault::count(machine, false)?,
        Kind::PageFault2 => page_fault::count(machine, true)?,
        Kind::Pair
        | Kind::Bulk
        | Kind::RandomFree
        | Kind::Order9Split
        | Kind::Contig
        | Kind::RemoteFree => counting::one_thread(machine, kind)?,
        _ => return Ok(None),
    }))
}
