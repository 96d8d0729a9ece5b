//! What several test programs look at.
#![allow(dead_code, unreachable_pub)]

pub mod child;
use std::io::Write;

use freehold_host::Arena;

/// Whether each of these bytes is `byte`. By memcmp(3), which is fast without optimisation as well.
pub fn all_are(bytes: &[u8], byte: u8) -> bool {
    let Some((&first, rest)) = bytes.split_first() else { return true };
    first == byte && rest == &bytes[..rest.len()]
}

/// All of an arena's frames are free, and nobody has freed any wrongly.
pub fn all_free(arena: &Arena) {
    arena.validate().unwrap();
    let stats = arena.stats();
    assert_eq!(arena.free_frames(), stats.frames);
    assert_eq!((stats.refused_drops, stats.late_double_frees), (0, 0));
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(test: &str, why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
