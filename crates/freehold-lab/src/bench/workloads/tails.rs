//! `tails`: the slowest of a thousand, of ten thousand allocations, with twice as many threads as
//! cores.
//!
//! Each thread is a CPU of its own, holds 64 MiB, frees a frame at random and allocates another;
//! each allocation is timed by itself. Two threads share a core, so that one is stopped in the
//! middle of a call now and then, as happens to every thread of a busy machine: what then holds
//! others up is seen here and nowhere else.

use std::hint::black_box;
use std::time::Instant;

use freehold::{CpuId, Order, Pfn};
use hdrhistogram::Histogram;

use super::Run;
use crate::bench::calls::{Calls, Machine, Refused};
use crate::bench::figures::{Figures, latencies};
use crate::bench::loops::{alloc_all, free_all};
use crate::bench::metric::{About, ns};
use crate::bench::threads::on_cpus;
use crate::trials::random::Random;

/// Threads, on two cores.
pub const THREADS: u16 = 4;
const CORES: u16 = 2;
const HELD: usize = 1 << 14;

pub const ABOUT: About = About {
    what: "Four threads on two cores, each a CPU with 16,384 single frames of which it replaces \
           one after the other at random; every allocation is timed by itself.",
    threads: THREADS,
    fewest_threads: CORES,
    metrics: &[ns("alloc_p99_ns"), ns("alloc_p999_ns"), ns("alloc_p9999_ns")],
};

fn one<C: Calls>(cpu: &mut C, allocs: u64, seed: u64) -> Result<Histogram<u64>, Refused> {
    let mut latencies = latencies();
    let mut random = Random::new(seed);
    let mut held = vec![Pfn::default(); HELD];
    alloc_all(cpu, &mut held)?;
    for _ in 0..allocs {
        let place = random.scaled(HELD as u64) as usize;
        cpu.free(held[place], Order::ZERO)?;
        let began = Instant::now();
        held[place] = black_box(cpu.alloc(Order::ZERO)?);
        latencies.saturating_record(began.elapsed().as_nanos() as u64);
    }
    free_all(cpu, held.iter())?;
    Ok(latencies)
}

pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let start = std::sync::Barrier::new(usize::from(THREADS));
    let found = on_cpus(run.cpus, THREADS, |index| {
        run.cpus.pin(usize::from(index % CORES));
        let cpu = machine.cpu(CpuId::new(index));
        // One that sleeps: four threads that spin on two cores would wait for the scheduler.
        start.wait();
        one(&mut cpu?, run.scale.tail_allocs, 0x9e37_79b9 + u64::from(index))
    })?;
    let mut all = latencies();
    // All histograms have the same bounds: nothing falls out.
    found.into_iter().for_each(|latencies| all.add(latencies).unwrap_or_default());
    let at = |quantile| all.value_at_quantile(quantile) as f64;
    Ok(Figures::default()
        .with("alloc_p99_ns", at(0.99))
        .with("alloc_p999_ns", at(0.999))
        .with("alloc_p9999_ns", at(0.9999)))
}
