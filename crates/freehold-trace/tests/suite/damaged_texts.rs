//! Texts of every kind, whole and damaged in every way: nothing panics, and what is cut, doubled or
//! of two machines is refused.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::byte_text::check;

/// The corpus of the fuzzer, which is the seed of these tests too: each of them is accepted.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proofs/fuzz/corpus/texts");
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn the_corpus_is_accepted() {
    let corpus = corpus();
    assert!(corpus.len() >= 12, "{} seeds", corpus.len());
    for (name, bytes) in corpus {
        assert!(check(&bytes), "{name} is refused");
    }
}

/// Cuts at every line's end and within every line: a description that lost its end says so.
#[test]
fn descriptions_cut_anywhere_never_panic_and_lose_no_zone_in_silence() {
    for (name, bytes) in corpus().iter().filter(|(_, bytes)| bytes[0] % 6 < 4) {
        for end in 1..bytes.len() {
            check(&bytes[..end]);
        }
        let text = String::from_utf8(bytes[1..].to_vec()).unwrap();
        // A line twice is two zones of one name, or a type twice.
        for line in text.lines().filter(|line| line.starts_with("Node")) {
            let doubled = text.replacen(line, &format!("{line}\n{line}"), 1);
            let mut damaged = vec![bytes[0]];
            damaged.extend(doubled.as_bytes());
            assert!(!check(&damaged), "{name}: accepted with this line twice: {line}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Bytes changed, taken out and put in.
    #[test]
    fn damage_never_panics(
        seed in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let corpus = corpus();
        let mut bytes = seed.get(&corpus).1.clone();
        for (at, byte, how) in damage {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 if bytes.len() > 1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        check(&bytes);
    }
}
