//! Rows of replays: the same columns for one file, many and broken ones, as csv, JSON lines and
//! Parquet, under names that stay.

use std::fs;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Map, Value};

use crate::common::machine_files::{Folder, plain};
use crate::common::{assert_refused, freehold, parsed, printed};

/// Columns that were there once: programs ask for them by these names.
const NAMES: &str = "\
    schema program command path sha256 status error host kernel trace node zone engine warnings \
    trace_format trace_checksums trace_events trace_span_ns trace_cpus trace_allocs \
    trace_failed_allocs trace_frees trace_remote_frees trace_remote_free_share \
    trace_unknown_frees trace_unknown_free_frames trace_split_frees trace_wide_frees \
    trace_lost_frees trace_lost_events trace_in_parts trace_misaligned trace_free_batched \
    trace_pcpu_drains trace_extfrags trace_zone_locked trace_live_frames_end \
    trace_peak_live_frames trace_max_order trace_skipped trace_long_gaps machine_origin \
    machine_frames machine_cpus machine_page_size machine_page_size_told machine_pageblock_order \
    machine_free_frames_recorded machine_free_frames_begin machine_free_frames_left_out \
    machine_list_frames_begin machine_cma_frames replayed_events injected allocs frees failed \
    set_up_failed pcp_hits pcp_hit_rate zone_lock_acquisitions zone_locks_per_1000 \
    zone_lock_work zone_lock_work_mean zone_lock_work_p99 zone_lock_work_max shared_writes \
    shared_writes_per_1000 pcp_lock_acquisitions pcp_lock_work merges_zone merges_pcp \
    splits_zone splits_pcp refills refilled_frames drains drained_frames drains_of_all \
    cpus_asked remote_frees lists_looked_at fallbacks managed_frames free_frames_end \
    pcp_frames_end mixed_blocks free_blocks_end largest_free_order_end unusable_index_mean \
    unusable_index_min unusable_index_max unusable_index_lists_mean lost_frames ns_per_event \
    cma_frames cma_free_end cma_free_lowest cma_movable_requests cma_movable_by_cma \
    cma_failed_while_free cma_failed_movable lock_held_share lock_wait_share_2 \
    lock_wait_share_16 lock_wait_share_64 lock_wait_share_256";

fn rows(form: &str, traces: &[&Path], code: i32) -> String {
    let mut command = freehold();
    command.args(["replay", "--no-progress", "--format", form, "-e", "6.18", "-e", "freehold"]);
    let done = command.args(traces).output().unwrap();
    assert_eq!(done.status.code(), Some(code), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn objects(lines: &str) -> Vec<Map<String, Value>> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn one_file_many_and_broken_ones_have_the_same_columns() {
    let folder = Folder::new();
    let good = folder.write(&plain());
    let broken = folder.path().join("host2").join("trace.parquet");
    fs::create_dir(broken.parent().unwrap()).unwrap();
    fs::write(&broken, "PAR1").unwrap();
    let one = objects(&rows("jsonl", &[&good], 0));
    let all = objects(&rows("jsonl", &[&broken, &good], 2));
    assert_eq!((one.len(), all.len()), (2, 3));
    let mut names: Vec<&str> = NAMES.split_whitespace().collect();
    for row in one.iter().chain(&all) {
        for name in &names {
            assert!(row.contains_key(*name), "the column {name} is gone");
        }
    }
    let line = rows("csv", &[&good], 0);
    let (head, first) = line.split_once('\n').unwrap();
    assert_eq!(head.split(',').collect::<Vec<_>>(), names, "old names first and in order");
    assert!(first.starts_with("1,"), "{first}");

    let bad = &all[0];
    assert_eq!((&bad["status"], &bad["engine"]), (&"unreadable".into(), &Value::Null));
    assert!(bad["error"].as_str().unwrap().contains("truncated"), "{:?}", bad["error"]);
    assert_eq!(bad["path"], broken.to_str().unwrap());
    assert_eq!(bad["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(bad["allocs"], Value::Null);
    let engines: Vec<&Value> = one.iter().map(|row| &row["engine"]).collect();
    assert_eq!(engines, ["6.18", "freehold"]);
    assert_eq!((&one[0]["status"], &one[0]["allocs"]), (&"ok".into(), &6.into()));
    assert_eq!((&one[0]["zone"], &one[0]["node"]), (&"Normal".into(), &0.into()));
    assert_eq!((&one[0]["schema"], &one[0]["trace_events"]), (&1.into(), &12.into()));
    // All that the document has of an engine has a column, but for lists.
    let json = parsed(freehold().args(["replay", "--json", "-e", "6.18"]).arg(&good));
    for (name, value) in json["engines"][0].as_object().unwrap() {
        // `status` says whether it is whole.
        if !value.is_array() && !value.is_object() && name != "whole" {
            assert!(names.contains(&name.as_str()), "{name} has no column");
            let same = name == "ns_per_event" || one[0][name] == *value;
            assert!(same, "{name}: {} {value}", one[0][name]);
        }
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), one[0].len(), "each once, and no column that this test does not hold");
}

#[test]
fn parquet_has_types_and_goes_where_it_is_told() {
    let folder = Folder::new();
    let good = folder.write(&plain());
    let (missing, out) = (folder.path().join("none.parquet"), folder.path().join("rows.parquet"));
    let mut command = freehold();
    command.args(["replay", "--format", "parquet", "-e", "freehold", "-o"]).arg(&out);
    command.args([&good, &missing]).assert().code(2).stdout("").stderr(contains("none.parquet"));
    let reader = SerializedFileReader::new(fs::File::open(&out).unwrap()).unwrap();
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    let text: Vec<String> = rows.iter().map(|row| row.to_string()).collect();
    for (row, part) in [
        (0, "status: \"ok\""),
        (0, " allocs: 6,"),
        (0, "machine_page_size_told: "),
        (1, "status: \"unreadable\""),
        (1, "sha256: null"),
    ] {
        assert!(text[row].contains(part), "{part}: {}", text[row]);
    }
    // What cannot be is said before the work.
    for (arguments, said) in [
        (&["--format", "csv", "-o", "/nowhere/rows.csv"][..], "there is no folder /nowhere"),
        (&["--format", "text", "-o", "t.txt"], "--output takes rows"),
        (&["--format", "csv", "--json"], "cannot be used with"),
    ] {
        assert_refused(freehold().arg("replay").args(arguments).arg(&good), &[said]);
    }
}

#[test]
fn tables_for_a_mail_and_a_page() {
    let folder = Folder::new();
    let good = folder.write(&plain());
    let table = |more: &[&str]| {
        let engines = ["-e", "6.18", "-e", "freehold"];
        printed(freehold().arg("replay").args(engines).args(more).arg(&good))
    };
    let mail = table(&["--format", "text"]);
    for line in mail.lines() {
        assert!(line.chars().count() <= 72, "{line}");
    }
    let page = table(&["--format", "markdown"]);
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10, "{page}");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    assert_eq!(columns(rows[0]), columns(rows[1]));
    assert!(rows[1].starts_with("| --- |") && !page.contains('─'), "{page}");
    let look = |path: &Path| printed(freehold().args(["look", "--format", "markdown"]).arg(path));
    for page in [page, look(folder.path())] {
        let lines: Vec<&str> = page.lines().collect();
        let is_row = |line: &str| line.starts_with("| ");
        for pair in lines.windows(2).filter(|pair| is_row(pair[0]) != is_row(pair[1])) {
            assert!(pair.contains(&""), "its neighbour would be a row of the table: {pair:?}");
        }
        let heads = (1..lines.len()).filter(|&at| lines[at].starts_with("| --"));
        assert_eq!(heads.filter(|&at| at > 1 && is_row(lines[at - 2])).count(), 0, "{page}");
    }
}

#[test]
fn engines_are_a_table_of_rows() {
    let table = contains("pcp-buddy-fixed").and(contains("name,source,summary"));
    freehold().args(["engines", "--format", "csv"]).assert().success().stdout(table);
}
