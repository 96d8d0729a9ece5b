//! Simulated beside measured: the same programs, once by the model and once by threads.
//!
//! A row agrees where the simulated throughput is within 20 % of the measured one. Think times are
//! left out on both sides: they would only dilute what is compared.

use crate::engines::EngineSpec;
use crate::simulate::validation::ValidationRow;
use crate::simulate::workloads::{Setting, programs};
use crate::simulate::{Kind, Model, Scenario, SimulateError, simulate};

use crate::bench::clock::Cpus;
use crate::bench::real::{throughput, with_real};

pub(crate) const WORKLOADS: [Kind; 5] =
    [Kind::Pair, Kind::Bulk, Kind::PageFault1, Kind::ProducerConsumer, Kind::ManyAllocFewFree];
/// CPUs that they are compared on, as far as there are so many.
pub(crate) const CPUS: [u16; 3] = [1, 2, 16];
/// Memory of both machines: 8 GiB.
const FRAMES: u64 = 2 << 20;
/// The comparisons that this process's CPUs allow: workload and CPUs.
pub(crate) fn cases(cpus: &Cpus) -> Vec<(Kind, u16)> {
    let cases = WORKLOADS.into_iter().flat_map(|kind| CPUS.map(|cpus| (kind, cpus)));
    cases
        .filter(|&(kind, n)| usize::from(n) <= cpus.count() && n >= kind.about().fewest_cpus)
        .collect()
}

/// Compares. Engines take turns within each of `runs` runs; `progress` is told before each.
pub(crate) fn validate(
    engines: &[EngineSpec],
    model: &Model,
    cpus: &Cpus,
    runs: usize,
    mut progress: impl FnMut(Kind, u16, &EngineSpec),
) -> Result<Vec<ValidationRow>, SimulateError> {
    let mut rows = Vec::new();
    for (kind, n) in cases(cpus) {
        let mut measured: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
        for _ in 0..runs {
            for (engine, measured) in engines.iter().zip(&mut measured) {
                progress(kind, n, engine);
                let setting =
                    Setting { kind, cpus: n, frames: FRAMES, seed: 1, think_ns: 0.0, trace: None };
                let run = with_real(engine, n, FRAMES, |machine| {
                    throughput(machine, cpus, programs(&setting))
                });
                measured.push(run.map_err(|reason| engine.unbuildable(reason))?);
            }
        }
        for (engine, mut measured) in engines.iter().zip(measured) {
            measured.sort_by(f64::total_cmp);
            let scenario =
                Scenario { think_ns: Some(0.0), ..Scenario::new(engine.clone(), kind, n, FRAMES) };
            let row = simulate(&scenario, model)?;
            rows.push(ValidationRow {
                workload: kind.name().to_owned(),
                engine: engine.name().to_owned(),
                cpus: n,
                measured: measured[measured.len() / 2],
                measured_range: [measured[0], measured[measured.len() - 1]],
                simulated: row.frames_per_second,
            });
        }
    }
    Ok(rows)
}
