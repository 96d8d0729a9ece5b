//! Threads as CPUs: slots, death, sharing, both flavours of the lock, contents that must survive
//! all of it.

use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use freehold_host::{Arena, Frames, Lock};

use crate::common::{all_free, is_marked, mark, settles, skipped};
use crate::length::length;

const MIB: u64 = 1 << 20;

fn both_locks(test: impl Fn(Lock)) {
    for lock in [Lock::Biased, Lock::Ordinary] {
        let arena = Arena::builder(2 * MIB).lock(lock).build().unwrap();
        match (lock, arena.stats().biased) {
            (Lock::Biased, false) => {
                skipped("the biased lock", &"there is no membarrier(2) here");
            }
            (Lock::Ordinary, true) => panic!("the ordinary lock was asked for"),
            _ => test(lock),
        }
    }
}

/// Writes to each frame what only this frame and owner can have.
fn stamp(frames: &mut [u8], owner: u64) {
    mark(frames, |i| owner << 32 | i);
}

fn is_stamped(frames: &[u8], owner: u64) -> bool {
    is_marked(frames, |i| owner << 32 | i)
}

extern "C" fn ends_without_a_word(arena: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the arena outlives the thread, which the test waits for.
    let arena = unsafe { &*arena.cast::<Arena>() };
    let frames = arena.frames(5).unwrap();
    drop(arena.frames(3).unwrap());
    drop(frames);
    // SAFETY: the thread has nothing that must be dropped, which is what is tested.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    std::ptr::null_mut()
}

fn end_without_a_word(arena: &Arena) {
    let (mut thread, to) = (0, std::ptr::from_ref(arena).cast_mut().cast());
    // SAFETY: a place for its name, and an arena that lives until it has ended.
    unsafe {
        let made = libc::pthread_create(&raw mut thread, std::ptr::null(), ends_without_a_word, to);
        assert_eq!((made, libc::pthread_join(thread, std::ptr::null_mut())), (0, 0));
    }
}

/// By the system call, so that no destructor of thread-local storage runs.
#[test]
fn slots_of_threads_that_end_without_a_word_are_found_again() {
    both_locks(|lock| {
        let arena = Arena::builder(64 * MIB).lock(lock).slots(4).build().unwrap();
        drop(arena.frames(1).unwrap());
        for n in 0..length(50, 500) {
            end_without_a_word(&arena);
            // One that lives, and finds a slot where there is none but theirs.
            thread::scope(|scope| {
                let living = scope.spawn(|| {
                    drop(arena.frames(5).unwrap());
                    arena.stats().threads_sharing
                });
                assert_eq!(living.join().unwrap(), 0, "after {n} threads");
            });
        }
        end_without_a_word(&arena);
        assert!(arena.stats().slots_taken > 1);
        // The kernel says that a thread can be joined a moment before its number is gone.
        let found = (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            arena.pass().unwrap();
            arena.stats().slots_taken == 1
        });
        assert!(found, "a pass finds them as well");
        all_free(&arena);
    });
}

#[test]
fn a_thread_that_ends_loses_nothing() {
    both_locks(|lock| {
        let arena = Arena::builder(64 * MIB).lock(lock).slots(2).build().unwrap();
        let before = arena.frames(300).unwrap();
        let cpu = arena.current_cpu().unwrap();
        let mut left = thread::scope(|scope| {
            let dying = scope.spawn(|| {
                assert_ne!(arena.current_cpu().unwrap(), cpu);
                assert_eq!(arena.stats().slots_taken, 2);
                // Frees into another thread's blocks wait in a buffer of this one; frames of its
                // own stay behind.
                let (kept, gone) = before.split(100).unwrap();
                drop(gone);
                let mut mine = arena.frames(77).unwrap();
                stamp(&mut mine, 5);
                (kept, mine)
            });
            dying.join().unwrap()
        });
        // Scoped threads have only promised to have returned.
        settles(|| arena.stats().slots_taken == 1);
        assert_eq!(arena.free_frames(), arena.stats().frames - 177);
        assert!(is_stamped(&left.1, 5));
        stamp(&mut left.0, 6);
        assert!(is_stamped(&left.1, 5));
        // The slot serves the next thread.
        thread::scope(|scope| scope.spawn(|| drop(left)).join().unwrap());
        all_free(&arena);
    });
}

#[test]
fn more_threads_than_slots_share_and_move_up_when_a_slot_is_free() {
    both_locks(|lock| {
        let arena = Arena::builder(64 * MIB).lock(lock).slots(2).build().unwrap();
        const THREADS: usize = 8;
        let (all, done) = (Barrier::new(THREADS), Barrier::new(THREADS));
        thread::scope(|scope| {
            for t in 0..THREADS {
                let (arena, all, done) = (&arena, &all, &done);
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for i in 0..500u64 {
                        let mut frames = arena.frames(1 + i % 3).unwrap();
                        stamp(&mut frames, (t as u64) << 16 | i);
                        kept.push((i, frames));
                        if i == 0 {
                            all.wait();
                            let stats = arena.stats();
                            assert_eq!(
                                (stats.slots_taken, stats.threads_sharing),
                                (2, THREADS as u64 - 2)
                            );
                            done.wait();
                        }
                        if i % 3 == 2 {
                            let (i, frames) = kept.swap_remove(i as usize % kept.len());
                            assert!(is_stamped(&frames, (t as u64) << 16 | i));
                        }
                    }
                    assert!(
                        kept.iter().all(|(i, frames)| is_stamped(frames, (t as u64) << 16 | i))
                    );
                });
            }
        });
        let threads = || arena.stats().slots_taken + arena.stats().threads_sharing;
        settles(|| threads() == 0);
        assert_eq!(threads(), 0);
        all_free(&arena);

        // Two slots taken, a third thread shares; when one ends, the third moves up at its next
        // call.
        let (up, down) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                drop(arena.frames(1).unwrap());
                up.wait();
            });
            scope.spawn(|| {
                drop(arena.frames(1).unwrap());
                up.wait();
                down.wait();
            });
            scope.spawn(|| {
                up.wait();
                drop(arena.frames(1).unwrap());
                let now = arena.current_cpu().unwrap();
                down.wait();
                // Shared at first, unless the first thread was gone by then.
                assert!(now.get() < 4);
                assert!(arena.current_cpu().unwrap().get() < 2, "it has a slot of its own by now");
            });
            first.join().unwrap();
            settles(|| threads() < 3);
            down.wait();
            assert!(threads() < 3, "the slot of a thread that has ended");
        });
    });
}

#[test]
fn frames_dropped_by_the_destructor_of_thread_local_storage() {
    struct AtTheEnd(std::cell::RefCell<Option<Frames>>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let mut frames = self.0.take().unwrap();
            let arena = *frames.arena();
            stamp(&mut frames, 3);
            drop(frames);
            // Allocating works too, with or without a slot.
            drop(arena.frames(2).unwrap());
        }
    }
    thread_local! {
        static LATE: AtTheEnd = const { AtTheEnd(std::cell::RefCell::new(None)) };
    }
    let arena = Arena::builder(64 * MIB).build().unwrap().leak();
    for first in [true, false] {
        // In both orders of the two destructors: this storage before and after the slot's.
        thread::spawn(move || {
            if first {
                LATE.with(|late| late.0.replace(None));
            }
            let frames = arena.frames(9).unwrap();
            LATE.with(|late| late.0.replace(Some(frames)));
        })
        .join()
        .unwrap();
    }
    all_free(arena);
}

#[test]
fn one_thread_in_many_arenas_and_arenas_that_come_and_go() {
    let arenas: Vec<Arena> = (0..9).map(|_| Arena::builder(8 * MIB).build().unwrap()).collect();
    let mut kept = Vec::new();
    for round in 0..50u64 {
        for (a, arena) in arenas.iter().enumerate() {
            let mut frames = arena.frames(1 + round % 4).unwrap();
            stamp(&mut frames, (a as u64) << 8 | round);
            if round % 10 == 0 {
                kept.push(((a as u64) << 8 | round, frames));
            }
        }
    }
    assert!(kept.iter().all(|(owner, frames)| is_stamped(frames, *owner)));
    drop(kept);
    arenas.iter().for_each(all_free);
    for _ in 0..50 {
        let short = Arena::builder(4 * MIB).build().unwrap();
        drop(short.frames(3).unwrap());
        // Another thread that has a slot in it and outlives it.
        let short = Arc::new(short);
        let theirs = Arc::clone(&short);
        let (ready, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            drop(Frames::new(theirs, 2).unwrap());
            ready.send(()).unwrap();
            let _ = ended.recv();
            // Its next first use lets go of the arena that is gone.
            drop(Arena::builder(2 * MIB).build().unwrap().frames(1).unwrap());
        });
        wait.recv().unwrap();
        drop(short);
        drop(end);
        thread.join().unwrap();
    }
}

/// mimalloc's issue 1364: producers, each of which keeps as much as before, and one thread that
/// frees what they are done with and never allocates. What it frees has to come back to them, so
/// that the process does not grow.
#[test]
fn what_a_thread_that_never_allocates_frees_is_used_again() {
    const PRODUCERS: usize = 4;
    // Frames of a message, messages that a producer keeps, rounds of one message each between two
    // looks.
    const MESSAGE: u64 = 64;
    const KEPT: usize = 64;
    const ROUNDS: usize = 500;
    let looks_wanted = length(4, 10);
    both_locks(|lock| {
        let arena = Arena::builder(1024 * MIB).lock(lock).build().unwrap();
        let all = arena.range();
        // All producers are done with so many rounds; the look is over.
        let meet = Barrier::new(PRODUCERS + 1);
        let (send, receive) = mpsc::sync_channel::<Vec<Frames<&Arena>>>(2 * PRODUCERS);
        let mut looks = Vec::new();
        thread::scope(|scope| {
            let (arena, meet) = (&arena, &meet);
            for _ in 0..PRODUCERS {
                let send = send.clone();
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    for round in 1..=ROUNDS * looks_wanted {
                        let count = if round % 2 == 0 { 1 } else { 4 };
                        let mut message: Vec<_> =
                            (0..MESSAGE / count).map(|_| arena.frames(count).unwrap()).collect();
                        message.iter_mut().for_each(|frames| {
                            frames.chunks_mut(4096).for_each(|frame| frame[0] = 1)
                        });
                        kept.push_back(message);
                        if kept.len() > KEPT {
                            send.send(kept.pop_front().unwrap()).unwrap();
                        }
                        if round % ROUNDS == 0 {
                            meet.wait();
                            meet.wait();
                        }
                    }
                });
            }
            drop(send);
            scope.spawn(move || receive.into_iter().for_each(drop));
            for _ in 0..looks_wanted {
                meet.wait();
                looks.push(arena.frames_in_memory(all).unwrap());
                meet.wait();
            }
        });
        // What is kept, and what is on its way: in the channel, in each producer's hands and in the
        // freer's. Between two looks eight times as much is freed. A block for each thread may be
        // in its CPU's hands besides.
        let most = (PRODUCERS * (KEPT + 1) + 2 * PRODUCERS + 1) as u64 * MESSAGE;
        let blocks = (PRODUCERS as u64 + 1) * 512;
        assert!(
            looks[0] <= most + blocks,
            "frames in memory at each look: {looks:?}, for {most} in use"
        );
        assert!(
            looks[looks_wanted - 1] <= looks[0] + blocks,
            "frames in memory at each look: {looks:?}"
        );
        all_free(&arena);
    });
}
