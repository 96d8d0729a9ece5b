//! `freehold bench` of memory: what can be counted exactly, the shape of its JSON, and what
//! it says where the system lacks something. Nothing here looks at a time.

use std::collections::BTreeSet;
use std::io::Write;

use assert_cmd::Command;
use freehold_host::freehold_vm::UnmapPath;
use freehold_lab::bench::clock::Cpus;
use freehold_lab::bench::engines::HostThreads;
use freehold_lab::bench::memory::folios::{FOLIO_PAGES, FOLIOS, Folios};

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.arg("bench").env("COLUMNS", "120").env_remove("NO_COLOR");
    command
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Each way of unmapping: what came free, and how many flushes and system calls it took.
#[test]
fn each_way_of_unmapping_flushes_and_queues_what_it_should() {
    const PAGES: u64 = FOLIOS * FOLIO_PAGES;
    let test = "each_way_of_unmapping_flushes_and_queues_what_it_should";
    let folios = match Folios::new(HostThreads::new()) {
        Ok(folios) => folios,
        Err(error) => return skipped(test, &error),
    };
    // All folios of a flush are neighbours: one range, one call.
    let all = FOLIOS / 128;
    for (path, deferred) in [(UnmapPath::PageByPage, FOLIOS), (UnmapPath::Batched, 0)] {
        for second in [false, true] {
            let reclaim = folios.run(path, second, &Cpus::allowed()).unwrap();
            assert_eq!((reclaim.frames, reclaim.deferred), (PAGES, deferred), "{path:?}");
            assert_eq!(reclaim.flushes, reclaim.syscalls, "{path:?}");
            let least = path == UnmapPath::Batched;
            assert!(if least { reclaim.flushes == all } else { reclaim.flushes >= all });
        }
    }
}

const LAZYFREE: [&str; 8] = [
    "ns_per_folio_page_by_page",
    "ns_per_folio_batched",
    "batched_speedup",
    "deferred_splits_page_by_page",
    "deferred_splits_batched",
    "flushes_page_by_page",
    "flushes_batched",
    "syscalls_per_folio_batched",
];

/// Metric and engine of each row of a quick run, and what was said besides. Of the engine that the
/// benchmark has nothing of there is no row: it is named instead.
fn rows(
    benchmark: &str,
    engines: &[&str],
    unsuited: &str,
) -> (BTreeSet<(String, String)>, serde_json::Value, String) {
    let mut command = bench();
    command.args(["--quick", "--runs", "1", "--json", benchmark]);
    for engine in engines.iter().chain([&unsuited]) {
        command.args(["-e", engine]);
    }
    let done = command.assert().code(0);
    let document: serde_json::Value =
        serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    let mut found = BTreeSet::new();
    for row in document["rows"].as_array().expect("an array") {
        assert_eq!((row["benchmark"].as_str(), row["runs"].as_u64()), (Some(benchmark), Some(1)));
        assert!(["less", "more"].map(Some).contains(&row["better"].as_str()), "{row}");
        assert!(row["median"].as_f64().expect("a number") >= 0.0);
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        assert_ne!(row["engine"], unsuited, "{row}");
        assert!(found.insert((text("metric"), text("engine"))), "{row} twice");
    }
    let named = document["unsuited"].as_array().expect("an array");
    let said: Vec<_> =
        named.iter().map(|one| (one["benchmark"].as_str(), one["engine"].as_str())).collect();
    assert_eq!(said, [(Some(benchmark), Some(unsuited))], "{named:?}");
    assert!(named[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{named:?}");
    let error = String::from_utf8(done.get_output().stderr.clone()).expect("UTF-8");
    (found, document, error)
}

fn wanted(
    names: impl IntoIterator<Item = String>,
    engine: &str,
) -> impl Iterator<Item = (String, String)> {
    names.into_iter().map(move |name| (name, engine.to_owned()))
}

fn two_cpus(test: &str) -> bool {
    let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    if !two {
        skipped(test, "what takes two CPUs; this machine has one");
    }
    two
}

#[test]
fn lazyfree_has_its_times_and_counts() {
    let test = "lazyfree_has_its_times_and_counts";
    let (found, document, error) = rows("lazyfree", &["freehold"], "vanilla");
    if error.contains("freehold left out") {
        return skipped(test, &error);
    }
    let mut expected: BTreeSet<_> = wanted(LAZYFREE.map(str::to_owned), "freehold").collect();
    if two_cpus(test) {
        let beside = LAZYFREE.map(|name| format!("{name}_second_thread"));
        expected.extend(wanted(beside, "freehold"));
    }
    assert_eq!(found, expected);
    for (metric, count) in [
        ("deferred_splits_page_by_page", 2048.0),
        ("deferred_splits_batched", 0.0),
        ("flushes_batched", 16.0),
        ("syscalls_per_folio_batched", 16.0 / 2048.0),
    ] {
        let rows = document["rows"].as_array().expect("an array");
        let row = rows.iter().find(|row| row["metric"] == metric);
        assert!(row.is_some_and(|row| row["median"] == count), "{row:?}");
    }
}

/// Where memory is short there is nothing to measure: 1 GiB is in use at a time, and twice for a
/// moment.
fn has_memory(test: &str) -> bool {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available
        .and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0);
    if kib < 3 << 20 {
        skipped(test, &format!("{kib} KiB of memory are available, and 3 GiB are needed"));
    }
    kib >= 3 << 20
}

const ARENA: [&str; 7] = [
    "ns_per_pair_4k",
    "ns_per_pair_64k",
    "ns_per_pair_2m",
    "mib_after_purge_4k",
    "ms_purge_4k",
    "mib_after_purge_64k",
    "ms_purge_64k",
];
const EMPTY: [&str; 4] = ["kib_empty_1t", "ms_empty_1t", "kib_empty_16t", "ms_empty_16t"];
const DOUBLED: [&str; 2] = ["mib_peak_doubled", "ms_doubled"];

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn arena_has_its_rows_beside_malloc_and_keeps_to_its_memory() {
    let test = "arena_has_its_rows_beside_malloc_and_keeps_to_its_memory";
    if !has_memory(test) {
        return;
    }
    let (found, document, error) = rows("arena", &["freehold"], "vanilla");
    let mut expected = BTreeSet::new();
    expected.extend(wanted(ARENA.iter().chain(&EMPTY).map(|&name| name.to_owned()), "freehold"));
    expected.extend(wanted(ARENA.map(str::to_owned), "malloc"));
    expected.extend(wanted([DOUBLED[1].to_owned()], "linux"));
    if !error.contains("one mapping of huge pages left out") {
        expected.extend(wanted([format!("{}_huge", DOUBLED[1])], "linux"));
    }
    if error.contains("the peak of a doubled buffer left out") {
        skipped(test, &error);
    } else {
        expected.extend(wanted(DOUBLED.iter().map(|&name| name.to_owned()), "freehold"));
        expected.extend(wanted(DOUBLED.iter().map(|name| format!("{name}_huge")), "freehold"));
        expected.extend(wanted(DOUBLED.map(str::to_owned), "malloc"));
    }
    assert_eq!(found, expected);
    let figure = |name: &str| {
        let rows = document["rows"].as_array().expect("an array");
        let row = rows.iter().find(|row| row["metric"] == name && row["engine"] == "freehold");
        row.and_then(|row| row["median"].as_f64())
    };
    // Memory, not time. 16 MiB of the 64 KiB pieces are in use.
    assert!(
        figure("mib_after_purge_4k").is_some_and(|mib| (1.0..=20.0).contains(&mib)),
        "{document}"
    );
    assert!(
        figure("mib_after_purge_64k").is_some_and(|mib| (15.9..=20.0).contains(&mib)),
        "{document}"
    );
    assert!(figure("kib_empty_1t").is_some_and(|kib| kib <= 1024.0), "{document}");
    for metric in ["mib_peak_doubled", "mib_peak_doubled_huge"] {
        assert!(figure(metric).is_none_or(|mib| (511.0..=520.0).contains(&mib)), "{document}");
    }
}

/// Without file descriptors there is no `userfaultfd`, among others: what is left is measured, and
/// the rest is named. Descriptors that the tests' own parent left open are closed first: the
/// loader needs one of the four.
#[test]
fn what_the_system_refuses_is_said() {
    let script = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-; ulimit -n 4; \
                  exec \"$0\" bench --quick --runs 1 --json -e freehold lazyfree";
    let done =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_freehold")]).assert().code(0);
    let error = String::from_utf8(done.get_output().stderr.clone()).expect("UTF-8");
    assert!(error.contains("warning: lazyfree: freehold left out: "), "{error}");
    assert_eq!(error.matches("freehold left out").count(), 1, "once, however many runs: {error}");
    let document: serde_json::Value =
        serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    let rows = document["rows"].as_array().expect("an array");
    assert!(rows.is_empty(), "{document}");
}
