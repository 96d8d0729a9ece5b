//! `freehold bench` of virtual memory: what can be counted exactly, the shape of its JSON, and what
//! it says where the system lacks something. Nothing here looks at a time.

use std::collections::BTreeSet;
use std::io::Write;

use crate::common::length::length;
use assert_cmd::Command;
use freehold_host::freehold_vm::UnmapPath;
use freehold_lab::bench::clock::Cpus;
use freehold_lab::bench::engines::HostThreads;
use freehold_lab::bench::memory::folios::{FOLIO_PAGES, FOLIOS, Folios, Reclaim};
use freehold_lab::bench::memory::variants::Variant;

const BUDDY: &str = "buddy_system_allocator";

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command.arg("bench").env("COLUMNS", "120").env_remove("NO_COLOR");
    command
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
fn skipped(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

fn folios(test: &str) -> Option<Folios> {
    Folios::new(HostThreads::new()).map_err(|error| skipped(test, &error)).ok()
}

const PAGES: u64 = FOLIOS * FOLIO_PAGES;

/// Eighth of the folios: those that variants do something to.
const SOME: u64 = FOLIOS / 8;

/// What must come of a reclaim, whatever it takes.
fn counts(reclaim: Reclaim) -> (u64, u64, u64, u64) {
    (reclaim.frames, reclaim.deferred, reclaim.redirtied, reclaim.busy)
}

/// Each way of unmapping: what came free, and how many flushes and system calls it took. On every
/// variant in CI; otherwise each way has one of those that go whole.
#[test]
fn each_way_of_unmapping_flushes_and_queues_what_it_should() {
    let Some(folios) = folios("each_way_of_unmapping_flushes_and_queues_what_it_should") else {
        return;
    };
    let whole =
        [Variant::OneThread, Variant::SecondThread, Variant::AcrossTables, Variant::MixedRights];
    let (left, others) = (PAGES - SOME * FOLIO_PAGES, FOLIOS - SOME);
    let (all, most) = (FOLIOS / 128, others.div_ceil(128));
    // Seven neighbours are a range. Before Linux 6.13 a range is a call; since then a flush is.
    let calls = |calls| calls == most || (SOME..=SOME + 2 * most).contains(&calls);
    let paths = [UnmapPath::PageByPage, UnmapPath::PageByPageDeferred, UnmapPath::Batched];
    for (n, path) in paths.into_iter().enumerate() {
        let run = |variant| folios.run(variant, path, &Cpus::allowed()).unwrap();
        let by_page = path == UnmapPath::PageByPage;
        let queued = |folios| if path == UnmapPath::Batched { 0 } else { folios };
        for &variant in length(&whole[n..=n], &whole) {
            let reclaim = run(variant);
            assert_eq!(counts(reclaim), (PAGES, queued(FOLIOS), 0, 0), "{path:?} {variant:?}");
            // All folios of a flush are neighbours: one range, one call.
            let flushes = if by_page { PAGES } else { all };
            assert_eq!(
                (reclaim.flushes, reclaim.syscalls),
                (flushes, flushes),
                "{path:?} {variant:?}"
            );
        }
        let dirty = run(Variant::Redirtied);
        assert_eq!(counts(dirty), (left, queued(FOLIOS), SOME, 0), "{path:?}");
        let pinned = run(Variant::Pinned);
        assert_eq!(counts(pinned), (left, queued(others), 0, SOME), "{path:?}");
        match path {
            UnmapPath::PageByPage => {
                // Three pages of each folio that was written to go before the fourth is found dirty.
                let flushes = left + 3 * SOME;
                assert_eq!((dirty.flushes, dirty.syscalls), (flushes, flushes));
                assert_eq!((pinned.flushes, pinned.syscalls), (left, left));
            }
            // Linux until 6.14. A folio that stays partly mapped is flushed before it is let go;
            // every eighth one does.
            UnmapPath::PageByPageDeferred => {
                assert!((SOME..=SOME + all).contains(&dirty.flushes), "{dirty:?}");
                assert_eq!(pinned.flushes, most);
            }
            _ => {
                assert_eq!((dirty.flushes, pinned.flushes), (most, most));
                assert!(calls(dirty.syscalls) && calls(pinned.syscalls), "{dirty:?} {pinned:?}");
            }
        }
    }
}

/// A thread writes meanwhile: how much stays depends on when, but whatever it is, it is whole
/// folios.
#[test]
fn a_thread_that_writes_meanwhile_leaves_no_folio_in_part() {
    let Some(folios) = folios("a_thread_that_writes_meanwhile_leaves_no_folio_in_part") else {
        return;
    };
    let reclaim = folios.run(Variant::Toucher, UnmapPath::Batched, &Cpus::allowed()).unwrap();
    assert_eq!(
        reclaim.frames + (reclaim.redirtied + reclaim.busy) * FOLIO_PAGES,
        PAGES,
        "{reclaim:?}"
    );
    assert!(
        reclaim.redirtied + reclaim.busy <= SOME,
        "{reclaim:?}: only every eighth folio is written to"
    );
    assert_eq!(reclaim.deferred, 0);
}

const VMALLOC: [&str; 18] = [
    "fix_align_alloc_test_p1_h0",
    "fix_size_alloc_test_p1_h0",
    "fix_size_alloc_test_p4_h0",
    "fix_size_alloc_test_p16_h0",
    "fix_size_alloc_test_p16_h1",
    "fix_size_alloc_test_p64_h0",
    "fix_size_alloc_test_p64_h1",
    "fix_size_alloc_test_p256_h0",
    "fix_size_alloc_test_p256_h1",
    "fix_size_alloc_test_p512_h0",
    "fix_size_alloc_test_p512_h1",
    "full_fit_alloc_test_p1_h0",
    "kvfree_rcu_1_arg_vmalloc_test_p1_h0",
    "kvfree_rcu_2_arg_vmalloc_test_p1_h0",
    "long_busy_list_alloc_test_p1_h0",
    "random_size_align_alloc_test_p1_h0",
    "random_size_alloc_test_p1_h0",
    "vm_map_ram_test_p1_h0",
];

const OF_KERNELS: [&str; 6] = [
    "us",
    "v6_18_us",
    "v6_19_rc1_us",
    "v6_19_rc1_by_v6_18",
    "patched_by_v6_18",
    "contig_free_speedup",
];

const LAZYFREE: [&str; 13] = [
    "ns_per_folio_page_by_page",
    "ns_per_folio_page_by_page_deferred",
    "ns_per_folio_batched",
    "batched_speedup",
    "batched_speedup_over_deferred",
    "deferred_splits_page_by_page",
    "deferred_splits_page_by_page_deferred",
    "deferred_splits_batched",
    "flushes_page_by_page",
    "flushes_page_by_page_deferred",
    "flushes_batched",
    "syscalls_per_folio_page_by_page_deferred",
    "syscalls_per_folio_batched",
];
const ALONE: [&str; 5] = ["", "_redirtied", "_pinned", "_across_tables", "_mixed_rights"];
const BESIDE: [&str; 2] = ["_second_thread", "_toucher"];

const GIVE_BACK: [&str; 3] = ["ns_per_block", "ratio_to_one_madvise", "syscalls_per_block"];
const BLOCKS: [&str; 4] = ["", "_huge", "_scattered", "_scattered_huge"];

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
fn vmalloc_has_every_row_of_the_threads_table() {
    let (found, document, error) = rows("vmalloc", &["freehold", "vanilla"], BUDDY);
    assert_eq!(error, "");
    let mut expected = BTreeSet::new();
    for engine in ["freehold", "vanilla", "freehold-host"] {
        for of in OF_KERNELS {
            expected.extend(wanted(VMALLOC.map(|name| format!("{name}_{of}")), engine));
        }
    }
    assert_eq!(found, expected);
    for row in document["rows"].as_array().expect("an array") {
        let us = row["metric"].as_str().expect("text").ends_with("_us");
        assert_eq!(row["unit"], if us { "us" } else { "times" });
        assert!(row["median"].as_f64().expect("a number") > 0.0, "{row}");
    }
}

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn lazyfree_has_every_variant_and_the_counts() {
    let test = "lazyfree_has_every_variant_and_the_counts";
    let (found, document, error) = rows("lazyfree", &["freehold"], "vanilla");
    let two = two_cpus(test);
    let mut expected = BTreeSet::new();
    if error.contains("freehold left out") {
        skipped(test, &error);
    } else {
        for suffix in ALONE.iter().chain(BESIDE.iter().filter(|_| two)) {
            expected.extend(wanted(LAZYFREE.map(|name| format!("{name}{suffix}")), "freehold"));
        }
    }
    for pages in ["4k_pages", "64k_pages", "2m_pages"] {
        if error.contains(&format!("linux, {pages} left out")) {
            skipped(test, &format!("the system's own reclaim of {pages}"));
            continue;
        }
        for suffix in ["", "_second_thread"].into_iter().filter(|suffix| suffix.is_empty() || two) {
            expected.extend(wanted([format!("ns_per_folio_{pages}{suffix}")], "linux"));
        }
    }
    assert_eq!(found, expected);
    for (metric, count) in [
        ("deferred_splits_page_by_page", 2048.0),
        ("deferred_splits_page_by_page_deferred", 2048.0),
        ("deferred_splits_batched", 0.0),
        ("flushes_page_by_page", 32768.0),
        ("flushes_page_by_page_deferred", 16.0),
        ("flushes_batched", 16.0),
        ("syscalls_per_folio_page_by_page_deferred", 16.0 / 2048.0),
        ("syscalls_per_folio_batched", 16.0 / 2048.0),
    ] {
        let rows = document["rows"].as_array().expect("an array");
        let row = rows.iter().find(|row| row["metric"] == metric);
        assert!(row.is_none_or(|row| row["median"] == count), "{row:?}");
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

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn give_back_has_both_kinds_of_pages() {
    let test = "give_back_has_both_kinds_of_pages";
    if !has_memory(test) {
        return;
    }
    let (found, document, error) = rows("give-back", &["freehold"], "vanilla");
    let mut expected = BTreeSet::new();
    for suffix in BLOCKS {
        if suffix.ends_with("_huge") && error.contains("huge pages left out") {
            skipped(test, &error);
            continue;
        }
        expected.extend(wanted(GIVE_BACK.map(|name| format!("{name}{suffix}")), "freehold"));
        expected.extend(wanted(
            ["ns_per_block", "syscalls_per_block"].map(|name| format!("{name}{suffix}")),
            "linux",
        ));
    }
    assert_eq!(found, expected);
    // 512 blocks, 32 to a batch: neighbours are one range, so one call a batch.
    let is_ours = |row: &&serde_json::Value| {
        row["metric"] == "syscalls_per_block" && row["engine"] == "freehold"
    };
    let row =
        document["rows"].as_array().expect("an array").iter().find(is_ours).expect("the calls");
    assert_eq!(row["median"], 16.0 / 512.0);
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
    let (found, document, error) = rows("arena", &["freehold"], "mmap");
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

#[test]
#[ignore = "long: cargo test -p freehold-lab --test suite bench:: -- --ignored"]
fn the_table_of_vmalloc_has_its_tests_and_no_other() {
    let command = ["--quick", "--runs", "1", "-e", "freehold", "vmalloc"];
    let done = bench().args(command).assert().code(0);
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    for part in ["VMALLOC", "freehold-host", "fix_size_alloc_test_p512_h1_us"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("in RMW"), "no table of benchmarks that did not run: {text}");
}

#[test]
fn list_names_every_metric() {
    let done = bench()
        .args(["--list", "vmalloc", "lazyfree", "give-back", "arena"])
        .assert()
        .code(0)
        .stderr("");
    let text = String::from_utf8(done.get_output().stdout.clone()).expect("UTF-8");
    for name in
        ["VMALLOC", "LAZYFREE", "GIVE-BACK", "vm_map_ram_test_p1_h0_us", "ns_per_folio_64k_pages"]
    {
        assert!(text.contains(name), "{name}");
    }
    LAZYFREE
        .iter()
        .chain(&GIVE_BACK)
        .chain(&ARENA)
        .chain(&EMPTY)
        .chain(&DOUBLED)
        .for_each(|name| assert!(text.contains(name), "{name}"));
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
    assert!(rows.iter().all(|row| row["engine"] == "linux"), "{document}");
}
