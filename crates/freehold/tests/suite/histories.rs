//! Histories of calls on random machines, against a table of all frames: of seeds, of random bytes,
//! and those that the fuzzer has found (`proofs/fuzz/corpus/operations`).
//!
//! `proofs/fuzz` looks for more with a nightly compiler; what it finds is replayed here from then
//! on, on machines without a fuzzer too. One file: `FREEHOLD_HISTORY_FILE=path cargo test -p
//! freehold --test suite -- one_file`.

use std::io::Write;
use std::path::Path;

use crate::exact;
use crate::length::length;
use proptest::prelude::*;

/// So many; all that proptest would make where there is time for it ([`length`]), or as many as
/// `PROPTEST_CASES` asks for.
fn histories(short: u32, whole: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return default;
    }
    ProptestConfig { cases: length(short, whole), ..default }
}

#[test]
fn every_answer_is_right_on_machines_of_any_size() {
    let mut searched = 0;
    for seed in 0..length(12, 100) {
        let counts = exact::of_seed(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        searched += counts.searched;
    }
    assert!(searched > 100, "only {searched} failures were looked into");
}

#[test]
fn what_the_fuzzer_found_stays_found() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proofs/fuzz/corpus/operations");
    let Ok(entries) = std::fs::read_dir(&corpus) else {
        // The packaged crate comes without it. Not `eprintln!`, which the test harness swallows.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no corpus in {}", corpus.display());
        return;
    };
    let mut files: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for path in files {
        let played = exact::of_bytes(&std::fs::read(&path).unwrap());
        played.unwrap_or_else(|wrong| panic!("{}: {wrong}", path.display()));
    }
}

#[test]
fn one_file() {
    let Some(path) = std::env::var_os("FREEHOLD_HISTORY_FILE") else { return };
    exact::of_bytes(&std::fs::read(path).unwrap()).unwrap();
}

proptest! {
    #![proptest_config(histories(192, 512))]

    #[test]
    fn any_bytes_are_a_history(history in prop::collection::vec(any::<u8>(), 0..3000)) {
        let played = exact::of_bytes(&history);
        prop_assert!(played.is_ok(), "{}", played.err().unwrap_or_default());
    }
}
