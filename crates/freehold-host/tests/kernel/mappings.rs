//! A process that may have no more mappings (`vm.max_map_count`): things work all the same, or are
//! an error that names the limit, and nothing is lost. Each test is in a child, which has the limit
//! to itself.

use freehold::{Migratetype, Pfn};
use freehold_host::{Arena, Backing, Error, HostVm};

use crate::common::{child, skipped};

/// Runs a test in a child, unless the limit is so high that reaching it takes too long.
fn at_the_limit(test: &str, body: fn()) {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    if limit.is_none_or(|limit: u64| limit > 100_000) {
        return skipped(test, &format!("vm.max_map_count is {limit:?}"));
    }
    let status = child::fork(|| {
        body();
        true
    });
    assert_eq!(status, 0);
}

fn give_back(extra: Vec<*mut libc::c_void>) {
    // SAFETY: made by `exhaust`, and used by nobody.
    extra.into_iter().for_each(|page| unsafe { _ = libc::munmap(page, 4096) });
}

fn names_the_limit<T>(result: Result<T, Error>) {
    let error = result.err().expect("there is no room for it").to_string();
    assert!(error.contains("vm.max_map_count"), "{error}");
}

/// Takes mappings until the process may have no more.
fn exhaust() -> Vec<*mut libc::c_void> {
    let mut extra = Vec::with_capacity(1 << 17);
    loop {
        // Neighbours of different rights, which do not become one.
        let rights =
            if extra.len() % 2 == 0 { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        // SAFETY: a new page, used by nobody.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                rights,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return extra;
        }
        extra.push(page);
        assert!(extra.len() < 1 << 17, "no limit was reached");
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_arena_at_the_limit_goes_on_and_goes() {
    at_the_limit("an_arena_at_the_limit_goes_on_and_goes", || {
        // Neighbours, which are one mapping to the kernel.
        let mut arenas: Vec<Arena> = (0..3).map(|_| Arena::with_size(32 << 20).unwrap()).collect();
        for arena in &arenas {
            arena.frames(8000).unwrap().fill(1);
        }
        let extra = exhaust();
        names_the_limit(Arena::with_size(8 << 20));
        names_the_limit(Arena::builder(8 << 20).backing(Backing::Memfd).build());
        names_the_limit(HostVm::new(8 << 20));
        let arena = &arenas[1];
        let mut some = arena.frames(1000).unwrap();
        some.try_extend(500).unwrap();
        some.populate().unwrap();
        let mut out = [Pfn::new(0); 64];
        assert_eq!(arena.alloc_bulk(Migratetype::Movable, &mut out), Ok(64));
        // SAFETY: allocated just now.
        unsafe { arena.free_bulk(&out) }.unwrap();
        assert!(arena.trim().unwrap().bytes > 16 << 20);
        drop(some);
        arena.frames(4000).unwrap().fill(1);
        arena.pass().unwrap();
        arena.validate().unwrap();
        let before = resident_kib();
        drop(arenas.remove(1));
        assert!(resident_kib() + 15_000 < before, "{before} KiB and then {}", resident_kib());
        give_back(extra);
        Arena::with_size(8 << 20).unwrap();
    });
}
