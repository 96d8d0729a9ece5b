//! The header keeps to its own rules. Whether it is what the sources say is `bash .ci/run header`.

use std::fs;

fn checked_in() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/include/freehold.h"))
        .expect("include/freehold.h is checked in")
}

/// Functions are declared at the margin; typedefs of callbacks have their name in brackets. That they
/// are documented the compiler sees to.
#[test]
fn every_function_is_called_by_a_test() {
    let header = checked_in();
    let sources: String = ["bare.c", "arena.c", "freestanding.c"]
        .map(|name| format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR")))
        .map(|path| fs::read_to_string(path).expect("a C test"))
        .concat();
    let declared = header.lines().filter(|line| {
        line.starts_with(|first: char| first.is_ascii_lowercase()) && !line.starts_with("typedef")
    });
    let mut functions = 0;
    for line in declared {
        let Some(open) = line.find('(') else { continue };
        let name = line[..open].rsplit([' ', '*']).next().unwrap_or_default();
        assert!(name.starts_with("freehold_"), "{name} has no prefix");
        assert!(sources.contains(&format!("{name}(")), "{name} is called by no C test");
        functions += 1;
    }
    assert!(functions > 50, "found only {functions} functions");
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
