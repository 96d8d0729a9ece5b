//! `freehold bench` as a command: the shape of its JSON, its lists, its errors. Nothing here looks at a time.

use std::collections::BTreeSet;
use std::io::Write;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.arg("bench").env("COLUMNS", "120").env_remove("NO_COLOR");
    command
}

/// Every benchmark of page allocators with its metrics, and whether it takes two CPUs. Those of virtual memory, whose
/// engines are their own, are in `bench_memory.rs`.
const METRICS: [(&str, &[&str], bool); 9] = [
    ("pair", &["ns_per_pair_order0", "ns_per_pair_order9"], false),
    (
        "bulk",
        &["ns_per_alloc", "ns_per_free", "ns_per_free_reversed", "ns_per_frame_bulk_alloc", "ns_per_frame_bulk_free"],
        false,
    ),
    ("random-free", &["ns_per_free"], false),
    ("order9-split", &["ns_per_group"], false),
    ("contig", &["ns_per_group"], false),
    ("producer-consumer", &["ns_per_frame", "ns_per_frame_bulk"], true),
    ("remote-free", &["ns_per_free_sequential", "ns_per_free_scattered"], true),
    ("two-threads", &["ns_per_pair_order0", "ns_per_pair_order0_alone"], true),
    (
        "sixteen-threads",
        &["ns_per_pair_order0", "ns_per_pair_order0_alone", "ns_per_frame", "ns_per_frame_one_freer", "threads"],
        true,
    ),
];

#[test]
fn json_has_every_metric_of_every_engine() {
    let engines = ["freehold", "vanilla", "buddy_system_allocator"];
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "--json"]).args(METRICS.map(|(name, ..)| name));
    for engine in engines {
        command.args(["-e", engine]);
    }
    let done = command.assert().code(0);
    let document: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    let keys =
        |value: &serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<String>>();
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(keys(&document), set(&["rows", "yardstick"]));
    assert_eq!(keys(&document["yardstick"]), set(&["handover_ns", "rmw_ns"]));
    assert!(document["yardstick"]["rmw_ns"].as_f64().expect("a number") > 0.0);

    let two_cpus = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !two_cpus {
        // Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED: benchmarks of two threads; this machine has one CPU");
    }
    let mut wanted = Vec::new();
    for (benchmark, metrics, two) in METRICS {
        if two && !two_cpus {
            continue;
        }
        for metric in metrics {
            engines.iter().for_each(|engine| wanted.push((benchmark, *metric, *engine)));
        }
    }
    let rows = document["rows"].as_array().expect("an array");
    let text = |row: &'_ serde_json::Value, name: &str| row[name].as_str().expect("text").to_owned();
    for row in rows {
        assert_eq!(keys(row), set(&["benchmark", "engine", "max", "median", "metric", "min", "runs", "unit"]));
        let unit = if row["metric"] == "threads" { "threads" } else { "ns" };
        assert_eq!((row["unit"].as_str(), row["runs"].as_u64()), (Some(unit), Some(1)));
        let number = |name: &str| row[name].as_f64().expect("a number");
        assert!(number("median") > 0.0 && number("min") <= number("median") && number("median") <= number("max"));
    }
    let found: Vec<_> =
        rows.iter().map(|row| (text(row, "benchmark"), text(row, "metric"), text(row, "engine"))).collect();
    let found: Vec<_> = found.iter().map(|(b, m, e)| (b.as_str(), m.as_str(), e.as_str())).collect();
    assert_eq!(found, wanted);
}

#[test]
fn table_and_targets() {
    let command = ["--quick", "--runs", "1", "-e", "freehold", "-e", "vanilla,-contig-free", "--targets", "contig"];
    let done = bench().args(command).assert().code(0).stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    for part in ["RMW", "in RMW", "CONTIG", "ns_per_group", "vanilla,-contig-free", "at most 15 RMW", "not measured"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // One line a target whose figures are there, one verdict each.
    assert_eq!(text.matches("met").count() + text.matches("MISSED").count(), 1, "{text}");
}

/// However few CPUs there are, it says how many threads it had, and judges nothing that it has not measured.
#[test]
fn sixteen_threads_says_how_many_there_were() {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let command = ["--quick", "--runs", "1", "-e", "freehold", "--targets", "sixteen-threads"];
    let done = bench().args(command).assert().code(0);
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    if cpus == 1 {
        assert!(!text.contains("SIXTEEN-THREADS"), "{text}");
        return;
    }
    let row = text.lines().find(|line| line.trim_start().starts_with("threads ")).expect("how many threads");
    assert!(row.split_whitespace().any(|word| word == cpus.min(16).to_string()), "{row}");
    let judged = text.matches("met").count() + text.matches("MISSED").count();
    if cpus < 16 {
        let error = String::from_utf8(done.get_output().stderr.clone()).expect("UTF-8");
        assert!(error.contains(&format!("ran {cpus} threads")), "{error}");
        assert_eq!((judged, text.matches("not judged").count()), (0, 2), "{text}");
    } else {
        assert_eq!(judged, 2, "{text}");
    }
}

#[test]
fn list_names_everything() {
    let done = bench().arg("--list").assert().code(0).stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    for (benchmark, metrics, _) in METRICS {
        assert!(text.contains(&benchmark.to_uppercase()), "{benchmark}");
        metrics.iter().for_each(|metric| assert!(text.contains(metric), "{metric}"));
    }
    let done = bench().args(["--list", "--json", "pair"]).assert().code(0);
    let list: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(list[0]["name"], "pair");
    assert_eq!(list.as_array().map(Vec::len), Some(1));
}

#[test]
fn unknown_names() {
    bench().arg("bulkk").assert().code(2).stdout("").stderr(contains("bulkk").and(contains("did you mean 'bulk'")));
    bench().arg("nothing-like-it").assert().code(2).stderr(contains("--list"));
    bench().args(["-e", "freehoold"]).assert().code(2).stderr(contains("did you mean 'freehold'"));
    bench().args(["-e", "buddy_system"]).assert().code(2).stderr(contains("did you mean 'buddy_system_allocator'"));
    bench().args(["-e", "vanilla,-merg"]).assert().code(2).stderr(contains("did you mean 'merge'"));
    bench().args(["--runs", "0"]).assert().code(2);
    bench().args(["--targets", "--json"]).assert().code(2);
}
