//! What the benchmarks do: one file each, with what it is and where it comes from.
//!
//! ```text
//!  producer_consumer   how often chunks are used again
//!  steady              depths, churn, mixed orders, pairs of every order, used machines
//!  tails               the slowest allocations of four threads
//!  plain               the loops of bench::loops
//! ```
//!
//! What can be counted is counted on one thread that plays all CPUs in turn, on an engine just
//! built ([`count`]): the same figures on every machine, in every run. What has to be timed is run
//! again and again ([`measure`]).

pub mod plain;
pub mod producer_consumer;
pub mod steady;
pub mod tails;

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
}

impl Run<'_> {
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
        // Counted.
        Kind::ProducerConsumer => Ok(Figures::default()),
        Kind::Depth => steady::depth(machine, run),
        Kind::Churn => steady::churn(machine, run),
        Kind::Mixed => steady::mixed(machine, run),
        Kind::Orders => steady::orders(machine, run),
        Kind::Used => steady::used(machine, run),
        Kind::NearMark | Kind::NearMark1024 => steady::near_mark(machine, run),
        Kind::Tails => tails::measure(machine, run),
        _ => plain::measure(machine, kind, run),
    }
}

/// What can be counted exactly, on a machine just built.
pub fn count<M: Machine>(machine: &M, kind: Kind) -> Result<Figures, Refused> {
    match kind {
        Kind::ProducerConsumer => producer_consumer::count(machine),
        _ => Ok(Figures::default()),
    }
}
