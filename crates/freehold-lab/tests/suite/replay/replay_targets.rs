//! What Freehold is to reach on the recorded traces, as `freehold replay` counts it on the recorded
//! machines: work under the zone lock, and blocks that are whole in the end. Exact counts, the same
//! on every machine.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::replays::recordings;
use crate::common::{freehold, parsed};

/// Each trace with what each engine counted: Freehold, vanilla, pcp-buddy-fixed.
fn replayed(traces: &[PathBuf]) -> Vec<(Value, [Value; 3])> {
    let names = ["freehold", "vanilla", "pcp-buddy-fixed"];
    let engines = names.iter().flat_map(|name| ["--engine", name]);
    let document = parsed(freehold().args(["replay", "--json"]).args(engines).args(traces));
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
        let [work, holds] = ["zone_lock_work", "zone_lock_acquisitions"].map(|of| count(&ours, of));
        assert!(work * 10 <= count(&vanilla, "zone_lock_work"), "{name}: work {work}");
        assert!(work < count(&fixed, "zone_lock_work"), "{name}: work {work}");
        // Asked for is a third where many frees are remote: closest is jemalloc-purge, with 144
        // against 489. vanilla's lists there grow until nothing is drained, and its few refills are
        // long ones instead.
        let times = if trace["remote_free_share"].as_f64().unwrap() > 0.2 { 3 } else { 1 };
        let theirs = count(&vanilla, "zone_lock_acquisitions");
        assert!(holds * times <= theirs, "{name}: {holds} acquisitions");
        let longest = count(&ours, "zone_lock_work_max");
        assert!(longest <= 64, "{name}: a hold of {longest} steps");
        assert_eq!((ours["whole"].as_bool(), count(&ours, "failed")), (Some(true), 0), "{name}");
        let blocks = [&ours, &vanilla].map(|engine| count(engine, "free_blocks_end"));
        println!("{name}: wholly free blocks in the end, freehold's and vanilla's: {blocks:?}");
        ours_whole += blocks[0];
        theirs_whole += blocks[1];
    }
    // Not fewer than vanilla in all (22,557 against 22,386; `--nocapture` prints them by trace), on
    // machines that begin with free memory in pieces too. tcp-loopback alone ends with fewer, by 4.
    assert!(ours_whole >= theirs_whole, "wholly free blocks: {ours_whole}, {theirs_whole}");
}
