//! Sections of what is not a replay: tables of benchmarks, of simulated machines with their
//! picture, and of machines whose contiguity was counted, the worst first.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::embed::text;
use super::table::{Table, cells};
use crate::results::Kind;
use crate::results::fields::{CONTIGUITY, FILL, Field, SIMULATE};
use crate::simulate::{Model, Row, plot};
use crate::tables::better::Better;
use crate::tables::{decimal, unique};

/// The section of a document that is no replay.
pub(super) fn section(kind: Kind, data: &Value) -> String {
    match kind {
        Kind::Replay => super::replay::section(data),
        Kind::Bench => bench(data),
        Kind::Simulate => simulated(data),
        Kind::Contiguity => contiguity(data),
    }
}

fn list<'d>(data: &'d Value, name: &str) -> &'d [Value] {
    data[name].as_array().map_or(&[], Vec::as_slice)
}

fn word<'d>(row: &'d Value, name: &str) -> &'d str {
    row[name].as_str().unwrap_or_default()
}

/// A table for each benchmark: metrics down, engines across.
fn bench(data: &Value) -> String {
    let rows = list(data, "rows");
    let mut html = "<h2>Benchmarks</h2>\n".to_owned();
    if let Some(ns) = data["yardstick"]["rmw_ns"].as_f64() {
        let _ = writeln!(
            html,
            "<p>An atomic read-modify-write took {} ns on this machine: {}.</p>",
            decimal(ns),
            text(data["machine"].as_str().unwrap_or("its name is not known"))
        );
    }
    for benchmark in unique(rows.iter().map(|row| word(row, "benchmark"))) {
        let of_it: Vec<&Value> =
            rows.iter().filter(|row| word(row, "benchmark") == benchmark).collect();
        let engines = unique(of_it.iter().map(|row| word(row, "engine")));
        let headings: Vec<&str> = [""].into_iter().chain(engines.iter().copied()).collect();
        let mut table = Table::new(benchmark, &headings);
        for metric in unique(of_it.iter().map(|row| word(row, "metric"))) {
            let of_metric = |row: &&&Value| word(row, "metric") == metric;
            let one = of_it.iter().find(of_metric).copied();
            let better = Better::named(one.map(|row| word(row, "better")));
            let unit = one.map_or("", |row| word(row, "unit"));
            let value = |engine: &&str| {
                let mut found = of_it.iter().filter(of_metric);
                found.find(|row| word(row, "engine") == *engine)?["median"].as_f64()
            };
            let values: Vec<Option<f64>> = engines.iter().map(value).collect();
            table.row(&format!("{metric}, {unit}"), &cells(&values, better));
        }
        html.push_str(&table.finished());
    }
    html
}

/// Of a simulated machine or one whose contiguity was counted.
fn machine(row: &Value) -> String {
    let memory = match (row["memory_mib"].as_f64(), row["memory_bytes"].as_f64()) {
        (Some(mib), _) => format!("{} MiB", decimal(mib)),
        (None, Some(bytes)) => format!("{} GiB", decimal(bytes / f64::from(1 << 30))),
        (None, None) => "memory not said".to_owned(),
    };
    let mut name = format!("{}, {} CPUs, {memory}", word(row, "workload"), row["cpus"]);
    if let Some(nodes) = row["nodes"].as_u64().filter(|&nodes| nodes > 1) {
        let _ = write!(name, ", {nodes} nodes");
    }
    if let Some(used) = row["used_percent"].as_f64().filter(|_| row["order"].is_null()) {
        let _ = write!(name, ", {} % in use", decimal(used));
    }
    if let Some(seed) = row["seed"].as_u64() {
        let _ = write!(name, ", seed {seed}");
    }
    name
}

/// A machine by its name, and its rows.
type Machine<'d> = (String, Vec<&'d Value>);

/// The machines in the order in which they come.
fn by_machine(rows: &[Value]) -> Vec<Machine<'_>> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut found: Vec<Machine<'_>> = Vec::new();
    for row in rows {
        let name = machine(row);
        let at = *places.entry(name.clone()).or_insert(found.len());
        if at == found.len() {
            found.push((name, Vec::new()));
        }
        found[at].1.push(row);
    }
    found
}

/// A table for each machine: figures down, engines across.
fn tables(machines: &[Machine<'_>], fields: &[&Field]) -> String {
    let mut html = String::new();
    for (place, of_it) in machines {
        let headings: Vec<&str> =
            [""].into_iter().chain(of_it.iter().map(|row| word(row, "engine"))).collect();
        let mut table = Table::new(place, &headings);
        for field in fields {
            let values: Vec<Option<f64>> = of_it.iter().map(|row| field.of(row)).collect();
            if values.iter().any(Option::is_some) {
                table.row(field.said, &cells(&values, field.better));
            }
        }
        html.push_str(&table.finished());
    }
    html
}

fn simulated(data: &Value) -> String {
    let rows = list(data, "rows");
    let parsed: Result<Vec<Row>, _> =
        rows.iter().map(|row| serde_json::from_value(row.clone())).collect();
    let model = serde_json::from_value::<Model>(data["model"].clone());
    let drawn = match (parsed, model) {
        (Ok(parsed), Ok(model)) if !parsed.is_empty() => {
            format!("<figure>{}</figure>\n", plot::render(&parsed, &model))
        }
        _ => String::new(),
    };
    let fields: Vec<&Field> = SIMULATE.iter().collect();
    format!("<h2>Simulated machines</h2>\n{drawn}{}", tables(&by_machine(rows), &fields))
}

/// The cells, those in which the last engine is furthest below the first at order 9 first.
fn contiguity(data: &Value) -> String {
    let mut machines = by_machine(list(data, "cells"));
    let index =
        |cell: Option<&&Value>| cell.and_then(|cell| cell["unusable"]["9"].as_f64()).unwrap_or(0.0);
    let loss = |(_, cells): &Machine<'_>| index(cells.last()) - index(cells.first());
    machines.sort_by(|a, b| loss(b).total_cmp(&loss(a)));
    let fields: Vec<&Field> = CONTIGUITY.iter().chain(&FILL).collect();
    format!("<h2>Contiguity</h2>\n<p>Worst machines first.</p>\n{}", tables(&machines, &fields))
}
