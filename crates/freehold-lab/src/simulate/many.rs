//! Many simulations, on all cores.

use std::sync::atomic::AtomicBool;

use crate::trials::pool;

use super::model::Model;
use super::row::Row;
use super::run::{Scenario, SimulateError, simulate};

#[derive(Debug, Default)]
pub struct Simulated {
    /// Rows in the order of the scenarios; all of them unless it was interrupted.
    pub rows: Vec<Row>,
    /// It was stopped before its end.
    pub interrupted: bool,
}

/// Runs `scenarios` on `jobs` threads. `progress` is told after each with how many are done.
///
/// A simulation is a function of its scenario and the model: threads change nothing but when it is
/// computed.
///
/// # Errors
///
/// The first simulation that failed, after those under way have ended.
pub fn simulate_all(
    scenarios: &[Scenario],
    model: &Model,
    jobs: usize,
    stop: &AtomicBool,
    mut progress: impl FnMut(usize, &Scenario),
) -> Result<Simulated, SimulateError> {
    let mut rows: Vec<Option<Row>> = vec![None; scenarios.len()];
    let mut places: Vec<usize> = (0..scenarios.len()).collect();
    // The longest first, so that no thread ends alone with one of them. A stable sort: the order is
    // always the same.
    places
        .sort_by_key(|&place| std::cmp::Reverse((scenarios[place].cpus, scenarios[place].frames)));
    let mut error: Option<SimulateError> = None;
    let mut done = 0;
    let work = |place: usize| simulate(&scenarios[place], model);
    pool::each(&places, jobs, stop, work, |place, result| match result {
        Ok(row) => {
            rows[place] = Some(row);
            done += 1;
            progress(done, &scenarios[place]);
            true
        }
        Err(wrong) => {
            error.get_or_insert(wrong);
            false
        }
    });
    match error {
        Some(error) => Err(error),
        None => {
            let interrupted = rows.iter().any(Option::is_none);
            Ok(Simulated { rows: rows.into_iter().flatten().collect(), interrupted })
        }
    }
}
