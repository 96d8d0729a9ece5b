//! `bench lazyfree`: reclaim page by page (each page flushed, or flushes collected) and batched, in turns, and the system's own beside it.

use freehold_host::freehold_vm::UnmapPath;

use super::figures::Figures;
use super::folios::{FOLIOS, Folios, Reclaim};
use super::variants::{KERNEL, Metrics, VARIANTS, Variant};
use super::{FREEHOLD, LINUX, Run, kernel};
use crate::bench::engines::BenchEngine;
use crate::bench::runner::Plan;

fn is_wanted(plan: &Plan) -> bool {
    plan.engines.contains(&BenchEngine::Freehold)
}

pub(super) fn steps(plan: &Plan) -> usize {
    plan.runs * (KERNEL.len() + if is_wanted(plan) { VARIANTS.len() } else { 0 })
}

fn needs_two(variant: Variant) -> bool {
    matches!(variant, Variant::SecondThread | Variant::Toucher)
}

pub(super) fn run(run: &mut Run<'_>, figures: &mut Figures) -> Result<(), (String, String)> {
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
        for metrics in VARIANTS.iter().filter(|metrics| two || !needs_two(metrics.variant)) {
            if (run.stopped)() {
                return Ok(());
            }
            let Some(folios) = &folios else { break };
            (run.progress)(&format!("{FREEHOLD}, {}", metrics.what));
            run.cpus.pin(0);
            all(folios, metrics, turn, run, figures).map_err(|error| (FREEHOLD.to_owned(), error))?;
        }
        for metrics in &KERNEL {
            if (run.stopped)() {
                return Ok(());
            }
            (run.progress)(&format!("{LINUX}, {}", metrics.what));
            run.cpus.pin(0);
            for (metric, second) in [(metrics.ns, false), (metrics.ns_second_thread, true)] {
                if second && !two {
                    continue;
                }
                match kernel::reclaim(metrics, second, run.cpus) {
                    Ok(ns) => figures.add(LINUX, metric, ns),
                    Err(reason) => {
                        figures.unavailable(format!("{LINUX}, {} left out: {reason}", metrics.what));
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// All three ways, one after the other.
fn all(folios: &Folios, metrics: &Metrics, turn: usize, run: &Run<'_>, figures: &mut Figures) -> Result<(), String> {
    let each = |n: u64| n as f64 / FOLIOS as f64;
    let ns = |reclaim: &Reclaim| reclaim.time.as_nanos() as f64 / FOLIOS as f64;
    // In turns, so that none of the three always follows the same one.
    let mut paths = [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched];
    paths.rotate_left(turn % 3);
    let mut done = [Reclaim::default(); 3];
    for path in paths {
        done[path as usize] = folios.run(metrics.variant, path, run.cpus)?;
    }
    let [pages, deferred, batched] =
        [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched].map(|path| done[path as usize]);
    let rows = [
        (metrics.ns_page_by_page, ns(&pages)),
        (metrics.ns_page_by_page_deferred, ns(&deferred)),
        (metrics.ns_batched, ns(&batched)),
        (metrics.speedup, ns(&pages) / ns(&batched)),
        (metrics.speedup_over_deferred, ns(&deferred) / ns(&batched)),
        (metrics.deferred_page_by_page, pages.deferred as f64),
        (metrics.deferred_page_by_page_deferred, deferred.deferred as f64),
        (metrics.deferred_batched, batched.deferred as f64),
        (metrics.flushes_page_by_page, pages.flushes as f64),
        (metrics.flushes_page_by_page_deferred, deferred.flushes as f64),
        (metrics.flushes_batched, batched.flushes as f64),
        (metrics.syscalls_page_by_page_deferred, each(deferred.syscalls)),
        (metrics.syscalls_batched, each(batched.syscalls)),
    ];
    rows.into_iter().for_each(|(metric, figure)| figures.add(FREEHOLD, metric, figure));
    Ok(())
}
