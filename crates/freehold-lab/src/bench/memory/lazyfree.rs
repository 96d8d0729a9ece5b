//! `bench lazyfree`: reclaim page by page (each page flushed, or flushes collected) and batched, in turns, and the system's own beside it.

use freehold_host::freehold_vm::UnmapPath;

use super::folios::{FOLIOS, Folios, Reclaim};
use super::variants::{KERNEL, KERNEL_METRICS, METRICS, VARIANTS, Variant};
use super::{FREEHOLD, LINUX, Run, kernel};
use crate::bench::engines::BenchEngine;
use crate::bench::gathered::Gathered;
use crate::bench::plan::Plan;

fn is_wanted(plan: &Plan) -> bool {
    plan.engines.contains(&BenchEngine::Freehold)
}

pub(super) fn steps(plan: &Plan) -> usize {
    plan.runs * (KERNEL.len() + if is_wanted(plan) { VARIANTS.len() } else { 0 })
}

fn needs_two(variant: Variant) -> bool {
    matches!(variant, Variant::SecondThread | Variant::Toucher)
}

pub(super) fn run(run: &mut Run<'_>, figures: &mut Gathered) -> Result<(), (String, String)> {
    let two = run.cpus.count() > 1;
    if !two {
        figures.unavailable("a second thread left out: this process may use one CPU".to_owned());
    }
    let folios = if is_wanted(run.plan) {
        Folios::new(run.host).map_err(|error| figures.unavailable(format!("{FREEHOLD} left out: {error}"))).ok()
    } else {
        None
    };
    for turn in run.turns.clone() {
        for (&(variant, what), metrics) in VARIANTS.iter().zip(&METRICS).filter(|((v, _), _)| two || !needs_two(*v)) {
            if (run.stopped)() {
                return Ok(());
            }
            let Some(folios) = &folios else { break };
            (run.progress)(&format!("{FREEHOLD}, {what}"));
            run.cpus.pin(0);
            let found = all(folios, variant, turn, run).map_err(|error| (FREEHOLD.to_owned(), error))?;
            metrics.iter().zip(found).for_each(|(metric, figure)| figures.add(FREEHOLD, metric.name, figure));
        }
        for ((page, what), metrics) in KERNEL.into_iter().zip(&KERNEL_METRICS) {
            if (run.stopped)() {
                return Ok(());
            }
            (run.progress)(&format!("{LINUX}, {what}"));
            run.cpus.pin(0);
            for (metric, second) in metrics.iter().zip([false, true]) {
                if second && !two {
                    continue;
                }
                match kernel::reclaim(page, second, run.cpus) {
                    Ok(ns) => figures.add(LINUX, metric.name, ns),
                    Err(reason) => {
                        figures.unavailable(format!("{LINUX}, {what} left out: {reason}"));
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// All three ways, one after the other: a figure for each of a variant's metrics.
fn all(folios: &Folios, variant: Variant, turn: usize, run: &Run<'_>) -> Result<[f64; 13], String> {
    let each = |n: u64| n as f64 / FOLIOS as f64;
    let ns = |reclaim: &Reclaim| reclaim.time.as_nanos() as f64 / FOLIOS as f64;
    // In turns, so that none of the three always follows the same one.
    let mut paths = [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched];
    paths.rotate_left(turn % 3);
    let mut done = [Reclaim::default(); 3];
    for path in paths {
        done[path as usize] = folios.run(variant, path, run.cpus)?;
    }
    let [pages, deferred, batched] =
        [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched].map(|path| done[path as usize]);
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
