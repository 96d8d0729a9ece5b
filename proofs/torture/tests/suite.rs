//! The cases as a user runs them, and each fault that a storm must notice.

use std::process::{Command, Output};

use serde_json::Value;

fn torture(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args(words.split_whitespace()).output().expect("it is built")
}

/// What a run printed.
fn told(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    document["found"].clone()
}

/// What a run found, in which nothing may be wrong.
fn fine(words: &str) -> Value {
    let output = torture(words);
    let found = told(&output);
    assert!(output.status.success() && found["troubles"] == serde_json::json!([]), "{found:#}");
    found
}

#[test]
fn two_seconds_of_everything_find_nothing_wrong() {
    let found = fine("soak --seconds 2 --threads 8 --memory 64M --seed 7");
    assert_eq!((found["threads"].as_u64(), found["cpus"].as_u64()), (Some(8), Some(8)));
    let calls = [
        "alloc, order 0",
        "alloc, HIGH_ATOMIC",
        "alloc_in_hand",
        "alloc_bulk",
        "alloc_run",
        "free, order 0",
        "free_in_hand",
        "free_range_with",
        "free_bulk",
        "take_free",
        "isolate",
        "cpu_offline",
        "own",
        "set_watermarks",
        "zone_stats",
    ];
    for call in calls {
        assert!(found["made_and_refused"][call][0].as_u64() > Some(0), "no {call}: {found:#}");
    }
    assert!(found["pressures"].as_u64() > Some(0) && found["stops"].as_u64() > Some(0));
}

/// Holes within blocks and between them, zones that share sections.
#[test]
fn two_seconds_on_a_machine_with_holes_find_nothing_wrong() {
    let found = fine("soak --seconds 2 --threads 8 --map random --seed 3");
    assert!(found["zones"].as_u64() > Some(1));
}

/// Of the frames of the machine few are used at once, anywhere in it.
#[test]
fn two_seconds_on_a_machine_of_a_tebibyte_find_nothing_wrong() {
    let found = fine("soak --seconds 2 --threads 8 --memory 1T --used 64M");
    assert_eq!(found["memory_frames"].as_u64(), Some(1 << 28));
}

#[test]
fn short_storms_on_small_machines_find_nothing_wrong() {
    assert!(fine("mt --seeds 4 --millis 100 --stops 300")["calls"].as_u64() > Some(1000));
}

#[test]
fn each_answer_is_right_on_random_machines() {
    let found = fine("exact --seeds 12");
    assert!(found["searched"].as_u64() > Some(100), "{found:#}");
}

#[test]
fn no_request_fails_where_free_frames_are_scattered() {
    assert!(fine("nofalse --seconds 1 --scatter")["succeeded"].as_u64() > Some(1000));
    assert!(fine("nofalse --seconds 1 --scatter --order 3 --by mix --stops 300").is_object());
}

#[test]
fn a_thread_that_stands_still_hides_a_block_at_most() {
    assert!(fine("stop --seconds 2")["stops"].as_u64() > Some(5));
}

#[test]
fn threads_stay_near_the_min_mark() {
    assert!(fine("mark --rounds 3")["lowest_left_free"].as_u64() > Some(0));
}

#[test]
#[ignore = "long: cargo test -p torture -- --ignored"]
fn each_planted_fault_is_noticed() {
    let faults = [
        ("use-after-free", "has it"),
        ("double-free", "double free"),
        ("wrong-owner", "has it"),
        ("leak", "in use"),
        ("small-bound", "are the most there may be"),
    ];
    for (fault, said) in faults {
        let output = torture(&format!("soak --seconds 3 --memory 64M --plant {fault}"));
        let troubles = told(&output)["troubles"].to_string();
        assert_eq!(output.status.code(), Some(1), "{fault}");
        assert!(troubles.contains(said), "{fault}: {troubles}");
    }
}

#[test]
#[ignore = "long: cargo test -p torture -- --ignored"]
fn a_call_that_does_not_end_is_told_with_what_every_thread_was_doing() {
    let output = torture("soak --seconds 2 --memory 64M --patience 5 --plant stall");
    let troubles = told(&output)["troubles"].to_string();
    assert_eq!(output.status.code(), Some(1));
    for said in ["a call does not end", "thread 0: in flush", "thread 1: in"] {
        assert!(troubles.contains(said), "{troubles}");
    }
}

#[test]
fn mistakes_are_named() {
    for words in ["soak --seconds 1 --minutes 1", "soak --plant nothing", "soak --memory 63M"] {
        assert_eq!(torture(words).status.code(), Some(2), "{words}");
    }
}
