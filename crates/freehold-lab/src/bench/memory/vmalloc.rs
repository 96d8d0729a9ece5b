//! `bench vmalloc`: the tests of the contiguous-free proposal's table, for each kind of area.

use std::rc::Rc;

use freehold_host::freehold_vm::{SoftMmu, Vpn, VpnRange};

use super::areas::{Areas, Backed};
use super::pages::PageAllocator;
use super::raw::Frames;
use super::suite::{self, Amount};
use super::vmalloc_tests::{METRICS, TESTS};
use super::{FREEHOLD, ON_MEMORY};
use crate::bench::clock::Cpus;
use crate::bench::engines::{BenchEngine, ClassicMachine, FreeholdMachine, HostThreads};
use crate::bench::gathered::Gathered;
use crate::bench::plan::Plan;
use crate::bench::scale::Scale;
use crate::bench::side::Side;
use crate::engines::freehold_owned;

/// CPUs of every engine's machine: one allocates, another frees where a test has one that does.
const CPUS: u16 = 2;
/// Bytes of the arena: `full_fit_alloc_test` has 16,384 pages at a time.
const ARENA: u64 = 256 << 20;
const ADDRESSES: u64 = 1 << 22;

/// Frames of every engine's machine: 4 GiB.
const FRAMES: u64 = 1 << 20;

/// Of how many of the table's loops one is run, and in how many slices.
fn amount(plan: &Plan, on_memory: bool) -> (u64, u64) {
    match (plan.scale == Scale::FULL, on_memory) {
        (true, false) => (10, 16),
        (true, true) => (100, 16),
        (false, false) => (150, 5),
        (false, true) => (1500, 5),
    }
}

pub(super) fn sides<'a>(
    plan: &Plan,
    cpus: &'a Cpus,
    host: HostThreads,
    found: &mut Gathered,
) -> Result<Vec<Side<'a>>, String> {
    let mut sides = Vec::new();
    for engine in &plan.engines {
        // The others free by the chunk only, and have no ranges.
        let BenchEngine::Design(spec) = engine else { continue };
        let name = spec.name();
        sides.push(match freehold_owned(name) {
            Some(_) => {
                let machine = FreeholdMachine::new(CPUS, FRAMES, host)?;
                side(name, in_software(machine), plan, cpus)
            }
            None => side(name, in_software(ClassicMachine::new(name, CPUS, FRAMES)?), plan, cpus),
        });
    }
    if plan.has(FREEHOLD) {
        match Frames::new(ARENA, ADDRESSES) {
            Ok((frames, areas)) => {
                let range = areas.range();
                sides.push(side(ON_MEMORY, Areas::new(frames, areas, range), plan, cpus));
            }
            // The system's limits, not an engine's fault.
            Err(reason) => found.unavailable(format!("{ON_MEMORY} left out: {reason}")),
        }
    }
    Ok(sides)
}

/// Page work only.
fn in_software<P: PageAllocator>(pages: P) -> Areas<P, SoftMmu<1>> {
    Areas::new(pages, SoftMmu::new(), VpnRange::new(Vpn::new(0), ADDRESSES).unwrap_or_default())
}

/// All tests over areas of some kind.
fn side<'a, P: PageAllocator + 'a, M: Backed + 'a>(
    name: &str,
    areas: Areas<P, M>,
    plan: &Plan,
    cpus: &'a Cpus,
) -> Side<'a> {
    let (part, slices) = amount(plan, M::IS_MEMORY);
    let (areas, engine) = (Rc::new(areas), name.to_owned());
    let whole = Rc::clone(&areas);
    let turn = move |n: usize, found: &mut Gathered| {
        for (test, metrics) in TESTS.iter().zip(&METRICS) {
            let amount = Amount { loops: test.loops / part, slices };
            let [old, regressed, patched] = suite::run(&areas, test, amount, n as u64 + 1, cpus)?;
            let times = [old, regressed, patched].map(|ns| ns * test.loops as f64 / 1e3);
            let ratios = [old / regressed, old / patched, regressed / patched];
            let figures = metrics.iter().zip(times.into_iter().chain(ratios));
            figures.for_each(|(metric, figure)| found.add(&engine, metric.name, figure));
        }
        Ok(())
    };
    Side::new(name, turn).checked(move || whole.check())
}
