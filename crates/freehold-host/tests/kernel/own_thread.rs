//! The crate's own thread takes no signal that is meant for the program.

use std::io::Write;
use std::time::{Duration, Instant};

use freehold_host::HostVm;

fn field<'a>(status: &'a str, key: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim()
}

/// What a thread of this process whose name begins so blocks, signal `n` as bit `n - 1`; waits
/// until there is one.
fn blocked(name: &str) -> u64 {
    let start = Instant::now();
    loop {
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let path = task.unwrap().path();
            // It may have ended since.
            let Ok(status) = std::fs::read_to_string(path.join("status")) else { continue };
            if field(&status, "Name:").starts_with(name) {
                return u64::from_str_radix(field(&status, "SigBlk:"), 16).unwrap();
            }
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no thread {name}");
        std::thread::yield_now();
    }
}

/// What the calling thread blocks.
fn mine() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    u64::from_str_radix(field(&status, "SigBlk:"), 16).unwrap()
}

fn bits(signals: &[libc::c_int]) -> u64 {
    signals.iter().map(|signal| 1 << (signal - 1)).sum()
}

#[test]
fn the_thread_that_lets_writers_through_takes_no_signal() {
    let before = mine();
    match HostVm::new(4 << 20) {
        Ok(_vm) => {
            assert_eq!(mine(), before, "the maker's own signals are as they were");
            let blocked = blocked("freehold-faults");
            let programs = bits(&[libc::SIGINT, libc::SIGUSR1, libc::SIGALRM, libc::SIGCHLD]);
            assert_eq!(blocked & programs, programs, "it blocks {blocked:x}");
            // A mistake of its own ends the program as it should.
            let mistakes = bits(&[libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT]);
            assert_eq!(blocked & mistakes, 0, "it blocks {blocked:x}");
        }
        Err(error) => drop(writeln!(std::io::stderr(), "SKIPPED: {error}")),
    }
}
