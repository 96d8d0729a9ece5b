//! `freehold compare`: which figures are put beside each other, what is called worse, and what is
//! refused.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::common::freehold;
use crate::common::machine_files::Folder;
use crate::common::tables::assert_printed;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

fn json_file(folder: &Folder, name: &str, document: &Value) -> PathBuf {
    folder.file(name, document.to_string())
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

/// A replay by engines, each of which took so many locks.
fn replayed(engines: &[&str], locks: u64) -> Value {
    let one = |name: &&str| json!({"engine": name, "zone_lock_acquisitions": locks});
    json!({
        "trace": {"name": "a recording"}, "replayed_events": 1000,
        "machine": {"cpus": 1, "memory_frames": 1 << 18, "origin": "recorded"},
        "engines": engines.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Runs `compare --json` and gives its exit code and what it found.
fn compare(before: &Value, after: &Value, more: &[&str]) -> (i32, Value) {
    let folder = Folder::new();
    let (a, b) = (json_file(&folder, "a.json", before), json_file(&folder, "b.json", after));
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
    let files = [json_file(&folder, "a.json", &two), json_file(&folder, "b.json", &slower)];
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
    let before = json_file(&folder, "before.json", &replayed(&["x"], 8));
    let after = json_file(&folder, "after.json", &replayed(&["x"], 15));
    let done = freehold().arg("compare").args([&before, &after]).assert().success();
    for expected in
        ["before.json", "after.json", "zone_lock_acquisitions", "+87.5%", "worse", "Worst:"]
    {
        assert!(
            String::from_utf8_lossy(&done.get_output().stdout).contains(expected),
            "{expected}"
        );
    }
    let same = freehold().arg("compare").args([&before, &before]).assert().success();
    same.stdout(contains("0 are worse").and(contains("are not shown")));
    let all = freehold().args(["compare", "--all"]).args([&before, &before]).assert().success();
    all.stdout(contains("zone_lock_acquisitions"));
}

#[test]
fn a_comparison_fits_the_terminal_and_names_a_machine_once() {
    let folder = Folder::new();
    let before = json_file(&folder, "a.json", &replayed(&["6.18", "vanilla", "pcp-buddy"], 12_345));
    let after = json_file(&folder, "b.json", &replayed(&["6.18"], 23_456));
    let compare = || {
        let mut command = freehold();
        command.arg("compare").args([&before, &after]);
        command
    };
    assert_printed(compare);
    let wide = compare().arg("--wide").output().expect("it runs").stdout;
    let wide = String::from_utf8(wide).expect("UTF-8");
    let flat = wide.split_whitespace().collect::<Vec<_>>().join(" ");
    let only = "Only in a.json: engines vanilla, pcp-buddy on a recording, 1,000 events, on 1 CPU \
                with 1.00 GiB, recorded machine.";
    assert!(flat.contains(only), "{wide}");
}

#[test]
fn what_cannot_be_compared_is_said_with_what_to_do() {
    let folder = Folder::new();
    let one = json_file(&folder, "one.json", &replayed(&["x"], 1));
    let other = json_file(&folder, "other.json", &replayed(&["y"], 1));
    let twice = json_file(&folder, "twice.json", &replayed(&["x", "x"], 1));
    let cells = json_file(
        &folder,
        "cells.json",
        &json!({"cells": [{"workload": "aging", "engine": "x", "failures": 1}]}),
    );
    let bench = json_file(&folder, "bench.json", &json!({"yardstick": {}, "rows": []}));
    let empty = json_file(&folder, "empty.json", &json!({"cells": []}));
    let unknown = json_file(&folder, "unknown.json", &json!({"a": 1}));
    let page = folder.path().join("page.html");
    fs::write(&page, "<!DOCTYPE html><p>hello").unwrap();
    for (files, more, expected) in [
        ([&one, &cells], &[][..], "a result of replay, cells.json of contiguity"),
        ([&one, &other], &[], "no figure in common: the first has engine x on a recording"),
        ([&one, &twice], &[], "twice.json has zone_lock_acquisitions of x twice"),
        ([&one, &empty], &[], "no figure in empty.json"),
        ([&bench, &bench], &[], "bench.json is what freehold bench printed"),
        ([&unknown, &one], &[], "unknown.json: this is not an output of"),
        ([&page, &one], &[], "page.html is not JSON"),
        ([&one, &one], &["--worse", "much"], "'much' is not a percentage"),
        ([&one, &folder.path().join("missing.json")], &[], "cannot read"),
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
    let (plain, other) = (simulate(&[]), simulate(&["--frames", "5000"]));
    assert!(other != plain && other.contains("5,000 frames measured"), "{plain}; {other}");
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
