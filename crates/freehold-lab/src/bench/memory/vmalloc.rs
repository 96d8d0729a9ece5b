//! `bench vmalloc`: the tests of the contiguous-free proposal's table, for each kind of area.

use std::sync::Arc;

use freehold_host::freehold_vm::{SoftMmu, Vpn, VpnRange};
use freehold_host::{Arena, Backing};

use super::areas::Areas;
use super::mapped::Mapped;
use super::over_vm::OverVm;
use super::raw::Frames;
use super::suite::{self, Amount, Times};
use super::vmalloc_tests::{METRICS, TESTS, Test, Work};
use super::{FREEHOLD, MMAP, ON_MEMORY, Run};
use crate::bench::clock::Cpus;
use crate::bench::engines::{BenchEngine, ClassicMachine, FreeholdMachine};
use crate::bench::gathered::Gathered;
use crate::bench::plan::Plan;

/// CPUs of every engine's machine: one allocates, another frees where a test has one that does.
const CPUS: u16 = 2;
/// Bytes of the arena: `full_fit_alloc_test` has 16,384 pages at a time.
const ARENA: u64 = 256 << 20;
/// Pages of addresses.
const ADDRESSES: u64 = 1 << 22;

/// Areas of some kind, however they are typed.
trait Kind {
    fn name(&self) -> &str;
    fn run(&self, test: &Test, scale: &Scale, seed: u64, cpus: &Cpus) -> Result<Times, String>;
    fn check(&self) -> Result<(), String>;
}

struct Named<A> {
    name: String,
    areas: A,
}

impl<A: Areas> Kind for Named<A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, test: &Test, scale: &Scale, seed: u64, cpus: &Cpus) -> Result<Times, String> {
        let part = if self.areas.is_memory() { scale.on_memory } else { scale.in_software };
        suite::run(&self.areas, test, Amount { loops: test.loops / part, slices: scale.slices }, seed, cpus)
    }

    fn check(&self) -> Result<(), String> {
        self.areas.check()
    }
}

/// Frames of every engine's machine: 4 GiB.
const FRAMES: u64 = 1 << 20;

/// Of how many of the table's loops one is run.
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

/// Engines that there is something to measure of, by the names that they have here.
fn names(plan: &Plan) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for engine in &plan.engines {
        match engine {
            BenchEngine::Freehold => names.push(FREEHOLD),
            BenchEngine::Classic(spec) => names.push(spec.name()),
            // They free by the chunk only, and have no ranges; raw mappings are always there.
            BenchEngine::BuddySystem | BenchEngine::Mmap | BenchEngine::Peer(_) => {}
        }
    }
    if plan.engines.contains(&BenchEngine::Freehold) {
        names.push(ON_MEMORY);
    }
    names.push(MMAP);
    names
}

pub(super) fn steps(plan: &Plan) -> usize {
    names(plan).len() * plan.runs * TESTS.len()
}

fn build(name: &str, run: &Run<'_>) -> Result<Box<dyn Kind>, String> {
    let name = name.to_owned();
    let range = VpnRange::new(Vpn::new(0), ADDRESSES).unwrap_or_default();
    Ok(match name.as_str() {
        FREEHOLD => {
            let machine = FreeholdMachine::new(CPUS, FRAMES, run.host)?;
            Box::new(Named { name, areas: OverVm::new(machine, SoftMmu::<1>::new(), range) })
        }
        ON_MEMORY => {
            let arena = Arena::builder(ARENA).backing(Backing::Memfd).build().map_err(|error| error.to_string())?;
            let frames = Frames::of(Arc::new(arena)).ok_or("the arena is somebody else's, too")?;
            let areas = frames.for_areas(ADDRESSES).map_err(|error| error.to_string())?;
            let range = areas.range();
            Box::new(Named { name, areas: OverVm::new(frames, areas, range) })
        }
        MMAP => Box::new(Named { name, areas: Mapped }),
        spec => {
            let machine = ClassicMachine::new(spec, CPUS, FRAMES)?;
            Box::new(Named { name, areas: OverVm::new(machine, SoftMmu::<1>::new(), range) })
        }
    })
}

pub(super) fn run(run: &mut Run<'_>, figures: &mut Gathered) -> Result<(), (String, String)> {
    let scale = Scale::of(run.plan);
    let mut kinds = Vec::new();
    for name in names(run.plan) {
        match build(name, run) {
            Ok(kind) => kinds.push(kind),
            // The system's limits, not an engine's fault.
            Err(reason) if name == ON_MEMORY => figures.unavailable(format!("{ON_MEMORY} left out: {reason}")),
            Err(reason) => return Err((name.to_owned(), reason)),
        }
    }
    'runs: for n in run.turns.clone() {
        for (test, metrics) in TESTS.iter().zip(&METRICS) {
            for kind in &kinds {
                if (run.stopped)() {
                    break 'runs;
                }
                (run.progress)(kind.name());
                let fail = |reason| (kind.name().to_owned(), reason);
                let times = kind.run(test, &scale, n as u64 + 1, run.cpus).map_err(fail)?;
                let loops = if test.work == Work::PerCpu { 1 } else { test.loops };
                let us = |ns: f64| ns * loops as f64 / 1e3;
                let [old, regressed, patched, of @ ..] = metrics.map(|metric| metric.name);
                let mut add = |metric, figure| figures.add(kind.name(), metric, figure);
                add(patched, us(times.patched));
                if let Some([v6_18, v6_19]) = times.before {
                    add(old, us(v6_18));
                    add(regressed, us(v6_19));
                    let ratios = [v6_18 / v6_19, v6_18 / times.patched, v6_19 / times.patched];
                    of.into_iter().zip(ratios).for_each(|(metric, ratio)| add(metric, ratio));
                }
            }
        }
    }
    for kind in &kinds {
        kind.check().map_err(|finding| (kind.name().to_owned(), format!("not whole afterwards: {finding}")))?;
    }
    Ok(())
}
