//! Many simulations: engines x workloads x CPUs x memory sizes x seeds, on all cores, resumable, in
//! shards.
//!
//! ```text
//!   matrix ──> this shard's share ──> minus what is kept ──> threads ──> rows ──> kept (a line of JSON each)
//!                                                                          └──> in the matrix's order: Parquet
//! ```
//!
//! A simulation is a function of its scenario and the model, so a kept row is as good as a new one,
//! and shards and threads change nothing but when it is computed. The file of kept rows begins with
//! what it was made for; one made for something else (another model, another version) is not used.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::model::Model;
use super::row::Row;
use super::run::{Scenario, SimulateError, simulate};
use super::workloads::Kind;
use crate::pool;

/// One of `of` shares of the work: share `index`, from 0 on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Shard {
    /// Whether the scenario at `place` of the matrix is its. Neighbours, which take about as long,
    /// go to different shards.
    pub fn takes(self, place: usize) -> bool {
        place % self.of == self.index
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "'{text}' is no shard: write index/count, for example 0/8 for the first of eight"
            )
        };
        let (index, of) = text.split_once('/').ok_or_else(form)?;
        let (index, of): (usize, usize) =
            (index.parse().map_err(|_| form())?, of.parse().map_err(|_| form())?);
        if index >= of {
            return Err(format!(
                "there is no shard {index} of {of}: they are 0 to {}",
                of.saturating_sub(1)
            ));
        }
        Ok(Self { index, of })
    }
}

/// What is kept of earlier, interrupted runs, and where new rows are added.
pub struct Kept {
    path: PathBuf,
    file: File,
    rows: HashMap<String, Row>,
}

/// The first line of the file.
#[derive(PartialEq, Serialize, Deserialize)]
struct Heading {
    version: String,
    model: Model,
}

/// A further line.
#[derive(Serialize, Deserialize)]
struct Line {
    scenario: String,
    row: Row,
}

impl Kept {
    /// Opens the file, or makes it. What was made for another model or version is thrown away; so
    /// is a last line that was cut off.
    pub fn open(path: PathBuf, model: &Model) -> io::Result<Self> {
        let heading =
            Heading { version: env!("CARGO_PKG_VERSION").to_owned(), model: model.clone() };
        let mut rows = HashMap::new();
        if let Ok(file) = File::open(&path) {
            let mut lines = BufReader::new(file).lines();
            let first = lines
                .next()
                .transpose()?
                .and_then(|line| serde_json::from_str::<Heading>(&line).ok());
            if first.is_some_and(|first| first == heading) {
                for line in lines {
                    let Ok(Line { scenario, row }) = serde_json::from_str(&line?) else { break };
                    rows.insert(scenario, row);
                }
            }
        }
        // Written anew, so that a line cut off in the middle does not spoil the one after it.
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        let mut text = serde_json::to_string(&heading)?;
        text.push('\n');
        for (scenario, row) in &rows {
            text.push_str(&serde_json::to_string(&Line {
                scenario: scenario.clone(),
                row: row.clone(),
            })?);
            text.push('\n');
        }
        file.write_all(text.as_bytes())?;
        Ok(Self { path, file, rows })
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    fn add(&mut self, scenario: String, row: &Row) -> io::Result<()> {
        let mut line = serde_json::to_string(&Line { scenario, row: row.clone() })?;
        line.push('\n');
        self.file.write_all(line.as_bytes())
    }

    /// All is done and written elsewhere: the file goes.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }

    /// Where the rows of a sweep into `output` are kept.
    pub fn beside(output: &Path) -> PathBuf {
        let mut name = output.file_name().unwrap_or_default().to_owned();
        name.push(".kept.jsonl");
        output.with_file_name(name)
    }
}

#[derive(Debug, Default)]
pub struct Swept {
    /// Rows in the order of the scenarios; all of them unless it was interrupted.
    pub rows: Vec<Row>,
    /// How many of them were kept from before.
    pub reused: usize,
    /// It was stopped before its end.
    pub interrupted: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    #[error("cannot keep what is done: {0}")]
    Keep(#[from] io::Error),
}

/// What tells one scenario from another.
fn key(scenario: &Scenario) -> String {
    let Scenario {
        engine, workload, cpus, frames, nodes, cma, seed, measured, tick_ms, trace, ..
    } = scenario;
    let trace = match (workload, trace) {
        (Kind::Trace, Some(trace)) => {
            format!("{} {} {} {}", trace.name, trace.ops.len(), trace.ids, trace.frames)
        }
        _ => String::new(),
    };
    let think = scenario.think();
    format!(
        "{} {workload} {cpus} {frames} {nodes} {cma} {seed} {think} {measured:?} {tick_ms} {trace}",
        engine.name()
    )
}

/// Runs `scenarios` on `jobs` threads. `progress` is told after each with how many are done.
///
/// # Errors
///
/// The first simulation that failed, after those under way have ended.
pub fn sweep(
    scenarios: &[Scenario],
    model: &Model,
    jobs: usize,
    mut kept: Option<&mut Kept>,
    stop: &AtomicBool,
    mut progress: impl FnMut(usize, &Scenario),
) -> Result<Swept, SweepError> {
    let mut rows: Vec<Option<Row>> =
        scenarios.iter().map(|scenario| kept.as_ref()?.rows.get(&key(scenario)).cloned()).collect();
    let reused = rows.iter().flatten().count();
    let mut missing: Vec<usize> =
        (0..scenarios.len()).filter(|&place| rows[place].is_none()).collect();
    // The longest first, so that no thread ends alone with one of them. A stable sort: the order is
    // always the same.
    missing
        .sort_by_key(|&place| std::cmp::Reverse((scenarios[place].cpus, scenarios[place].frames)));
    let mut error: Option<SweepError> = None;
    let mut done = reused;
    let work = |place: usize| simulate(&scenarios[place], model);
    pool::each(&missing, jobs, stop, work, |place, result| {
        let added = result.map_err(SweepError::from).and_then(|row| {
            if let Some(kept) = kept.as_deref_mut() {
                kept.add(key(&scenarios[place]), &row)?;
            }
            rows[place] = Some(row);
            Ok(())
        });
        match added {
            Ok(()) => {
                done += 1;
                progress(done, &scenarios[place]);
                true
            }
            Err(wrong) => {
                error.get_or_insert(wrong);
                false
            }
        }
    });
    match error {
        Some(error) => Err(error),
        None => {
            let interrupted = rows.iter().any(Option::is_none);
            Ok(Swept { rows: rows.into_iter().flatten().collect(), reused, interrupted })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_a_partition() {
        let shards: Vec<Shard> =
            ["0/3", "1/3", "2/3"].iter().map(|text| text.parse().unwrap()).collect();
        for place in 0..20 {
            assert_eq!(shards.iter().filter(|shard| shard.takes(place)).count(), 1);
        }
        for wrong in ["3/3", "0/0", "1", "a/b", "-1/2", "0/-1", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
