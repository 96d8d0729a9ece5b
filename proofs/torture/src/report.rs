//! What came of a soak.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::Map;
use super::bounds::{Counts, limit, limit_alone};
use super::call::{Call, Door};
use super::tally::{Line, Tally};
use super::world::World;

/// How often threads were stopped.
#[derive(Clone, Copy, Default, Serialize, Debug)]
pub struct Stops {
    pub threads: u64,
    /// Of these, in the middle of a call.
    pub in_call: u64,
}

/// The calls of one kind through one door.
#[derive(Clone, Serialize, Debug)]
pub struct Row {
    pub call: &'static str,
    /// By the CPU's owner.
    pub owner: bool,
    /// No other thread ran.
    pub alone: bool,
    pub count: u64,
    /// Calls that were refused, as they may be: no memory, busy, offline.
    pub refused: u64,
    /// Calls in which the thread was stopped, which are not in the times.
    pub stopped: u64,
    /// Half of the calls took no longer, in ns.
    pub p50_ns: u64,
    /// 99 % of them.
    pub p99_ns: u64,
    /// 99.9 % of them.
    pub p999_ns: u64,
    /// The longest; what the system took of it for others counts.
    pub max_ns: u64,
    /// The most turns of waits in one call.
    pub waits: Option<u64>,
    pub waits_bound: Option<u64>,
    /// The most heavy barriers in one call.
    pub barriers: Option<u64>,
    pub barriers_bound: Option<u64>,
    /// The most writes to memory that all CPUs of a zone write in one call; counted where no other
    /// thread ran.
    pub shared_writes: Option<u64>,
    pub shared_writes_bound: Option<u64>,
}

impl Row {
    fn new(call: Call, line: &Line, limit: Counts, alone: bool) -> Self {
        let [waits, barriers, shared_writes] = line.most;
        let [waits_bound, barriers_bound, shared_writes_bound] = limit;
        let at = |quantile| line.times.value_at_quantile(quantile);
        Self {
            call: call.kind.name(),
            owner: call.door == Door::Owner,
            alone,
            count: line.count,
            refused: line.refused,
            stopped: line.stopped,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: line.times.max(),
            waits,
            waits_bound,
            barriers,
            barriers_bound,
            shared_writes,
            shared_writes_bound,
        }
    }
}

#[derive(Clone, Serialize, Debug)]
pub struct Report {
    /// The name of the command, for whoever reads the JSON.
    pub command: &'static str,
    pub ok: bool,
    pub troubles: Vec<String>,
    /// What every thread was doing when one did not get on; empty otherwise.
    pub stuck: Vec<String>,
    pub seed: u64,
    pub threads: u32,
    pub cpus: u64,
    pub zones: u64,
    /// Where the memory is.
    pub map: Map,
    /// Half of it was in use from the start, scattered.
    pub aged: bool,
    pub memory_bytes: u64,
    /// The most of it that threads have at once, about.
    pub used_bytes: u64,
    /// Whether owners of CPUs could do without atomic read-modify-writes.
    pub heavy_barrier: bool,
    pub seconds: f64,
    pub calls: u64,
    /// Allocations that failed after every CPU was asked, of those that asked.
    pub recalls: u64,
    /// The most HIGHATOMIC blocks that a zone had in a pause.
    pub high_atomic_blocks: u64,
    /// How often the pressure of a zone has changed.
    pub pressures: u64,
    pub stops: Stops,
    /// Times that everybody paused and everything was checked.
    pub pauses: u64,
    pub rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(
        world: &World,
        (alone, storm): (&Tally, &Tally),
        (stops, pauses): (Stops, u64),
        stuck: Vec<String>,
        time: Duration,
    ) -> Self {
        let rows_of = |tally: &Tally, is_alone: bool| -> Vec<Row> {
            let limit = if is_alone { limit_alone } else { limit };
            Call::all()
                .filter_map(|call| Some(Row::new(call, tally.line(call)?, limit(call), is_alone)))
                .collect()
        };
        let mut rows = rows_of(storm, false);
        rows.extend(rows_of(alone, true));
        let totals = world.freehold.totals();
        let troubles = world.books.troubles();
        Self {
            command: "soak",
            ok: troubles.is_empty() && stuck.is_empty(),
            troubles,
            stuck,
            seed: world.plan.seed,
            threads: world.plan.threads,
            cpus: u64::from(world.cpus()),
            zones: world.zones.len() as u64,
            map: world.plan.map,
            aged: world.plan.aged,
            memory_bytes: world.frames() * freehold::FRAME_SIZE,
            used_bytes: world.plan.used.min(world.frames()) * freehold::FRAME_SIZE,
            heavy_barrier: freehold::Platform::has_heavy_barrier(world.freehold.platform()),
            seconds: time.as_secs_f64(),
            calls: rows.iter().map(|row| row.count).sum(),
            recalls: totals.cpus.recalls,
            // Relaxed: all threads have been joined.
            high_atomic_blocks: world.high_atomic.load(Ordering::Relaxed),
            pressures: world.freehold.platform().pressures(),
            stops,
            pauses,
            rows,
        }
    }
}
