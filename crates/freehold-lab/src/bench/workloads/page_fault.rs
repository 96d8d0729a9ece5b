//! `page-fault1`: fault memory in, page by page, and unmap it.
//!
//! The port of will-it-scale's test of this name, which touches 128 MiB of anonymous memory: a frame a fault, zeroed.
//! munmap frees in page-table order, a folio batch a call.
//!
//! ```text
//!   fault:  allocate, zero   x 32,768          unmap:  free 31, free 31, ...
//! ```

use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::Run;
use crate::bench::backing::{FRAME, Memory};
use crate::bench::calls::{Calls, FOLIOS, Machine, Refused};
use crate::bench::clock::timed;
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::{alloc_all, per};
use crate::bench::metric::{About, THREADS, THREADS_METRIC, ns, with_locks};
use crate::bench::threads::{Rendezvous, on_cpus};

/// Pages of a mapping: 128 MiB.
const PAGES: usize = 32_768;

pub const ABOUT: About = About {
    what: "A thread allocates 32,768 single frames (128 MiB) and zeroes each, then frees them in the order of their \
           allocation, 31 a call; over and over, alone and on up to four CPUs at once.",
    source: "will-it-scale page_fault1 (anonymous memory: map, touch, unmap), quoted in \"Follow-up on high-order PCP \
             caching\" (2022) up to 320 processes",
    threads: 4,
    fewest_threads: 1,
    metrics: with_locks![
        ns("ns_per_page", "a page, from its allocation to its free, written; the slowest of all threads at once"),
        ns("ns_per_page_alone", "the same of one thread while the other CPUs rest"),
        ns("ns_per_page_freed", "of this, a page freed");
        THREADS_METRIC
    ],
};

/// Alone, then on several CPUs.
pub fn measure<M: Machine>(machine: &M, run: &Run<'_>) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let (alone, freed) = one(machine, run, memory, 0, None)?;
    let mut slowest = alone;
    if run.threads > 1 {
        run.drained(machine);
        let start = Rendezvous::new(run.threads);
        let work = |index| one(machine, run, memory, index, Some(&start));
        let times = on_cpus(run.cpus, run.threads, || {}, work)?;
        slowest = times.into_iter().map(|(all, _)| all).max().unwrap_or_default();
    }
    let each = |time| per(time, run.scale.mappings * PAGES as u64);
    Ok(Figures::default()
        .with("ns_per_page", each(slowest))
        .with("ns_per_page_alone", each(alone))
        .with("ns_per_page_freed", each(freed))
        .with(THREADS, f64::from(run.threads)))
}

/// Of one thread: all of it, by the wall clock where others run too, and the frees.
fn one<M: Machine>(
    machine: &M,
    run: &Run<'_>,
    memory: Memory,
    index: u16,
    start: Option<&Rendezvous>,
) -> Result<(Duration, Duration), Refused> {
    let mut pages = vec![Pfn::default(); PAGES];
    let cpu = machine.cpu(CpuId::new(index));
    if let Some(start) = start {
        start.wait();
    }
    let mut cpu = cpu?;
    let mut freed = Duration::ZERO;
    let mut rounds = || {
        for _ in 0..run.scale.mappings {
            fault(&mut cpu, memory, &mut pages)?;
            freed += timed(|| unmap(&mut cpu, &pages))?;
        }
        Ok::<_, Refused>(())
    };
    let all = if start.is_some() {
        let began = Instant::now();
        rounds()?;
        began.elapsed()
    } else {
        timed(rounds)?
    };
    Ok((all, freed))
}

#[inline(never)]
fn fault<C: Calls>(cpu: &mut C, memory: Memory, pages: &mut [Pfn]) -> Result<(), Refused> {
    for page in pages {
        *page = cpu.alloc(Order::ZERO)?;
        memory.fill(*page, 0, FRAME);
    }
    Ok(())
}

#[inline(never)]
fn unmap<C: Calls>(cpu: &mut C, pages: &[Pfn]) -> Result<(), Refused> {
    pages.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))
}

pub fn count<M: Machine>(machine: &M) -> Result<Figures, Refused> {
    const ROUNDS: u64 = 4;
    let mut cpu = machine.cpu(CpuId::new(0))?;
    let mut meter = Meter::default();
    let mut pages = vec![Pfn::default(); PAGES];
    meter.part(machine, ROUNDS * PAGES as u64, || {
        for _ in 0..ROUNDS {
            alloc_all(&mut cpu, &mut pages)?;
            unmap(&mut cpu, &pages)?;
        }
        Ok::<_, Refused>(())
    })?;
    Ok(Figures::default().with_zone_lock(&meter))
}
