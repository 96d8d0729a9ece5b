//! Runs that wait where a thread has freed them: which one comes next, and that they are as free as
//! any other frames.

use std::sync::mpsc;
use std::thread;

use fastrand::Rng;
use freehold_host::freehold::{FrameRange, FreeError, Pfn};
use freehold_host::{Arena, Error, Frames, Lock};

use crate::common::{all_are, all_free};
use crate::length::length;

const MIB: u64 = 1 << 20;

#[test]
fn of_each_length_the_run_freed_last_comes_first() {
    let arena = Arena::with_size(256 * MIB).unwrap();
    for count in [3, 5, 17, 64, 100] {
        let runs: Vec<Frames<_>> = (0..9).map(|_| arena.frames(count).unwrap()).collect();
        let other = arena.frames(count + 1).unwrap();
        // With others in between, so that no two are one run.
        let (freed, kept): (Vec<_>, Vec<_>) =
            runs.into_iter().enumerate().partition(|(n, _)| n % 2 == 1);
        let freed: Vec<Pfn> = freed.into_iter().map(|(_, frames)| frames.pfn()).collect();
        drop(other);
        let again: Vec<Frames<_>> = freed.iter().map(|_| arena.frames(count).unwrap()).collect();
        let found: Vec<Pfn> = again.iter().rev().map(Frames::pfn).collect();
        assert_eq!(found, freed, "of {count} frames");
        drop((kept, again));
    }
    all_free(&arena);
}

/// What the kernel backs of an arena.
fn in_memory(arena: &Arena) -> u64 {
    arena.frames_in_memory(arena.range()).unwrap()
}

/// A cache of runs shrinks to one in twenty, what is free is given back, and the cache goes on at
/// its small size: each run that it takes is one that it has just freed.
#[test]
fn a_cache_that_has_shrunk_goes_on_without_more_memory() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for count in [1, 3, 5] {
        let mut random = Rng::with_seed(seed);
        let arena = Arena::with_size(256 * MIB).unwrap();
        let mut cache = Vec::new();
        for _ in 0..128 * MIB / 4096 / count {
            let mut frames = arena.frames(count).unwrap();
            frames.fill(1);
            cache.push(frames);
        }
        cache.retain(|_| random.u64(..20) == 0);
        arena.trim().unwrap();
        let before = in_memory(&arena);
        for _ in 0..length(2_000, 20_000) {
            let place = random.usize(..cache.len());
            drop(cache.swap_remove(place));
            let mut frames = arena.frames(count).unwrap();
            frames.fill(2);
            cache.push(frames);
        }
        // A word that was leased before the trim may be used up first.
        let more = in_memory(&arena) - before;
        assert!(more <= before / 20, "{count} frames: {more} more than {before} in memory");
        drop(cache);
        all_free(&arena);
        arena.trim().unwrap();
        assert_eq!(in_memory(&arena), 0);
    }
}

/// Of runs of several lengths one that was freed serves a shorter one, where its block has lost
/// memory.
#[test]
fn runs_are_cut_from_longer_ones_that_are_in_memory() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let arena = Arena::builder(256 * MIB).least_run(8).build().unwrap();
    let mut cache = Vec::new();
    for _ in 0..6_000 {
        let mut frames = arena.frames(random.u64(2..9)).unwrap();
        frames.fill(1);
        cache.push(frames);
    }
    cache.retain(|_| random.u64(..20) == 0);
    arena.trim().unwrap();
    let before = in_memory(&arena);
    for _ in 0..4_000 {
        let place = random.usize(..cache.len());
        drop(cache.swap_remove(place));
        let mut frames = arena.frames(random.u64(2..9)).unwrap();
        frames.fill(2);
        cache.push(frames);
    }
    let more = in_memory(&arena) - before;
    assert!(more * 5 < before * 2, "{more} more than {before} in memory");
    drop(cache);
    all_free(&arena);
}

/// What waits is free for everybody: for large requests, in statistics, for trims, and for whoever
/// frees it once more.
#[test]
fn what_waits_is_free() {
    let arena = Arena::builder(16 * MIB).resident_limit(16 * MIB).build().unwrap();
    let all = arena.stats().frames;
    let mut runs: Vec<FrameRange> = Vec::new();
    while let Ok(frames) = arena.frames(5) {
        runs.push(frames.into_raw());
    }
    for run in &runs {
        // SAFETY: taken out of its handle, and used by nobody.
        unsafe { arena.free_range(*run) }.unwrap();
    }
    assert_eq!(arena.free_frames(), all);
    for run in runs.iter().rev().take(100) {
        for part in [*run, FrameRange { start: run.start, end: Pfn::new(run.start.get() + 2) }] {
            // SAFETY: refused, so nothing comes of it.
            let again = unsafe { arena.free_range(part) };
            let refused = Error::Free(FreeError::DoubleFree { pfn: part.start });
            assert_eq!(again, Err(refused), "{part:?}");
        }
    }
    // Another thread has them all, and this one nothing that waits.
    thread::scope(|scope| {
        let most = scope.spawn(|| arena.frames(all).unwrap().into_raw()).join().unwrap();
        assert!(arena.frames(5).is_err());
        // SAFETY: taken out of its handle, and used by nobody.
        unsafe { arena.free_range(most) }.unwrap();
    });
    assert_eq!(arena.trim().unwrap().blocks, all / 512);
    assert_eq!((in_memory(&arena), arena.stats().blocks_resident), (0, 0));
    all_free(&arena);
}

/// Threads exchange runs at random, and send some to each other, while memory is given back.
#[test]
fn runs_go_round_among_threads_and_none_is_lost_or_had_twice() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    for lock in [Lock::Biased, Lock::Ordinary] {
        let arena = Arena::builder(64 * MIB).lock(lock).slots(random.u16(..4)).build().unwrap();
        let threads = random.usize(2..5);
        let longest = [8, 16, 64, 300][random.usize(..4)];
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..threads).map(|_| mpsc::channel::<(u8, Frames<&Arena>)>()).unzip();
        thread::scope(|scope| {
            for (me, receiver) in receivers.into_iter().enumerate() {
                let (senders, arena) = (senders.clone(), &arena);
                let mut random = random.fork();
                scope.spawn(move || {
                    let mut held: Vec<(u8, Frames<&Arena>)> = Vec::new();
                    for step in 0..length(1_000, 10_000) {
                        if let Ok(frames) = arena.frames(1 + random.u64(..longest)) {
                            let (mark, mut frames) = (random.u8(..), frames);
                            frames.fill(mark);
                            held.push((mark, frames));
                        }
                        held.extend(receiver.try_iter());
                        let most = if step % 500 < 250 { 100 } else { 10 };
                        while held.len() > most {
                            let (mark, frames) = held.swap_remove(random.usize(..held.len()));
                            assert!(all_are(&frames, mark), "somebody else has {frames:?}");
                            if random.u8(..4) == 0 {
                                // Whoever has ended drops what comes with its channel.
                                let to = &senders[(me + 1) % senders.len()];
                                let _ = to.send((mark, frames));
                            }
                        }
                        match random.u32(..400) {
                            0 => drop(arena.trim().unwrap()),
                            1 => drop(arena.pass().unwrap()),
                            2 => arena.flush().unwrap(),
                            _ => {}
                        }
                    }
                });
            }
            drop(senders);
        });
        all_free(&arena);
        arena.trim().unwrap();
        assert_eq!(in_memory(&arena), 0);
    }
}
