//! `freehold bench` as a command: the shape of its JSON, its lists, its errors. Nothing here looks
//! at a time.

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

/// Every benchmark, with a metric or two that pages name.
const NAMED: [(&str, &[&str]); 13] = [
    ("pair", &["ns_per_pair_order0", "ns_per_pair_order9"]),
    ("bulk", &["ns_per_alloc", "ns_per_free", "ns_per_frame_bulk_alloc"]),
    ("random-free", &["ns_per_free"]),
    ("producer-consumer", &["ns_per_frame", "ns_per_frame_depth_16", "most_reused_depth_16"]),
    ("depth", &["ns_per_pair_8_lifo", "ns_per_pair_512_random"]),
    ("churn", &["ns_per_step_50", "ns_per_step_90"]),
    ("mixed", &["ns_per_step_50", "failures_per_1000_90"]),
    ("orders", &["ns_per_pair_order9", "ns_per_step_order3"]),
    ("used", &["ns_per_step_order0", "ns_per_step_order8"]),
    ("near-mark", &["ns_per_step_950", "ns_per_step_995", "ns_per_step_980_order6"]),
    ("near-mark-1024", &["ns_per_step_900", "ns_per_step_980"]),
    ("tails", &["alloc_p99_ns", "alloc_p999_ns", "alloc_p9999_ns"]),
    ("arena", &["ns_per_pair_4k", "mib_after_purge_64k"]),
];

/// What `--list --json` says: each benchmark's name, metrics, and the fewest threads it takes.
fn listed() -> Vec<(String, Vec<String>, u64)> {
    let done = bench().args(["--list", "--json"]).assert().code(0);
    let list: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    let name = |of: &serde_json::Value| of["name"].as_str().expect("a name").to_owned();
    let all = list.as_array().expect("an array").iter();
    all.map(|one| {
        let metrics = one["metrics"].as_array().expect("an array").iter().map(name).collect();
        (name(one), metrics, one["fewest_threads"].as_u64().expect("a number"))
    })
    .collect()
}

fn two_cpus() -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !two {
        // Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be
        // seen.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: benchmarks of two threads; this machine has one CPU"
        );
    }
    two
}

fn keys(value: &serde_json::Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// A row of one run has all fields that it must have, and no others.
fn whole(row: &serde_json::Value) {
    let fields = "benchmark better engine exact max median metric min runs unit";
    let mut wanted: BTreeSet<&str> = fields.split(' ').collect();
    if row["engine"] != "freehold" && !row["baseline"].is_null() {
        wanted.extend(["baseline", "clear", "percent"]);
        assert_eq!(row["baseline"], "freehold");
        // One run against one.
        assert_eq!(row["clear"], false);
    }
    assert_eq!(keys(row), wanted, "{row}");
    assert_eq!(row["runs"].as_u64(), Some(1));
    let number = |name: &str| row[name].as_f64().expect("a number");
    assert!(
        number("median") >= 0.0
            && number("min") <= number("median")
            && number("median") <= number("max")
    );
    assert!(row["unit"] != "ns" || number("median") > 0.0, "{row}");
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn json_has_every_metric_of_every_engine() {
    let engines = ["freehold", "vanilla"];
    let two_cpus = two_cpus();
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "--json"]);
    engines.iter().for_each(|engine| {
        command.args(["-e", engine]);
    });
    // That of memory, whose engines are its own, is in `memory.rs`.
    let mut wanted = listed();
    wanted.retain(|(name, _, threads)| name != "arena" && (two_cpus || *threads < 2));
    command.args(wanted.iter().map(|(name, ..)| name));
    let done = command.assert().code(0);
    let document: serde_json::Value =
        serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    let said = ["barrier", "cpus", "interrupted", "left_out", "pinned"];
    assert_eq!(keys(&document), said.into_iter().chain(["rows", "yardstick"]).collect());
    assert_eq!(keys(&document["yardstick"]), BTreeSet::from(["rmw_ns"]));
    assert!(
        document["interrupted"] == false
            && document["pinned"].is_boolean()
            && document["barrier"].is_boolean()
    );
    assert!(!document["cpus"].as_array().expect("an array").is_empty());
    assert_eq!(document["left_out"], serde_json::json!([]));
    assert!(document["yardstick"]["rmw_ns"].as_f64().expect("a number") > 0.0);

    let rows = document["rows"].as_array().expect("an array");
    let text =
        |row: &'_ serde_json::Value, name: &str| row[name].as_str().expect("text").to_owned();
    rows.iter().for_each(whole);
    let found: BTreeSet<_> = rows
        .iter()
        .map(|row| (text(row, "benchmark"), text(row, "metric"), text(row, "engine")))
        .collect();
    assert_eq!(found.len(), rows.len(), "a row twice");
    for (benchmark, metrics, _) in wanted {
        for metric in metrics {
            // The kernel's mark is higher: it fails where nearly all memory is in use.
            let full = benchmark.starts_with("near-mark") && metric.as_str() > "ns_per_step_950";
            for engine in engines.into_iter().filter(|engine| !full || *engine == "freehold") {
                let row = (benchmark.clone(), metric.clone(), engine.to_owned());
                assert!(found.contains(&row), "{row:?}");
            }
        }
    }
}

/// Four runs of each engine: all of one above all of the other, or not.
#[test]
fn a_difference_is_clear_where_runs_do_not_overlap() {
    let command =
        ["--quick", "--runs", "4", "--json", "-e", "vanilla", "-e", "freehold", "random-free"];
    let done = bench().args(command).assert().code(0);
    let document: serde_json::Value =
        serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("an array");
    let [base, row] = ["vanilla", "freehold"].map(|engine| {
        let of = |row: &&serde_json::Value| row["engine"] == engine;
        rows.iter().find(of).expect("a row")
    });
    let of = |row: &serde_json::Value, name: &str| row[name].as_f64().expect("a number");
    let apart = of(row, "min") > of(base, "max") || of(row, "max") < of(base, "min");
    assert_eq!((row["clear"].as_bool(), row["baseline"].as_str()), (Some(apart), Some("vanilla")));
    assert!(row["percent"].as_f64().is_some() && base["clear"].is_null(), "{row}");
}

/// A machine that a terminal is told of in lines that fit.
fn fits(text: &str, columns: usize) {
    text.lines().for_each(|line| assert!(line.chars().count() <= columns, "{columns}: {line}"));
    // However the lines are broken.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("read-modify-write") && text.contains("of 4 runs at least"), "{text}");
}

#[test]
fn tables_fit_a_narrow_terminal() {
    let command = ["--quick", "--runs", "1", "pair"];
    let done = bench().env("COLUMNS", "80").args(command).assert().code(0);
    fits(&String::from_utf8_lossy(&done.get_output().stdout), 80);
}

/// Engines that need the feature `peers`.
const PEERS: [&str; 3] = ["mimalloc", "jemalloc", "snmalloc"];

#[test]
fn peers_are_known_by_name() {
    let help = bench().arg("--list").assert().code(0).stderr("");
    let text = String::from_utf8(help.get_output().stdout.clone()).expect("UTF-8");
    // However the lines are broken.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let always = ["freehold", "buddy_system_allocator", "llfree"];
    for engine in always.iter().chain(&PEERS) {
        assert!(text.contains(engine), "{engine}: {text}");
    }
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "--json", "pair", "arena", "-e", "freehold"]);
    PEERS.iter().for_each(|engine| {
        command.args(["-e", engine]);
    });
    if cfg!(feature = "peers") {
        let done = command.assert().code(0);
        let document: serde_json::Value =
            serde_json::from_slice(&done.get_output().stdout).expect("JSON");
        let rows = document["rows"].as_array().expect("an array");
        for engine in PEERS {
            let pair = |row: &&serde_json::Value| {
                row["engine"] == engine && row["metric"] == "ns_per_pair_order0"
            };
            assert_eq!(rows.iter().filter(pair).count(), 1, "{engine}");
        }
        let left_out = document["left_out"].to_string();
        assert_eq!(left_out.matches("arena, ").count(), 2, "{left_out}");
    } else {
        let wanted = contains("engine mimalloc needs a build with --features peers");
        command
            .assert()
            .code(2)
            .stdout("")
            .stderr(wanted.and(contains("--features peers -- bench -e")));
        assert!(text.contains("needs a build with --features peers"), "{text}");
    }
}

/// The one that the registry does not have: it is measured, or says what it needs.
#[test]
fn a_peer_in_c_is_known_by_name() {
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "-e", "llfree", "pair", "churn", "arena"]);
    if cfg!(feature = "llfree") {
        let measured = contains("ns_per_pair_order9").and(contains("ns_per_step_90"));
        command.assert().code(0).stdout(measured).stderr(contains("warning: arena, llfree: "));
    } else {
        let needs = contains("engine llfree needs a build with --features llfree");
        command.assert().code(2).stdout("").stderr(needs.and(contains("git clone")));
    }
}

#[test]
fn the_table_has_each_metric_and_engine() {
    let command =
        ["--quick", "--runs", "1", "-e", "freehold", "-e", "vanilla,-contig-free", "mixed"];
    let done = bench().args(command).assert().code(0).stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    fits(&text, 120);
    for part in ["RMW", "MIXED", "ns_per_step_50", "vanilla,-contig-free"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn list_names_everything() {
    let done = bench().arg("--list").assert().code(0).stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    let listed = listed();
    assert_eq!(listed.len(), NAMED.len());
    for ((benchmark, metrics), (name, known, _)) in NAMED.iter().zip(&listed) {
        assert_eq!(benchmark, name);
        assert!(text.contains(&benchmark.to_uppercase()), "{benchmark}");
        let is_known = |metric: &&str| known.iter().any(|known| known == metric);
        assert!(metrics.iter().all(is_known), "{benchmark}: {known:?}");
        known.iter().for_each(|metric| assert!(text.contains(metric), "{metric}"));
    }
    assert_eq!(text.matches("  Source: ").count(), NAMED.len());
    let done = bench().args(["--list", "--json", "pair"]).assert().code(0);
    let list: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(list[0]["name"], "pair");
    assert_eq!(list.as_array().map(Vec::len), Some(1));
}

#[test]
fn unknown_names() {
    bench()
        .arg("bulkk")
        .assert()
        .code(2)
        .stdout("")
        .stderr(contains("bulkk").and(contains("did you mean 'bulk'")));
    bench().arg("nothing-like-it").assert().code(2).stderr(contains("--list"));
    bench().args(["-e", "freehoold"]).assert().code(2).stderr(contains("did you mean 'freehold'"));
    bench()
        .args(["-e", "buddy_system"])
        .assert()
        .code(2)
        .stderr(contains("did you mean 'buddy_system_allocator'"));
    bench().args(["-e", "vanilla,-merg"]).assert().code(2).stderr(contains("did you mean 'merge'"));
    bench().args(["--runs", "0"]).assert().code(2);
}
