//! Wrong calls that race: frees of the same frames by several threads at once, and arenas dropped
//! while counted handles live.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use freehold_host::freehold::{Migratetype, Order, Pfn};
use freehold_host::{Arena, Frames, Lock};

use crate::common::all_are;

fn all_free(arena: &Arena) {
    arena.validate().unwrap();
    assert_eq!(arena.free_frames(), arena.stats().frames);
}

const LOCKS: [Lock; 2] = [Lock::Biased, Lock::Ordinary];

/// Three threads free the same frames at the same moment. What a call cannot see it cannot refuse,
/// so more than one may succeed; but it is found out about and counted when a hand and its word are
/// put together, and no frame is free twice.
#[test]
fn racing_frees_of_the_same_frames_are_refused_or_counted_and_free_them_once() {
    for lock in LOCKS {
        let arena = Arena::builder(64 << 20).lock(lock).build().unwrap();
        const THREADS: usize = 3;
        const ROUNDS: u64 = 1_000;
        // Not yet whole blocks: in about one round of 3,000 each of the racing calls is refused,
        // which has to be understood.
        for order in [Order::ZERO, Order::new(3).unwrap()] {
            let (mut none, mut surplus) = (0, 0);
            let before = arena.stats().late_double_frees;
            let (start, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
            let (pfn, freed) = (AtomicU64::new(0), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            start.wait();
                            // Relaxed, here and below: the barriers order everything.
                            let pfn = Pfn::new(pfn.load(Ordering::Relaxed));
                            // SAFETY: nobody uses the frames; that they are freed more than once is
                            // what is tried.
                            let done = unsafe { arena.free(pfn, order) }.is_ok();
                            freed.fetch_add(u64::from(done), Ordering::Relaxed);
                            end.wait();
                        }
                    });
                }
                for _ in 0..ROUNDS {
                    // Nothing is asserted in here: the others wait at their barrier.
                    let got = arena.alloc(order, Migratetype::Movable).map_or(0, Pfn::get);
                    pfn.store(got, Ordering::Relaxed);
                    start.wait();
                    end.wait();
                    match freed.swap(0, Ordering::Relaxed) {
                        0 => none += 1,
                        n => surplus += n - 1,
                    }
                }
            });
            assert_eq!(
                none, 0,
                "{lock:?} {order:?}: rounds in which nobody could free what was allocated"
            );
            arena.drain().unwrap();
            all_free(&arena);
            let late = arena.stats().late_double_frees - before;
            assert_eq!(
                late,
                surplus * order.frames(),
                "{lock:?} {order:?}: accepted, and not found out about"
            );
            // And really: everything can be had, once.
            let mut seen = HashSet::new();
            while let Ok(pfn) = arena.alloc(Order::ZERO, Migratetype::Movable) {
                assert!(seen.insert(pfn), "{pfn} is handed out twice");
            }
            assert_eq!(seen.len() as u64, arena.stats().frames);
            for pfn in seen {
                // SAFETY: allocated just now, used by nobody.
                unsafe { arena.free(pfn, Order::ZERO) }.unwrap();
            }
            arena.drain().unwrap();
        }
    }
}

/// The last counted handle takes the arena with it, on whichever thread and in whatever order they
/// go.
#[test]
fn an_arena_that_is_let_go_lives_until_its_last_frames_do() {
    for lock in LOCKS {
        for round in 0..20 {
            let arena = Arc::new(Arena::builder(8 << 20).lock(lock).build().unwrap());
            let mut handles: Vec<Frames<Arc<Arena>>> =
                (0..12).map(|n| Frames::new(Arc::clone(&arena), n % 5 + 1).unwrap()).collect();
            let weak = Arc::downgrade(&arena);
            drop(arena);
            handles.rotate_left(round % 12);
            let threads: Vec<_> = handles
                .into_iter()
                .map(|mut frames| {
                    thread::spawn(move || {
                        frames.fill(7);
                        assert!(all_are(&frames, 7));
                        drop(frames);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(weak.upgrade().is_none());
        }
    }
}
