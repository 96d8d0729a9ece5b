//! A recording as one file: alone it is answered as with its files beside it, and a guess is called
//! one in every output.

use std::fs;
use std::path::Path;

use predicates::str::contains;
use serde_json::Value;

use crate::common::machine_files::{Folder, plain};
use crate::common::{data, freehold, parsed, printed};
use crate::replay::command::{json, replay, table};

/// What a replay found, without what says how it was called and how fast it was.
fn figures(mut document: Value) -> Value {
    let engine = &mut document["engines"][0];
    engine["ns_per_event"].take();
    let (engine, answer) = (engine.take(), document["answer"].take());
    serde_json::json!([engine, answer, document["machine"].take()])
}

fn packed(folder: &Folder) -> std::path::PathBuf {
    let trace = folder.write(&plain());
    let alone = folder.path().join("elsewhere.parquet");
    freehold().args(["pack", "-o"]).args([&alone, &trace]).assert().success();
    alone
}

#[test]
fn a_packed_trace_is_answered_alike_wherever_it_is() {
    let folder = Folder::new();
    let alone = packed(&folder);
    let with_files = json(&replay(&folder.path().join("m.trace"), &[]));
    assert_eq!(with_files["machine"]["origin"], "recorded");
    let by_path = json(&replay(&alone, &[]));
    assert_eq!(figures(by_path.clone()), figures(with_files));
    let mut command = freehold();
    command.args(["replay", "--json", "-e", "vanilla", "-"]);
    let piped = parsed(command.write_stdin(fs::read(&alone).unwrap()));
    assert_eq!(piped["about"]["path"], "-");
    assert_eq!(piped["about"]["sha256"], by_path["about"]["sha256"]);
    assert_eq!(by_path["about"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(figures(piped), figures(by_path));
    // Files beside it are of another recording of that name.
    fs::write(folder.path().join("elsewhere.zoneinfo.before.txt"), "no zoneinfo").unwrap();
    assert_eq!(json(&replay(&alone, &[]))["machine"]["origin"], "recorded");
}

#[test]
fn what_pack_leaves_out_is_lost() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    let bad = " a-1 [000] .... 9.0: mm_page_free: pfn=banana order=0\n";
    fs::write(&trace, fs::read_to_string(&trace).unwrap() + bad).unwrap();
    let alone = folder.path().join("elsewhere.parquet");
    freehold().args(["pack", "--skip-bad", "-o"]).args([&alone, &trace]).assert().success();
    assert_eq!(json(&replay(&alone, &[]))["trace"]["lost_events"], 1);
}

#[test]
fn an_assumed_machine_is_called_so_in_every_output() {
    let folder = Folder::new();
    folder.write(&plain());
    let lone = folder.path().join("lone.trace");
    fs::rename(folder.path().join("m.trace"), &lone).unwrap();
    let output = replay(&lone, &[]);
    let document = json(&output);
    assert_eq!(document["machine"]["origin"], "assumed");
    let said = document["answer"]["warnings"][0].as_str().unwrap();
    assert!(said.contains("machine is ASSUMED"), "{said}");
    let text = printed(freehold().args(["replay", "-e", "vanilla"]).arg(&lone));
    for said in ["WARNING: The machine is ASSUMED", "an assumed machine", "no zoneinfo"] {
        assert!(text.contains(said), "{text}");
    }
    let recorded = freehold().args(["replay", "--machine", "recorded"]).arg(&lone).assert();
    recorded.code(2).stderr(contains("no zoneinfo beside it"));
    let page = printed(freehold().args(["report", "-o", "-", "-"]).write_stdin(output.stdout));
    assert!(page.contains("<p class=\"warning\">The machine is ASSUMED"), "{page}");
    // Packed it is no less alone.
    let alone = folder.path().join("lone.parquet");
    let pack = freehold().args(["pack", "-o"]).args([&alone, &lone]).assert().success();
    pack.stderr(contains("there is no zoneinfo"));
    assert_eq!(json(&replay(&alone, &[]))["answer"]["warnings"][0], said);
}

/// What the trace or the user says of pages counts without a zoneinfo as well, and for `--machine`.
#[test]
fn the_page_size_of_a_machine_without_files() {
    let folder = Folder::new();
    let trace = folder.write(&plain());
    fs::remove_file(folder.path().join("m.zoneinfo.before.txt")).unwrap();
    let of = |more: &[&str]| {
        let machine = json(&replay(&trace, more))["machine"].take();
        Value::from_iter(
            ["page_size", "page_size_told", "memory_frames"].map(|name| machine[name].clone()),
        )
    };
    let is = |size: u64, told: bool, frames: u64| serde_json::json!([size, told, frames]);
    assert_eq!(of(&["--machine", "1G", "--page-size", "64K"]), is(65536, true, 16384));
    assert_eq!(of(&["--machine", "1G"]), is(4096, false, 1 << 18));
    assert_eq!(of(&["--page-size", "16K"]), is(16384, true, 1 << 14));
    assert_eq!(of(&[]), is(4096, false, 1 << 14));
    assert!(table(&trace).contains("pages of 4 KiB are ASSUMED"));
    let recorded = data("page-cache-churn.parquet");
    assert_eq!(json(&replay(&recorded, &["--machine", "1G"]))["machine"]["page_size_told"], true);
}

#[test]
fn a_pack_says_what_it_cannot_write_and_leaves_what_was_there() {
    let folder = Folder::new();
    let alone = packed(&folder);
    let before = fs::read(&alone).unwrap();
    let trace = folder.path().join("m.trace");
    let again = |from: &Path, more: &[&str]| {
        let done = freehold().arg("pack").args(more).arg("-o").args([&alone, from]).output();
        let done = done.unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = again(&trace, &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--force replaces it"), "{said}");
    let damaged = folder.path().join("damaged.trace");
    let lines = fs::read_to_string(&trace).unwrap() + "           cat-400     [000] what is it\n";
    fs::write(&damaged, lines + &plain().trace).unwrap();
    assert_eq!(again(&damaged, &["--force"]).0, Some(2));
    assert_eq!(fs::read(&alone).unwrap(), before, "after an error what was there is there");
    let mut full = freehold();
    let full = full.args(["pack", "-o", "/dev/full"]).arg(&alone).assert().code(2);
    full.stderr(contains("the trace: No space left"));
    // In place, and as often as one likes: the same bytes.
    assert_eq!(again(&alone, &["--force"]).0, Some(0));
    assert_eq!(fs::read(&alone).unwrap(), before);
    let names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.contains("unfinished")), "{names:?}");
}
