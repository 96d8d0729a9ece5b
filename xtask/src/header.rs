//! `cargo xtask header`: `freehold.h`, as cbindgen makes it of the sources of `freehold-ffi`.
//!
//! ```text
//! make -C crates/freehold-ffi header    writes it: after a change of the sources
//! bash .ci/run header                   says where it is stale
//! ```
//!
//! Feature `header`: cbindgen and what it needs are a tenth of what the tests would compile.

use std::fs;
use std::path::Path;

use crate::build;

/// Writes the header, or only looks whether it is what it has to be.
pub(crate) fn run(check: bool) -> Result<(), String> {
    let root = build::root().join("crates/freehold-ffi");
    let path = root.join("include/freehold.h");
    let expected = generate(&root);
    let done = if check {
        fs::read_to_string(&path)
            .map_err(|error| error.to_string())
            .and_then(|found| compare(&found, &expected))
    } else {
        fs::write(&path, expected).map_err(|error| error.to_string())
    };
    done.map_err(|problem| format!("{}: {problem}", path.display()))
}

/// Where the header is not what it should be.
fn compare(found: &str, expected: &str) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let mut lines = found.lines().zip(expected.lines()).enumerate();
    let (line, (found, expected)) =
        lines.find(|(_, (found, expected))| found != expected).unwrap_or((
            found.lines().count().min(expected.lines().count()),
            ("its end", "more or less"),
        ));
    Err(format!(
        "stale at line {}: `{found}` should be `{expected}`: `make -C crates/freehold-ffi header`",
        line + 1
    ))
}

/// What it has to be.
fn generate(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/lib.rs"))
        .generate()
        .expect("cbindgen reads the sources");
    let mut header = Vec::new();
    bindings.write(&mut header);
    readable(&String::from_utf8(header).expect("the sources are UTF-8"))
}

/// What precedes the first function of each group.
const GROUPS: [(&str, &str); 8] = [
    ("freehold_config_init", "The bare allocator: making it, looking at it"),
    ("freehold_alloc_bulk", "The bare allocator: many frames, ranges, periodic work"),
    ("freehold_alloc", "The bare allocator: one chunk"),
    ("freehold_alloc_contig_range", "The bare allocator: ranges, pageblocks, reserves"),
    ("freehold_own", "The bare allocator: CPUs"),
    ("freehold_arena_new", "The arena: making it, frames by number"),
    ("freehold_arena_frames", "The arena: frames as memory"),
    ("freehold_read_zone_stats", "The bare allocator: statistics. Errors and versions"),
];

/// What cbindgen has no setting for: C of 1989 and C++ of 1998 have no comma behind the last name
/// of an enum, and the former no `//`; functions come in groups; and nothing takes more lines than
/// it fills.
fn readable(header: &str) -> String {
    let lines: Vec<String> = header.lines().map(without_line_comment).collect();
    let mut out = String::new();
    let mut groups = GROUPS.len();
    let mut at = 0;
    while at < lines.len() {
        if lines[at] != "/**" {
            // An enum's last name, perhaps with the end of a condition behind it.
            let ends = lines[at + 1..]
                .iter()
                .find(|line| !line.starts_with('#'))
                .is_some_and(|line| line.starts_with('}'));
            out += lines[at].strip_suffix(',').filter(|_| ends).unwrap_or(&lines[at]);
            out.push('\n');
            at += 1;
            continue;
        }
        let end = at + lines[at..].iter().position(|line| line == " */").expect("a comment ends");
        if let Some((_, title)) = GROUPS.iter().find(|(first, _)| declares(&lines[end + 1], first))
        {
            out += &format!("/* ---- {title} ---- */\n\n");
            groups -= 1;
        }
        out += &(lines[at..=end].join("\n") + "\n");
        at = end + 1;
    }
    assert_eq!(groups, 0, "a group begins with no function that there is");
    // One condition for neighbours that all have it.
    compact(&out.replace("#endif\n\n#if defined(FREEHOLD_HOSTED)\n", "\n"))
}

/// No condition inside itself, no line of a comment without text, and parameters side by side.
fn compact(header: &str) -> String {
    let mut out = String::new();
    let mut conditions = Vec::new();
    let mut lines = header.lines().peekable();
    while let Some(line) = lines.next() {
        let text = line.trim_start();
        if line.starts_with("#if") || line.starts_with("#endif") {
            let ends = line.starts_with("#endif");
            if !ends {
                conditions.push(line);
            }
            let again = conditions.last().is_some_and(|inner| {
                conditions[..conditions.len() - 1].iter().any(|outer| outer == inner)
            });
            if ends {
                conditions.pop();
            }
            if again {
                continue;
            }
        }
        let parameters = text == line && text.ends_with(',') && text.contains('(');
        out += line;
        if text == "/**" {
            let first = lines.next().expect("a comment has a text").trim_start();
            out += &first[1..];
            while let Some(more) = lines.next_if(|more| more.trim_start() != "*/") {
                out += &format!("\n{more}");
            }
            out += " */";
            lines.next();
        } else if parameters {
            let mut length = line.len();
            while let Some(more) = lines.next_if(|more| more.starts_with("     ")) {
                let more = more.trim_start();
                let (before, start) =
                    if length + more.len() < 100 { (" ", length + 1) } else { ("\n    ", 4) };
                out += before;
                out += more;
                length = start + more.len();
            }
        }
        out.push('\n');
    }
    out
}

fn declares(line: &str, function: &str) -> bool {
    line.split([' ', '*'])
        .any(|word| word.strip_prefix(function).is_some_and(|rest| rest.starts_with('(')))
}

fn without_line_comment(line: &str) -> String {
    match line.split_once("//").filter(|_| line.starts_with(['#', '}'])) {
        Some((code, comment)) => format!("{}  /*{comment} */", code.trim_end()),
        None => line.to_string(),
    }
}
