//! How often each of an engine's ways was taken.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn freehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

fn replay(engine: &str) -> Value {
    let done =
        freehold().args(["replay", "--json", "--no-progress", "-e", engine]).assert().success();
    let document: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    document["engines"][0].clone()
}

#[test]
fn a_replay_says_how_often_each_way_was_taken() {
    let (on, owned) = (replay("freehold"), replay("freehold,owned"));
    for engine in [&on, &owned] {
        let (name, paths) = (&engine["engine"], &engine["paths"]);
        let of = |way: &str| paths[way].as_u64().unwrap_or_else(|| panic!("{name}: {way}"));
        assert_eq!(
            of("alloc_in_hand") + of("alloc_slow"),
            engine["allocs"].as_u64().unwrap(),
            "{name}"
        );
        let frees = of("free_in_hand") + of("free_elsewhere") + of("free_state_in_use");
        assert_eq!(frees, engine["frees"].as_u64().unwrap(), "{name}");
        assert_eq!(of("refills"), engine["refills"].as_u64().unwrap(), "{name}");
        let answered = ["refill_partly_free", "refill_whole_block", "refill_other_type"];
        assert!(answered.iter().map(|way| of(way)).sum::<u64>() <= of("refills"), "{name}");
        assert!(
            of("alloc_in_hand") > 5 * of("alloc_slow") && of("shared_writes") > 0,
            "{name}: {paths}"
        );
    }
    // The design decides the same either way; only the door differs.
    assert_eq!(on["paths"]["shared_writes"], owned["paths"]["shared_writes"]);
    assert_eq!(on["paths"]["heavy_barriers"], 0, "nobody owns a CPU");
    assert!(replay("vanilla").get("paths").is_none());
}

#[test]
fn the_ways_are_a_table_where_they_are_asked_for() {
    let short = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../data/recorded/built/vanilla-shells.parquet");
    let table = |arguments: &[&str]| {
        let mut command = freehold();
        command.args(["replay", "--no-progress"]).args(arguments).arg(&short);
        command.assert().success()
    };
    table(&["--paths", "-e", "vanilla", "-e", "freehold,owned"]).stdout(
        contains("allocations from the CPU's hand")
            .and(contains("freehold,owned"))
            .and(contains("%)")),
    );
    table(&["-e", "vanilla", "-e", "freehold,owned"]).stdout(contains("CPU's hand").not());
    table(&["--paths", "-e", "vanilla"]).stdout(contains("None of these engines"));
    freehold()
        .args(["replay", "-e", "freehold,mine"])
        .assert()
        .code(2)
        .stderr(contains("freehold,owned"));
}
