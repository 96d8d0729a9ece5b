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
           first first, or at random; over and over.",
    metrics: &[
        ns("ns_per_pair_8_lifo"),
        ns("ns_per_pair_8_fifo"),
        ns("ns_per_pair_8_random"),
        ns("ns_per_pair_64_lifo"),
        ns("ns_per_pair_64_fifo"),
        ns("ns_per_pair_64_random"),
        ns("ns_per_pair_512_lifo"),
        ns("ns_per_pair_512_fifo"),
        ns("ns_per_pair_512_random"),
    ],
    ..About::ONE_THREAD
};

pub const CHURN: About = About {
    what: "One thread holds 50 or 90 % of 1 GiB in single frames; a step frees one of them at \
           random and allocates another.",
    metrics: &[ns("ns_per_step_50"), ns("ns_per_step_90")],
    ..About::ONE_THREAD
};

pub const MIXED: About = About {
    what: "As churn, with chunks of orders 0 to 9, each order half as likely as the one below it: \
           a step allocates one after freeing as many at random as make room for it, one on \
           average. Failures are counted.",
    metrics: &[
        ns("ns_per_step_50"),
        ns("ns_per_step_90"),
        metric("failures_per_1000_50", "failures"),
        metric("failures_per_1000_90", "failures"),
    ],
    ..About::ONE_THREAD
};

/// Pairs of each order, then steps of each order.
const ORDER_METRICS: &[Metric; 20] = &[
    ns("ns_per_pair_order0"),
    ns("ns_per_pair_order1"),
    ns("ns_per_pair_order2"),
    ns("ns_per_pair_order3"),
    ns("ns_per_pair_order4"),
    ns("ns_per_pair_order5"),
    ns("ns_per_pair_order6"),
    ns("ns_per_pair_order7"),
    ns("ns_per_pair_order8"),
    ns("ns_per_pair_order9"),
    ns("ns_per_step_order0"),
    ns("ns_per_step_order1"),
    ns("ns_per_step_order2"),
    ns("ns_per_step_order3"),
    ns("ns_per_step_order4"),
    ns("ns_per_step_order5"),
    ns("ns_per_step_order6"),
    ns("ns_per_step_order7"),
    ns("ns_per_step_order8"),
    ns("ns_per_step_order9"),
];

pub const ORDERS: About = About {
    what: "One thread allocates a chunk of one order and frees it, over and over; then it holds \
           100 of them, frees one at \
           random and allocates another, over and over. Each order from 0 to 9.",
    metrics: ORDER_METRICS,
    ..About::ONE_THREAD
};

/// Frames of the machine of `used`: 512 MiB.
pub const USED_FRAMES: u64 = 1 << 17;

pub const USED: About = About {
    what: "One thread has 100,000 single frames of 512 MiB, frees each with a chance of a half, \
           and holds 100 chunks of one order: a step frees one of them at random and allocates \
           another. Each order from 0 to 8.",
    // Those of the steps, but for order 9.
    metrics: ORDER_METRICS.split_at(10).1.split_at(9).0,
    ..About::ONE_THREAD
};

/// Thousandths of memory in use, and the order of what is: the metrics of both kinds are in this
/// order.
const MARKS: [(u64, u8); 6] = [(900, 0), (950, 0), (980, 0), (995, 0), (980, 3), (980, 6)];
const MARK_METRICS: [Metric; 6] = [
    ns("ns_per_step_900"),
    ns("ns_per_step_950"),
    ns("ns_per_step_980"),
    ns("ns_per_step_995"),
    ns("ns_per_step_980_order3"),
    ns("ns_per_step_980_order6"),
];

pub const NEAR_MARK: About = About {
    what: "As churn, with 900 to 995 thousandths of 1 GiB in use: down to the min mark, below \
           which ordinary requests fail. An engine that fails sooner has no figure there.",
    metrics: &MARK_METRICS,
    ..About::ONE_THREAD
};

pub const NEAR_MARK_1024: About = About {
    what: "As near-mark, on a machine of 2 GiB with 1,024 CPUs, of which one does something.",
    metrics: &MARK_METRICS,
    ..About::ONE_THREAD
};

/// Nanoseconds of a pair or a step, so many times.
type Loop<M> = fn(&M, u64) -> Result<f64, Refused>;

/// Nanoseconds of a step in a steady state: each chunk has been replaced once on average.
fn step<M: Machine, const ORDER: u8>(machine: &M, steps: u64) -> Result<f64, Refused> {
    steady::churn::<_, ORDER>(machine, steady::HELD, (steady::HELD, steps), SEED)
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
        let held = run.frames * percent / 100;
        steady::churn::<_, 0>(run.drained(machine), held, (held, run.scale.churn_steps), SEED)
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
    each(machine, run, loops.as_flattened(), ORDER_METRICS)
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
        // What a step costs near the mark does not depend on how often each chunk has been
        // replaced, and may be much.
        let steps = (steps / 10, steps);
        match order {
            0 => steady::churn::<_, 0>(machine, held, steps, SEED),
            3 => steady::churn::<_, 3>(machine, held, steps, SEED),
            _ => steady::churn::<_, 6>(machine, held, steps, SEED),
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
