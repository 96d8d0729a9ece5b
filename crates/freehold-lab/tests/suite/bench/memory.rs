//! `freehold bench` of memory: what can be counted exactly, the shape of its JSON, and what
//! it says where the system lacks something. Nothing here looks at a time.

use std::collections::BTreeSet;

use super::bench;
use crate::common::{document_of, skipped};

/// Metric and engine of each row of a quick run, and what was said besides. Of the engine that the
/// benchmark has nothing of there is no row: it is named instead.
fn rows(
    benchmark: &str,
    engine: &str,
    unsuited: &str,
) -> (BTreeSet<(String, String)>, serde_json::Value, String) {
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "--json", benchmark, "-e", engine, "-e", unsuited]);
    let done = command.assert().code(0);
    let document = document_of(&done);
    let mut found = BTreeSet::new();
    for row in document["rows"].as_array().expect("an array") {
        assert_eq!((row["benchmark"].as_str(), row["runs"].as_u64()), (Some(benchmark), Some(1)));
        assert!(["less", "more"].map(Some).contains(&row["better"].as_str()), "{row}");
        assert!(row["median"].as_f64().expect("a number") >= 0.0);
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        assert_ne!(row["engine"], unsuited, "{row}");
        assert!(found.insert((text("metric"), text("engine"))), "{row} twice");
    }
    let named = document["left_out"].as_array().expect("an array");
    let start = format!("{benchmark}, {unsuited}: ");
    let of_it = |said: &&serde_json::Value| said.as_str().is_some_and(|it| it.starts_with(&start));
    assert_eq!(named.iter().filter(of_it).count(), 1, "{named:?}");
    let error = String::from_utf8(done.get_output().stderr.clone()).expect("UTF-8");
    (found, document, error)
}

/// Where memory is short there is nothing to measure: 1 GiB is in use at a time, and twice for a
/// moment.
fn has_memory(test: &str) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0);
    if kib < 3 << 20 {
        skipped(&format!("{test}: {kib} KiB of memory are available, and 3 GiB are needed"));
    }
    kib >= 3 << 20
}

const ARENA: [&str; 7] = [
    "ns_per_pair_4k",
    "ns_per_pair_64k",
    "ns_per_pair_2m",
    "mib_after_purge_4k",
    "ms_purge_4k",
    "mib_after_purge_64k",
    "ms_purge_64k",
];
const EMPTY: [&str; 4] = ["kib_empty_1t", "ms_empty_1t", "kib_empty_16t", "ms_empty_16t"];
const DOUBLED: [&str; 2] = ["mib_peak_doubled", "ms_doubled"];

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn arena_has_its_rows_beside_malloc_and_keeps_to_its_memory() {
    let test = "arena_has_its_rows_beside_malloc_and_keeps_to_its_memory";
    if !has_memory(test) {
        return;
    }
    let (found, document, error) = rows("arena", "freehold", "vanilla");
    let mut expected = BTreeSet::new();
    let mut want = |names: &[&str], engine: &str| {
        expected.extend(names.iter().map(|&name| (name.to_owned(), engine.to_owned())));
    };
    want(&ARENA, "freehold");
    want(&EMPTY, "freehold");
    want(&ARENA, "malloc");
    want(&["ms_doubled"], "linux");
    if !error.contains("one mapping of huge pages left out") {
        want(&["ms_doubled_huge"], "linux");
    }
    if error.contains("the peak of a doubled buffer left out") {
        skipped(&format!("{test}: {error}"));
    } else {
        want(&DOUBLED, "freehold");
        want(&["mib_peak_doubled_huge", "ms_doubled_huge"], "freehold");
        want(&DOUBLED, "malloc");
    }
    assert_eq!(found, expected);
    let figure = |name: &str| {
        let rows = document["rows"].as_array().expect("an array");
        let row = rows.iter().find(|row| row["metric"] == name && row["engine"] == "freehold");
        row.and_then(|row| row["median"].as_f64())
    };
    // Memory, not time. 16 MiB of the 64 KiB pieces are in use.
    for (metric, range) in [
        ("mib_after_purge_4k", 1.0..=20.0),
        ("mib_after_purge_64k", 15.9..=20.0),
        ("kib_empty_1t", 0.0..=1024.0),
    ] {
        assert!(figure(metric).is_some_and(|of| range.contains(&of)), "{metric}: {document}");
    }
    for metric in ["mib_peak_doubled", "mib_peak_doubled_huge"] {
        assert!(figure(metric).is_none_or(|mib| (511.0..=520.0).contains(&mib)), "{document}");
    }
}
