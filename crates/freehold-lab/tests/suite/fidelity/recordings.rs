//! `freehold replay fidelity`: preset `6.18` against what Linux 6.18 itself counted in the recorded
//! traces, and which other kernels that comparison tells from it. `cargo xtask docs` holds the
//! figures of each recording to docs/fidelity.md.

use std::path::PathBuf;

use crate::common::replays::recordings;
use crate::common::{data, document_of, text};
use serde_json::Value;

use crate::fidelity::fidelity;

fn compare(traces: &[PathBuf], more: &[&str]) -> Vec<Value> {
    let mut command = fidelity();
    command.arg("--json").args(more).args(traces);
    let document = document_of(&command.assert().success());
    // One trace is a document of its own.
    document["traces"].as_array().cloned().unwrap_or_else(|| vec![document])
}

/// The verdict, which `compare` has tests of.
fn within(engine: &Value) -> bool {
    engine["within"].as_bool().unwrap()
}

fn engine<'a>(trace: &'a Value, lists: &str) -> &'a Value {
    let engines = trace["against_kernel"]["engines"].as_array().unwrap();
    engines.iter().find(|engine| engine["starting_lists"] == lists).unwrap()
}

#[test]
#[ignore = "long, whole recordings: cargo test -p freehold-lab --test suite fidelity:: \
            -- --ignored"]
fn the_model_refills_and_drains_as_the_kernel_did() {
    let Some(traces) = recordings() else { return };
    let compared = compare(&traces, &[]);
    assert_eq!(compared.len(), traces.len());
    for trace in &compared {
        let name = &trace["trace"]["name"];
        // The orders are part of the totals, the types part of the orders.
        let with_rows = engine(trace, "trace");
        for (total, what) in [("refilled_frames", "refilled"), ("drained_frames", "drained")] {
            let lists = with_rows["lists"].as_array().unwrap();
            let sum = |types: bool| -> u64 {
                let of = lists.iter().filter(|list| list["migratetype"].is_null() != types);
                of.map(|list| list[what]["kernel"].as_u64().unwrap()).sum()
            };
            assert_eq!(sum(false), with_rows[total]["kernel"].as_u64().unwrap(), "{name}: {what}");
            assert!(sum(true) <= sum(false), "{name}: {what}");
        }
        assert!(within(with_rows), "{name}: {with_rows}");
        // A half is a part of the whole, of the kernel's account and of the model's.
        for (late, all) in
            [("late_refilled_frames", "refilled_frames"), ("late_drained_frames", "drained_frames")]
        {
            let of = |what: &str, who: &str| with_rows[what][who].as_u64().unwrap();
            for who in ["kernel", "engine"] {
                assert!(of(late, who) <= of(all, who), "{name}: {late}");
                assert!(of(all, "kernel") == 0 || of(late, who) > 0, "{name}: {late}");
            }
        }
    }
}

/// Whether the kernel `name` is told from the one that recorded, its lists read from the rows.
fn told(trace: &Value, name: &str) -> bool {
    !within(of(trace, name, "trace"))
}

fn compare_kernels(traces: &[PathBuf], kernels: &[&str]) -> Vec<Value> {
    let names: Vec<&str> = kernels.iter().flat_map(|name| ["-e", name]).collect();
    compare(traces, &names)
}

/// docs/fidelity.md says on how many of the eight recordings each kernel is told from 6.18: other
/// kernels, and 6.18 with each of its rules switched off. A minute and a half.
#[test]
#[ignore = "all recordings through 23 engines take minutes"]
fn each_wrong_kernel_is_told_apart_as_often_as_the_document_says() {
    let Some(mut traces) = recordings() else { return };
    traces.push(traces[0].with_file_name("second-boot").join("second-boot.parquet"));
    let design = freehold_classic::Design::parse("6.18").expect("a preset");
    let without: Vec<String> =
        design.switches.iter().map(|switch| format!("6.18,-{}", switch.name())).collect();
    let kernels: Vec<&str> = ["6.18", "5.17", "5.18", "7.1", "pcp-buddy"]
        .into_iter()
        .chain(without.iter().map(String::as_str))
        .collect();
    let compared = compare_kernels(&traces, &kernels);
    assert_eq!(compared.len(), 8);
    for kernel in kernels {
        let expected = match kernel {
            "5.17" | "5.18" | "pcp-buddy" | "6.18,-high-order-pcp" | "6.18,-auto-high" => 8,
            "6.18,-simple-selection" | "6.18,-free-high-half" => 5,
            "6.18,-requested-first" => 4,
            "7.1" => 2,
            _ => 0,
        };
        let found = compared.iter().filter(|trace| told(trace, kernel)).count();
        assert_eq!(found, expected, "{kernel}");
    }
}

/// Recordings of the same loads by both kernels, replayed with the models of both.
///
/// Each kernel is known by its own model, and by no other: docs/fidelity.md has the figures. And a
/// recording of the kernel as it is says how often the RFC's kernel would refill under that load.
fn assert_known_and_predicted(loads: &[&str]) {
    let replayed = |kernel: &str| {
        let path = |load| data(&format!("recorded/built/{kernel}-{load}.parquet"));
        let traces: Vec<PathBuf> = loads.iter().map(path).collect();
        let compared = compare_kernels(&traces, &["7.1", "pcp-buddy"]);
        assert_eq!(compared.len(), loads.len());
        compared
    };
    let (vanilla, rfc) = (replayed("vanilla"), replayed("rfc"));
    for (traces, own, other) in [(&rfc, "pcp-buddy", "7.1"), (&vanilla, "7.1", "pcp-buddy")] {
        for (trace, lists) in traces.iter().flat_map(|of| [(of, "zoneinfo"), (of, "trace")]) {
            let name = &trace["trace"]["name"];
            let known = of(trace, own, lists);
            // vanilla-exit is the one that is not within 10 %.
            let bound = if name == "vanilla-exit" { 15.0 } else { 7.0 };
            assert!(within(known) && off(known) <= bound, "{name}: {known}");
            let other = of(trace, other, lists);
            assert!(!within(other), "{name}: counts as the kernel did: {other}");
        }
    }
    for (was, did) in vanilla.iter().zip(&rfc) {
        let refilled = |engine: &Value, who| engine["refilled_frames"][who].as_f64().unwrap();
        let predicted = refilled(of(was, "pcp-buddy", "zoneinfo"), "engine");
        let far = predicted / refilled(of(did, "pcp-buddy", "zoneinfo"), "kernel") - 1.0;
        assert!(far.abs() <= 0.16, "{}: {:+.1} %", was["trace"]["name"], 100.0 * far);
    }
}

/// What that model made of a recording, from those starting lists.
fn of<'a>(trace: &'a Value, model: &str, lists: &str) -> &'a Value {
    let mut engines = trace["against_kernel"]["engines"].as_array().unwrap().iter();
    let found = engines.find(|of| of["engine"] == model && of["starting_lists"] == lists);
    found.unwrap_or_else(|| panic!("{model} is not compared on {}", trace["trace"]["name"]))
}

/// How far both totals are from the kernel's, in per cent of it.
fn off(engine: &Value) -> f64 {
    let far =
        |what: &str| engine[what]["difference_percent"].as_f64().map_or(f64::INFINITY, f64::abs);
    far("refilled_frames").max(far("drained_frames"))
}

/// Two kernels compiled from one source, as it is and with the RFC's patches, under two of the
/// loads.
#[test]
fn kernels_with_and_without_the_rfc_are_known_by_their_own_model() {
    assert_known_and_predicted(&["exit", "shells"]);
}

/// Debian's own kernel 7.3.4, and one whose memory is full, by their models and by no other.
#[test]
fn a_distributions_kernel_and_one_with_memory_full_are_known_by_their_own_model() {
    for (name, own, bound) in [("debian-7.3-arena", "7.3", 5.0), ("vanilla-full8", "7.1", 12.0)] {
        let trace = data(&format!("recorded/built/{name}.parquet"));
        let compared = &compare_kernels(&[trace], &[own, "pcp-buddy"])[0];
        for lists in ["zoneinfo", "trace"] {
            let known = of(compared, own, lists);
            assert!(within(known) && off(known) <= bound, "{name}: {known}");
            assert!(!within(of(compared, "pcp-buddy", lists)), "{name}: as the RFC's would");
        }
    }
}

/// A row that the verdict does not rest on has nothing in the column of bounds: what is said there
/// is what is judged.
#[test]
fn the_table_judges_what_the_verdict_rests_on() {
    let trace = data("recorded/built/vanilla-shells.parquet");
    let text = text(&fidelity().arg(trace).assert().success());
    let rows = |what: &str| text.lines().filter(|line| line.contains(what)).collect::<Vec<_>>();
    for (what, judged) in [
        ("frames refilled under", true),
        ("frames drained", true),
        ("refilled, order 0", true),
        ("second half of the time", false),
        ("fallbacks to another type", false),
    ] {
        let right = rows(what).iter().all(|row| row.contains("%: ") == judged);
        assert!(right && !rows(what).is_empty(), "{what}: {text}");
    }
}
