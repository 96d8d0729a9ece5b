//! Cells of engines beside those of the first engine, worst first.
//!
//! ```text
//!  cells of one place                     row
//!  seeds 1 2 3, vanilla   -> mean  .934 -.
//!  seeds 1 2 3, freehold  -> mean  .887 -'-> -.047 at order 9; its worst of three orders sorts the
//!                                            rows
//! ```
//!
//! Contiguity at an order is the share of free memory that can serve requests of that order, 1 less
//! the unusable-free-space index: at the end, or the mean of a load's second half.

use serde::Serialize;

use super::cell::Workload;
use super::figure::{ByOrder, Cell, engines, same_place};

/// How much less contiguity counts as less: half a per cent of free memory. Seeds differ by more.
pub const TOLERANCE: f64 = 0.005;

/// An engine's contiguity in one place beside the first engine's, the means of the seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub workload: &'static str,
    pub cpus: u16,
    pub memory_mib: u64,
    /// The percentage of memory in use, where the workload is given one.
    pub used_percent: Option<f64>,
    pub engine: String,
    /// Seeds that both engines have run with.
    pub seeds: usize,
    /// The share of free memory that can serve requests, by order.
    pub contiguity: ByOrder,
    pub baseline_contiguity: ByOrder,
    /// How much more the engine's is than the first's; negative for less.
    pub difference: ByOrder,
    /// The arguments that run it again, beside those of the place.
    #[serde(skip)]
    pub ran: String,
}

/// How many places an engine is not below the first in, at one order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Tally {
    pub engine: String,
    pub order: u8,
    pub not_below: usize,
    pub cells: usize,
}

/// Engines beside the first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    pub baseline: String,
    pub tolerance: f64,
    /// Worst first: by the least of the three differences.
    pub rows: Vec<Row>,
    pub tallies: Vec<Tally>,
}

impl Row {
    /// The least of its differences.
    pub fn worst(&self) -> f64 {
        self.difference.each().into_iter().map(|(_, value)| value).fold(f64::INFINITY, f64::min)
    }
}

/// Whether a difference is less than none by more than [`TOLERANCE`].
pub(super) fn is_below(difference: f64) -> bool {
    difference < -TOLERANCE
}

impl Comparison {
    /// Of cells in the order in which they were run, places together. `None` where there is one
    /// engine, or nothing that says something of contiguity.
    pub fn of(cells: &[Cell]) -> Option<Self> {
        let engines = engines(cells);
        let (baseline, others) = engines.split_first()?;
        let mut rows: Vec<Row> = cells
            .chunk_by(same_place)
            .flat_map(|place| others.iter().filter_map(|other| row(place, baseline, other)))
            .collect();
        if rows.is_empty() {
            return None;
        }
        rows.sort_by(|a, b| a.worst().total_cmp(&b.worst()));
        let tallies = others.iter().flat_map(|engine| tallies(&rows, engine)).collect();
        Some(Self { baseline: (*baseline).to_owned(), tolerance: TOLERANCE, rows, tallies })
    }

    /// Whether no engine is below the first anywhere.
    pub fn holds(&self) -> bool {
        self.tallies.iter().all(|tally| tally.not_below == tally.cells)
    }
}

fn contiguity(cell: &Cell) -> Option<ByOrder> {
    Some(cell.figures.unusable?.map(|index| 1.0 - index))
}

/// The engine beside the baseline in one place; `None` where they have no seed in common.
fn row(place: &[Cell], baseline: &str, engine: &str) -> Option<Row> {
    let of = |name: &str, seed| {
        place.iter().find(|cell| cell.engine == name && cell.seed == seed).and_then(contiguity)
    };
    let mine = place.iter().filter(|cell| cell.engine == engine);
    let pairs: Vec<(u64, ByOrder, ByOrder)> = mine
        .filter_map(|cell| Some((cell.seed, of(baseline, cell.seed)?, contiguity(cell)?)))
        .collect();
    let first = place.first().filter(|_| !pairs.is_empty())?;
    let base = ByOrder::mean(pairs.iter().map(|pair| pair.1));
    let contiguity = ByOrder::mean(pairs.iter().map(|pair| pair.2));
    let seeds: Vec<String> = pairs.iter().map(|pair| pair.0.to_string()).collect();
    let ran = format!("--seeds {} -e {baseline} -e {engine}", seeds.join(","));
    let allocations = first.allocations.map_or_else(String::new, |n| format!("--allocations {n} "));
    Some(Row {
        ran: allocations + &ran,
        workload: first.workload,
        cpus: first.cpus,
        memory_mib: first.memory_mib,
        used_percent: first.used_percent,
        engine: engine.to_owned(),
        seeds: pairs.len(),
        contiguity,
        baseline_contiguity: base,
        difference: contiguity.minus(base),
    })
}

fn tallies(rows: &[Row], engine: &str) -> [Tally; 3] {
    let of: Vec<&Row> = rows.iter().filter(|row| row.engine == engine).collect();
    ByOrder::ORDERS.map(|order| {
        let below = of.iter().filter(|row| is_below(row.difference.at(order))).count();
        let cells = of.len();
        Tally { engine: engine.to_owned(), order, not_below: cells - below, cells }
    })
}

impl std::fmt::Display for Row {
    /// What runs the cell again.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { workload, cpus, memory_mib, .. } = self;
        write!(f, "--workload {workload} --memory {memory_mib}M")?;
        if *workload != Workload::TwoCpuMix.name() {
            write!(f, " --cpus {cpus}")?;
        }
        self.used_percent.map_or(Ok(()), |used| write!(f, " --used {used:.0}"))?;
        write!(f, " {}", self.ran)
    }
}
