//! `bench lazyfree`: reclaim of this process's own memory page by page and batched, in turns.

use freehold_host::freehold_vm::UnmapPath;

use super::folios::{FOLIOS, Folios, Reclaim};
use crate::bench::clock::Cpus;
use crate::bench::engines::{FREEHOLD, HostThreads};
use crate::bench::figures::Figures;
use crate::bench::metric::{About, Metric, metric, ns};
use crate::bench::runner::{Plan, Side};

macro_rules! metrics {
    ($($suffix:literal),*) => { [$([
        ns(concat!("ns_per_folio_page_by_page", $suffix), "a folio of 64 KiB, page by page"),
        ns(concat!("ns_per_folio_batched", $suffix), "a folio of 64 KiB at once, flushes \
                                                      collected"),
        metric(concat!("batched_speedup", $suffix), "times", "the first by the second, in each \
        run"),
        metric(concat!("deferred_splits_page_by_page", $suffix), "folios", QUEUED),
        metric(concat!("deferred_splits_batched", $suffix), "folios", QUEUED),
        metric(concat!("flushes_page_by_page", $suffix), "calls", FLUSHES),
        metric(concat!("flushes_batched", $suffix), "calls", FLUSHES),
        metric(concat!("syscalls_per_folio_batched", $suffix), "calls", "system calls for a folio"),
    ]),*] };
}

const QUEUED: &str = "put on the deferred-split queue";
const FLUSHES: &str = "flushes of all folios";

/// By one thread, and while a second one runs.
const METRICS: [[Metric; 8]; 2] = metrics!("", "_second_thread");

pub(crate) const ABOUT: About = About {
    what: "128 MiB of this process's memory in 2,048 folios of 64 KiB: written to, made lazyfree, \
           reclaimed. The \
           reclaim is timed page by page and batched, by one thread, and with a second one that \
           runs on another CPU.",
    source: "Barry Song's lazyfree micro-benchmark (February 2025, Linux 6.15)",
    threads: 2,
    fewest_threads: 1,
    metrics: METRICS.as_flattened(),
};

/// In turns, so that neither always comes first.
const PATHS: [UnmapPath; 2] = [UnmapPath::PageByPage, UnmapPath::Batched];

pub(super) fn sides<'a>(plan: &Plan, cpus: &'a Cpus, host: HostThreads) -> Vec<Side<'a>> {
    if !plan.has(FREEHOLD) {
        return Vec::new();
    }
    let folios = Folios::new(host);
    vec![Side::new(FREEHOLD, move |turn| {
        let mut figures = Figures::default();
        let folios = match &folios {
            Ok(folios) => folios,
            Err(error) => {
                figures.unavailable.push(format!("{FREEHOLD} left out: {error}"));
                return Ok(figures);
            }
        };
        for (second, metrics) in [false, true].into_iter().zip(&METRICS) {
            if second && cpus.count() < 2 {
                let why = "a second thread left out: this process may use one CPU";
                figures.unavailable.push(why.to_owned());
                continue;
            }
            let found = all(folios, second, turn as usize, cpus)?;
            metrics.iter().zip(found).for_each(|(metric, n)| figures.add(metric.name, n));
        }
        Ok(figures)
    })]
}

/// Both ways, one after the other: a figure for each metric.
fn all(folios: &Folios, second: bool, turn: usize, cpus: &Cpus) -> Result<[f64; 8], String> {
    let ns = |reclaim: &Reclaim| reclaim.time.as_nanos() as f64 / FOLIOS as f64;
    let mut done = [Reclaim::default(); 2];
    for at in (0..PATHS.len()).map(|n| (n + turn) % PATHS.len()) {
        done[at] = folios.run(PATHS[at], second, cpus)?;
    }
    let [pages, batched] = done;
    Ok([
        ns(&pages),
        ns(&batched),
        ns(&pages) / ns(&batched),
        pages.deferred as f64,
        batched.deferred as f64,
        pages.flushes as f64,
        batched.flushes as f64,
        batched.syscalls as f64 / FOLIOS as f64,
    ])
}
