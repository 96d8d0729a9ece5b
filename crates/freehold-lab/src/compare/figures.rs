//! Every figure in a result, and what it is a figure of.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::incomparable;
use crate::cli::error::CliError;
use crate::results::fields::{CONTIGUITY, Field, REPLAY, SIMULATE};
use crate::results::{Document, Kind, Source, split};
use crate::tables::better::Better;
use crate::tables::decimal;
use crate::tables::number::{counted, memory_of};
use crate::trials::defaults::ALLOCATIONS;

/// What a figure is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Place {
    pub command: &'static str,
    /// The trace and its machine, or the simulated machine.
    pub what: String,
    pub engine: String,
    /// The metric, by its name in the JSON.
    pub metric: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {} on {}", self.engine, self.what)
    }
}

/// A figure of one result.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    pub(super) place: Place,
    /// What random numbers were drawn from, where they were.
    pub(super) seed: Option<u64>,
    pub(super) better: Better,
    pub(super) value: f64,
}

/// All of a result.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Found {
    pub(super) kinds: Vec<Kind>,
    pub(super) figures: Vec<Figure>,
    /// The constants of simulations.
    pub(super) model: Option<Value>,
}

impl Found {
    /// In the documents of a result.
    pub(super) fn of(name: &str, sources: &[Source]) -> Result<Self, CliError> {
        let mut found = Self::default();
        for source in sources {
            for Document { kind, data, .. } in split(source)? {
                if !found.kinds.contains(&kind) {
                    found.kinds.push(kind);
                }
                found.add(kind, &data);
            }
        }
        let mut seen = HashSet::new();
        for one in &found.figures {
            if !seen.insert((&one.place, one.seed)) {
                let Place { metric, engine, what, .. } = &one.place;
                return incomparable(
                    format!("{name} has {metric} of {engine} twice: {what}"),
                    "give a file in which each trace and machine is once",
                );
            }
        }
        if found.figures.is_empty() {
            return incomparable(
                format!("there is no figure in {name}"),
                "an interrupted run, or a trace that could not be read, has none",
            );
        }
        Ok(found)
    }

    fn add(&mut self, kind: Kind, data: &Value) {
        match kind {
            Kind::Replay => self.replay(data),
            Kind::Simulate => {
                self.model = data.get("model").cloned().or_else(|| self.model.take());
                for row in list(data, "rows") {
                    self.counted(kind, simulated(row), row, &SIMULATE);
                }
            }
            Kind::Contiguity => {
                for cell in list(data, "cells") {
                    self.counted(kind, of_cell(cell), cell, &CONTIGUITY);
                }
            }
        }
    }

    fn replay(&mut self, data: &Value) {
        let what = of_trace(data);
        for engine in list(data, "engines") {
            self.counted(Kind::Replay, what.clone(), engine, &REPLAY.map(|(field, _)| field));
        }
    }

    fn counted(&mut self, kind: Kind, what: String, object: &Value, fields: &[Field]) {
        for field @ &Field { name: metric, better } in fields {
            let Some(value) = field.of(object) else { continue };
            let engine = text(object, "engine");
            let place = Place {
                command: kind.command(),
                what: what.clone(),
                engine,
                metric: metric.to_owned(),
            };
            let seed = object["seed"].as_u64();
            self.figures.push(Figure { place, seed, better, value });
        }
    }
}

fn list<'a>(data: &'a Value, name: &str) -> &'a [Value] {
    data.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or_default().to_owned()
}

/// The trace and the machine that it was replayed on.
fn of_trace(data: &Value) -> String {
    let machine = &data["machine"];
    let page_size = machine["page_size"].as_u64().unwrap_or(4096);
    let mut what = text(&data["trace"], "name");
    if let (Some(cpus), Some(frames)) =
        (machine["cpus"].as_u64(), machine["memory_frames"].as_u64())
    {
        let events = data["replayed_events"].as_u64().unwrap_or(0);
        what = format!(
            "{what}, {}, on {} with {}",
            counted(events, "event"),
            counted(cpus, "CPU"),
            memory_of(frames, page_size)
        );
    }
    if let Some(origin) = machine["origin"].as_str() {
        what = format!("{what}, {origin} machine");
    }
    if let Some(cma) = machine["cma_frames"].as_u64().filter(|&frames| frames > 0) {
        what = format!("{what}, {} of it CMA", memory_of(cma, page_size));
    }
    what
}

/// A workload on so many CPUs with so much memory.
fn on_machine(row: &Value, frames: u64) -> String {
    let cpus = counted(row["cpus"].as_u64().unwrap_or_default(), "CPU");
    format!("{} on {cpus}, {}", text(row, "workload"), memory_of(frames, 4096))
}

fn simulated(row: &Value) -> String {
    let bytes = row["memory_bytes"].as_u64().unwrap_or_default();
    let mut what = on_machine(row, bytes >> 12);
    if let Some(think) = row["think_ns"].as_f64().filter(|&think| think > 0.0) {
        what = format!("{what}, {} ns of other work between allocations", decimal(think));
    }
    match row["measured_frames"].as_u64() {
        Some(frames) => format!("{what}, {} measured", counted(frames, "frame")),
        None => what,
    }
}

fn of_cell(cell: &Value) -> String {
    let mut place = on_machine(cell, cell["memory_mib"].as_u64().unwrap_or_default() << 8);
    if let Some(allocations) = cell["allocations"].as_u64().filter(|&chunks| chunks != ALLOCATIONS)
    {
        place = format!("{place}, {}", counted(allocations, "allocation"));
    }
    match cell["used_percent"].as_f64() {
        Some(used) => format!("{place}, {used} % in use"),
        None => place,
    }
}
