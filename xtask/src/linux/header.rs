//! Whether the C that is compiled with a kernel fits `freehold.h`, without a kernel: CI compiles
//! none, and a change of the header has broken `os/linux/built` unseen once.
//!
//! The C compiler parses our files with [`PRELUDE`] in place of the kernel's headers. It does not
//! know what a kernel declares, which is no matter here. What counts is what it says of names that
//! begin with `freehold_` or `FREEHOLD_`: names, fields, and how many arguments there are. A
//! statement that it cannot parse counts as well, since nothing of it is looked at.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::build;

/// Types, and macros that no parser can do without.
const PRELUDE: &str = "\
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef long ssize_t; typedef long long loff_t; typedef int pid_t; typedef unsigned int gfp_t;
typedef struct { long n; } atomic_t, atomic64_t, atomic_long_t;
struct list_head; struct compact_control; struct zone; struct page;
#define __init
#define __initdata
#define __user
#define __weak
#define noinline
#define __read_mostly
#define late_initcall(name) extern int name##_call
#define DEFINE_PER_CPU(type, name) __typeof__(type) name
#define DECLARE_STATIC_KEY_FALSE(name) extern int name
#define DEFINE_STATIC_KEY_FALSE(name) int name
#define DEFINE_DEBUGFS_ATTRIBUTE(name, get, set, format) extern int name
#define DEFINE_SHOW_ATTRIBUTE(name) extern int name##_fops
#define DEFINE_SHOW_STORE_ATTRIBUTE(name) extern int name##_fops
#define min_t(type, a, b) ((type)(a) + (type)(b))
#define for_each_online_cpu(cpu) for (;;)
#define for_each_possible_cpu(cpu) for (;;)
#define for_each_online_node(node) for (;;)
#define for_each_node_state(node, state) for (;;)
#define for_each_if(holds) if (holds)
#define for_each_populated_zone(zone) for (;;)
#define for_each_set_bit(bit, bits, size) for (;;)
#define for_each_clear_bit_from(bit, bits, size) for (;;)
#define container_of(at, type, member) ((type *)(at))
#define list_last_entry(list, type, member) ((type *)(list))
#define list_for_each_entry(entry, list, member) for (;;)
#define list_for_each_entry_safe(entry, next, list, member) for (;;)
";

/// Parts of our files that a kernel's options take in.
const OPTIONS: &str = "CMA MEMORY_FAILURE MEMORY_ISOLATION NUMA PAGE_ALLOC_COUNTS PAGE_ALLOC_FREEHOLD \
    PAGE_REPORTING SMP";

/// Puts our files into `folder` without what they include of the kernel; the C files that a
/// kernel compiles.
fn lay(folder: &Path) -> Vec<String> {
    let ours = build::root().join("os/linux");
    let mut files = Vec::new();
    fs::create_dir_all(folder.join("built")).unwrap();
    for part in ["", "built/"] {
        for entry in fs::read_dir(ours.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{part}{}", path.file_name().unwrap().to_string_lossy());
            let kind = path.extension().and_then(|kind| kind.to_str());
            if !matches!(kind, Some("c" | "h")) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let kernels =
                |line: &str| ["#include <", "#include \"../"].iter().any(|of| line.starts_with(of));
            let kept: Vec<&str> =
                text.lines().map(|line| if kernels(line) { "" } else { line }).collect();
            fs::write(folder.join(&name), kept.join("\n") + "\n").unwrap();
            if kind == Some("c") && text.contains("#include <linux/") {
                files.push(name);
            }
        }
    }
    fs::write(folder.join("prelude.h"), PRELUDE).unwrap();
    files
}

/// What a compiler says that concerns us.
fn concerns(line: &str) -> bool {
    let Some((_, said)) = line.split_once(": error: ").or_else(|| line.split_once(": warning: "))
    else {
        // The compiler has stopped there, and looked at nothing behind it.
        return line.contains(": fatal error: ");
    };
    // A guess is no name of the sources'.
    let said = said.split("; did you mean").next().unwrap_or_default();
    let ours = said.contains("freehold_") || said.contains("FREEHOLD_");
    ours || said.starts_with("expected") || said.starts_with("unknown type name")
}

/// What does not fit that header; nothing where there is no C compiler.
fn misfits(name: &str, header: &str) -> Option<Vec<String>> {
    let folder = std::env::temp_dir().join(format!("freehold-{name}-{}", std::process::id()));
    let files = lay(&folder);
    assert!(files.len() > 12, "{files:?}");
    fs::write(folder.join("freehold.h"), header).unwrap();
    let mut found = Vec::new();
    for file in files {
        let mut cc = Command::new("cc");
        cc.current_dir(&folder).env("LC_ALL", "C").args(["-fsyntax-only", "-std=gnu11"]);
        cc.args(["-Wno-int-conversion", "-include", "prelude.h", "-I.", "-Ibuilt"]);
        cc.arg("-DFREEHOLD_FREESTANDING")
            .args(OPTIONS.split(' ').map(|option| format!("-DCONFIG_{option}")));
        let Ok(output) = cc.arg(&file).output() else { return None };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        found.extend(said.lines().filter(|line| concerns(line)).map(str::to_owned));
    }
    fs::remove_dir_all(&folder).unwrap();
    found.dedup();
    Some(found)
}

fn header() -> String {
    fs::read_to_string(build::root().join("crates/freehold-ffi/include/freehold.h")).unwrap()
}

#[test]
fn what_kernels_are_compiled_with_fits_the_header() {
    match misfits("header", &header()) {
        Some(found) => assert!(found.is_empty(), "{}", found.join("\n")),
        None => eprintln!("SKIPPED: whether os/linux fits freehold.h: there is no C compiler"),
    }
}

#[test]
fn a_field_a_function_a_constant_or_an_argument_that_is_gone_is_found() {
    let gone = [
        ("uint64_t shared_writes;", "uint64_t written;", "shared_writes"),
        ("freehold_take_free(", "freehold_take_what_is_free(", "freehold_take_free"),
        ("FREEHOLD_MIGRATETYPE_ISOLATE", "FREEHOLD_MIGRATETYPE_ALONE", "MIGRATETYPE_ISOLATE"),
        ("freehold_destroy(", "freehold_destroy(int more, ", "freehold_destroy"),
    ];
    for (was, is, named) in gone {
        let header = header();
        assert!(header.contains(was), "{was}");
        let Some(found) = misfits(named, &header.replace(was, is)) else { return };
        assert!(found.iter().any(|line| line.contains(named)), "{was}: {found:?}");
    }
    assert!(concerns("fh.h:9:10: fatal error: gone.h: No such file or directory"));
}
