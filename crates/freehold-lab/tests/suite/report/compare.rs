//! `freehold compare`: which figures are put beside each other, what is called worse, and what is
//! refused.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

fn freehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn json(&self, name: &str, document: &Value) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, document.to_string()).expect("a file in a temporary folder");
        path
    }
}

/// What a command prints with `--json`.
fn result(arguments: &[&str]) -> Value {
    serde_json::from_slice(&crate::report::commands::freehold(arguments)).expect("valid JSON")
}

/// The sample through these engines: what several tests look at is replayed once.
static REPLAY: LazyLock<Value> =
    LazyLock::new(|| result(&["replay", "--json", "-e", "vanilla", "-e", "freehold"]));

/// What the replay says of one of them.
fn replay_of(engine: usize) -> Value {
    let mut document = REPLAY.clone();
    document["engines"] = json!([REPLAY["engines"][engine]]);
    document
}

fn bench(engine: &str, runs: &[f64]) -> Value {
    let row = json!({
        "benchmark": "pair", "engine": engine, "metric": "ns_per_pair_order0", "unit": "ns", "better": "less",
        "median": (runs[(runs.len() - 1) / 2] + runs[runs.len() / 2]) / 2.0, "min": runs[0], "max": runs[runs.len() - 1],
        "runs": runs.len(), "values": runs,
    });
    json!({"yardstick": {"rmw_ns": 5.0, "handover_ns": 60.0}, "rows": [row]})
}

/// Runs `compare --json` and gives its exit code and what it found.
fn compare(before: &Value, after: &Value, more: &[&str]) -> (i32, Value) {
    let folder = Folder::new();
    let (a, b) = (folder.json("a.json", before), folder.json("b.json", after));
    let done =
        freehold().args(["compare", "--json"]).args(more).arg(a).arg(b).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let found =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (done.status.code().unwrap(), found)
}

#[test]
fn a_replay_beside_itself_is_the_same_and_a_worse_one_is_found() {
    let before = REPLAY.clone();
    let (code, found) = compare(&before, &before, &["--worse", "0"]);
    assert_eq!((code, &found["worse"], &found["better"]), (0, &json!(0), &json!(0)));
    let figures = found["figures"].as_array().unwrap();
    assert!(figures.len() >= 2 * 17, "{} figures", figures.len());
    assert!(
        figures.iter().all(|one| one["what"].as_str().unwrap().starts_with("page-cache-churn"))
    );
    for engine in before["engines"].as_array().unwrap() {
        let of =
            |one: &&Value| one["engine"] == engine["engine"] && one["metric"] == "shared_writes";
        let one = figures.iter().find(of).expect("its writes to what CPUs share");
        assert_eq!(
            (&one["before"], &one["percent"]),
            (&json!(engine["shared_writes"].as_f64()), &json!(0.0))
        );
    }

    let mut after = before.clone();
    let writes = before["engines"][1]["shared_writes"].as_u64().unwrap();
    after["engines"][1]["shared_writes"] = json!(writes * 104 / 100);
    for (more, expected) in [(&["--worse", "3"][..], 1), (&["--worse", "5"], 0), (&[], 0)] {
        assert_eq!(compare(&before, &after, more).0, expected, "{more:?}");
    }
    // The other way round it is better, which is no failure.
    let (code, found) = compare(&after, &before, &["--worse", "3"]);
    assert_eq!((code, &found["better"]), (0, &json!(1)));

    after["engines"][1]["ns_per_event"] = json!(1e6);
    after["engines"][1]["shared_writes"] = json!(writes);
    assert_eq!(
        compare(&before, &after, &["--worse", "0"]).0,
        0,
        "a replay's time is noisy and not judged"
    );
}

#[test]
fn of_benchmarks_only_a_significant_difference_is_worse() {
    let before = bench("x", &[10.0, 11.0, 12.0, 13.0]);
    let (code, found) =
        compare(&before, &bench("x", &[20.0, 21.0, 22.0, 23.0]), &["--worse", "50"]);
    assert_eq!((code, &found["figures"][0]["verdict"]), (1, &json!("worse")));
    assert!((found["figures"][0]["p"].as_f64().unwrap() - 2.0 / 70.0).abs() < 1e-9);
    let (code, found) =
        compare(&before, &bench("x", &[12.5, 21.0, 22.0, 23.0]), &["--worse", "50"]);
    assert_eq!((code, &found["figures"][0]["verdict"]), (0, &json!("unclear")));
}

#[test]
fn what_bench_prints_has_its_runs() {
    let now = result(&["bench", "--quick", "--runs", "4", "--json", "-e", "freehold", "pair"]);
    for row in now["rows"].as_array().unwrap() {
        let runs = row["runs"].as_u64().unwrap();
        let values: Vec<f64> = row["values"]
            .as_array()
            .map_or(Vec::new(), |all| all.iter().map(|one| one.as_f64().unwrap()).collect());
        assert_eq!(values.len() as u64, if runs > 1 { runs } else { 0 }, "{row}");
        assert!(
            values.is_empty()
                || (values.first(), values.last())
                    == (row["min"].as_f64().as_ref(), row["max"].as_f64().as_ref())
        );
        assert!(values.is_sorted());
        // Counted on one thread before the runs, or a time.
        assert_eq!(row["exact"], row["unit"] != "ns", "{row}");
    }
    assert_eq!(now["rows"][0]["runs"], 4);
    assert_eq!(compare(&now, &now, &["--worse", "0"]).0, 0);
}

#[test]
fn cells_and_simulations_are_matched_by_machine_and_seed() {
    let cell =
        ["contiguity", "-w", "aging", "--cpus", "2", "--memory", "64M", "--used", "70", "--json"];
    let more = ["--allocations", "2000", "--engines", "freehold", "--no-progress", "--seeds"];
    let grid = |seeds: &str| result(&[&cell[..], &more, &[seeds]].concat());
    let before = grid("1,2");
    let (code, found) = compare(&before, &before, &["--worse", "0"]);
    assert_eq!(code, 0);
    assert!(found["figures"].as_array().unwrap().iter().all(|one| one["seeds"] == 2));
    let mut after = before.clone();
    let share = before["cells"][0]["order9_share"].as_f64().unwrap();
    after["cells"][0]["order9_share"] = json!(share / 2.0);
    let (code, found) = compare(&before, &after, &["--worse", "1"]);
    assert_eq!((code, &found["worse"]), (1, &json!(1)), "{found}");
    let (_, found) = compare(&before, &grid("2,3"), &[]);
    assert!(found["figures"].as_array().unwrap().iter().all(|one| one["seeds"] == 1));
    assert!(
        !found["only_before"].as_array().unwrap().is_empty()
            && !found["only_after"].as_array().unwrap().is_empty()
    );

    let simulate = |cpus: &str| {
        let engines =
            ["-e", "vanilla", "-e", "freehold", "--no-progress", "--json", "-w", "pair", "--cpus"];
        result(&[&["simulate", "--frames", "20000"], &engines[..], &[cpus]].concat())
    };
    let (two, four) = (simulate("2"), simulate("2,4"));
    let (code, found) = compare(&two, &four, &["--worse", "0"]);
    assert_eq!((code, found["only_before"].as_array().unwrap().len()), (0, 0));
    assert!(
        found["only_after"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["what"].as_str().unwrap().contains("4 CPUs"))
    );
    let mut slower = two.clone();
    slower["rows"][1]["frames_per_second"] = json!(1.0);
    let (code, found) = compare(&two, &slower, &["--worse", "50"]);
    assert_eq!((code, &found["worse"]), (1, &json!(1)));
    slower["model"]["rmw_ns"] = json!(1234.5);
    let folder = Folder::new();
    let files = [folder.json("a.json", &two), folder.json("b.json", &slower)];
    freehold()
        .arg("compare")
        .args(files)
        .assert()
        .code(2)
        .stderr(contains("different constants").and(contains("hint")));
}

#[test]
fn the_table_says_it_in_words() {
    let folder = Folder::new();
    let before = folder.json("before.json", &bench("x", &[10.0, 11.0, 12.0, 13.0]));
    let mut after = bench("x", &[20.0, 21.0, 22.0, 23.0]);
    after["yardstick"]["rmw_ns"] = json!(9.0);
    let after = folder.json("after.json", &after);
    let done = freehold().arg("compare").args([&before, &after]).assert().success();
    for expected in [
        "before.json",
        "after.json",
        "ns_per_pair_order0",
        "+87.0%",
        "0.029",
        "worse",
        "Worst:",
        "two machines",
    ] {
        assert!(
            String::from_utf8_lossy(&done.get_output().stdout).contains(expected),
            "{expected}"
        );
    }
    let same = freehold().arg("compare").args([&before, &before]).assert().success();
    same.stdout(contains("0 are worse").and(contains("are not shown")));
    let all = freehold().args(["compare", "--all"]).args([&before, &before]).assert().success();
    all.stdout(contains("ns_per_pair_order0"));
}

#[test]
fn what_only_one_result_has_is_named_by_its_engine() {
    let both = |one: &str, two: &str| {
        let (mut first, second) = (bench(one, &[1.0]), bench(two, &[1.0]));
        first["rows"].as_array_mut().unwrap().push(second["rows"][0].clone());
        first
    };
    let folder = Folder::new();
    let before = folder.json("a.json", &both("freehold", "vanilla"));
    let after = folder.json("b.json", &both("freehold", "pcp-buddy"));
    let done = freehold().arg("compare").args([before, after]).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("engine vanilla on pair."), "{said}");
    assert!(flat.contains("engine pcp-buddy on pair."), "{said}");
}

#[test]
fn a_comparison_fits_the_terminal_and_names_a_machine_once() {
    let replayed = |engines: &[&str], locks: u64| {
        let one = |name: &&str| json!({"engine": name, "zone_lock_acquisitions": locks});
        json!({
            "trace": {"name": "a recording"}, "replayed_events": 1000,
            "machine": {"cpus": 1, "memory_frames": 1 << 18, "origin": "recorded"},
            "engines": engines.iter().map(one).collect::<Vec<_>>(),
        })
    };
    let folder = Folder::new();
    let before = folder.json("a.json", &replayed(&["6.18", "vanilla", "pcp-buddy"], 12_345));
    let after = folder.json("b.json", &replayed(&["6.18"], 23_456));
    let printed = |columns: Option<u16>| {
        let mut command = freehold();
        command.arg("compare").args([&before, &after]);
        match columns {
            Some(columns) => command.env("COLUMNS", columns.to_string()),
            None => command.arg("--wide"),
        };
        String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8")
    };
    let wide = printed(None);
    for width in crate::common::tables::WIDTHS {
        crate::common::tables::assert_whole(&printed(Some(width)), &wide, width);
    }
    let flat = wide.split_whitespace().collect::<Vec<_>>().join(" ");
    let only = "Only in a.json: engines vanilla, pcp-buddy on a recording, 1,000 events, on 1 CPU \
                with 1.00 GiB, recorded machine.";
    assert!(flat.contains(only), "{wide}");
    // Counts have no probability, and no empty column for it.
    assert!(flat.contains("metric engine a.json b.json change verdict"), "{wide}");
}

#[test]
fn what_cannot_be_compared_is_said_with_what_to_do() {
    let folder = Folder::new();
    let pair = folder.json("pair.json", &bench("x", &[1.0, 2.0]));
    let other = folder.json("other.json", &bench("y", &[1.0, 2.0]));
    let mut twice = bench("x", &[1.0, 2.0]);
    let row = twice["rows"][0].clone();
    twice["rows"].as_array_mut().unwrap().push(row);
    let twice = folder.json("twice.json", &twice);
    let cells = folder.json(
        "cells.json",
        &json!({"cells": [{"workload": "aging", "engine": "x", "failures": 1}]}),
    );
    let empty = folder.json("empty.json", &json!({"yardstick": {}, "rows": []}));
    let unknown = folder.json("unknown.json", &json!({"a": 1}));
    let page = folder.0.path().join("page.html");
    fs::write(&page, "<!DOCTYPE html><p>hello").unwrap();
    for (files, more, expected) in [
        ([&pair, &cells], &[][..], "a result of bench, cells.json of contiguity"),
        (
            [&pair, &other],
            &[],
            "no figure in common: the first has engine x on pair, the second engine y on pair",
        ),
        ([&pair, &twice], &[], "twice.json has ns_per_pair_order0 of x twice"),
        ([&pair, &empty], &[], "no figure in empty.json"),
        ([&unknown, &pair], &[], "unknown.json: this is not an output of"),
        ([&page, &pair], &[], "page.html is not JSON"),
        ([&pair, &pair], &["--worse", "much"], "'much' is not a percentage"),
        ([&pair, &folder.0.path().join("missing.json")], &[], "cannot read"),
    ] {
        let done = freehold().arg("compare").args(files).args(more).assert().code(2).stdout("");
        done.stderr(
            contains(expected)
                .and(contains("hint").or(contains("--help")).or(contains("No such file"))),
        );
    }
    freehold().args(["compare", "-", "-"]).assert().code(2).stderr(contains("only once"));
}

#[test]
fn what_is_not_exact_is_unclear_until_runs_agree() {
    // Of benchmarks, a result says of each row whether it is exact.
    let count = |exact: bool, value: f64| {
        let row = json!({
            "benchmark": "exit-avalanche", "engine": "x", "metric": "zone_lock_acquisitions_per_1000_frames",
            "unit": "acquisitions", "better": "less", "median": value, "min": value, "max": value, "runs": 1, "exact": exact,
        });
        json!({"yardstick": {}, "rows": [row]})
    };
    for (exact, code, verdict) in [(true, 1, "worse"), (false, 0, "unclear")] {
        let (found_code, found) =
            compare(&count(exact, 10.0), &count(exact, 20.0), &["--worse", "1"]);
        assert_eq!(
            (found_code, &found["figures"][0]["verdict"]),
            (code, &json!(verdict)),
            "{exact}"
        );
    }
}

#[test]
fn other_machines_are_other_places() {
    let place = |document: &Value| {
        let (_, found) = compare(document, document, &[]);
        found["figures"][0]["what"].as_str().expect("a place").to_owned()
    };
    let simulate = |more: &[&str]| {
        let plain = [
            "simulate",
            "-e",
            "vanilla",
            "--no-progress",
            "--json",
            "-w",
            "pair",
            "--cpus",
            "2",
            "--memory",
            "1G",
        ];
        place(&result(&[&plain[..], more].concat()))
    };
    let plain = simulate(&[]);
    for (more, says) in
        [(&["--nodes", "2"][..], "on 2 nodes"), (&["--frames", "5000"], "5,000 frames measured")]
    {
        let other = simulate(more);
        assert!(other != plain && other.contains(says), "{plain}; {other}");
    }
    let aging = |allocations: &str| {
        let cell = [
            "contiguity",
            "-w",
            "aging",
            "--cpus",
            "2",
            "--memory",
            "16M",
            "--used",
            "50",
            "--json",
        ];
        let more =
            ["--engines", "vanilla", "--no-progress", "--seeds", "1", "--allocations", allocations];
        place(&result(&[&cell[..], &more].concat()))
    };
    assert!(aging("2000").contains("2,000 allocations"));
    let mut replay = replay_of(0);
    replay["machine"]["cma_frames"] = json!(1 << 16);
    assert!(place(&replay).contains("256.0 MiB of it CMA"));
}
