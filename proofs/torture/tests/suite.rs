//! `freehold soak` as a user runs it, and each fault that it must notice.

use assert_cmd::Command;
use predicates::function::function;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::{contains, ends_with};
use serde_json::Value;

fn soak(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("freehold-soak").unwrap();
    command.arg("--no-progress").args(args);
    command
}

#[test]
fn two_seconds_of_everything_find_nothing_wrong() {
    let output =
        soak(&["--seconds", "2", "--threads", "8", "--memory", "64M", "--seed", "7", "--json"])
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((document["ok"].as_bool(), document["seed"].as_u64()), (Some(true), Some(7)));
    assert_eq!((document["threads"].as_u64(), document["cpus"].as_u64()), (Some(8), Some(8)));
    let rows = document["rows"].as_array().unwrap();
    let calls = [
        "alloc, order 0",
        "alloc, HIGH_ATOMIC",
        "alloc_in_hand",
        "alloc_bulk",
        "free, order 0",
        "free_in_hand",
        "free_range_with",
        "free_bulk",
        "cpu_offline",
        "own",
        "set_watermarks",
        "zone_stats",
    ];
    for call in calls {
        let row = rows.iter().find(|row| row["call"] == call && row["alone"] == false);
        let row = row.unwrap_or_else(|| panic!("no {call}"));
        assert!(
            row["count"].as_u64().unwrap() > 0 && row["max_ns"].as_u64() >= row["p50_ns"].as_u64(),
            "{call}"
        );
    }
    // Bounds are beside what was seen, and frees wait for nobody.
    let frees = rows.iter().filter(|row| row["call"].as_str().unwrap().starts_with("free"));
    for row in frees {
        assert_eq!(
            (row["barriers"].as_u64(), row["barriers_bound"].as_u64()),
            (Some(0), Some(0)),
            "{row}"
        );
        assert_eq!(
            (row["waits"].as_u64(), row["waits_bound"].as_u64()),
            (Some(0), Some(0)),
            "{row}"
        );
    }
    // What all CPUs share is written, but not by what comes from the hand.
    let writes = |row: &&Value| row["alone"] == true && row["shared_writes"].as_u64() > Some(0);
    let (written, hand) =
        (rows.iter().filter(writes), |row: &Value| row["call"] == "alloc_in_hand");
    assert!(written.clone().count() > 0 && !written.into_iter().any(hand));
    assert!(document["pressures"].as_u64() > Some(0));
    assert!(document["stops"]["threads"].is_u64());
}

/// Holes within blocks and of whole sections, four zones that share sections, half of it in use.
#[test]
fn two_seconds_on_a_sparse_aged_machine_find_nothing_wrong() {
    let args = ["--seconds", "2", "--threads", "8", "--map", "sparse", "--aged", "--json"];
    let output = soak(&args).assert().success().get_output().stdout.clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!((document["ok"].as_bool(), document["zones"].as_u64()), (Some(true), Some(4)));
    assert_eq!(
        (document["map"].as_str(), document["aged"].as_bool()),
        (Some("sparse"), Some(true))
    );
}

/// Of the machine's frames few are used at once, anywhere in it.
#[test]
fn two_seconds_on_a_machine_of_a_tebibyte_find_nothing_wrong() {
    let args = ["--seconds", "2", "--threads", "8", "--memory", "1T", "--used", "64M", "--json"];
    let output = soak(&args).assert().success().get_output().stdout.clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    assert_eq!(document["ok"].as_bool(), Some(true));
    let bytes = ["memory_bytes", "used_bytes"].map(|key| document[key].as_u64());
    assert_eq!(bytes, [Some(1 << 40), Some(64 << 20)]);
}

#[test]
fn the_table_says_what_was_made_and_that_nothing_was_wrong() {
    // Narrower than the table: neither a name nor a number is broken.
    soak(&["--seconds", "1", "--no-stops"])
        .env("COLUMNS", "40")
        .assert()
        .success()
        .stdout(contains("\n alloc, orders 1 to 5 (owner) "))
        .stdout(contains("alloc_contig_free"))
        .stdout(contains("HIGHATOMIC"))
        .stdout(function(|text: &str| {
            // What stands below the table is no table: it fits the least width.
            text.lines().rev().take_while(|line| !line.contains('─')).all(|line| line.chars().count() <= 60)
        }))
        .stdout(contains("one thread alone"))
        .stdout(ends_with("verdict: nothing was wrong\n"));
}

#[test]
#[ignore = "long: cargo test --test suite -- --ignored, in proofs/torture"]
fn each_planted_fault_is_noticed() {
    let faults = [
        ("use-after-free", "has it"),
        ("double-free", "double free"),
        ("wrong-owner", "has it"),
        ("leak", "in use"),
        ("small-bound", "are the most there may be"),
    ];
    for (fault, said) in faults {
        soak(&["--seconds", "3", "--memory", "64M", "--plant", fault])
            .assert()
            .code(1)
            .stderr(contains(said))
            // The verdict comes last.
            .stdout(contains("printed above the table\n").and(ends_with("table\n")));
    }
}

/// The planted stall is in the first thread, and is no wait.
fn is_stalled(told: &str) -> bool {
    let mut first = told.lines().filter(|line| line.contains("thread 0: in flush"));
    first.any(|line| line.ends_with("; waits for nobody"))
}

#[test]
#[ignore = "long: cargo test --test suite -- --ignored, in proofs/torture"]
fn a_call_that_does_not_end_is_told_with_what_every_thread_was_doing() {
    soak(&["--seconds", "2", "--memory", "64M", "--patience", "5", "--plant", "stall"])
        .assert()
        .code(1)
        .stderr(contains("does not end").or(contains("no thread gets on")))
        .stderr(function(is_stalled))
        .stderr(contains("thread 1: in"));
}

#[test]
fn mistakes_are_named() {
    soak(&["--seconds", "1", "--minutes", "1"]).assert().code(2);
    soak(&["--plant", "nothing"])
        .assert()
        .code(2)
        .stderr(contains("'nothing'").and(contains("small-bound")));
    for little in ["1M", "63M"] {
        soak(&["--memory", little]).assert().code(2).stderr(contains("64M is the least"));
    }
}
