//! Simulated beside measured: the same programs, once by the model and once by threads.
//!
//! A row agrees where the simulated throughput is within 20 % of the measured one. Think times are
//! left out on both sides: they would only dilute what is compared.

use serde::Serialize;

use super::model::Model;
use super::real::{throughput, with_real};
use super::run::{Scenario, SimulateError, simulate};
use super::workloads::{Kind, Setting, programs};
use crate::bench::clock::Cpus;
use crate::engines::EngineSpec;

pub const WORKLOADS: [Kind; 5] =
    [Kind::Pair, Kind::Bulk, Kind::PageFault1, Kind::ProducerConsumer, Kind::ManyAllocFewFree];
/// CPUs that they are compared on, as far as there are so many.
pub const CPUS: [u16; 3] = [1, 2, 16];
/// Memory of both machines: 8 GiB.
const FRAMES: u64 = 2 << 20;
/// How far off a row may be.
const TOLERANCE: f64 = 0.2;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ValidationRow {
    pub workload: String,
    pub engine: String,
    /// CPUs, and threads.
    pub cpus: u16,
    /// Frames per second of real threads: the median of the runs.
    pub measured: f64,
    /// The least and the greatest of the runs.
    pub measured_range: [f64; 2],
    /// Frames per second by the model.
    pub simulated: f64,
}

impl ValidationRow {
    /// Whether they agree within 20 %.
    pub fn agrees(&self) -> bool {
        (self.simulated / self.measured - 1.0).abs() <= TOLERANCE
    }
}

/// The comparisons that this process's CPUs allow: workload and CPUs.
pub fn cases(cpus: &Cpus) -> Vec<(Kind, u16)> {
    let cases = WORKLOADS.into_iter().flat_map(|kind| CPUS.map(|cpus| (kind, cpus)));
    cases
        .filter(|&(kind, n)| usize::from(n) <= cpus.count() && n >= kind.about().fewest_cpus)
        .collect()
}

/// Compares. Engines take turns within each of `runs` runs; `progress` is told before each.
pub fn validate(
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
