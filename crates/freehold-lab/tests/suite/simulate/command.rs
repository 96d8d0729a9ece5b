//! `freehold simulate` as a user runs it.

use assert_cmd::Command;
use predicates::str::contains;

use crate::common::{assert_refused, document_of, flat, text};

fn simulate(args: &str) -> Command {
    let mut command = crate::common::freehold();
    // Quick also without optimisation.
    command.args(["simulate", "--frames", "20000"]).args(args.split_whitespace());
    command
}

#[test]
fn json_has_the_rows_the_model_and_the_seed() {
    let args = "-w pair --cpus 1,2 -e vanilla -e freehold --memory 1G --seed 7 --json";
    let document = document_of(&simulate(args).assert().success());
    assert_eq!((&document["command"], &document["seed"]), (&"simulate".into(), &7.into()));
    assert_eq!(document["interrupted"], false);
    assert!(document["model"]["rmw_ns"].is_number() && document["model"]["machine"].is_string());
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (row, (engine, cpus)) in
        rows.iter().zip([("vanilla", 1), ("freehold", 1), ("vanilla", 2), ("freehold", 2)])
    {
        assert_eq!((row["engine"].as_str(), row["cpus"].as_u64()), (Some(engine), Some(cpus)));
        let of = (row["workload"].as_str(), row["memory_bytes"].as_u64());
        assert_eq!(of, (Some("pair"), Some(1 << 30)));
        let keys = "frames_per_second zone_lock_wait_share pcp_lock_wait_share fallbacks \
                    unusable_index";
        keys.split(' ').for_each(|key| assert!(row[key].is_number(), "{key}"));
    }
}

#[test]
fn little_memory_for_many_cpus_comes_to_an_end() {
    let args = "-w kernel-build-like --cpus 4,64 --memory 4M --seed 1,2 -e vanilla --json";
    let document = document_of(&simulate(args).assert().success());
    assert!(document["seed"].is_null(), "there are two");
    let rows = document["rows"].as_array().unwrap();
    let rows: Vec<_> =
        rows.iter().map(|row| (row["seed"].as_u64(), row["cpus"].as_u64())).collect();
    let of = |seed, cpus| (Some(seed), Some(cpus));
    assert_eq!(rows, [of(1, 4), of(1, 64), of(2, 4), of(2, 64)], "a table is of one seed");
}

#[test]
fn the_table_names_the_machine_whose_constants_are_used() {
    let said = flat(&text(&simulate("-w pair --cpus 1 --memory 1G").assert().success()));
    assert!(said.contains("vanilla") && said.contains("Simulated by the constants of:"), "{said}");
    simulate("--list").assert().success().stdout(contains("many-alloc-few-free"));
    simulate("--help").assert().success().stdout(contains("Examples:"));
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    for (args, message) in [
        ("-w kernel-build", "did you mean 'kernel-build-like'"),
        ("--cpus 1025", "1,025 is out of range: 1 to 1,024"),
        ("-e vanila", "did you mean 'vanilla'"),
        ("-w exit-avalanche --cpus 1", "give it more: --cpus 2"),
        ("-w pair --cpus 1024 --memory 4M -e vanilla", "give it more --memory, or fewer --cpus"),
    ] {
        assert_refused(&mut simulate(args), &[message]);
    }
}

/// At 80, 100 and 120 columns and without a terminal: no name and no number is broken.
#[test]
fn tables_fit_the_terminal() {
    let rows = "-w pair,many-alloc-few-free --cpus 2,64 --memory 4G -e vanilla \
                -e pcp-buddy-fixed,-merge -e freehold";
    for args in [rows, "--list"] {
        crate::common::tables::assert_printed(|| simulate(args));
    }
}
