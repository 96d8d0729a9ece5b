//! Giving memory back: what goes, what stays, what is counted, and that nothing in use is ever
//! touched.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use freehold_host::freehold::{Migratetype, Order, Pfn, Request};
use freehold_host::{Arena, Backing, Builder, Frames, Numa, OnFork, Topology};

use crate::common::{all_are, all_free, child, in_memory, skipped};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 512;

fn kinds() -> impl Iterator<Item = (Backing, Builder)> {
    let kinds = [Backing::Private, Backing::Memfd, Backing::HugePages];
    let some = kinds.into_iter().take(if cfg!(feature = "plain") { 1 } else { 3 });
    some.map(|backing| (backing, Arena::builder(64 * MIB).backing(backing)))
}

/// An arena of that kind, unless this kernel has no such memory.
fn build(backing: Backing, builder: &Builder) -> Option<Arena> {
    match builder.build() {
        Ok(arena) => Some(arena),
        Err(error) if backing == Backing::HugePages => {
            skipped("huge pages", &error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// What has gone is not taken again, nor is what is too short to go.
#[test]
fn a_pass_with_nothing_to_give_back_takes_nothing() {
    for least in [1, 4, 16] {
        let arena = Arena::builder(64 * MIB).least_run(least).build().unwrap();
        let mut kept = Vec::new();
        let blocks: Vec<Frames<_>> = (0..8).map(|_| arena.frames(BLOCK).unwrap()).collect();
        for (n, mut block) in blocks.into_iter().enumerate() {
            block.fill(1);
            let (one, rest) = block.split([1, 3, 40, 200][n % 4]).unwrap();
            let (gap, rest) = rest.split(2 + n as u64).unwrap();
            let (two, rest) = rest.split(2).unwrap();
            kept.extend(if n % 2 == 0 { vec![one, two, rest] } else { vec![one, two] });
            drop(gap);
        }
        arena.drain().unwrap();
        assert!(arena.trim().unwrap().frames > 0);
        let taken = || arena.stats().allocations_by_order.iter().sum::<u64>();
        let before = taken();
        for _ in 0..3 {
            assert_eq!(arena.trim().unwrap().bytes, 0);
            arena.pass().unwrap();
        }
        assert_eq!(taken(), before, "{least}");
        drop(kept);
        all_free(&arena);
    }
}

#[test]
fn what_was_used_and_is_wholly_free_goes_and_the_rest_stays() {
    for (backing, builder) in kinds() {
        let Some(arena) = build(backing, &builder) else { continue };
        let mut blocks: Vec<Frames<_>> = (0..8).map(|_| arena.frames(BLOCK).unwrap()).collect();
        blocks.iter_mut().for_each(|block| block.fill(1));
        assert_eq!(arena.stats().blocks_resident, 8);
        assert_eq!(in_memory(&arena), 8 * BLOCK);
        // All but one frame of one block, and all of three others.
        let (one, rest) = blocks.pop().unwrap().split(1).unwrap();
        drop(rest);
        blocks.truncate(4);
        let released = arena.trim().unwrap();
        // Of the block in use all but that frame.
        let part = BLOCK - 1;
        assert_eq!(
            (released.blocks, released.frames, released.bytes),
            (3, part, 3 * 2 * MIB + part * 4096),
            "{backing:?}"
        );
        assert_eq!(arena.stats().blocks_resident, 5);
        // Of what is left of a huge page the kernel may make one again, whenever it comes to it.
        let (left, may_grow) = (in_memory(&arena), backing == Backing::HugePages);
        assert!(left == 5 * BLOCK - part || may_grow && left == 5 * BLOCK, "{backing:?}: {left}");
        assert!(all_are(&one, 1) && blocks.iter().all(|block| all_are(block, 1)));
        if may_grow {
            let block = one.as_ptr().map_addr(|at| at & !(2 * MIB as usize - 1)).cast_mut();
            // SAFETY: MADV_COLLAPSE (25) makes a huge page of the block of `one` and leaves what is
            // in it. Where the kernel does not know it, or has no huge page, it is refused.
            let _ = unsafe { libc::madvise(block.cast(), 2 * MIB as usize, 25) };
        }
        // Nothing is given back twice, but for that.
        let again = arena.trim().unwrap();
        assert!(
            again.blocks == 0 && (again.frames == 0 || may_grow && again.frames == part),
            "{backing:?}: {again:?}"
        );
        drop((one, blocks));
        assert_eq!(arena.trim().unwrap().blocks, 5);
        assert_eq!(in_memory(&arena), 0);
        let stats = arena.stats();
        let bytes = 16 * MIB + (part + again.frames) * 4096;
        assert_eq!(
            (stats.blocks_released, stats.bytes_released, stats.release_refused),
            (8, bytes, 0)
        );
        assert_eq!(stats.passes, 3);
        // What was given back can be had again, and is zero.
        let again = arena.zeroed(4096).unwrap();
        assert!(all_are(&again, 0));
        drop(again);
        all_free(&arena);
    }
}

#[test]
fn neighbours_go_in_one_call_and_separate_runs_in_one_too_where_the_kernel_can() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    drop(arena.frames(16 * BLOCK).unwrap());
    let released = arena.trim().unwrap();
    assert_eq!((released.blocks, released.calls), (16, 1), "16 neighbours");
    // 8 runs of one block each.
    let mut blocks: Vec<Frames<_>> = (0..16).map(|_| arena.frames(BLOCK).unwrap()).collect();
    blocks.sort_by_key(Frames::pfn);
    let mut odd = false;
    blocks.retain(|_| {
        odd = !odd;
        odd
    });
    let released = arena.trim().unwrap();
    assert_eq!(released.blocks, 8);
    // One call with vectors; on kernels that refuse it, that call and then one for each run.
    assert!(released.calls == 1 || released.calls == 9, "{} calls", released.calls);
    drop(blocks);
    if cfg!(feature = "plain") {
        return;
    }
    // A memfd's holes are punched one by one.
    let arena = Arena::builder(256 * MIB).backing(Backing::Memfd).build().unwrap();
    drop(arena.frames(128 * BLOCK).unwrap());
    let released = arena.trim().unwrap();
    assert_eq!((released.blocks, released.calls), (128, 4), "batches of 32 neighbours");
    all_free(&arena);
}

#[test]
fn a_pass_gives_back_what_was_free_all_the_time_since_the_last_one() {
    let arena = Arena::with_size(2048 * MIB).unwrap();
    let frames = arena.frames(516 * BLOCK).unwrap();
    assert_eq!(arena.pass().unwrap().seen, 0, "all in use");
    drop(frames);
    let first = arena.pass().unwrap();
    assert_eq!((first.seen, first.blocks), (516, 0), "free now, but maybe only for a moment");
    // One of them is used and freed in between.
    drop(arena.frames(1).unwrap());
    let second = arena.pass().unwrap();
    assert_eq!(second.blocks, 512, "no more in one pass");
    let third = arena.pass().unwrap();
    assert_eq!(first.seen + second.seen + third.seen, 517, "the block that was used starts anew");
    assert_eq!(second.blocks + third.blocks, 515);
    assert_eq!(arena.pass().unwrap().blocks, 1);
    assert_eq!(arena.stats().blocks_resident, 0);
    all_free(&arena);
}

#[test]
fn memory_that_is_free_is_used_again_before_memory_that_was_never_touched() {
    let arena = Arena::with_size(256 * MIB).unwrap();
    for count in [3 * BLOCK, 16 * BLOCK, 1, 300, BLOCK] {
        for _ in 0..50 {
            drop(arena.frames(count).unwrap());
        }
        // In parts, by another thread.
        let (a, b) = arena.frames(16 * BLOCK).unwrap().split(5 * BLOCK).unwrap();
        thread::scope(|scope| scope.spawn(|| drop((a, b))).join().unwrap());
    }
    // 16 blocks for the largest, 4 for the smaller sizes that a CPU may hold blocks for, 16 in
    // between.
    let touched = arena.stats().blocks_resident;
    assert!(touched <= 36, "{touched} blocks were touched");
    all_free(&arena);
}

/// Orders above a block, one after the other: each is written to and freed before the next.
#[test]
fn large_runs_by_number_are_used_again_before_memory_that_was_never_touched() {
    for large in 10..=13 {
        let (order, one) = (Order::new(large).unwrap(), 1 << (large - 9));
        let arena = Arena::with_size(1024 * MIB).unwrap();
        let check = || {
            let touched = arena.stats().blocks_resident;
            assert!(touched <= 3 * one, "{touched} blocks touched");
        };
        for _ in 0..1024 / 2 / one {
            let pfn = arena.alloc(order, Migratetype::Movable).unwrap();
            // SAFETY: allocated just now, and used by nobody else.
            unsafe {
                arena.pointer(pfn).unwrap().write(1);
                arena.free(pfn, order).unwrap();
            }
        }
        check();
        // One frame after the other.
        for _ in 0..1024 / 2 / one {
            let pfn = arena.alloc(order, Migratetype::Movable).unwrap();
            (0..order.frames()).for_each(|frame| {
                // SAFETY: allocated just now, and used by nobody else.
                unsafe { arena.free(Pfn::new(pfn.get() + frame), Order::ZERO) }.unwrap()
            });
        }
        check();
        // What is aligned to more than a block is cut from such a run.
        for _ in 0..1024 / 2 / one {
            let request = Request::new(Order::PAGEBLOCK, Migratetype::Movable).align(order);
            let pfn = arena.request(request).unwrap();
            // SAFETY: allocated just now, and used by nobody.
            unsafe { arena.free(pfn, Order::PAGEBLOCK) }.unwrap();
        }
        check();
        all_free(&arena);
    }
}

#[test]
fn trimming_under_load_never_touches_what_is_in_use() {
    for (backing, builder) in kinds() {
        // Small enough for blocks to be used again and again.
        let Some(arena) = build(backing, &builder) else { continue };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (1..=3u8)
                .map(|t| {
                    let arena = &arena;
                    scope.spawn(move || {
                        let mut kept: Vec<Frames<&Arena>> = Vec::new();
                        for i in 0..200u64 {
                            let count = [1, 3, 64, 512, 700][(i * u64::from(t) % 5) as usize];
                            let zero = i % 3 == 0;
                            let frames =
                                if zero { arena.zeroed(count) } else { arena.frames(count) };
                            let mut frames = frames.unwrap();
                            if zero {
                                assert!(all_are(&frames, 0), "not zero");
                            }
                            frames.fill(t);
                            kept.push(frames);
                            if kept.len() > 4 {
                                let frames = kept.swap_remove(i as usize % 4);
                                assert!(all_are(&frames, t), "lost while in use");
                            }
                        }
                        assert!(kept.iter().all(|frames| all_are(frames, t)));
                    })
                })
                .collect();
            let trimmer = scope.spawn(|| {
                // Relaxed: only an end.
                while !stop.load(Ordering::Relaxed) {
                    arena.trim().unwrap();
                    arena.pass().unwrap();
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            trimmer.join().unwrap();
        });
        arena.trim().unwrap();
        assert_eq!(arena.stats().blocks_resident, 0);
        assert_eq!(in_memory(&arena), 0);
        assert_eq!(arena.stats().refused_drops, 0);
        all_free(&arena);
    }
}

#[test]
fn locked_memory_stays_and_is_an_error_not_a_loss() {
    let arena = Arena::with_size(64 * MIB).unwrap();
    let mut blocks: Vec<Frames<_>> = (0..5).map(|_| arena.frames(BLOCK).unwrap()).collect();
    blocks.sort_by_key(Frames::pfn);
    blocks.iter_mut().for_each(|block| block.fill(7));
    let (pointer, range) = (blocks[2].as_ptr(), blocks[2].range());
    // Three runs of a block each, of which the middle one is locked.
    let kept = [blocks.remove(3), blocks.remove(1)];
    // SAFETY: locking changes nothing in it.
    if unsafe { libc::mlock(pointer.cast(), 4096) } != 0 {
        return skipped("locked memory", &std::io::Error::last_os_error());
    }
    drop(blocks);
    let error = arena.trim().unwrap_err();
    assert!(error.os_error().is_some() && error.to_string().contains("unlock"), "{error}");
    assert_eq!((arena.stats().release_refused, in_memory(&arena)), (1, 3 * BLOCK));
    // SAFETY: locking changes nothing in it.
    assert_eq!(unsafe { libc::munlock(pointer.cast(), 4096) }, 0);
    assert_eq!(arena.trim().unwrap().blocks, 1);
    assert_eq!(arena.frames_in_memory(range).unwrap(), 0);
    drop(kept);
    all_free(&arena);
}

/// Fills 256 MiB a frame at a time, keeps one in a thousand, and looks at what the kernel has.
#[test]
fn free_runs_within_blocks_in_use_are_given_back_once_and_are_zero_again() {
    for (backing, _) in kinds().take(2) {
        let arena = Arena::builder(256 * MIB).backing(backing).build().unwrap();
        let mut all: Vec<_> =
            (0..arena.stats().frames).map(|_| Some(arena.frames(1).unwrap())).collect();
        for frame in all.iter_mut().flatten() {
            frame[0] = 1;
        }
        let mut kept = 0;
        for (i, frame) in all.iter_mut().enumerate() {
            if (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < (1 << 32) / 1000 {
                kept += 1;
            } else {
                *frame = None;
            }
        }
        let resident = || in_memory(&arena);
        assert_eq!(resident(), arena.stats().frames);
        let released = arena.trim().unwrap();
        // At most the chunk of 8 that each one that is kept lies in.
        assert!(resident() <= kept * 8, "{} frames resident for {kept} in use", resident());
        assert_eq!(released.bytes, (arena.stats().frames - resident()) * 4096);
        assert!(released.frames > 0 && released.calls < 20 + released.frames / 32, "{released:?}");
        assert_eq!(arena.stats().bytes_released, released.bytes);
        crate::common::at_rest(&arena);
        // Nothing is left to give back, and nothing is tried.
        let again = arena.trim().unwrap();
        assert_eq!((again.bytes, again.calls, again.cut_short), (0, 0, false));
        // What was given back is zero without being written to, and what was kept is what it was.
        assert!(all.iter().flatten().all(|frame| frame[0] == 1));
        let before = resident();
        let zero: Vec<_> = (0..1000).map(|_| arena.zeroed(16).unwrap()).collect();
        // To read them is to map them, so that comes later.
        assert!(resident() < before + 16 * kept, "frames were written to that were zero");
        assert!(zero.iter().all(|frames| all_are(frames, 0)));
        drop((zero, all));
        assert_eq!(arena.free_frames(), arena.stats().frames);
        arena.trim().unwrap();
        assert_eq!((resident(), arena.stats().blocks_resident), (0, 0));
        crate::common::at_rest(&arena);
    }
}

#[test]
fn a_pass_gives_back_runs_of_blocks_of_which_nothing_was_handed_out_since_the_last() {
    let arena = Arena::with_size(16 * MIB).unwrap();
    let mut whole = arena.frames(512).unwrap();
    whole.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let (kept, rest) = whole.split(1).unwrap();
    drop(rest);
    assert_eq!(arena.pass().unwrap().bytes, 0);
    let released = arena.pass().unwrap();
    assert_eq!((released.blocks, released.frames), (0, 511));
    assert_eq!(in_memory(&arena), 1);
    assert_eq!(kept[0], 1);
    assert_eq!(arena.pass().unwrap().calls, 0);
}

/// The last block of one memory node and the first of the next are neighbours.
#[test]
fn frames_of_two_memory_nodes_go_home_together() {
    let two = Topology::parse("0-1", |node| Some(node.to_string())).unwrap();
    let arena = Arena::builder(16 * MIB).numa(Numa::ZonesOnly).topology(two).build().unwrap();
    let mut all: Vec<Frames<_>> = (0..8).map(|_| arena.frames(BLOCK).unwrap()).collect();
    all.sort_by_key(Frames::pfn);
    all.iter_mut().for_each(|block| block.fill(1));
    let (low, high) = (all.remove(3), all.remove(3));
    assert_eq!(arena.zone_stats(1).unwrap().free, 0);
    drop(low.merge(high).unwrap());
    assert_eq!((arena.free_frames(), arena.stats().refused_drops), (2 * BLOCK, 0));
    drop(all);
    assert_eq!(arena.trim().unwrap().blocks, 8);
    all_free(&arena);
    let kept = arena.frames(4 * BLOCK).unwrap();
    drop(arena.frames(4 * BLOCK).unwrap());
    drop(kept);
    assert_eq!(arena.trim().unwrap().blocks, 8);
    all_free(&arena);
}

/// Nor after it was given back and used again.
#[test]
fn memory_that_is_unmapped_on_fork_is_not_there_in_a_child() {
    let ways = [OnFork::Unmapped, OnFork::Copy];
    for ((backing, builder), on_fork) in kinds().take(2).zip(ways) {
        let arena = builder.on_fork(on_fork).build().unwrap();
        assert_eq!(arena.on_fork(), OnFork::Unmapped, "{backing:?}: shared memory always is");
        for _ in 0..2 {
            let mut frames = arena.frames(32 * BLOCK).unwrap();
            frames.fill(2);
            let status = child::fork(|| {
                frames.fill(3);
                true
            });
            assert!(status != 0 && all_are(&frames, 2), "{backing:?}: {status:#x}");
            drop(frames);
            assert_eq!(arena.trim().unwrap().blocks, 32);
        }
        all_free(&arena);
    }
}

#[test]
fn what_was_populated_and_is_free_is_given_back() {
    for (backing, _) in kinds().take(2) {
        let arena = Arena::builder(16 * MIB).backing(backing).populate(true).build().unwrap();
        let kept = arena.frames(1).unwrap();
        arena.trim().unwrap();
        assert_eq!(in_memory(&arena), 1, "{backing:?}: the frame in use");
        assert_eq!(arena.trim().unwrap().bytes, 0, "twice");
        drop(kept);
        arena.trim().unwrap();
        assert_eq!(in_memory(&arena), 0);

        // Without ever being used.
        let populated = arena.populate(arena.range());
        if cfg!(feature = "plain") {
            assert!(populated.is_err());
            continue;
        }
        populated.unwrap();
        assert_eq!((in_memory(&arena), arena.stats().blocks_resident), (4096, 8));
        assert_eq!(arena.trim().unwrap().blocks, 8);
        assert_eq!(in_memory(&arena), 0);
        all_free(&arena);
    }
}
