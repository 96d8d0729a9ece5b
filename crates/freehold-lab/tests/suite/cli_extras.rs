//! Completions, manual pages, and how often each of an engine's ways was taken.

use std::fs;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn freehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.env_remove("COLUMNS").env_remove("NO_COLOR");
    command
}

const SUBCOMMANDS: [&str; 10] = [
    "replay",
    "bench",
    "simulate",
    "calibrate",
    "record",
    "report",
    "compare",
    "engines",
    "completions",
    "man",
];

#[test]
fn completions_know_every_subcommand_and_option() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = freehold().args(["completions", shell]).assert().success();
        let script = String::from_utf8(done.get_output().stdout.clone()).unwrap();
        for word in SUBCOMMANDS.into_iter().chain(["against-kernel", "baseline", "fragmentation"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    freehold()
        .args(["completions", "tcsh"])
        .assert()
        .code(2)
        .stderr(contains("tcsh").and(contains("bash")));
}

#[test]
fn bash_itself_reads_its_completions() {
    let done = freehold().args(["completions", "bash"]).assert().success();
    let script = String::from_utf8(done.get_output().stdout.clone()).unwrap();
    let asked = "\nCOMP_WORDS=(freehold rep); COMP_CWORD=1; _freehold freehold rep freehold; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let Ok(answer) = std::process::Command::new("bash").arg("-c").arg(script + asked).output()
    else {
        eprintln!("SKIPPED: there is no bash");
        return;
    };
    let words = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert_eq!(words.split_whitespace().collect::<Vec<_>>(), ["replay", "report"], "{answer:?}");
}

#[test]
fn manual_pages_are_written_one_a_subcommand() {
    freehold()
        .arg("man")
        .assert()
        .success()
        .stdout(contains(".TH freehold 1").and(contains("freehold\\-replay(1)")));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man/man1");
    freehold()
        .args(["man", "--out"])
        .arg(&pages)
        .assert()
        .success()
        .stdout("")
        .stderr(contains("wrote"));
    for name in SUBCOMMANDS {
        let page =
            fs::read_to_string(pages.join(format!("freehold-{name}.1"))).expect("a page of each");
        assert!(page.contains(".SH SYNOPSIS") && page.contains(name), "{name}");
    }
    assert!(
        pages.join("freehold.1").exists() && pages.join("freehold-bench-fragmentation.1").exists()
    );
    let taken = folder.path().join("file");
    fs::write(&taken, "").unwrap();
    freehold()
        .args(["man", "--out"])
        .arg(&taken)
        .assert()
        .code(2)
        .stderr(contains("cannot write").and(contains("hint")));
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
        let frees = of("free_own_group") + of("free_other_group") + of("free_state_in_use");
        assert_eq!(frees, engine["frees"].as_u64().unwrap(), "{name}");
        assert_eq!(of("zone_locks"), engine["zone_lock_acquisitions"].as_u64().unwrap(), "{name}");
        assert_eq!(of("refills"), engine["refills"].as_u64().unwrap(), "{name}");
        let answered =
            ["refill_own_group", "refill_whole_block", "refill_other_group", "refill_other_type"];
        assert!(answered.iter().map(|way| of(way)).sum::<u64>() <= of("refills"), "{name}");
        assert!(
            of("alloc_in_hand") > 10 * of("alloc_slow") && of("group_locks") > 0,
            "{name}: {paths}"
        );
    }
    // The design decides the same either way; only the door differs.
    assert_eq!(on["zone_lock_work"], owned["zone_lock_work"]);
    assert_eq!(on["paths"]["heavy_barriers"], 0, "nobody owns a CPU");
    assert!(replay("vanilla").get("paths").is_none());
}

#[test]
fn the_ways_are_a_table_where_they_are_asked_for() {
    let engines = ["-e", "vanilla", "-e", "freehold,owned,group=1"];
    let done =
        freehold().args(["replay", "--no-progress", "--paths"]).args(engines).assert().success();
    done.stdout(
        contains("allocations from the CPU's hand")
            .and(contains("freehold,owned,group=1"))
            .and(contains("%)")),
    );
    let plain = freehold().args(["replay", "--no-progress"]).args(engines).assert().success();
    plain.stdout(contains("CPU's hand").not());
    let none =
        freehold().args(["replay", "--no-progress", "--paths", "-e", "vanilla"]).assert().success();
    none.stdout(contains("None of these engines"));
    freehold()
        .args(["replay", "-e", "freehold,mine"])
        .assert()
        .code(2)
        .stderr(contains("freehold,owned"));

    let simulate = ["simulate", "--no-progress", "-w", "pair", "--cpus", "2", "-e", "freehold"];
    let done = freehold().args(simulate).arg("--paths").assert().success();
    done.stdout(contains("heavy barriers").and(contains("freehold, 2 CPUs")));
    let done = freehold().args(simulate).arg("--json").assert().success();
    let document: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    assert!(document["rows"][0]["paths"]["alloc_in_hand"].as_u64().unwrap() > 0);
}
