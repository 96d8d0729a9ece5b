//! What the machine does to an arena: fork, no address space, no memory, more arena than memory.

use crate::common::{Stops, all_are, all_free, child, settles};

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use child::fork;
use freehold_host::freehold::{Migratetype, Order};
use freehold_host::{Arena, Backing, Error, Frames, Lock, Numa, OnFork, Topology};

const MIB: u64 = 1 << 20;

#[test]
fn fork_with_private_memory() {
    for lock in [Lock::Biased, Lock::Ordinary] {
        let arena = Arena::builder(64 * MIB).lock(lock).build().unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stops = Stops(&stop);
            // Threads that hold locks, and are inside their CPUs, at the moment of the fork.
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let frames = arena.frames(700).unwrap();
                        drop(arena.frames(1).unwrap());
                        drop(frames);
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    arena.pass().unwrap();
                }
            });
            for round in 0..20 {
                let mut frames = arena.frames(3).unwrap();
                frames.fill(7);
                let range = frames.range();
                let status = fork(|| {
                    // The child's copy can be read and written, and is not the parent's.
                    let mut ok = all_are(&frames, 7);
                    frames.fill(9);
                    ok &= arena.frames(1).unwrap_err() == Error::Forked;
                    ok &= arena.alloc(Order::ZERO, Migratetype::Movable) == Err(Error::Forked);
                    // SAFETY: refused.
                    ok &= unsafe { arena.free(range.start, Order::ZERO) } == Err(Error::Forked);
                    // SAFETY: refused.
                    ok &= unsafe { arena.free_range(range) } == Err(Error::Forked);
                    ok &= arena.trim() == Err(Error::Forked) && arena.pass() == Err(Error::Forked);
                    ok &= arena.validate() == Err(Error::Forked)
                        && arena.flush() == Err(Error::Forked);
                    ok &= arena.drain() == Err(Error::Forked)
                        && arena.populate(range) == Err(Error::Forked);
                    ok &= arena.stats().refused_drops == 0;
                    drop(frames);
                    ok &= arena.stats().refused_drops == 0;
                    // An arena of its own works, in this thread and in another one that ends.
                    let own = Arena::builder(4 * MIB).lock(lock).build().unwrap();
                    let mut mine = own.frames(2).unwrap();
                    mine.fill(1);
                    thread::scope(|scope| scope.spawn(|| drop(mine)).join().unwrap());
                    ok &= own.free_frames() == own.stats().frames && own.validate().is_ok();
                    drop(own);
                    ok
                });
                assert_eq!(status, 0, "round {round}");
                // SAFETY: the closure that had the frames ran in the child only: here they were
                // forgotten with it.
                let frames = unsafe { Frames::from_raw(&arena, range) }.unwrap();
                assert!(all_are(&frames, 7), "the child wrote into the parent's frames");
            }
        });
        // Scoped threads have only promised to have returned.
        let threads = |stats: freehold_host::Stats| stats.slots_taken + stats.threads_sharing;
        settles(|| threads(arena.stats()) <= 1);
        assert!(threads(arena.stats()) <= 1, "slots of threads that have ended");
        all_free(&arena);
    }
}

#[test]
fn a_forked_child_may_drop_its_arena_and_exit() {
    for (backing, on_fork) in [
        (Backing::Private, OnFork::Copy),
        (Backing::Private, OnFork::Unmapped),
        (Backing::Memfd, OnFork::Copy),
    ] {
        let builder = Arena::builder(64 * MIB).backing(backing).on_fork(on_fork);
        let mut arena = Some(builder.build().unwrap());
        drop(arena.as_ref().unwrap().frames(5).unwrap());
        let status = fork(|| {
            drop(arena.take());
            // Ends this thread's thread-local storage too: in a thread, since the child leaves by
            // `_exit`.
            thread::spawn(|| drop(Arena::with_size(4 * MIB).unwrap().frames(1).unwrap()))
                .join()
                .is_ok()
        });
        assert_eq!(status, 0, "{backing:?}");
        // The child's taking was the child's.
        let arena = arena.take().unwrap();
        drop(arena.frames(5).unwrap());
        all_free(&arena);
    }
}

#[test]
fn population_that_fails_is_an_error_and_loses_nothing() {
    let arena = Arena::builder(64 * MIB).backing(Backing::Memfd).build().unwrap();
    let mut frames = arena.frames(4).unwrap();
    frames.populate().unwrap();
    assert_eq!(arena.frames_in_memory(frames.range()).unwrap(), 4);
    // Frames that may not be written to are the one thing that makes population fail on any
    // machine.
    let (at, len) = (frames.as_mut_ptr().cast(), frames.len());
    // SAFETY: none of these frames is touched while they cannot be.
    unsafe { assert_eq!(libc::mprotect(at, len, libc::PROT_READ), 0) };
    let error = frames.populate().unwrap_err();
    assert!(error.os_error().is_some(), "{error}");
    // SAFETY: as they were before.
    unsafe { assert_eq!(libc::mprotect(at, len, libc::PROT_READ | libc::PROT_WRITE), 0) };
    frames.populate().unwrap();
    drop(frames);
    all_free(&arena);
}

#[test]
fn each_node_has_a_zone_and_threads_start_at_their_own() {
    // A machine with two nodes whose CPUs are all on the second.
    let cpus = "0-1023\n";
    let machine =
        Topology::parse("0-1\n", |node| Some(if node == 1 { cpus } else { "\n" }.into())).unwrap();
    let arena = Arena::builder(129 * 2 * MIB)
        .numa(Numa::ZonesOnly)
        .topology(machine.clone())
        .slots(4)
        .build()
        .unwrap();
    let (first, second) =
        (arena.zone_stats(0).unwrap().managed, arena.zone_stats(1).unwrap().managed);
    assert_eq!((first, second), (65 * 512, 64 * 512));
    let frames = arena.frames(1).unwrap();
    assert_eq!(arena.current_cpu().unwrap().get() % 2, 1, "a slot of the second node");
    assert!(frames.pfn().get() >= arena.range().start.get() + first, "from the second zone");
    drop(frames);
    // Neighbours within a zone only.
    assert!(arena.frames(first + second).unwrap_err().is_out_of_memory());
    // The other zone is next.
    let all: Vec<_> = (0..129).map(|_| arena.frames(512).unwrap()).collect();
    assert!(arena.frames(1).is_err());
    drop(all);
    all_free(&arena);
    // Binding to a node that this machine does not have is an error.
    if Topology::detect().node_count() == 1 {
        let error = Arena::builder(64 * MIB)
            .numa(Numa::Bind)
            .topology(machine.clone())
            .build()
            .unwrap_err();
        assert!(matches!(error, Error::Os { call: "mbind", .. }), "{error}");
        // Preferring it is not, and as good as not asking.
        let preferred = Arena::builder(64 * MIB).topology(machine.clone()).build().unwrap();
        preferred.frames(700).unwrap().fill(1);
        all_free(&preferred);
        let ignored =
            Arena::builder(64 * MIB).numa(Numa::Ignore).topology(machine).build().unwrap();
        assert!(ignored.zone_stats(1).is_none());
    }
    let here = Arena::builder(64 * MIB).numa(Numa::Bind).build().unwrap();
    here.frames(1).unwrap()[0] = 1;
    all_free(&here);
}

#[test]
fn a_run_longer_than_any_order_is_named_by_its_length() {
    let arena = Arena::with_size(1).unwrap();
    assert_eq!(arena.frames(512).unwrap().range(), arena.range(), "rounded up to a block");
    let error = arena.frames(1 << 20).unwrap_err();
    assert_eq!(error, Error::NoRun { frames: 1 << 20 });
    assert_eq!(
        (error.to_string().as_str(), error.is_out_of_memory()),
        ("there are no 1048576 free frames in a row", true)
    );
}
