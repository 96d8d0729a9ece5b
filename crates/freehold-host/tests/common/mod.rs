//! Small machines on real memory.
#![allow(dead_code, unreachable_pub)]

pub mod child;
#[path = "../../../freehold-vm/tests/suite/common/hooks.rs"]
pub mod hooks;
#[path = "../../../freehold-vm/tests/suite/common/small.rs"]
pub mod small;

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::freehold_vm::{SpaceId, TABLE_ENTRIES, Vm, Vpn};
use freehold_host::{Arena, HostMmu};

use hooks::Hooked;
pub use small::*;

pub type Machine = Vm<'static, HostMmu>;

/// Mappings of every machine.
const MAPPINGS: usize = 8192;

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

/// Address spaces of so many page tables each; none, and says so, where the kernel has no
/// userfaultfd for us.
fn mmu(test: &str, spaces: u16, tables: u64) -> Option<HostMmu> {
    let made = HostMmu::new(spaces, pages(0, tables * TABLE_ENTRIES));
    made.map_err(|error| skipped(test, &error)).ok()
}

/// Folios of so many frames, in so many address spaces. No VMAs yet.
pub fn machine_or_skip(test: &str, count: u64, spaces: u16, tables: u64) -> Option<Machine> {
    Some(folios(mmu(test, spaces, tables)?, count, spaces, tables, MAPPINGS))
}

/// [`machine_or_skip`] of one address space, with the hook.
pub fn hooked_or_skip(test: &str, count: u64, tables: u64) -> Option<Vm<'static, Hooked<HostMmu>>> {
    Some(folios(Hooked::new(mmu(test, 1, tables)?), count, 1, tables, MAPPINGS))
}

/// From one word to the next of a page that was stamped with a value. Zero is a page of zeroes.
fn step(value: u64) -> u64 {
    if value == 0 { 0 } else { 0x9e37_79b9_7f4a_7c15 }
}

/// A stamped page's bytes.
pub fn stamped(value: u64) -> [u64; 512] {
    std::array::from_fn(|i| value.wrapping_add(step(value).wrapping_mul(i as u64)))
}

/// Stamps all of a page, by plain stores.
///
/// Like [`read_stamp`] a loop that is fast without optimisation, which these tests are compiled
/// without.
pub fn stamp(vm: &Machine, id: SpaceId, at: Vpn, value: u64) {
    let words = vm.mmu().words(id, at).unwrap();
    let (mut i, mut word, step) = (0, value, step(value));
    while i < words.len() {
        // Relaxed: threads that share pages are joined, or meet at something else, before anything
        // is compared.
        words[i].store(word, Relaxed);
        (i, word) = (i + 1, word.wrapping_add(step));
    }
}

/// The value that all of a page is stamped with; `Err` says which word does not fit.
pub fn read_stamp(vm: &Machine, id: SpaceId, at: Vpn) -> Result<u64, String> {
    let words = vm.mmu().words(id, at).unwrap();
    let value = words[0].load(Relaxed);
    let (mut i, mut word, step) = (0, value, step(value));
    while i < words.len() {
        let found = words[i].load(Relaxed);
        if found != word {
            return Err(format!(
                "{at}: word 0 says {value:#x}, word {i} holds {found:#x}, not {word:#x}"
            ));
        }
        (i, word) = (i + 1, word.wrapping_add(step));
    }
    Ok(value)
}
