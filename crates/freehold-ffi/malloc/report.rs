//! What the library says: on standard error, a line at a time, never on the heap of an arena.

use std::sync::atomic::Ordering;

use crate::large;

pub(crate) fn say(text: &str) {
    let line = format!("freehold-malloc: {text}\n");
    // SAFETY: so many bytes. Where it cannot be written there is nobody to tell.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

/// Statistics, at the end of the program.
pub(crate) fn print() {
    let Some(stats) = large::stats() else {
        say("no arena in this process: no request was large enough, or there is no room for one");
        return;
    };
    let kib = |bytes: u64| bytes / 1024;
    let allocations: u64 = stats.allocations_by_order.iter().sum();
    let read = |counter: &std::sync::atomic::AtomicU32| counter.load(Ordering::Relaxed);
    say(&format!(
        "{allocations} allocations of whole frames; {} KiB in use at the end, {} blocks of 2 MiB \
         resident at most",
        kib(stats.frames_used * 4096),
        stats.blocks_resident
    ));
    say(&format!(
        "{} KiB given back in {} passes and {} calls; metadata {} KiB",
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
