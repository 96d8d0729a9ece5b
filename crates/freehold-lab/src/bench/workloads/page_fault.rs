//! `page-fault1` and `page-fault2`: fault memory in, page by page, and unmap it.
//!
//! The ports of will-it-scale's tests of these names. The first touches 128 MiB of anonymous
//! memory: a frame a fault, zeroed. The second writes to a private mapping of a file: a frame a
//! fault, copied from the file's page, which stays in the page cache all the time. munmap frees in
//! page-table order, a folio batch a call.
//!
//! ```text
//!   fault:  allocate, zero (or copy a file's page)   x 32,768          unmap:  free 31, free 31, ...
//! ```

use std::time::{Duration, Instant};

use freehold::{CpuId, Order, Pfn};

use super::Run;
use crate::bench::backing::{FRAME, Memory};
use crate::bench::calls::{Calls, FOLIOS, Machine, Refused};
use crate::bench::clock::timed;
use crate::bench::figures::{Figures, Meter};
use crate::bench::loops::{alloc_all, per};
use crate::bench::metric::{About, Metric, THREADS, THREADS_METRIC, ns, with_locks};
use crate::bench::threads::{Rendezvous, on_cpus};

/// Pages of a mapping: 128 MiB.
const PAGES: usize = 32_768;

pub const ONE: About = About {
    what: "A thread allocates 32,768 single frames (128 MiB) and zeroes each, then frees them in the order of their \
           allocation, 31 a call; over and over, alone and on up to four CPUs at once.",
    source: "will-it-scale page_fault1 (anonymous memory: map, touch, unmap), quoted in \"Follow-up on high-order PCP \
             caching\" (2022) up to 320 processes",
    threads: 4,
    fewest_threads: 1,
    metrics: METRICS,
};

pub const TWO: About = About {
    what: "As page-fault1, with a private mapping of a file: the file's 32,768 pages stay in memory, and each fault copies one \
           of them to a new frame.",
    source: "will-it-scale page_fault2 (private mapping of a file: map, write, unmap)",
    threads: 4,
    fewest_threads: 1,
    metrics: METRICS,
};

const METRICS: &[Metric] = with_locks![
    ns("ns_per_page", "a page, from its allocation to its free, written; the slowest of all threads at once"),
    ns("ns_per_page_alone", "the same of one thread while the other CPUs rest"),
    ns("ns_per_page_freed", "of this, a page freed");
    THREADS_METRIC
];

/// Alone, then on several CPUs.
pub fn measure<M: Machine>(machine: &M, run: &Run<'_>, file: bool) -> Result<Figures, Refused> {
    let memory = run.memory(machine);
    let rounds = run.scale.mappings;
    let (alone, freed) = one(machine, run, memory, file, 0, None)?;
    let mut slowest = alone;
    if run.threads > 1 {
        run.drained(machine);
        let start = Rendezvous::new(run.threads);
        let work = |index| one(machine, run, memory, file, index, Some(&start));
        let times = on_cpus(run.cpus, run.threads, || {}, work)?;
        slowest = times.into_iter().map(|(all, _)| all).max().unwrap_or_default();
    }
    let each = |time| per(time, rounds * PAGES as u64);
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
    file: bool,
    index: u16,
    start: Option<&Rendezvous>,
) -> Result<(Duration, Duration), Refused> {
    run.cpus.pin(usize::from(index));
    let mut pages = vec![Pfn::default(); PAGES];
    let mut file_pages = vec![Pfn::default(); if file { PAGES } else { 0 }];
    let ready = machine.cpu(CpuId::new(index)).and_then(|mut cpu| {
        alloc_all(&mut cpu, &mut file_pages)?;
        file_pages.iter().for_each(|&page| memory.fill(page, 1, FRAME));
        Ok(cpu)
    });
    if let Some(start) = start {
        start.wait();
    }
    let mut cpu = ready?;
    let mut freed = Duration::ZERO;
    let mut rounds = |freed: &mut Duration| {
        for _ in 0..run.scale.mappings {
            fault(&mut cpu, memory, &file_pages, &mut pages)?;
            *freed += timed(|| unmap(&mut cpu, &pages))?;
        }
        Ok::<_, Refused>(())
    };
    let all = if start.is_some() {
        let began = Instant::now();
        rounds(&mut freed)?;
        began.elapsed()
    } else {
        timed(|| rounds(&mut freed))?
    };
    unmap(&mut cpu, &file_pages)?;
    Ok((all, freed))
}

#[inline(never)]
fn fault<C: Calls>(
    cpu: &mut C,
    memory: Memory,
    file: &[Pfn],
    pages: &mut [Pfn],
) -> Result<(), Refused> {
    if file.is_empty() {
        for page in pages {
            *page = cpu.alloc(Order::ZERO)?;
            memory.fill(*page, 0, FRAME);
        }
    } else {
        for (page, &from) in pages.iter_mut().zip(file) {
            *page = cpu.alloc(Order::ZERO)?;
            memory.copy(from, *page);
        }
    }
    Ok(())
}

#[inline(never)]
fn unmap<C: Calls>(cpu: &mut C, pages: &[Pfn]) -> Result<(), Refused> {
    pages.chunks(FOLIOS).try_for_each(|folios| cpu.free_folios(folios))
}

/// Counted on one thread.
pub fn count<M: Machine>(machine: &M, file: bool) -> Result<Figures, Refused> {
    const ROUNDS: u64 = 4;
    let mut cpu = machine.cpu(CpuId::new(0))?;
    let mut meter = Meter::default();
    let mut file_pages = vec![Pfn::default(); if file { PAGES } else { 0 }];
    alloc_all(&mut cpu, &mut file_pages)?;
    let mut pages = vec![Pfn::default(); PAGES];
    meter.part(machine, ROUNDS * PAGES as u64, || {
        for _ in 0..ROUNDS {
            alloc_all(&mut cpu, &mut pages)?;
            unmap(&mut cpu, &pages)?;
        }
        Ok::<_, Refused>(())
    })?;
    unmap(&mut cpu, &file_pages)?;
    Ok(Figures::default().with_zone_lock(&meter))
}
