//! What tests of arenas share.
#![allow(dead_code, unreachable_pub)]

pub mod child;

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::Arena;

pub fn order(order: u8) -> freehold::Order {
    freehold::Order::new(order).unwrap()
}

/// Whether each of these bytes is `byte`. By memcmp(3), which is fast without optimisation as well.
pub fn all_are(bytes: &[u8], byte: u8) -> bool {
    let Some((&first, rest)) = bytes.split_first() else { return true };
    first == byte && rest == &bytes[..rest.len()]
}

/// Waits until that is so, for a minute at most. A scope ends before its threads' destructors do,
/// which give back what these threads kept.
pub fn settles(is_so: impl Fn() -> bool) {
    let waits = |_| std::thread::sleep(std::time::Duration::from_millis(10));
    (0..6000).take_while(|_| !is_so()).for_each(waits);
}

/// An arena is right once its threads have ended.
pub fn at_rest(arena: &Arena) {
    settles(|| arena.validate().is_ok());
    arena.validate().unwrap();
}

/// All of an arena's frames are free, and nobody has freed any wrongly.
pub fn all_free(arena: &Arena) {
    settles(|| arena.validate().is_ok() && arena.free_frames() == arena.stats().frames);
    arena.validate().unwrap();
    let stats = arena.stats();
    assert_eq!(arena.free_frames(), stats.frames);
    assert_eq!((stats.refused_drops, stats.late_double_frees), (0, 0));
}

/// Descriptors that this process has open.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Frames of an arena that the kernel has in memory.
pub fn in_memory(arena: &Arena) -> u64 {
    arena.frames_in_memory(arena.range()).unwrap()
}

/// Writes at both ends of each frame what is said of its number among these.
pub fn mark(frames: &mut [u8], of: impl Fn(u64) -> u64) {
    for (i, frame) in (0..).zip(frames.chunks_mut(4096)) {
        let mark = of(i).to_le_bytes();
        frame[..8].copy_from_slice(&mark);
        frame[4088..].copy_from_slice(&mark);
    }
}

/// Whether each frame is [marked](mark) so.
pub fn is_marked(frames: &[u8], of: impl Fn(u64) -> u64) -> bool {
    (0..).zip(frames.chunks(4096)).all(|(i, frame)| {
        let mark = of(i).to_le_bytes();
        frame[..8] == mark && frame[4088..] == mark
    })
}

/// Ends the other threads also where a check fails.
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        // Relaxed: only says when to stop.
        self.0.store(true, Relaxed);
    }
}

/// Not `eprintln!`, which the test harness swallows when the test passes: a skip has to be seen.
pub fn skipped(test: &str, why: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}
