//! `depth`, `churn`, `mixed` and `orders`: what one thread sees that holds about as much all the time.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::catalogue::{About, Metric, counted, ns};
use crate::bench::figures::Figures;
use crate::bench::loops;
use crate::bench::steady::{self, Freed};

/// Frames of the machine of `churn` and `mixed`: 1 GiB.
pub const FRAMES: u64 = 1 << 18;
/// What random numbers are drawn from: the same for every engine and run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Depths and orders of frees, and the metrics of each.
const DEPTHS: [(u16, Freed, &str); 9] = [
    (8, Freed::Lifo, "ns_per_pair_8_lifo"),
    (8, Freed::Fifo, "ns_per_pair_8_fifo"),
    (8, Freed::Random, "ns_per_pair_8_random"),
    (64, Freed::Lifo, "ns_per_pair_64_lifo"),
    (64, Freed::Fifo, "ns_per_pair_64_fifo"),
    (64, Freed::Random, "ns_per_pair_64_random"),
    (512, Freed::Lifo, "ns_per_pair_512_lifo"),
    (512, Freed::Fifo, "ns_per_pair_512_fifo"),
    (512, Freed::Random, "ns_per_pair_512_random"),
];

pub const DEPTH: About = About {
    name: "depth",
    what: "One thread allocates 8, 64 or 512 single frames and frees them: the last first, the first first, or at \
           random; over and over.",
    source: "buffer pools and page tables, which hold a few at a time; the tests of DPDK's mempool caches",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        ns("ns_per_pair_8_lifo", "an allocation and its free, 8 at a time, the last freed first"),
        ns("ns_per_pair_8_fifo", "the first freed first"),
        ns("ns_per_pair_8_random", "freed at random"),
        ns("ns_per_pair_64_lifo", "64 at a time, the last freed first"),
        ns("ns_per_pair_64_fifo", "the first freed first"),
        ns("ns_per_pair_64_random", "freed at random"),
        ns("ns_per_pair_512_lifo", "512 at a time, the last freed first"),
        ns("ns_per_pair_512_fifo", "the first freed first"),
        ns("ns_per_pair_512_random", "freed at random"),
    ],
};

pub const CHURN: About = About {
    name: "churn",
    what: "One thread holds 50 or 90 % of 1 GiB in single frames; a step frees one of them at random and allocates \
           another.",
    source: "caches of pages in steady state; the aging of LLFree's authors (USENIX ATC 2023)",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        ns("ns_per_step_50", "a free and an allocation, half of memory in use; drawing a number included"),
        ns("ns_per_step_90", "the same with 90 % in use"),
    ],
};

pub const MIXED: About = About {
    name: "mixed",
    what: "The same with chunks of orders 0 to 9, each order half as likely as the one below it: a step allocates one \
           after freeing as many at random as make room for it, one on average. Failures are counted.",
    source: "the shbench-like tests of malloc families, by pages; kernels that allocate stacks, tables and huge pages",
    threads: 1,
    fewest_threads: 1,
    metrics: &[
        ns("ns_per_step_50", "a step, at most half of memory in use; drawing numbers included"),
        ns("ns_per_step_90", "the same with at most 90 % in use"),
        counted("failures_per_1000_50", "failures", "allocations of 1,000 that failed, at most half of memory in use"),
        counted("failures_per_1000_90", "failures", "the same with at most 90 % in use"),
    ],
};

const ORDER_METRICS: [Metric; 10] = [
    ns("ns_per_pair_order0", "an allocation and its free, order 0: 4 KiB"),
    ns("ns_per_pair_order1", "order 1: 8 KiB"),
    ns("ns_per_pair_order2", "order 2: 16 KiB"),
    ns("ns_per_pair_order3", "order 3: 32 KiB"),
    ns("ns_per_pair_order4", "order 4: 64 KiB"),
    ns("ns_per_pair_order5", "order 5: 128 KiB"),
    ns("ns_per_pair_order6", "order 6: 256 KiB"),
    ns("ns_per_pair_order7", "order 7: 512 KiB"),
    ns("ns_per_pair_order8", "order 8: 1 MiB"),
    ns("ns_per_pair_order9", "order 9: 2 MiB"),
];

pub const ORDERS: About = About {
    name: "orders",
    what: "One thread allocates a chunk of one order and frees it, over and over; each order from 0 to 9.",
    source: "the pair test for what is neither a frame nor a huge page: stacks, socket buffers, large folios",
    threads: 1,
    fewest_threads: 1,
    metrics: &ORDER_METRICS,
};

/// Nanoseconds of a pair, so many times.
type Pairs<M> = fn(&M, u64) -> Result<f64, Refused>;

/// Nothing in the CPUs' stocks.
fn drained<'m, M: Machine>(machine: &'m M, run: &Run<'_>) -> &'m M {
    run.cpus.pin(0);
    machine.drain();
    machine
}

pub fn depth<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let mut figures = Figures::default();
    for (depth, freed, metric) in DEPTHS {
        let figure = steady::depth(drained(machine, run), depth, freed, run.scale.steady_pairs, SEED)?;
        figures = figures.with(metric, figure);
    }
    Ok(figures)
}

pub fn churn<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let at =
        |percent: u64| steady::churn(drained(machine, run), run.frames * percent / 100, run.scale.churn_steps, SEED);
    Ok(Figures::default().with("ns_per_step_50", at(50)?).with("ns_per_step_90", at(90)?))
}

pub fn mixed<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let at =
        |percent: u64| steady::mixed(drained(machine, run), run.frames * percent / 100, run.scale.mixed_steps, SEED);
    let (half, most) = (at(50)?, at(90)?);
    Ok(Figures::default()
        .with("ns_per_step_50", half.step)
        .with("ns_per_step_90", most.step)
        .with("failures_per_1000_50", half.failures_per_1000)
        .with("failures_per_1000_90", most.failures_per_1000))
}

pub fn orders<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    // The order is a constant in each loop, as it is where kernels call their allocators.
    let loops: [Pairs<M>; 10] = [
        loops::pair::<M, 0>,
        loops::pair::<M, 1>,
        loops::pair::<M, 2>,
        loops::pair::<M, 3>,
        loops::pair::<M, 4>,
        loops::pair::<M, 5>,
        loops::pair::<M, 6>,
        loops::pair::<M, 7>,
        loops::pair::<M, 8>,
        loops::pair::<M, 9>,
    ];
    loops.iter().zip(&ORDER_METRICS).try_fold(Figures::default(), |figures, (pair, metric)| {
        Ok(figures.with(metric.name, pair(drained(machine, run), run.scale.steady_pairs)?))
    })
}
