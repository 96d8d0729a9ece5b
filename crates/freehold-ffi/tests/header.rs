//! The header keeps to its own rules. Whether it is what the sources say is `bash .ci/run header`.

use std::fs;

fn checked_in() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/freehold.h"))
        .expect("include/freehold.h is checked in")
}

/// The documentation comment in front of each function, and the function's name.
fn functions(header: &str) -> Vec<(String, String)> {
    let mut functions = Vec::new();
    let mut comment = String::new();
    let mut in_comment = false;
    for line in header.lines() {
        if line.starts_with("/*") {
            comment.clear();
            in_comment = true;
        }
        if in_comment {
            comment.push_str(line);
            comment.push('\n');
            in_comment = !line.ends_with("*/");
            continue;
        }
        // Declarations start at the margin; typedefs of callbacks have their name in brackets.
        let starts = line.starts_with(|first: char| first.is_ascii_lowercase())
            && !line.starts_with("typedef");
        if let Some(open) = line.find('(').filter(|_| starts) {
            let name = line[..open].rsplit([' ', '*']).next().unwrap_or_default();
            functions.push((name.to_string(), std::mem::take(&mut comment)));
        }
    }
    functions
}

#[test]
fn every_function_is_documented_and_called_by_a_test() {
    let functions = functions(&checked_in());
    assert!(functions.len() > 50, "found only {} functions", functions.len());
    let sources: String = ["bare.c", "arena.c", "freestanding.c"]
        .iter()
        .map(|name| {
            fs::read_to_string(format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR")))
                .expect("a C test")
        })
        .collect();
    for (name, comment) in functions {
        assert!(name.starts_with("freehold_"), "{name} has no prefix");
        assert!(sources.contains(&format!("{name}(")), "{name} is called by no C test");
        assert!(!comment.is_empty(), "{name} is not documented");
    }
}

#[test]
fn every_name_has_the_prefix() {
    for line in checked_in().lines() {
        let name = if let Some(rest) = line.strip_prefix("#define ") {
            rest.split([' ', '(']).next().unwrap_or_default().to_lowercase()
        } else if let Some(rest) = line.strip_prefix("} ") {
            rest.trim_end_matches(';').to_string()
        } else {
            continue;
        };
        // The ends of `extern "C"` and of conditions are comments.
        assert!(name.starts_with("freehold_") || name.trim_start().starts_with("/*"), "{line}");
    }
}
