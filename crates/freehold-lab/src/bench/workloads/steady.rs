//! `depth`, `churn`, `mixed`, `orders`, `used` and `near-mark`: what one thread sees that holds
//! about as much all the time.

use super::Run;
use crate::bench::calls::{Machine, Refused};
use crate::bench::figures::Figures;
use crate::bench::loops::pair;
use crate::bench::metric::{About, Metric, metric, ns};
use crate::bench::steady::{self, Freed};

/// Frames of the machine of `churn` and `mixed`: 1 GiB.
pub const FRAMES: u64 = 1 << 18;
/// What random numbers are drawn from: the same for every engine and run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Depths, each with frees in three orders; the metrics are in this order.
const DEPTHS: [u16; 3] = [8, 64, 512];
const FREED: [Freed; 3] = [Freed::Lifo, Freed::Fifo, Freed::Random];

pub const DEPTH: About = About {
    what: "One thread allocates 8, 64 or 512 single frames and frees them: the last first, the \
           first first, or at \
           random; over and over.",
    source: "buffer pools and page tables, which hold a few at a time; the tests of DPDK's mempool \
             caches",
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
    ..About::ONE_THREAD
};

pub const CHURN: About = About {
    what: "One thread holds 50 or 90 % of 1 GiB in single frames; a step frees one of them at \
           random and allocates \
           another.",
    source: "caches of pages in steady state; the aging of LLFree's authors (USENIX ATC 2023)",
    metrics: &[
        ns(
            "ns_per_step_50",
            "a free and an allocation, half of memory in use; drawing a number included",
        ),
        ns("ns_per_step_90", "the same with 90 % in use"),
    ],
    ..About::ONE_THREAD
};

pub const MIXED: About = About {
    what: "As churn, with chunks of orders 0 to 9, each order half as likely as the one below it: \
           a step allocates one \
           after freeing as many at random as make room for it, one on average. Failures are \
           counted.",
    source: "the shbench-like tests of malloc families, by pages; kernels that allocate stacks, \
             tables and huge pages",
    metrics: &[
        ns("ns_per_step_50", "a step, at most half of memory in use; drawing numbers included"),
        ns("ns_per_step_90", "the same with at most 90 % in use"),
        metric(
            "failures_per_1000_50",
            "failures",
            "allocations of 1,000 that failed, at most half of memory in use",
        ),
        metric("failures_per_1000_90", "failures", "the same with at most 90 % in use"),
    ],
    ..About::ONE_THREAD
};

/// Pairs of each order, then steps of each order.
const ORDER_METRICS: [Metric; 20] = [
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
    ns(
        "ns_per_step_order0",
        "100 are held: one at random is freed, another allocated, order 0; drawing a number \
         included",
    ),
    ns("ns_per_step_order1", "order 1"),
    ns("ns_per_step_order2", "order 2"),
    ns("ns_per_step_order3", "order 3"),
    ns("ns_per_step_order4", "order 4"),
    ns("ns_per_step_order5", "order 5"),
    ns("ns_per_step_order6", "order 6"),
    ns("ns_per_step_order7", "order 7"),
    ns("ns_per_step_order8", "order 8"),
    ns("ns_per_step_order9", "order 9"),
];

pub const ORDERS: About = About {
    what: "One thread allocates a chunk of one order and frees it, over and over; then it holds \
           100 of them, frees one at \
           random and allocates another, over and over. Each order from 0 to 9.",
    source: "the pair test for what is neither a frame nor a huge page: stacks, socket buffers, \
             large folios; and the same \
             as a pool that is in use, since a pair finds what it has just freed whatever the \
             allocator does",
    metrics: &ORDER_METRICS,
    ..About::ONE_THREAD
};

/// Frames of the machine of `used`: 512 MiB.
pub const USED_FRAMES: u64 = 1 << 17;

pub const USED: About = About {
    what: "One thread has 100,000 single frames of 512 MiB, frees each with a chance of a half, \
           and holds 100 chunks of one \
           order: a step frees one of them at random and allocates another. Each order from 0 to \
           8.",
    source: "the step of orders, on a machine that has run for a while: no word of a block is \
             whole there",
    metrics: &[
        ns("ns_per_step_order0", "a free and an allocation, order 0; drawing a number included"),
        ns("ns_per_step_order1", "order 1"),
        ns("ns_per_step_order2", "order 2"),
        ns("ns_per_step_order3", "order 3"),
        ns("ns_per_step_order4", "order 4"),
        ns("ns_per_step_order5", "order 5"),
        ns("ns_per_step_order6", "order 6"),
        ns("ns_per_step_order7", "order 7"),
        ns("ns_per_step_order8", "order 8"),
    ],
    ..About::ONE_THREAD
};

/// Thousandths of memory in use, and the order of what is: the metrics of both kinds are in this
/// order.
const MARKS: [(u64, u8); 6] = [(900, 0), (950, 0), (980, 0), (995, 0), (980, 3), (980, 6)];
const MARK_METRICS: [Metric; 6] = [
    ns("ns_per_step_900", "a free and an allocation, 90 % in use; drawing a number included"),
    ns("ns_per_step_950", "95 %"),
    ns("ns_per_step_980", "98 %"),
    ns("ns_per_step_995", "99.5 %"),
    ns("ns_per_step_980_order3", "98 %, all of it in chunks of order 3"),
    ns("ns_per_step_980_order6", "98 %, all of it in chunks of order 6"),
];

pub const NEAR_MARK: About = About {
    what: "As churn, with 900 to 995 thousandths of 1 GiB in use: down to the min mark, below \
           which ordinary requests \
           fail. An engine that fails sooner has no figure there.",
    source: "servers whose page cache fills memory: all of them live near the mark",
    metrics: &MARK_METRICS,
    ..About::ONE_THREAD
};

pub const NEAR_MARK_1024: About = About {
    what: "As near-mark, on a machine of 2 GiB with 1,024 CPUs, of which one does something.",
    source: "what a request near the mark has to ask of the other CPUs",
    metrics: &MARK_METRICS,
    ..About::ONE_THREAD
};

/// Nanoseconds of a pair or a step, so many times.
type Loop<M> = fn(&M, u64) -> Result<f64, Refused>;

/// Nanoseconds of a step.
fn step<M: Machine, const ORDER: u8>(machine: &M, steps: u64) -> Result<f64, Refused> {
    steady::churn::<_, ORDER>(machine, steady::HELD, steps, SEED)
}

pub fn depth<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let shapes = DEPTHS.into_iter().flat_map(|depth| FREED.map(|freed| (depth, freed)));
    shapes.zip(DEPTH.metrics).try_fold(Figures::default(), |figures, ((depth, freed), metric)| {
        let pairs = run.scale.steady_pairs;
        Ok(figures
            .with(metric.name, steady::depth(run.drained(machine), depth, freed, pairs, SEED)?))
    })
}

pub fn churn<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let at = |percent| {
        steady::churn::<_, 0>(
            run.drained(machine),
            run.frames * percent / 100,
            run.scale.churn_steps,
            SEED,
        )
    };
    Ok(Figures::default().with("ns_per_step_50", at(50)?).with("ns_per_step_90", at(90)?))
}

pub fn mixed<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let at = |percent| {
        steady::mixed(run.drained(machine), run.frames * percent / 100, run.scale.mixed_steps, SEED)
    };
    let ((half, half_failed), (most, most_failed)) = (at(50)?, at(90)?);
    Ok(Figures::default()
        .with("ns_per_step_50", half)
        .with("ns_per_step_90", most)
        .with("failures_per_1000_50", half_failed)
        .with("failures_per_1000_90", most_failed))
}

/// That loop for each of these orders: the order is a constant in each, as it is where kernels call
/// their allocators.
macro_rules! of_orders {
    ($of:ident: $($order:literal),+) => { [$($of::<M, $order>),+] };
}

/// Each loop under the metric at its place.
fn each<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    loops: &[Loop<M>],
    metrics: &[Metric],
) -> Result<Figures, Refused> {
    loops.iter().zip(metrics).try_fold(Figures::default(), |figures, (one, metric)| {
        let found = one(run.drained(machine), run.scale.steady_pairs)?;
        Ok(figures.with(metric.name, found))
    })
}

pub fn orders<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let loops: [[Loop<M>; 10]; 2] = [
        of_orders!(pair: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
        of_orders!(step: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    ];
    each(machine, run, loops.as_flattened(), &ORDER_METRICS)
}

pub fn used<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let loops: [Loop<M>; 9] = of_orders!(used_step: 0, 1, 2, 3, 4, 5, 6, 7, 8);
    each(machine, run, &loops, USED.metrics)
}

/// Nanoseconds of a step on a half-used machine.
fn used_step<M: Machine, const ORDER: u8>(machine: &M, steps: u64) -> Result<f64, Refused> {
    steady::used::<_, ORDER>(machine, steps, SEED)
}

pub fn near_mark<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let all = run.scale.churn_steps;
    let steps = if run.frames == FRAMES { all } else { all / 20 };
    let one = |(permille, order): (u64, u8)| {
        let (machine, held) = (run.drained(machine), (run.frames * permille / 1000) >> order);
        match order {
            0 => steady::near_mark::<_, 0>(machine, held, steps, SEED),
            3 => steady::near_mark::<_, 3>(machine, held, steps, SEED),
            _ => steady::near_mark::<_, 6>(machine, held, steps, SEED),
        }
    };
    MARKS.into_iter().zip(&MARK_METRICS).try_fold(Figures::default(), |figures, (mark, metric)| {
        match one(mark) {
            Ok(found) => Ok(figures.with(metric.name, found)),
            // Its mark is higher: no figure.
            Err(refused) if refused.is_shortage() => Ok(figures),
            Err(refused) => Err(refused),
        }
    })
}
