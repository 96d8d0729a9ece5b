//! Emptying the CPUs' lists before a recording begins, so that what they hold is known.
//!
//! `/proc/zoneinfo` says how many frames a CPU's lists hold, not on which of them, and a replay
//! that guesses wrong is wrong for as long as they last. So the mark of all lists is lowered
//! (`percpu_pagelist_high_fraction`), every CPU frees some pages, and the mark is given back. Left
//! on each CPU are fewer frames than four batches (252), and its `high` begins at its minimum, as
//! after boot. `docs/decisions/emptying-lists.md` has what else was tried.
//!
//! A kernel compiled by `cargo xtask linux --built` has a switch of its own besides. It drains the
//! last frames, and takes ownership of every pageblock from the CPUs.

use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{StateError, zoneinfo};

/// The kernel's switch: high marks are managed / fraction / CPUs; 0 is the kernel's own choice.
const FRACTION: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";
/// What a kernel of `cargo xtask linux --built` has: writing to it empties every CPU's lists, and
/// makes every pageblock the zone's in the kernel with the pcp-buddy RFC.
const BEGIN: &str = "/sys/kernel/debug/page_alloc_begin";
/// So large that the least mark is what comes out on any machine.
const LEAST_MARK: &str = "1000000";
/// Bytes that each CPU touches and frees, each time: some 2,000 frees.
const BYTES: usize = 8 << 20;
/// Bytes that it allocates for that: glibc gives what is larger than 32 MiB back to the kernel at
/// once, always; smaller allocations only until the first of them is freed, and keeps them from
/// then on.
const ALLOCATED: usize = 64 << 20;
/// How often at most.
const TURNS: usize = 16;

/// What the lists held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// Frames before, over all zones and CPUs.
    pub before: u64,
    /// Frames left.
    pub after: u64,
}

/// The mark as it was; put back when dropped.
struct Mark(String);

impl Drop for Mark {
    fn drop(&mut self) {
        // It was written a moment ago; where it cannot be any more there is nobody to tell.
        let _ = fs::write(FRACTION, &self.0);
    }
}

/// Empties every CPU's lists but for less than four batches each. Needs root.
///
/// # Errors
///
/// Where the kernel's files cannot be read or written.
pub fn drain_lists() -> io::Result<Drained> {
    let before = held()?;
    let mark = Mark(fs::read_to_string(FRACTION)?);
    fs::write(FRACTION, LEAST_MARK)?;
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut after = held()?;
    for _ in 0..TURNS {
        for &cpu in &cpus {
            // A thread that cannot be joined has panicked; the count below says whether it
            // mattered.
            let _ = std::thread::spawn(move || runs_on(cpu) && free_pages()).join();
        }
        let last = after;
        after = held()?;
        // Zones that nobody allocates from keep theirs: no turn empties them.
        if after < 256 * (cpus.len() as u64 + 1) || after + after / 16 >= last {
            break;
        }
    }
    drop(mark);
    if Path::new(BEGIN).exists() {
        fs::write(BEGIN, "1")?;
        after = held()?;
    }
    Ok(Drained { before, after })
}

/// Moves this thread to a CPU, to stay there; whether the kernel did.
fn runs_on(cpu: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).is_ok()
}

/// Allocates pages and frees them on this CPU.
fn free_pages() -> bool {
    let mut memory = vec![0u8; ALLOCATED];
    memory[..BYTES].iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
    true
}

/// Frames on all CPUs' lists.
fn held() -> io::Result<u64> {
    let zones = StateError::in_file(Path::new("/proc/zoneinfo"), zoneinfo::parse)
        .map_err(io::Error::other)?;
    Ok(zones.iter().flat_map(|zone| &zone.pagesets).map(|set| set.count).sum())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Pages that this thread was given, whatever others do.
    fn faults() -> u64 {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split(' ').nth(8).unwrap().parse().unwrap()
    }

    #[test]
    fn a_thread_runs_on_the_cpu_that_it_is_moved_to() {
        let allowed = sched_getaffinity(None).unwrap();
        for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
            let at = std::thread::spawn(move || runs_on(cpu).then(rustix::thread::sched_getcpu));
            assert_eq!(at.join().unwrap(), Some(cpu));
        }
        assert!(!std::thread::spawn(|| runs_on(CpuSet::MAX_CPU - 1)).join().unwrap());
    }

    #[test]
    fn pages_go_back_to_the_kernel_every_time() {
        // A thread's heap keeps what it has freed for as long as the thread lives.
        let given = std::thread::spawn(|| {
            [(); 4].map(|()| {
                let before = faults();
                free_pages();
                faults() - before
            })
        });
        // A page is huge at most.
        let given = given.join().unwrap();
        assert!(given.iter().all(|&pages| pages >= BYTES as u64 >> 21), "{given:?}");
    }
}
