//! The corpus that the fuzzer has found (`proofs/fuzz/corpus/operations`), and random byte strings,
//! as histories of calls.
//!
//! `proofs/fuzz` looks for more with a nightly compiler; what it finds is replayed here from then
//! on, on machines without a fuzzer too. One file: `FREEHOLD_HISTORY=1 FREEHOLD_HISTORY_FILE=path
//! cargo test -p freehold --test suite -- one_file --nocapture`.

use std::io::Write;
use std::path::Path;

use crate::byte_history::{self, History};
use crate::how_many_histories::histories;
use proptest::prelude::*;

#[test]
fn what_the_fuzzer_found_stays_found() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proofs/fuzz/corpus/operations");
    let Ok(entries) = std::fs::read_dir(&corpus) else {
        // The packaged crate comes without it. Not `eprintln!`, which the test harness swallows
        // when the test passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no corpus in {}", corpus.display());
        return;
    };
    let mut files: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", corpus.display());
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        let played = std::panic::catch_unwind(|| byte_history::check(&bytes));
        assert!(played.is_ok(), "{}", path.display());
    }
}

#[test]
fn one_file() {
    let Some(path) = std::env::var_os("FREEHOLD_HISTORY_FILE") else { return };
    byte_history::check(&std::fs::read(path).unwrap());
}

proptest! {
    #![proptest_config(histories(96, 256))]

    /// Machines that nobody would build: edges anywhere, zones of a block, holes of a frame, groups
    /// of one.
    #[test]
    fn any_machine_keeps_every_promise(history in prop::collection::vec(any::<u8>(), 9..900)) {
        History([&[250], &history[1..]].concat()).check();
    }

    #[test]
    fn any_bytes_are_a_history(
        history in prop::collection::vec(any::<u8>(), 0..900).prop_map(History)
    ) {
        history.check();
    }
}
