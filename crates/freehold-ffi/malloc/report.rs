//! What the library says: on standard error, a line at a time with the program's name and process,
//! never on the heap of an arena.

use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

use crate::large;

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

pub(crate) fn say(text: &str) {
    // SAFETY: the C library's: a string, or null before it has begun.
    let name = unsafe {
        let name = program_invocation_short_name;
        if name.is_null() { c"" } else { CStr::from_ptr(name) }
    };
    let (name, process) = (name.to_string_lossy(), std::process::id());
    let line = format!("freehold-malloc: {name}[{process}]: {text}\n");
    // SAFETY: so many bytes. Where it cannot be written there is nobody to tell.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Statistics, at the end of the program.
pub(crate) fn print() {
    let Some(stats) = large::stats() else {
        return say(large::why_none());
    };
    let kib = |bytes: u64| bytes / 1024;
    let allocations: u64 = stats.allocations_by_order.iter().sum();
    let read = |counter: &std::sync::atomic::AtomicU32| counter.load(Ordering::Relaxed);
    say(&format!(
        "allocations of whole frames: {allocations}; in use at the end: {} KiB; blocks of 2 MiB \
         resident at most: {}",
        kib(stats.frames_used * 4096),
        stats.blocks_resident
    ));
    say(&format!(
        "given back: {} KiB; passes: {}; calls: {}; addresses of the metadata, in memory only \
         where written: {} KiB",
        kib(stats.bytes_released),
        stats.passes,
        stats.release_calls,
        kib(stats.metadata_bytes)
    ));
    say(&format!(
        "realloc: {} in place, {} moved by the kernel, {} copied; no room in the arena: {}",
        read(&large::IN_PLACE),
        read(&large::REMAPPED),
        read(&large::COPIED),
        read(&large::PASSED_ON)
    ));
}
