//! What threads keep, looked at in the middle of calls.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use freehold::{AllocError, FrameRange, FreeError, Migratetype, Order, Pfn};

use crate::child::fork;
use crate::meanwhile::MEANWHILE;
use crate::{Arena, Error, Lock};

/// An arena of some blocks, for ever.
fn arena(blocks: u64) -> &'static Arena {
    Arena::with_size(blocks << 21).unwrap().leak()
}

/// The calling thread keeps a run of so many frames.
fn keep(arena: &Arena, count: u64) -> FrameRange {
    // So that the run is the allocator's first and may be kept then.
    for _ in 0..2 {
        drop(arena.frames(count).unwrap());
    }
    let run = arena.frames(count).unwrap().into_raw();
    assert!(arena.marks.any(run.start.get(), count) && arena.give_range(run).is_ok());
    assert!(arena.marks.waits(run.start.get(), count), "it is kept");
    run
}

/// All frames one by one, as many as there are.
fn bulk(arena: &Arena) -> usize {
    let mut out = vec![Pfn::new(0); arena.range().len() as usize];
    let got = arena.alloc_bulk(Migratetype::Movable, &mut out).unwrap();
    assert!(arena.give_bulk(&out[..got]).is_ok());
    got
}

/// All that is free of the blocks that the OS backs is kept, as a run of another length.
#[test]
fn at_the_limit_on_memory_what_is_kept_is_used_first() {
    let arena = Arena::builder(64 << 20).resident_limit(4 << 20).build().unwrap();
    // As many as two blocks have: the limit has not been met yet.
    let mut all: Vec<_> = (0..204).map(|_| arena.frames(5).unwrap()).collect();
    let _singles: Vec<_> = (0..4).map(|_| arena.frames(1).unwrap()).collect();
    assert_eq!(arena.inner.notes.resident(), 2);
    // So that the run is the allocator's first and may be kept then.
    drop(all.pop());
    let run = arena.frames(5).unwrap();
    let first = run.range().start.get();
    drop(run);
    assert!(arena.marks.waits(first, 5), "it is kept");
    let single = arena.alloc(Order::ZERO, Migratetype::Movable).unwrap();
    assert!((first..first + 5).contains(&single.get()), "{single:?}");
    assert_eq!(arena.stats().blocks_resident, 2);
}

/// One that keeps a run, and does nothing until it is to end.
struct AnotherThread(mpsc::Sender<()>, thread::JoinHandle<()>);

impl AnotherThread {
    fn that_keeps(arena: &'static Arena, count: u64) -> Self {
        let (go, wait) = mpsc::channel::<()>();
        let (told, kept) = mpsc::channel();
        let thread = thread::spawn(move || {
            keep(arena, count);
            told.send(()).unwrap();
            wait.recv().unwrap();
        });
        kept.recv().unwrap();
        Self(go, thread)
    }

    fn ends(self) {
        self.0.send(()).unwrap();
        self.1.join().unwrap();
    }
}

/// Nobody has been told that all is gathered while some of it is not.
#[test]
fn who_counts_while_another_gathers_waits_for_that() {
    let arena = arena(16);
    let all = arena.free_frames();
    keep(arena, 3);
    let (told, counted) = mpsc::channel();
    let mut counting = None;
    let own = crate::thread::fast(&arena.key).unwrap();
    // Whoever gathers has to wait for this thread's places.
    let inside = own.runs.door.inside(&arena.core.stops, |_| {
        let gathering = thread::spawn(|| arena.core.gather());
        while !arena.core.stops.any() {
            thread::yield_now();
        }
        // Until it waits.
        thread::sleep(Duration::from_millis(20));
        let other = thread::spawn(move || told.send(arena.free_frames()).unwrap());
        assert!(counted.recv_timeout(Duration::from_millis(50)).is_err(), "counted too early");
        counting = Some((gathering, other));
    });
    assert!(inside.is_some());
    assert_eq!(counted.recv(), Ok(all));
    let (gathering, other) = counting.unwrap();
    assert!(gathering.join().is_ok() && other.join().is_ok());
}

/// Between a failed request and its look whether threads keep anything, somebody else may have
/// gathered: it tries again all the same.
#[test]
fn a_request_that_failed_before_another_gathered_tries_again() {
    let arena = arena(16);
    let never = arena.core.stops.keeps();
    assert!(arena.core.hold_kept(never).is_none(), "nothing was ever kept");
    keep(arena, 3);
    arena.core.gather();
    assert!(arena.core.hold_kept(never).is_some());
    assert!(arena.core.hold_kept(arena.core.stops.keeps()).is_none(), "nothing since");
}

/// A program that is full on purpose: its requests fail one after the other, and stop no thread
/// where none has kept anything since the last look.
#[test]
fn requests_that_fail_again_make_no_barrier() {
    let arena = Arena::builder(16 << 20).lock(Lock::Biased).build().unwrap().leak();
    let other = AnotherThread::that_keeps(arena, 3);
    let _all: Vec<_> = std::iter::from_fn(|| arena.frames(1).ok()).collect();
    let barriers = || arena.core.engine.platform().barriers.load(SeqCst);
    let mut out = [Pfn::new(0); 4];
    let mut refused = || {
        let bulk = arena.alloc_bulk(Migratetype::Movable, &mut out).is_err();
        let one = arena.alloc(Order::ZERO, Migratetype::Movable).is_err();
        bulk && one && arena.frames(1).is_err() && arena.frames(5).is_err()
    };
    assert!(refused());
    let before = barriers();
    assert!((0..100).all(|_| refused()));
    assert_eq!(barriers() - before, 0);
    other.ends();
}

/// A run that no thread could keep is not marked for it, and displaces none that is kept.
#[test]
fn a_run_longer_than_the_bound_leaves_what_is_kept() {
    let arena = arena(16);
    let most = arena.core.most_kept();
    let long = most + 1;
    assert!(most < 64, "{most}");
    for _ in 0..3 {
        let run = arena.frames(long).unwrap();
        assert!(!arena.marks.any(run.range().start.get(), long), "it is the allocator's");
    }
    let run = keep(arena, 3);
    let other = arena.take_range(long, |_| {}).unwrap();
    // As if it were put together of some that may be kept.
    arena.marks.keep(other.start.get(), long);
    assert!(arena.give_range(other).is_ok());
    assert!(arena.marks.waits(run.start.get(), 3), "it was let go");
    assert!(!arena.marks.any(other.start.get(), long));
    let none = Arena::builder(2 << 20).slots(512).build().unwrap();
    for _ in 0..3 {
        let run = none.frames(3).unwrap();
        assert!(!none.marks.any(run.range().start.get(), 3), "nothing is kept there");
    }
}

/// While a request tries again, no thread keeps what it frees; nor while it waits for a pass, and
/// tries again after that.
#[test]
fn nothing_is_kept_while_a_request_tries_again() {
    for (waits, served) in [(false, 2), (true, 3)] {
        let arena = arena(16);
        if waits {
            arena.trim().unwrap();
        }
        let run = keep(arena, 3);
        assert_eq!(arena.frames(3).unwrap().into_raw(), run);
        if waits {
            keep(arena, 5);
        }
        let mut attempts = 0;
        let tried = arena.retried(None, || {
            attempts += 1;
            if attempts < served {
                return Err(AllocError::NoMemory { order: Order::ZERO }.into());
            }
            assert!(arena.give_range(run).is_ok());
            Ok(arena.marks.any(run.start.get(), 3))
        });
        assert_eq!((tried, attempts), (Ok(false), served), "it went home");
    }
}

#[test]
fn single_frames_are_allocated_from_what_another_thread_keeps() {
    let arena = arena(2);
    let all = arena.free_frames() as usize;
    let other = AnotherThread::that_keeps(arena, 3);
    assert_eq!(bulk(arena), all);
    other.ends();
}

/// A thread is stopped after it has cut a run: what is left of that is found.
#[test]
fn what_is_left_of_a_run_that_was_cut_is_found_by_others() {
    let arena = arena(16);
    let all = arena.free_frames();
    let run = keep(arena, 7);
    MEANWHILE.set(Some(Box::new(move || {
        let free = thread::spawn(|| arena.free_frames()).join().unwrap();
        assert_eq!(free, all - 5);
    })));
    let start = arena.waiting_or_cut(5).unwrap();
    assert!(MEANWHILE.take().is_none() && (run.start..run.end).contains(&start));
    assert!(arena.give_range(FrameRange::new(start, 5).unwrap()).is_ok());
    assert_eq!(arena.free_frames(), all);
}

/// What a thread keeps at its end goes home before anybody could miss it.
#[test]
fn a_thread_that_ends_is_looked_at_until_its_runs_are_free() {
    let arena = arena(16);
    keep(arena, 3);
    let own = crate::thread::fast(&arena.key).unwrap().cpu();
    let (told, looked) = mpsc::channel();
    let mut other = None;
    arena.core.slots.unboxed(own, || {
        other = Some(thread::spawn(move || {
            arena.core.slots.each_own(|_, _| {});
            told.send(()).unwrap();
        }));
        assert!(looked.recv_timeout(Duration::from_millis(50)).is_err(), "looked too early");
    });
    assert!(looked.recv().is_ok() && other.unwrap().join().is_ok());
}

/// A frame of a run is freed a second time in the moment between the run's marks and its free: the
/// others go home, and the defect is counted.
#[test]
fn a_second_free_in_the_middle_of_the_first_loses_no_frame() {
    let arena = arena(16);
    let all = arena.free_frames();
    let run = keep(arena, 5);
    assert_eq!(arena.frames(5).unwrap().into_raw(), run);
    assert!(arena.marks.take_back((run.start.get() - arena.marks.first(), 5)));
    let twice = FrameRange { start: run.start, end: Pfn::new(run.start.get() + 1) };
    let free = |range: FrameRange| {
        if range == run {
            assert!(arena.give_range(twice).is_ok());
        }
        arena.core.keeper().free_range(range).is_ok()
    };
    arena.core.free_one((run.start.get() - arena.marks.first(), 5), |_| false, free);
    assert_eq!((arena.free_frames(), arena.stats().late_double_frees), (all, 1));
}

/// A free of several words may be refused in the middle, with the first word anybody's by then.
#[test]
fn what_was_freed_of_a_refused_run_is_not_freed_again() {
    let arena = arena(16);
    let all = arena.free_frames();
    let run = arena.frames(100).unwrap().into_raw();
    let free = |range: FrameRange| {
        let end = range.start.get() / 64 * 64 + 64;
        let word = FrameRange { end: range.end.min(Pfn::new(end)), ..range };
        let freed = arena.core.keeper().free_range(word).is_ok();
        if word == range {
            return freed;
        }
        assert!(arena.take_at(FrameRange::new(range.start, 1).unwrap(), |_| {}).is_ok());
        false
    };
    arena.core.free_one((run.start.get() - arena.marks.first(), 100), |_| false, free);
    assert_eq!((arena.free_frames(), arena.stats().late_double_frees), (all, 0));
}

/// What the parent's threads keep is as it was at the fork: no free of it is judged by that.
#[test]
fn a_forked_child_frees_nothing_of_what_was_kept() {
    let arena = arena(16);
    let run = keep(arena, 3);
    let other = arena.frames(5).unwrap();
    let pfn = other.pfn();
    let status = fork(|| {
        let refused = Err(Error::Forked);
        arena.give_range(run) == refused
            && arena.give_bulk(&[run.start]) == refused
            && arena.give(run.start, Order::ZERO) == refused
            && arena.give_bulk(&[pfn]) == refused
            && arena.marks.any(pfn.get(), 1)
            && arena.stats().frames_used == 8
    });
    assert_eq!(status, 0);
    drop(other);
    assert_eq!(arena.stats().frames_used, 0);
}

#[test]
fn a_misaligned_chunk_that_may_be_kept_is_refused() {
    let arena = arena(16);
    let run = keep(arena, 3);
    assert_eq!(arena.frames(3).unwrap().into_raw(), run);
    let order = Order::new(1).unwrap();
    let pfn = Pfn::new(run.start.get() | 1);
    assert_eq!(arena.give(pfn, order), Err(Error::Free(FreeError::Misaligned { pfn, order })));
    assert!(arena.give(Pfn::new(u64::MAX), Order::ZERO).is_err());
    assert!(arena.give_range(run).is_ok());
}

/// What does not move is as it was: a thread that frees it may keep it.
#[test]
fn what_a_mover_refuses_has_its_marks() {
    let arena = arena(16);
    let runs: Vec<_> = (0..900).map(|_| arena.frames(3).unwrap()).collect();
    // Gaps, which are the room for what moves.
    let (used, gaps): (Vec<_>, Vec<_>) =
        runs.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    drop(gaps);
    let mut asked = Vec::new();
    let mover = |old: Pfn, _: Pfn| {
        asked.push(old.get());
        false
    };
    // SAFETY: nothing is moved.
    unsafe { arena.evacuate(Order::ZERO, u64::MAX, mover) }.unwrap();
    assert!(!asked.is_empty() && asked.iter().all(|&old| arena.marks.any(old, 1)), "{asked:?}");
    drop(used);
}

#[test]
fn all_threads_together_keep_an_eighth() {
    for slots in [1, 64, 512] {
        let arena = Arena::builder(64 << 20).slots(slots).build().unwrap();
        let all = arena.core.most_kept() * u64::from(slots);
        assert!((1..=arena.range().len() / 8).contains(&all), "{slots} slots keep {all} frames");
    }
}
