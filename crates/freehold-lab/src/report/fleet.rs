//! Rows of many machines, put in order: which rows are of one recording, how each engine differs
//! there from the baseline, and which recordings are alike.

use std::collections::{BTreeMap, BTreeSet};

use freehold_trace::kernel::Kernel;
use serde_json::Value;

use crate::cli::error::CliError;
use crate::results::rows::{Row, Table};
use crate::tables::better::Better;
use crate::tables::number::counted;
use crate::tables::{thousands, unique};

/// Figures of a machine's own section, and what heads their columns.
pub(super) const SHOWN: [(&str, &str); 12] = [
    ("failed", "failed"),
    ("zone_locks_per_1000", "locks / 1,000"),
    ("zone_lock_work", "steps"),
    ("zone_lock_work_p99", "steps, 99 %"),
    ("zone_lock_work_max", "steps, most"),
    ("shared_writes_per_1000", "shared / 1,000"),
    ("fallbacks", "fallbacks"),
    ("mixed_blocks", "mixed"),
    ("free_blocks_end", "whole free"),
    ("unusable_index_mean", "unusable"),
    ("lock_wait_share_64", "wait, 64 CPUs"),
    ("lost_frames", "lost"),
];

/// What says of what a row is, and how far it can be believed.
const OTHERS: &str = "schema program command path sha256 status error host kernel node zone engine \
    warnings trace_events trace_span_ns machine_cpus machine_frames machine_origin";

/// The columns that a page is made of.
pub(super) fn columns() -> Vec<&'static str> {
    SHOWN.iter().map(|(name, _)| *name).chain(OTHERS.split_whitespace()).collect()
}

/// A figure by which engines are compared.
pub(super) struct Measure {
    pub(super) column: &'static str,
    pub(super) said: &'static str,
    pub(super) better: Better,
}

pub(super) const MEASURES: [Measure; 5] = [
    measure("zone_lock_work", "steps under the zone lock", Better::Less),
    measure("zone_lock_work_max", "steps of the longest hold", Better::Less),
    measure("shared_writes_per_1000", "shared writes / 1,000 events", Better::Less),
    measure("unusable_index_mean", "unusable index of order 9", Better::Less),
    measure("free_blocks_end", "whole free blocks at the end", Better::More),
];

const fn measure(column: &'static str, said: &'static str, better: Better) -> Measure {
    Measure { column, said, better }
}

impl Measure {
    /// How much worse a ratio to the baseline is; negative where it is better, and nothing up to a
    /// hundredth.
    pub(super) fn worse(&self, ratio: f64) -> f64 {
        let worse = if self.better == Better::More { 1.0 - ratio } else { ratio - 1.0 };
        if worse.abs() <= 0.01 { 0.0 } else { worse }
    }
}

/// The rows of one recording and zone.
pub(super) struct Recording {
    pub(super) rows: Vec<Row>,
    pub(super) machine: String,
    /// Kernel and load.
    pub(super) kind: String,
}

impl Recording {
    pub(super) fn figure(&self, engine: &str, column: &str) -> Option<f64> {
        figure(self.rows.iter().find(|row| text(row, "engine") == engine)?, column)
    }

    /// An engine's figure as a part of the baseline's; infinite where that is nothing.
    pub(super) fn ratio(&self, base: &str, engine: &str, column: &str) -> Option<f64> {
        let (base, value) = (self.figure(base, column)?, self.figure(engine, column)?);
        Some(if base == value { 1.0 } else { value / base })
    }
}

pub(super) struct Fleet {
    /// By machine.
    pub(super) recordings: Vec<Recording>,
    /// Rows of what could not be read.
    pub(super) unreadable: Vec<Row>,
    /// The baseline comes first: vanilla, where there is one.
    pub(super) engines: Vec<String>,
}

/// A column that is a text; empty where it is null.
pub(super) fn text<'r>(row: &'r Row, column: &str) -> &'r str {
    row.get(column).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn figure(row: &Row, column: &str) -> Option<f64> {
    row.get(column)?.as_f64()
}

/// By engine, vanilla before all others.
fn place_of(row: &Row) -> (bool, String) {
    let engine = text(row, "engine");
    (engine != "vanilla", engine.to_owned())
}

fn machine_of(row: &Row) -> &str {
    let host = text(row, "host");
    if host.is_empty() { text(row, "path") } else { host }
}

/// The kernel's version, and how much is asked of its allocator: events a second and CPU.
fn kind_of(row: &Row) -> String {
    let of = |column| figure(row, column).filter(|&value| value > 0.0);
    let rate = || Some(of("trace_events")? / (of("trace_span_ns")? / 1e9) / of("machine_cpus")?);
    let load = match rate() {
        None => "not known",
        Some(..1e3) => "under 1,000",
        Some(..1e4) => "1,000 to 10,000",
        Some(..1e5) => "10,000 to 100,000",
        Some(_) => "100,000 and more",
    };
    let kernel = Kernel::parse(text(row, "kernel")).map(|kernel| kernel.to_string());
    format!("{}; {load}", kernel.as_deref().unwrap_or("not known"))
}

impl Fleet {
    pub(super) fn new(tables: &[Table]) -> Result<Self, CliError> {
        let (mut places, mut unreadable) = (BTreeMap::<_, Vec<Row>>::new(), Vec::new());
        for row in tables.iter().flat_map(|table| &table.rows) {
            if row.get("schema").and_then(Value::as_u64) != Some(1) {
                let problem = "a row has another schema than 1, which this program does not know";
                return Err(CliError::new(problem).hint("a newer freehold wrote it"));
            }
            if text(row, "status") == "unreadable" {
                unreadable.push(row.clone());
                continue;
            }
            let node = row.get("node").and_then(Value::as_u64);
            let of = ["path", "sha256", "zone"].map(|column| text(row, column));
            places.entry((machine_of(row), of, node)).or_default().push(row.clone());
        }
        let recordings = places.into_iter().map(|((machine, ..), mut rows)| {
            rows.sort_by_key(place_of);
            Recording { machine: machine.to_owned(), kind: kind_of(&rows[0]), rows }
        });
        let recordings: Vec<Recording> = recordings.collect();
        let places = recordings.iter().flat_map(|of| &of.rows).map(place_of);
        let engines = places.collect::<BTreeSet<_>>().into_iter().map(|(_, engine)| engine);
        Ok(Self { engines: engines.collect(), recordings, unreadable })
    }

    /// How many recordings there are, and of what machines, as far as that is known.
    pub(super) fn told(&self) -> String {
        let hosts = self.recordings.iter().map(|of| text(&of.rows[0], "host"));
        let (unknown, known): (Vec<_>, Vec<_>) = hosts.partition(|host| host.is_empty());
        let known = unique(known).len() as u64;
        let mut said = counted(self.recordings.len() as u64, "recording");
        if known > 0 {
            said += &format!(" of {}", counted(known, "machine"));
        }
        if !unknown.is_empty() {
            said += &format!("; of {} the machine is not known", thousands(unknown.len() as u64));
        }
        said
    }

    pub(super) fn machines(&self) -> Vec<&str> {
        unique(self.recordings.iter().map(|of| &*of.machine))
    }

    /// Recordings by kernel and load, the most first.
    pub(super) fn kinds(&self) -> Vec<(&str, Vec<&Recording>)> {
        let mut found = BTreeMap::<&str, Vec<&Recording>>::new();
        self.recordings.iter().for_each(|of| found.entry(&of.kind).or_default().push(of));
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(_, recordings)| std::cmp::Reverse(recordings.len()));
        found
    }
}
