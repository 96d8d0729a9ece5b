//! `freehold compare`: which figures are put beside each other, what is called worse, and what is
//! refused.

use std::fs;
use std::sync::LazyLock;

use crate::common::machine_files::Folder;
use crate::common::tables::assert_printed;
use crate::common::{assert_refused, flat, freehold, result, text};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

/// The sample through these engines: what several tests look at is replayed once.
static REPLAY: LazyLock<Value> = LazyLock::new(|| result("replay --json -e vanilla -e freehold"));

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
    let (a, b) =
        (folder.file("a.json", before.to_string()), folder.file("b.json", after.to_string()));
    let done =
        freehold().args(["compare", "--json"]).args(more).arg(a).arg(b).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let found = serde_json::from_slice(&done.stdout);
    (done.status.code().unwrap(), found.unwrap_or_else(|error| panic!("{error}: {said}")))
}

#[test]
fn a_replay_beside_itself_is_the_same_and_a_worse_one_is_found() {
    let before = REPLAY.clone();
    let (code, found) = compare(&before, &before, &["--worse", "0"]);
    assert_eq!((code, &found["worse"], &found["better"]), (0, &json!(0), &json!(0)));
    let figures = found["figures"].as_array().unwrap();
    assert!(figures.len() >= 2 * 17, "{} figures", figures.len());
    let what = |one: &Value| one["what"].as_str().unwrap().starts_with("page-cache-churn");
    assert!(figures.iter().all(what));
    for engine in before["engines"].as_array().unwrap() {
        let of =
            |one: &&Value| one["engine"] == engine["engine"] && one["metric"] == "shared_writes";
        let one = figures.iter().find(of).expect("its writes to what CPUs share");
        assert_eq!(one["before"].as_f64(), engine["shared_writes"].as_f64());
        assert_eq!(one["percent"], 0.0);
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
    let noisy = compare(&before, &after, &["--worse", "0"]);
    assert_eq!(noisy.0, 0, "a replay's time is noisy and not judged");
}

#[test]
fn cells_and_simulations_are_matched_by_machine_and_seed() {
    let cell = "contiguity -w aging --cpus 2 --memory 64M --used 70 --json --allocations 2000 \
                --engines freehold --no-progress --seeds";
    let grid = |seeds: &str| result(&format!("{cell} {seeds}"));
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
    for only in ["only_before", "only_after"] {
        assert!(!found[only].as_array().unwrap().is_empty(), "{only}");
    }

    let simulate = |cpus: &str| {
        let engines = "-e vanilla -e freehold --no-progress --json -w pair --cpus";
        result(&format!("simulate --frames 20000 {engines} {cpus}"))
    };
    let (two, four) = (simulate("2"), simulate("2,4"));
    let (code, found) = compare(&two, &four, &["--worse", "0"]);
    assert_eq!((code, found["only_before"].as_array().unwrap().len()), (0, 0));
    let mut more = found["only_after"].as_array().unwrap().iter();
    assert!(more.all(|one| one["what"].as_str().unwrap().contains("4 CPUs")));
    let mut slower = two.clone();
    slower["rows"][1]["frames_per_second"] = json!(1.0);
    let (code, found) = compare(&two, &slower, &["--worse", "50"]);
    assert_eq!((code, &found["worse"]), (1, &json!(1)));
    slower["model"]["rmw_ns"] = json!(1234.5);
    let folder = Folder::new();
    let files = [folder.file("a.json", two.to_string()), folder.file("b.json", slower.to_string())];
    assert_refused(freehold().arg("compare").args(files), &["different constants", "hint"]);
}

#[test]
fn machines_of_other_page_sizes_are_other_machines() {
    let (before, mut after) = (replayed(&["x"], 8), replayed(&["x"], 8));
    after["machine"]["page_size"] = json!(65536);
    let folder = Folder::new();
    let files =
        [folder.file("a.json", before.to_string()), folder.file("b.json", after.to_string())];
    assert_refused(freehold().arg("compare").args(files), &["with 1.00 GiB", "with 16.00 GiB"]);
}

#[test]
fn the_table_says_it_in_words() {
    let folder = Folder::new();
    let before = folder.file("before.json", replayed(&["x"], 8).to_string());
    let after = folder.file("after.json", replayed(&["x"], 15).to_string());
    let done = freehold().arg("compare").args([&before, &after]).assert().success();
    for expected in "before.json after.json zone_lock_acquisitions +87.5% worse Worst:".split(' ') {
        assert!(text(&done).contains(expected), "{expected}");
    }
    let same = freehold().arg("compare").args([&before, &before]).assert().success();
    same.stdout(contains("0 are worse").and(contains("are not shown")));
    let all = freehold().args(["compare", "--all"]).args([&before, &before]).assert().success();
    all.stdout(contains("zone_lock_acquisitions"));
}

#[test]
fn a_comparison_fits_the_terminal_and_names_a_machine_once() {
    let folder = Folder::new();
    let before =
        folder.file("a.json", replayed(&["6.18", "vanilla", "pcp-buddy"], 12_345).to_string());
    let after = folder.file("b.json", replayed(&["6.18"], 23_456).to_string());
    let compare = || {
        let mut command = freehold();
        command.arg("compare").args([&before, &after]);
        command
    };
    assert_printed(compare);
    let wide = text(&compare().arg("--wide").assert().success());
    let only = "Only in a.json: engines vanilla, pcp-buddy on a recording, 1,000 events, on 1 CPU \
                with 1.00 GiB, recorded machine.";
    assert!(flat(&wide).contains(only), "{wide}");
}

#[test]
fn what_cannot_be_compared_is_said_with_what_to_do() {
    let folder = Folder::new();
    let one = folder.file("one.json", replayed(&["x"], 1).to_string());
    let other = folder.file("other.json", replayed(&["y"], 1).to_string());
    let twice = folder.file("twice.json", replayed(&["x", "x"], 1).to_string());
    let cells = json!({"cells": [{"workload": "aging", "engine": "x", "failures": 1}]});
    let cells = folder.file("cells.json", cells.to_string());
    let bench = folder.file("bench.json", json!({"yardstick": {}, "rows": []}).to_string());
    let empty = folder.file("empty.json", json!({"cells": []}).to_string());
    let unknown = folder.file("unknown.json", json!({"a": 1}).to_string());
    let page = folder.path().join("page.html");
    fs::write(&page, "<!DOCTYPE html><p>hello").unwrap();
    for (files, more, expected) in [
        ([&one, &cells], &[][..], "a result of replay, cells.json of contiguity"),
        ([&one, &other], &[], "no figure in common: the first has engine x on a recording"),
        ([&one, &twice], &[], "twice.json has zone_lock_acquisitions of x twice"),
        ([&one, &empty], &[], "no figure in empty.json"),
        ([&bench, &bench], &[], "within one run: freehold bench -e ONE -e OTHER"),
        ([&unknown, &one], &[], "unknown.json: this is not an output of"),
        ([&page, &one], &[], "page.html is not JSON"),
        ([&one, &one], &["--worse", "much"], "'much' is not a percentage"),
        ([&one, &folder.path().join("missing.json")], &[], "cannot read"),
    ] {
        let help = contains("hint").or(contains("--help")).or(contains("No such file"));
        let done = freehold().arg("compare").args(files).args(more).assert().code(2).stdout("");
        done.stderr(contains(expected).and(help));
    }
    freehold().args(["compare", "-", "-"]).assert().code(2).stderr(contains("only once"));
}

#[test]
fn other_machines_are_other_places() {
    let place = |document: &Value| {
        let (_, found) = compare(document, document, &[]);
        found["figures"][0]["what"].as_str().expect("a place").to_owned()
    };
    let simulate = |more: &str| {
        let plain = "simulate -e vanilla --no-progress --json -w pair --cpus 2 --memory 1G";
        place(&result(&format!("{plain} {more}")))
    };
    let (plain, other) = (simulate(""), simulate("--frames 5000"));
    assert!(other != plain && other.contains("5,000 frames measured"), "{plain}; {other}");
    let aging = |allocations: &str| {
        let cell = "contiguity -w aging --cpus 2 --memory 16M --used 50 --json --engines vanilla \
                    --no-progress --seeds 1 --allocations";
        place(&result(&format!("{cell} {allocations}")))
    };
    assert!(aging("2000").contains("2,000 allocations"));
    let mut replay = REPLAY.clone();
    replay["engines"] = json!([REPLAY["engines"][0]]);
    replay["machine"]["cma_frames"] = json!(1 << 16);
    assert!(place(&replay).contains("256.0 MiB of it CMA"));
}
