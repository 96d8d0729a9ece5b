//! What Freehold is to reach on the recorded traces, as `freehold replay` counts it on the recorded
//! machines: work under the zone lock, and blocks that are whole in the end. Exact counts, the same
//! on every machine.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

use crate::common::replays::recordings;

/// Each trace with what each engine counted: Freehold, vanilla, pcp-buddy-fixed.
fn replayed(traces: &[PathBuf]) -> Vec<(Value, [Value; 3])> {
    let names = ["freehold", "vanilla", "pcp-buddy-fixed"];
    let mut command = Command::cargo_bin("freehold").unwrap();
    command
        .args(["replay", "--json"])
        .args(names.iter().flat_map(|name| ["--engine", name]))
        .args(traces);
    let output = command.assert().success().get_output().stdout.clone();
    let document: Value = serde_json::from_slice(&output).unwrap();
    let of = |trace: &Value| {
        let engines = names.map(|name| {
            let all = trace["engines"].as_array().unwrap();
            all.iter().find(|engine| engine["engine"] == name).unwrap().clone()
        });
        (trace["trace"].clone(), engines)
    };
    document["traces"].as_array().unwrap().iter().map(of).collect()
}

fn count(engine: &Value, what: &str) -> u64 {
    engine[what].as_u64().unwrap_or_else(|| panic!("no count of {what}"))
}

/// All recordings through three engines, half a minute of a core as tests are compiled.
#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite replay:: -- --ignored"]
fn the_zone_lock_is_left_alone_on_every_trace() {
    let Some(traces) = recordings() else { return };
    let (mut ours_whole, mut theirs_whole) = (0, 0);
    for (trace, [ours, vanilla, fixed]) in replayed(&traces) {
        let name = trace["name"].as_str().unwrap();
        let (work, holds) =
            (count(&ours, "zone_lock_work"), count(&ours, "zone_lock_acquisitions"));
        assert!(work * 10 <= count(&vanilla, "zone_lock_work"), "{name}: work {work}");
        assert!(work < count(&fixed, "zone_lock_work"), "{name}: work {work}");
        // Asked for is a third where many frees are remote: closest is jemalloc-purge, with 144
        // against 489. vanilla's lists there grow until nothing is drained, and its few refills are
        // long ones instead.
        let times = if trace["remote_free_share"].as_f64().unwrap() > 0.2 { 3 } else { 1 };
        assert!(
            holds * times <= count(&vanilla, "zone_lock_acquisitions"),
            "{name}: {holds} acquisitions"
        );
        let longest = count(&ours, "zone_lock_work_max");
        assert!(longest <= 64, "{name}: a hold of {longest} steps");
        assert_eq!((ours["whole"].as_bool(), count(&ours, "failed")), (Some(true), 0), "{name}");
        let blocks = [&ours, &vanilla].map(|engine| count(engine, "free_blocks_end"));
        println!(
            "{name}: wholly free blocks in the end: freehold {}, vanilla {}",
            blocks[0], blocks[1]
        );
        ours_whole += blocks[0];
        theirs_whole += blocks[1];
    }
    // Not fewer than vanilla in all (22,557 against 22,386; `--nocapture` prints them by trace), on
    // machines that begin with free memory in pieces too. tcp-loopback alone ends with fewer, by 4.
    assert!(
        ours_whole >= theirs_whole,
        "wholly free blocks in the end: freehold {ours_whole}, vanilla {theirs_whole}"
    );
}
