//! What the commands print: the table, its JSON, the timeline, and that the JSON is what the
//! documentation promises.

use std::sync::LazyLock;

use predicates::prelude::*;
use predicates::str::contains;

use crate::common::{data, document_of, flat, freehold, json, printed, text};

/// The sample through the engines that are compared by default takes two seconds: what is printed
/// of it is looked at by several tests.
static JSON: LazyLock<serde_json::Value> =
    LazyLock::new(|| json(freehold().args(["replay", "--json"])));

/// What the command prints by itself, which is the replay of the sample.
static TEXT: LazyLock<String> = LazyLock::new(|| printed(&mut freehold()));

/// An allocation and a free, of a kernel that it does not say.
const TRACE: &str = "\
            make-101     [000] .....   100.000001: mm_page_alloc: page=0x1 pfn=0x1000 order=0 \
            migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
            make-101     [000] .....   100.000003: mm_page_free: page=0x1 pfn=0x1000 order=0
";

#[test]
fn the_table_of_the_sample() {
    let text = text(&freehold().args(["replay", "--wide"]).assert().code(0).stderr(""));
    // Time is the one thing that differs from run to run: its row, and with it how wide columns
    // are.
    let (noisy, steady): (Vec<&str>, Vec<&str>) = text
        .lines()
        .filter(|line| !line.starts_with(['─', '═']))
        .partition(|line| line.contains("ns per event (noisy)"));
    assert_eq!(noisy.len(), 1, "{text}");
    let steady: Vec<String> = steady.into_iter().map(flat).collect();
    insta::assert_snapshot!(steady.join("\n"));
}

#[test]
fn json_has_every_promised_name() {
    let document = &*JSON;
    for name in ["name", "events", "cpus", "remote_free_share", "peak_live_frames"] {
        assert!(!document["trace"][name].is_null(), "trace.{name}");
    }
    let engines = document["engines"].as_array().expect("an array");
    let names: Vec<_> =
        engines.iter().map(|engine| engine["engine"].as_str().unwrap_or_default()).collect();
    // First the kernel that recorded the sample.
    assert_eq!(names, ["6.18", "vanilla", "pcp-buddy", "pcp-buddy-fixed", "freehold"]);
    for engine in engines {
        let names = "allocs frees failed zone_lock_acquisitions zone_lock_work zone_lock_work_mean \
                     zone_lock_work_p99 zone_lock_work_max shared_writes zone_locks_per_1000 \
                     shared_writes_per_1000 merges_zone merges_pcp refills drains remote_frees \
                     fallbacks mixed_blocks free_blocks_end largest_free_order_end \
                     unusable_index_mean unusable_index_min unusable_index_lists_mean lost_frames \
                     pcp_hit_rate ns_per_event";
        for name in names.split(' ') {
            assert!(engine[name].is_number(), "engines[].{name} of {engine}");
        }
        assert_eq!(engine["lost_frames"], 0);
        // Of free neighbours, whoever has them; on the kernel's lists they may lie apart.
        let index = |name: &str| engine[name].as_f64().expect("an index");
        let (runs, lists) = (index("unusable_index_mean"), index("unusable_index_lists_mean"));
        let right = if engine["engine"] == "freehold" { runs == lists } else { runs < lists };
        assert!(right, "{runs} {lists}");
        assert_eq!(engine["allocs"], document["trace"]["allocs"]);
        // What is counted for each 1,000 events is what is counted.
        let of = |name: &str| engine[name].as_f64().expect("a figure");
        let events = of("allocs") + of("frees");
        for (total, rate) in [
            ("zone_lock_acquisitions", "zone_locks_per_1000"),
            ("shared_writes", "shared_writes_per_1000"),
        ] {
            assert!((of(rate) * events / 1000.0 - of(total)).abs() < 1e-6, "{rate} of {engine}");
        }
        // The kernel's designs write what all CPUs share under the zone lock and nowhere else.
        let under_lock = of("zone_lock_acquisitions") + of("zone_lock_work");
        assert!(of("shared_writes") > 0.0, "{engine}");
        assert!(engine["engine"] == "freehold" || of("shared_writes") == under_lock, "{engine}");
    }
}

#[test]
fn counts_do_not_depend_on_the_number_of_threads_or_the_other_engines() {
    let counts = |document: &serde_json::Value| {
        let engines = document["engines"].as_array().expect("engines");
        let found = engines.iter().find(|engine| engine["engine"] == "pcp-buddy-fixed");
        let mut engine = found.and_then(|engine| engine.as_object()).expect("an object").clone();
        engine.remove("ns_per_event");
        engine
    };
    let replay = |more: &[&str]| {
        counts(&json(freehold().args(["replay", "--json", "-e", "pcp-buddy-fixed"]).args(more)))
    };
    let beside_all = counts(&JSON);
    assert_eq!(beside_all, replay(&["--jobs", "1"]));
    assert_eq!(beside_all, replay(&["-e", "pcp-buddy", "--jobs", "4"]));
}

#[test]
fn the_built_in_sample_is_the_file_in_data() {
    let path = data("page-cache-churn.parquet");
    let file = json(freehold().args(["replay", "--json", "-e", "vanilla"]).arg(&path));
    // Standard input is read twice, too.
    let mut command = freehold();
    command.args(["replay", "--json", "-e", "vanilla", "-"]);
    let piped = json(command.write_stdin(std::fs::read(path).unwrap()));
    assert_eq!(JSON["engines"][1]["engine"], "vanilla");
    assert_eq!(JSON["engines"][1]["zone_lock_work"], file["engines"][0]["zone_lock_work"]);
    for other in [file, piped] {
        assert_eq!(JSON["trace"]["events"], other["trace"]["events"]);
    }
}

#[test]
fn a_switch_changes_what_it_says_and_is_named_in_the_result() {
    // Small enough that CPUs drain, and so merge.
    let engines = ["-e", "pcp-buddy-fixed", "-e", "pcp-buddy-fixed,-merge"];
    let document = json(freehold().args(["replay", "--json", "--machine", "400M"]).args(engines));
    let engines = &document["engines"];
    assert_eq!(engines[1]["engine"], "pcp-buddy-fixed,-merge");
    assert!(engines[0]["merges_pcp"].as_u64() > Some(0));
    assert_eq!(engines[1]["merges_pcp"], 0);
}

#[test]
fn the_engines_say_which_kernels_there_are_and_who_had_each_idea() {
    let listed = contains("pcp-buddy-fixed").and(contains("contig-free"));
    freehold().arg("engines").assert().code(0).stdout(listed);
    let document = json(freehold().args(["engines", "--json"]));
    for list in ["presets", "switches"] {
        for entry in document[list].as_array().expect("an array") {
            let said = |field: &str| entry[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(["name", "summary", "source"].into_iter().all(said), "{list}: {entry}");
        }
    }
    assert_eq!(document["kernels"], serde_json::json!(["5.17", "7.3"]));
    let source = |list: &str, name: &str| {
        let entries = document[list].as_array().expect("an array");
        let entry = entries.iter().find(|entry| entry["name"] == name).expect("it is listed");
        entry["source"].as_str().expect("a text").to_owned()
    };
    for (list, name, whose) in [
        ("switches", "foreign-claim", "found here"),
        ("switches", "merge-once", "found here"),
        ("switches", "count-drained", "found here"),
        ("switches", "cma-phases", "Frank van der Linden"),
        ("switches", "owned-by-type", "Rik van Riel"),
        ("switches", "range-wrap", "Vlastimil Babka"),
        ("switches", "recover", "Johannes Weiner"),
        ("presets", "pcp-buddy-fixed", "found here"),
        ("presets", "pcp-buddy", "PCP buddy allocator (2026)"),
    ] {
        assert!(source(list, name).ends_with(whose), "{name}");
    }
}

#[test]
fn a_kernel_as_uname_prints_it_is_an_engine() {
    let named = |name: &str| name.parse::<freehold_lab::engines::EngineSpec>();
    for (name, engine) in [
        ("6.1.55", "6.1"),
        ("6.12.57+deb13-amd64", "6.12"),
        ("6.8.0-45-generic,+contig-free", "6.8,+contig-free"),
    ] {
        assert_eq!(named(name).unwrap().name(), engine);
    }
    let refused = named("99.1.0-x").expect_err("no engine").to_string();
    assert!(refused.contains("newer than 7.3"), "{refused}");
}

#[test]
fn the_baseline_is_the_kernel_that_recorded_the_trace() {
    let engines = |kernel: &str| {
        let mut command = freehold();
        command.args(["replay", "--json", "--kernel", kernel, "-"]).write_stdin(TRACE);
        let done = command.assert().code(0);
        let document = document_of(&done);
        let names = document["engines"].as_array().expect("engines").iter();
        let names = names.map(|engine| engine["engine"].as_str().expect("a name").to_owned());
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        (names.collect::<Vec<_>>(), said)
    };
    // Another, as --kernel says; one that is older than every engine.
    assert_eq!(engines("6.12.3").0[..2], ["6.12", "vanilla"]);
    let (names, said) = engines("5.15");
    assert_eq!(names[..2], ["vanilla", "pcp-buddy"]);
    assert!(said.contains("Linux 5.15 is older than 5.17") && said.contains("vanilla"), "{said}");
    // One that nobody names is the newest.
    let why =
        "does not say which kernel recorded it; vanilla is the baseline (--kernel VERSION names";
    freehold().args(["replay", "-"]).write_stdin(TRACE).assert().code(0).stderr(contains(why));
}

#[test]
fn the_terminal_the_json_and_the_report_say_one_answer() {
    let document = &*JSON;
    let answer = &document["answer"];
    let sentences = answer["sentences"].as_array().expect("sentences").iter();
    let lock = answer["zone_lock"]["sentences"].as_array().expect("sentences").iter();
    let all: Vec<&str> = sentences.chain(lock).filter_map(|one| one.as_str()).collect();
    assert!(all.len() > 5, "{all:?}");
    let text = flat(&TEXT);
    for sentence in all {
        assert!(text.contains(sentence), "{sentence}: {text}");
    }
    let engines = answer["zone_lock"]["engines"].as_array().expect("engines");
    assert_eq!(engines.len(), document["engines"].as_array().expect("engines").len());
    // A machine that is too small: the warning comes, and nobody is best.
    let pressed = json(freehold().args(["replay", "--json", "--machine", "16M"]));
    let warning = pressed["answer"]["warnings"][0].as_str().expect("a warning");
    assert!(warning.starts_with("Over 1 % of allocations failed"), "{warning}");
    assert_eq!(pressed["answer"]["sentences"].as_array().map(Vec::len), Some(0));
}

#[test]
fn rows_that_are_equal_are_one_line_and_directions_are_words() {
    let text = &*TEXT;
    assert!(text.contains("Equal for all engines: allocations 70,302"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("   allocations")), "{text}");
    let direction = |row: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(row));
        let line = line.unwrap_or_else(|| panic!("{row}: {text}"));
        line.trim_start()[row.len()..].split_whitespace().next().expect("a cell").to_owned()
    };
    assert_eq!(direction("zone locks / 1,000 events"), "less");
    assert_eq!(direction("wholly free blocks at the end"), "more");
    // Of one engine nothing is equal to another's.
    let alone = printed(freehold().args(["replay", "-e", "vanilla"]));
    assert!(!alone.contains("Equal for all engines"));
    assert!(!text.contains('\u{1b}'), "no colour where nobody sees it: {text}");
}

#[test]
fn help_has_examples() {
    let all = contains("Examples:").and(contains("freehold record"));
    freehold().arg("--help").assert().code(0).stdout(all);
    for command in ["replay", "engines", "record"] {
        freehold().args([command, "--help"]).assert().code(0).stdout(contains("Examples:"));
    }
}
