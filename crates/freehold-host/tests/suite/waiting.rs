//! Runs that wait where a thread has freed them: which one comes next, and that they are as free as
//! any other frames.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use fastrand::Rng;
use freehold_host::freehold::{BulkFreeError, FrameRange, FreeError, Order, Pfn};
use freehold_host::{Arena, Error, Frames, Lock};

use crate::common::{all_are, all_free, in_memory};
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

/// A cache of runs of these lengths shrinks to one in twenty, what is free is given back, and so
/// many runs are exchanged: frames of the cache, frames that are in memory before that, and how
/// many more are then.
fn exchanged(arena: &Arena, lengths: Range<u64>, runs: u64, exchanges: u32) -> [u64; 3] {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let next = |random: &mut Rng, with| {
        let mut frames = arena.frames(random.u64(lengths.clone())).unwrap();
        frames.fill(with);
        frames
    };
    let mut cache: Vec<_> = (0..runs).map(|_| next(&mut random, 1)).collect();
    cache.retain(|_| random.u64(..20) == 0);
    arena.trim().unwrap();
    let (live, before) = (cache.iter().map(Frames::frame_count).sum(), in_memory(arena));
    for _ in 0..exchanges {
        drop(cache.swap_remove(random.usize(..cache.len())));
        cache.push(next(&mut random, 2));
    }
    [live, before, in_memory(arena) - before]
}

/// At its small size each run that the cache takes is one that it has just freed, also where the
/// block of that has become whole. And of runs in which nothing is aligned, little that is
/// free stays in memory.
#[test]
fn a_cache_that_has_shrunk_goes_on_without_more_memory() {
    for count in [1, 3, 5, 16] {
        let arena = Arena::with_size(256 * MIB).unwrap();
        let runs = 128 * MIB / 4096 / count;
        let exchanges = length(2_000, 20_000);
        let [live, before, more] = exchanged(&arena, count..count + 1, runs, exchanges);
        let little = before * 4 < live * 5;
        assert!(little || count < 5, "{count} frames: {before} in memory for {live}");
        // A word that was leased before the trim may be used up first.
        assert!(more <= before / 20, "{count} frames: {more} more than {before} in memory");
        all_free(&arena);
        arena.trim().unwrap();
        assert_eq!(in_memory(&arena), 0);
    }
}

/// Of runs of several lengths one that was freed serves a shorter one, where its block has lost
/// memory.
#[test]
fn runs_are_cut_from_longer_ones_that_are_in_memory() {
    let arena = Arena::with_size(256 * MIB).unwrap();
    let [_, before, more] = exchanged(&arena, 2..9, 6_000, 20_000);
    assert!(more * 5 < before * 3, "{more} more than {before} in memory");
    all_free(&arena);
}

/// Runs that were given back since they were freed are passed over, each at once: of blocks that
/// are wholly free, and of those in use.
#[test]
fn what_was_given_back_is_not_cut_piece_by_piece() {
    for used in [0, 1] {
        let arena = Arena::with_size(512 * MIB).unwrap();
        let mut blocks: Vec<_> = (0..200).map(|_| arena.frames(512).unwrap()).collect();
        let (first, rest) = blocks.pop().unwrap().split(1).unwrap();
        drop(rest);
        let mut kept = vec![first];
        for block in blocks {
            let (half, mut other) = block.split(256).unwrap();
            if used > 0 {
                let (one, rest) = other.split(used).unwrap();
                kept.push(one);
                other = rest;
            }
            drop((other, half));
        }
        arena.trim().unwrap();
        let taken = || arena.stats().allocations_by_order[1];
        let before = taken();
        drop(arena.frames(2).unwrap());
        assert!(taken() - before < 10, "{} for one, {used} used", taken() - before);
        drop(kept);
        all_free(&arena);
    }
}

/// The gap that a search has found is passed over where it was given back.
#[test]
fn a_gap_that_was_given_back_is_not_used_before_what_is_in_memory() {
    let arena = Arena::with_size(16 * MIB).unwrap();
    // A thread's first request comes before it has a slot that remembers gaps.
    drop(arena.frames(1).unwrap());
    let before_gap = arena.frames(5).unwrap();
    let (other, parted) = (arena.frames(512).unwrap(), arena.frames(512).unwrap());
    let (_kept, rest) = parted.split(1).unwrap();
    drop((before_gap, rest));
    arena.trim().unwrap();
    arena.drain().unwrap();
    let (first, rest) = other.split(1).unwrap();
    drop(rest);
    let found = arena.frames(5).unwrap().pfn().pageblock();
    assert_eq!(found, first.pfn().pageblock());
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

/// A thread keeps a run that it has freed, and nobody else is told: a free of any of it, by
/// whichever call and thread, is refused; whoever asks for memory, counts it or moves it finds it
/// free; and it goes home with its thread.
#[test]
fn what_a_thread_keeps_is_free_and_freed_once() {
    for lock in [Lock::Biased, Lock::Ordinary] {
        let arena = Arena::builder(2 * MIB).lock(lock).build().unwrap();
        let all = arena.stats().frames;
        let keep = || {
            // So that the run is the allocator's first and may be kept then.
            for _ in 0..2 {
                drop(arena.frames(2).unwrap());
            }
            let run = arena.frames(2).unwrap().into_raw();
            // SAFETY: taken out of its handle, and used by nobody.
            unsafe { arena.free_range(run) }.unwrap();
            run
        };
        let run = keep();
        let second = Pfn::new(run.start.get() + 1);
        let refused = |pfn| Error::Free(FreeError::DoubleFree { pfn });
        let wide = FrameRange { start: second, end: Pfn::new(second.get() + 100) };
        let frees = || {
            // SAFETY: it is refused, so nothing comes of it.
            let order = unsafe { arena.free(run.start, Order::new(1).unwrap()) };
            assert_eq!(order, Err(refused(run.start)));
            // SAFETY: likewise.
            assert_eq!(unsafe { arena.free(second, Order::ZERO) }, Err(refused(second)));
            // SAFETY: likewise.
            assert_eq!(unsafe { arena.free_range(wide) }, Err(refused(second)));
            // SAFETY: likewise.
            let bulk = unsafe { arena.free_bulk(&[second, run.start]) };
            let error = FreeError::DoubleFree { pfn: second };
            assert_eq!(bulk, Err(Error::BulkFree(BulkFreeError { freed: 0, error })));
        };
        frees();
        thread::scope(|scope| scope.spawn(frees).join().unwrap());
        assert_eq!(arena.frames(2).unwrap().pfn(), run.start, "freed last, taken first");
        assert_eq!(keep(), run);
        assert_eq!(arena.free_frames(), all);
        keep();
        thread::scope(|scope| {
            // All of the arena, for another thread; what that keeps then, for this one.
            let frames = scope.spawn(|| arena.frames(all).unwrap().into_raw()).join().unwrap();
            assert!(arena.frames(2).is_err());
            // SAFETY: taken out of its handle, and used by nobody.
            unsafe { arena.free_range(frames) }.unwrap();
            scope.spawn(keep).join().unwrap();
        });
        keep();
        let none = |old: Pfn, _: Pfn| panic!("{old:?} is nobody's to move");
        // SAFETY: nothing is moved.
        unsafe { arena.evacuate(Order::ZERO, u64::MAX, none) }.unwrap();
        keep();
        assert_eq!((arena.trim().unwrap().blocks, in_memory(&arena)), (all / 512, 0));
        drop(arena.frames(all).unwrap());
        all_free(&arena);
    }
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
                            } else if let Ok((first, rest)) = frames.split(1) {
                                drop(rest);
                                assert!(all_are(&first, mark), "somebody else has {first:?}");
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
