//! `bench lazyfree`: reclaim page by page (each page flushed, or flushes collected) and batched, in
//! turns, and the system's own beside it.

use freehold_host::freehold_vm::UnmapPath;

use super::folios::{FOLIOS, Folios, Reclaim};
use super::variants::{KERNEL, KERNEL_METRICS, METRICS, VARIANTS, Variant};
use super::{FREEHOLD, LINUX, kernel};
use crate::bench::clock::Cpus;
use crate::bench::engines::HostThreads;
use crate::bench::gathered::Gathered;
use crate::bench::plan::Plan;
use crate::bench::side::Side;

pub(super) fn sides<'a>(
    plan: &Plan,
    cpus: &'a Cpus,
    host: HostThreads,
    found: &mut Gathered,
) -> Vec<Side<'a>> {
    let two = cpus.count() > 1;
    if !two {
        found.unavailable("a second thread left out: this process may use one CPU".to_owned());
    }
    let mut sides = Vec::new();
    if plan.has(FREEHOLD) {
        match Folios::new(host) {
            Err(error) => found.unavailable(format!("{FREEHOLD} left out: {error}")),
            Ok(folios) => sides.push(Side::new(FREEHOLD, move |turn, found| {
                for (&variant, metrics) in VARIANTS.iter().zip(&METRICS) {
                    if two || !matches!(variant, Variant::SecondThread | Variant::Toucher) {
                        let figures = all(&folios, variant, turn, cpus)?;
                        metrics
                            .iter()
                            .zip(figures)
                            .for_each(|(metric, n)| found.add(FREEHOLD, metric.name, n));
                    }
                }
                Ok(())
            })),
        }
    }
    sides.push(Side::new(LINUX, move |_, found| {
        for ((page, what), metrics) in KERNEL.into_iter().zip(&KERNEL_METRICS) {
            for (metric, second) in
                metrics.iter().zip([false, true]).filter(|(_, second)| two || !second)
            {
                match kernel::reclaim(page, second, cpus) {
                    Ok(ns) => found.add(LINUX, metric.name, ns),
                    Err(reason) => {
                        found.unavailable(format!("{LINUX}, {what} left out: {reason}"));
                        break;
                    }
                }
            }
        }
        Ok(())
    }));
    sides
}

/// All three ways, one after the other: a figure for each of a variant's metrics.
fn all(folios: &Folios, variant: Variant, turn: usize, cpus: &Cpus) -> Result<[f64; 13], String> {
    let each = |n: u64| n as f64 / FOLIOS as f64;
    let ns = |reclaim: &Reclaim| reclaim.time.as_nanos() as f64 / FOLIOS as f64;
    // In turns, so that none of the three always follows the same one.
    const PATHS: [UnmapPath; 3] =
        [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched];
    let mut done = [Reclaim::default(); 3];
    for at in (0..PATHS.len()).map(|n| (n + turn) % PATHS.len()) {
        done[at] = folios.run(variant, PATHS[at], cpus)?;
    }
    let [pages, deferred, batched] = done;
    Ok([
        ns(&pages),
        ns(&deferred),
        ns(&batched),
        ns(&pages) / ns(&batched),
        ns(&deferred) / ns(&batched),
        pages.deferred as f64,
        deferred.deferred as f64,
        batched.deferred as f64,
        pages.flushes as f64,
        deferred.flushes as f64,
        batched.flushes as f64,
        each(deferred.syscalls),
        each(batched.syscalls),
    ])
}
