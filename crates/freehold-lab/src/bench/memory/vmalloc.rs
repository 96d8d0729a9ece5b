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
use crate::bench::side::Side;
use crate::engines::FreeholdOptions;

/// CPUs of every engine's machine: one allocates, another frees where a test has one that does.
const CPUS: u16 = 2;
/// Bytes of the arena: `full_fit_alloc_test` has 16,384 pages at a time.
const ARENA: u64 = 256 << 20;
/// Pages of addresses.
const ADDRESSES: u64 = 1 << 22;

/// Frames of every engine's machine: 4 GiB.
const FRAMES: u64 = 1 << 20;

/// Of how many of the table's loops one is run.
#[derive(Clone, Copy)]
struct Scale {
    in_software: u64,
    on_memory: u64,
    slices: u64,
}

impl Scale {
    fn of(plan: &Plan) -> Self {
        if plan.scale == crate::bench::Scale::FULL {
            Self { in_software: 10, on_memory: 100, slices: 16 }
        } else {
            Self { in_software: 150, on_memory: 1500, slices: 5 }
        }
    }
}

pub(super) fn sides<'a>(
    plan: &Plan,
    cpus: &'a Cpus,
    host: HostThreads,
    found: &mut Gathered,
) -> Result<Vec<Side<'a>>, String> {
    let scale = Scale::of(plan);
    let mut sides = Vec::new();
    for engine in &plan.engines {
        // The others free by the chunk only, and have no ranges.
        let BenchEngine::Design(spec) = engine else { continue };
        let name = spec.name();
        sides.push(match FreeholdOptions::of(name) {
            Some(options) => {
                let machine = FreeholdMachine::with_options(options, CPUS, FRAMES, host)?;
                side(name, in_software(machine), scale, cpus)
            }
            None => side(name, in_software(ClassicMachine::new(name, CPUS, FRAMES)?), scale, cpus),
        });
    }
    if plan.has(FREEHOLD) {
        match Frames::new(ARENA, ADDRESSES) {
            Ok((frames, areas)) => {
                let range = areas.range();
                sides.push(side(ON_MEMORY, Areas::new(frames, areas, range), scale, cpus));
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
    scale: Scale,
    cpus: &'a Cpus,
) -> Side<'a> {
    let part = if M::IS_MEMORY { scale.on_memory } else { scale.in_software };
    let (areas, engine) = (Rc::new(areas), name.to_owned());
    let whole = Rc::clone(&areas);
    let turn = move |n: usize, found: &mut Gathered| {
        for (test, metrics) in TESTS.iter().zip(&METRICS) {
            let amount = Amount { loops: test.loops / part, slices: scale.slices };
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
