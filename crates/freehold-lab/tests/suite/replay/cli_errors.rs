//! Every way of using the command wrongly, and every kind of input it cannot read: the exit code,
//! the line that says what is wrong, and what to do about it.

use std::fs;
use std::path::Path;

use crate::common::machine_files::Folder;
use crate::common::{assert_refused, data, document_of, freehold, json, parsed, printed};
use predicates::prelude::*;
use predicates::str::contains;

/// Text as tracefs prints it: three allocations, two frees.
const TEXT: &str = "\
# tracer: nop
#
            make-101     [000] .....   100.000001: mm_page_alloc: page=0x1 pfn=0x1000 order=0 \
migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
            make-101     [000] .....   100.000002: mm_page_alloc: page=0x2 pfn=0x1001 order=0 \
migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
            make-101     [001] .....   100.000003: mm_page_free: page=0x1 pfn=0x1000 order=0
            make-101     [001] .....   100.000004: mm_page_alloc: page=0x3 pfn=0x2000 order=3 \
migratetype=0 gfp_flags=GFP_KERNEL
            make-101     [000] .....   100.000005: mm_page_free: page=0x3 pfn=0x2000 order=3
";

/// Runs `replay` on a file that cannot be read, which is said of it by name; one engine is enough.
fn refused(path: &Path, said: &[&str]) {
    let name = path.file_name().unwrap().to_str().unwrap();
    let said = [&[name], said].concat();
    assert_refused(freehold().args(["replay", "-e", "vanilla"]).arg(path), &said);
}

/// What the reader says of each kind of damage is tested with the reader; here, that it arrives.
#[test]
fn files_that_cannot_be_read() {
    let folder = Folder::new();
    refused(Path::new("no-such-trace.parquet"), &["No such file"]);
    refused(folder.path(), &["directory"]);
    let recipe = folder.file("recipe.txt", "Take two eggs.\nBeat them.\n");
    refused(&recipe, &["not a page-allocator trace", "hint:"]);
    let whole = fs::read(data("page-cache-churn.parquet")).unwrap();
    refused(&folder.file("cut.parquet", &whole[..whole.len() / 2]), &["truncated"]);
    let bad = TEXT.replace("pfn=0x2000 order=3 mig", "pfn=banana order=3 mig");
    refused(&folder.file("bad.txt", bad), &["line 6", "banana", "--skip-bad"]);
}

/// Wrong arguments, and what is said of each.
#[test]
fn wrong_usage_says_what_is_wrong() {
    let wrong: &[(&[&str], &[&str])] = &[
        (&["replay", "--cpus", "99999"], &["99,999 is out of range: 1 to 4,096"]),
        (&["replay", "--jobs", "0"], &["--jobs", "0 is out of range: 1 to 65,535"]),
        (&["replay", "-e", "pcp-budy"], &["no engine 'pcp-budy'", "did you mean 'pcp-buddy'?"]),
        (&["replay", "-e", "%%%%"], &["no engine '%%%%'", "freehold engines"]),
        (&["replay", "-e", "vanilla,-contig-fre"], &["no switch 'contig-fre'", "'contig-free'?"]),
        (&["replay", "-e", "vanilla,merge"], &["'+merge'"]),
        (&["replay", "-e", "freehold,mine"], &["no switch 'mine'"]),
        (&["replay", "--memory", "much"], &["much", "not an amount of memory"]),
        (&["replay", "--memory", "1M"], &["1M", "too little"]),
        (&["replay", "--memory", "99T"], &["99T", "too much"]),
        (&["replay", "--machine", "8G", "--memory", "8G"], &["--machine"]),
        (&["replay", "--machine", "recordd"], &["'recorded' is a machine, too"]),
        (&["replay", "--cma", "10"], &["for example 25%"]),
        (&["replay", "--interrupts", "0.1"], &["unexpected argument '--interrupts'"]),
        (&["relpay"], &["relpay", "replay"]),
        (&["trace"], &["Usage: freehold [TRACE]..."]),
    ];
    for (arguments, said) in wrong {
        assert_refused(freehold().args(*arguments), said);
    }
}

/// Nothing is said of the kernel of a file that is no trace.
#[test]
fn a_description_of_memory_is_no_trace() {
    let folder = Folder::new();
    for (name, text) in [
        ("pagetypeinfo", "Page block order: 9\nPages per block:  512\n"),
        ("buddyinfo", "Node 0, zone   Normal 1 2 3\n"),
    ] {
        let path = folder.file(&format!("a.{name}.before.txt"), text);
        assert_refused(freehold().arg(&path), &[name, "freehold look"]);
        freehold().arg(&path).assert().stderr(contains("baseline").not());
    }
    let other = folder.file("a.json", "{}");
    assert_refused(freehold().arg(&other), &["freehold report"]);
}

#[test]
fn skip_bad_leaves_the_line_out_and_says_so() {
    let folder = Folder::new();
    let bad = TEXT.replace("pfn=0x2000 order=3 mig", "pfn=banana order=3 mig");
    let mut command = freehold();
    command.args(["replay", "-e", "vanilla", "--skip-bad", "--json"]);
    let done = command.arg(folder.file("bad.txt", bad)).assert().code(0);
    let document = document_of(&done.stderr(contains("1 malformed").and(contains("line 6"))));
    assert_eq!(document["trace"]["skipped"], 1);
    assert_eq!(document["trace"]["allocs"], 2);
    assert_eq!(document["trace"]["unknown_frees"], 1, "the free of the allocation left out");
}

#[test]
fn a_trace_of_which_nothing_can_be_replayed() {
    let folder = Folder::new();
    // At frames where no chunk of the order starts; then nothing but a foreign free.
    let lines: Vec<&str> = TEXT.split_inclusive('\n').collect();
    let odd = lines[..3].concat().replace("0x1000", "0x1001").replace("order=0", "order=1");
    refused(&folder.file("odd.txt", odd), &["1 at frames that no chunk"]);
    refused(&folder.file("free.txt", lines[4]), &["1 frees of frames", "--warm"]);
}

#[test]
fn one_bad_trace_does_not_keep_the_others_from_being_replayed() {
    let folder = Folder::new();
    let good = folder.file("good.txt", TEXT);
    let replay = |more: &[&str]| {
        let mut command = freehold();
        command.args(["replay", "-e", "vanilla", "no-such-trace.parquet"]).arg(&good).args(more);
        command.assert().code(2).stderr(contains("no-such-trace.parquet"))
    };
    let document = document_of(&replay(&["--json"]));
    let traces = document["traces"].as_array().expect("an array");
    assert_eq!(traces.len(), 2);
    assert!(traces[0]["error"].to_string().contains("no-such-trace.parquet"), "{}", traces[0]);
    assert_eq!(traces[1]["trace"]["events"], 5);
    assert_eq!(traces[1]["engines"][0]["lost_frames"], 0);
    replay(&[]).stdout(contains("good").and(contains("lost frames")));
}

/// Not all of what was in use could be allocated, which is counted and said of each engine.
#[test]
fn memory_too_small_for_what_is_in_use_already_is_said() {
    let small = ["--warm", "--memory", "16M", "-e", "vanilla", "-e", "freehold", "--json"];
    let done = freehold().arg("replay").args(small).assert().code(0);
    let small = document_of(&done);
    let injected = small["injected"].as_u64().expect("a count");
    for engine in small["engines"].as_array().expect("an array") {
        let failed = engine["set_up_failed"].as_u64().expect("a count");
        // 16 MiB are 4,096 frames.
        assert!(failed >= injected - 4096 && failed < injected, "{failed} of {injected}");
    }
    done.stderr(contains("allocations made before the recording").count(2));
    let document = json(freehold().args(["replay", "--warm", "-e", "freehold", "--json"]));
    assert_eq!(document["engines"][0]["set_up_failed"], 0);
}

/// What failed was not carried out, and is in no rate.
#[test]
fn rates_are_of_what_was_carried_out() {
    for memory in [&[][..], &["--memory", "4M"]] {
        let replay = |more: &[&str]| {
            let mut command = freehold();
            command.args(["replay", "-e", "vanilla"]).args(memory).args(more);
            command
        };
        let document = parsed(&mut replay(&["--json"]));
        let count = |name: &str| document["engines"][0][name].as_u64().expect("a count");
        let done = count("allocs") + count("frees");
        let asked = document["replayed_events"].as_u64().expect("a count");
        assert_eq!(done == asked, memory.is_empty(), "{done} of {asked}");
        assert_eq!((count("failed") > 1000, count("lost_frames")), (!memory.is_empty(), 0));
        let rate = count("zone_lock_acquisitions") as f64 * 1000.0 / done as f64;
        let rate = freehold_lab::tables::decimal(rate);
        let (table, name) = (printed(&mut replay(&[])), "zone locks / 1,000 events");
        let line = table.lines().find(|line| line.contains(name)).expect("its row");
        assert_eq!(line.split_whitespace().last(), Some(rate.as_str()), "{line}");
    }
}

#[test]
fn a_clock_that_no_recording_has_is_said() {
    let folder = Folder::new();
    let line = |(pfn, seconds): (u64, &u64)| {
        let free = format!("mm_page_free: page=0000 pfn={pfn:#x} order=0");
        format!("            make-7      [000] d..2. {seconds}.000001: {free}\n")
    };
    let text = |seconds: &[u64]| (0x100_000..).zip(seconds).map(line).collect::<String>();
    let replay = |more: &[&str], path: &Path| {
        let mut command = freehold();
        command.args(["replay", "-e", "vanilla", "--json", "--memory", "64M", "--warm"]);
        let done = command.args(more).arg(path).assert().code(0);
        let document = document_of(&done);
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        (document["trace"]["skipped"].as_u64(), document["trace"]["long_gaps"].as_u64(), said)
    };
    let back = folder.file("back.txt", text(&[9, 8, 7, 10]));
    refused(&back, &["line 2: 1.000 s earlier than the latest", "sort the events"]);
    let (skipped, gaps, said) = replay(&["--skip-bad"], &back);
    assert_eq!((skipped, gaps), (Some(2), Some(0)));
    let first = "2 malformed rows or lines skipped, the first: line 2: 1.000 s earlier";
    assert!(said.contains(first), "{said}");
    let (skipped, gaps, said) = replay(&[], &folder.file("far.txt", text(&[7, 9_000_000])));
    assert_eq!((skipped, gaps), (Some(0), Some(1)));
    assert!(said.contains("1 gaps are longer than an hour, the first at line 2"), "{said}");
    let fine = folder.file("fine.txt", text(&[7, 8, 9]));
    assert_eq!(replay(&[], &fine), (Some(0), Some(0), String::new()));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_freehold"))
        .args(["engines"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("the command ends");
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    assert_eq!(done.status.code(), Some(0));
}
