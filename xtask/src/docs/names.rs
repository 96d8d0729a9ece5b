//! The tests that docs/misuse.md names for its claims: each of them exists.

use std::fs;
use std::path::Path;

use crate::build;

/// Names of tests in the last column of a table: words of lower case letters with three underscores
/// or more. One that begins with `..` is short for the name before it with another end.
fn named(row: &str) -> Vec<&str> {
    let column = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default();
    let is_name = |word: &&str| {
        let letters = word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        let shortened = row.contains(&format!("..{word}"));
        letters && (shortened || word.matches('_').count() >= 3)
    };
    column
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .filter(is_name)
        .collect()
}

/// All Rust sources of a folder, one after another.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

#[test]
fn names_are_found_in_the_last_column_only() {
    let row = "| a_b_c_d in text | at once | `basics.rs` two_free_the_same_run, .._word; loom: it_is_seen_by_all |";
    assert_eq!(named(row), ["two_free_the_same_run", "_word", "it_is_seen_by_all"]);
    assert!(named("| any | cannot be seen | none possible; the model |").is_empty());
}

#[test]
fn each_test_that_the_page_on_wrong_frees_names_exists() {
    let page =
        fs::read_to_string(build::root().join("docs/misuse.md")).expect("docs/misuse.md is there");
    let mut all = String::new();
    for folder in ["crates/freehold", "crates/freehold-ffi", "crates/freehold-host", "proofs/model"]
    {
        sources(&build::root().join(folder), &mut all);
    }
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let names: Vec<&str> = rows.into_iter().flat_map(named).collect();
    assert!(names.len() > 20, "only {} tests are named", names.len());
    for name in names {
        // The start of what is shortened is another test's.
        let wanted = if name.starts_with('_') { format!("{name}(") } else { format!("fn {name}(") };
        assert!(all.contains(&wanted), "docs/misuse.md names '{name}', which is no test");
    }
}
